"""Matrix products in fp8 (`precision: fp8`): torchao casts the two factors of a product just before it, and scales them.

Converted are the linear layers of the decoder whose two widths are multiples of 16, which the hardware requires. Embedding,
head, router and experts stay in bf16, and so do all other operations. Parameters, their gradients and the optimiser state are
those of `precision: bf16`: fp32, and so are checkpoints.

With FSDP and scales per tensor (`fp8_recipe: tensorwise`), the ranks gather weights in fp8. torchao is imported
only on use; the names below `torchao.float8.fsdp_utils` are those of torchao 0.18.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import nn
from torch.distributed.tensor import DTensor

from kfjob.base.errors import KfjobError
from kfjob.trainer.checkpoint import ModelState
from kfjob.trainer.layers import find_linear_layers
from kfjob.trainspec.hardware import FLOAT8_CAPABILITY
from kfjob.trainspec.linear_layers import can_use_float8
from kfjob.trainspec.packages import Package
from kfjob.trainspec.train_spec import TrainSpec

_HINT = "use `precision: bf16`, or for a trial `fp8_emulate: true`"


def check_float8(spec: TrainSpec, device: torch.device) -> None:
    """Check that the device can compute in fp8, if the spec wants that.

    Raises:
        KfjobError: it cannot.
    """
    if spec.precision != "fp8" or spec.fp8_emulate:
        return
    if device.type != "cuda":
        raise KfjobError("`precision: fp8` needs a GPU", location="precision", hint=_HINT)
    capability = torch.cuda.get_device_capability(device)
    if capability < FLOAT8_CAPABILITY:
        name, version = torch.cuda.get_device_name(device), ".".join(map(str, capability))
        title = f"the GPU {name} cannot compute in fp8"
        cause = f"it has compute capability {version}, and fp8 needs {'.'.join(map(str, FLOAT8_CAPABILITY))}"
        raise KfjobError(title, location="precision", cause=cause, hint="use `precision: bf16`, or an L4, L40S, H100 or newer")


def convert_linear_layers(model: Any, spec: TrainSpec) -> None:
    """Replace the linear layers of the decoder in place by layers of torchao, if the spec wants fp8.

    Raises:
        KfjobError: torchao is not installed, or the model has no layer to convert.
    """
    if spec.precision != "fp8":
        return
    float8 = _import_torchao()
    layers = [layer for _, layer in find_linear_layers(model)]
    convertible = {id(layer) for layer in layers if can_use_float8(layer.in_features, layer.out_features)}
    if not convertible:
        cause = "fp8 needs linear layers whose widths are multiples of 16"
        raise KfjobError(f"{type(model).__name__} has no layer for fp8", location="precision", cause=cause)
    config = replace(float8.Float8LinearConfig.from_recipe_name(spec.fp8_recipe), emulate=spec.fp8_emulate)
    float8.convert_to_float8_training(model, config=config, module_filter_fn=lambda module, _: id(module) in convertible)


def is_converted(module: nn.Module) -> bool:
    """Return whether a module computes in fp8."""
    return type(module).__name__ == "Float8Linear"


def gather_in_float8(unit: nn.Module, spec: TrainSpec) -> None:
    """Make FSDP gather the weights of a unit's converted layers in fp8; the unit is initialised and not yet sharded.

    The parameters become tensors of torchao. `state_dict` still returns plain ones, for checkpoints of every precision.
    """
    if spec.precision != "fp8" or spec.fp8_recipe != "tensorwise":
        return
    from torchao.float8.fsdp_utils import WeightWithDynamicFloat8CastTensor

    for module in unit.modules():
        weight: Any = getattr(module, "weight", None)
        if not is_converted(module) or isinstance(weight, DTensor):
            continue
        layer: Any = module
        target = layer.config.cast_config_weight.target_dtype
        wrapped = WeightWithDynamicFloat8CastTensor(weight.detach(), layer.linear_mm_config, target)
        layer.weight = nn.Parameter(wrapped, requires_grad=weight.requires_grad)
        layer.register_state_dict_post_hook(_unwrap_weight)


def _unwrap_weight(_module: nn.Module, state: dict[str, Any], prefix: str, _metadata: object) -> None:
    """Replace torchao's tensor in a state dict by the plain tensor that it holds."""
    weight = state.get(f"{prefix}weight")
    local: Any = weight.to_local() if isinstance(weight, DTensor) else weight
    if not hasattr(local, "_linear_mm_config"):
        return
    plain = local._tensor  # noqa: SLF001 -- it has no public name
    if isinstance(weight, DTensor):
        plain = DTensor.from_local(
            plain, weight.device_mesh, weight.placements, run_check=False, shape=weight.shape, stride=weight.stride()
        )
    state[f"{prefix}weight"] = plain


def compute_scales(model: nn.Module, spec: TrainSpec) -> None:
    """Compute the scales of all weights that FSDP gathers in fp8 with one reduction, after each change of the weights.

    Without it each layer would reduce its own scales, and with a scale of other weights values would overflow.
    """
    if spec.precision == "fp8" and spec.fp8_recipe == "tensorwise":
        _import_torchao().precompute_float8_dynamic_scale_for_fsdp(model)


class Float8ModelState(ModelState):
    """The model and the optimiser; weights that were loaded get new scales."""

    def __init__(self, model: nn.Module, optimizer: torch.optim.Optimizer, spec: TrainSpec) -> None:
        """Read and restore these two."""
        super().__init__(model, optimizer)
        self._spec = spec

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Set the state, and compute the scales."""
        super().load_state_dict(state)
        compute_scales(self._model, self._spec)


def _import_torchao() -> Any:
    try:
        import torchao.float8
    except ImportError as error:
        raise Package("torchao", "precision", "precision: fp8").make_missing() from error
    return torchao.float8
