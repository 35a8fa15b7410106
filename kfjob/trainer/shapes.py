"""The full shape of a parameter, however small this rank's shard of it is."""

from __future__ import annotations

from torch import nn


def full_shape(parameter: nn.Parameter) -> tuple[int, ...]:
    """Return the unsharded shape; DeepSpeed's stage 3 empties the tensor and stores its shape in `ds_shape`."""
    return tuple(getattr(parameter, "ds_shape", parameter.shape))
