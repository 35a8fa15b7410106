"""What a parameter is as a whole, however little of it this rank holds."""

from __future__ import annotations

from torch import nn


def whole_shape(parameter: nn.Parameter) -> tuple[int, ...]:
    """Of all shards together; DeepSpeed's stage 3 leaves an empty tensor and notes the shape beside it."""
    return tuple(getattr(parameter, "ds_shape", parameter.shape))
