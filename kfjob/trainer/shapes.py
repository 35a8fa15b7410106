"""What a model is without its wrapper, and the full shapes of parameters, however small this rank's shards of them are."""

from __future__ import annotations

from math import prod
from typing import Any

from torch import nn


def unwrap(model: Any) -> Any:
    """Return the model within the wrapper of DDP, DataParallel or DeepSpeed, or a model without one itself."""
    return getattr(model, "module", model)


def full_shape(parameter: nn.Parameter) -> tuple[int, ...]:
    """Return the unsharded shape; DeepSpeed's stage 3 empties the tensor and stores its shape in `ds_shape`."""
    return tuple(getattr(parameter, "ds_shape", parameter.shape))


def count_frozen(model: nn.Module) -> int:
    """Return the number of parameters that are not trained."""
    return sum(prod(full_shape(parameter)) for parameter in model.parameters() if not parameter.requires_grad)
