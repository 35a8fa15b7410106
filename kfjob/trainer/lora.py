"""Low-rank adapters (LoRA): PEFT adds them to the model and writes its files. Only this module imports it, and only on use.

The base is frozen and stored in the type of the arithmetic (bf16 with `precision: bf16`), in which it would be multiplied
anyway. Adapters and trained biases are fp32, because small updates vanish in bf16; with `bf16-true` they are bf16 too, and the
optimiser rounds stochastically.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from kfjob.base.errors import KfjobError
from kfjob.trainspec.packages import Package
from kfjob.trainspec.train_fields import ALL_LINEAR
from kfjob.trainspec.train_spec import TrainSpec

_ADAPTER = "default"
"""PEFT's name of a model's only adapter."""
_BASE_LAYER = ".base_layer."


def add_adapters(model: Any, spec: TrainSpec) -> None:
    """Add the spec's adapters to a transformers model in place, and freeze everything else; without `lora` do nothing.

    Raises:
        KfjobError: PEFT is not installed, or a name in the section is not that of a linear layer of the decoder.
    """
    if spec.lora is None:
        return
    peft = _import_peft()
    _check_targets(model, spec)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # PEFT changes its own settings for some families (Conv1D, experts)
            peft.inject_adapter_in_model(make_peft_config(spec), model, adapter_name=_ADAPTER)
    except ValueError as error:
        raise KfjobError("PEFT cannot add the adapters", location="lora", cause=str(error)) from error
    if any(type(module).__name__ == "ParamWrapper" for module in model.modules()):
        hint = "name the layers of the attention in `lora.target_modules`, for example `[q_proj, v_proj]`"
        title = f"adapters of the experts of {type(model).__name__} are not supported"
        raise KfjobError(title, location="lora.target_modules", hint=hint)


def make_peft_config(spec: TrainSpec) -> Any:
    """Return the spec's section as PEFT's LoraConfig, with the name of the base model."""
    assert spec.lora is not None  # noqa: S101 -- for mypy
    settings = spec.lora.model_dump(exclude={"target_modules", "exclude_modules", "quantize"})
    targets = spec.lora.target_modules
    return _import_peft().LoraConfig(
        target_modules=ALL_LINEAR if ALL_LINEAR in targets else list(targets),
        exclude_modules=list(spec.lora.exclude_modules) or None,
        task_type="CAUSAL_LM",
        base_model_name_or_path=spec.model if isinstance(spec.model, str) else None,
        revision=spec.model_revision,
        **settings,
    )


def initialize_modules(model: Any, unit: nn.Module, allocated: Iterable[nn.Module]) -> None:
    """Initialise the modules that were just allocated: those of the base as transformers does, adapters as PEFT does.

    The base comes first, so that it is the one that the same seed gives without adapters.
    """
    adapters = _find_adapters(unit)
    allocated = list(allocated)
    for module in allocated:
        if module not in adapters:
            model._initialize_weights(module)  # noqa: SLF001 -- as PreTrainedModel.init_weights does for each module
    for layer in dict.fromkeys(adapters[module] for module in allocated if module in adapters):
        layer.reset_lora_parameters(_ADAPTER, True)


def count_base_parameters(model: nn.Module, count: Any) -> int:
    """Return the sum of `count(parameter)` over the parameters that are not of adapters."""
    inner = {parameter for module in _find_adapters(model) for parameter in module.parameters()}
    return sum(count(parameter) for parameter in model.parameters() if parameter not in inner)


def base_name(name: str) -> str:
    """Return the name of a parameter in the model without adapters."""
    return name.replace(_BASE_LAYER, ".")


def is_adapter(name: str) -> bool:
    """Return whether a parameter with this name belongs to an adapter."""
    return ".lora_" in name


def is_adapted(module: nn.Module) -> bool:
    """Return whether a module is PEFT's layer around a layer of the base."""
    return hasattr(module, "lora_A")


def write_adapters(model: Any, spec: TrainSpec, tensors: Mapping[str, Tensor], folder: Path) -> None:
    """Write the adapters in PEFT's format; `model` is the model without adapters, on the meta device."""
    peft = _import_peft()
    with _ignore_deprecations():
        peft_model = peft.get_peft_model(model, make_peft_config(spec), adapter_name=_ADAPTER)
        peft_model.base_model.model.load_state_dict(tensors, strict=False, assign=True)
        peft_model.save_pretrained(folder, save_embedding_layers=False)


def merge_adapters(model: Any, folder: Path) -> Any:
    """Return the base model with the adapters of PEFT's folder added to its weights."""
    peft = _import_peft()
    with _ignore_deprecations():
        return peft.PeftModel.from_pretrained(model, folder, trust_remote_code=False).merge_and_unload()


def _find_adapters(unit: nn.Module) -> dict[nn.Module, Any]:
    """Return the matrices of adapters, each with PEFT's layer that it belongs to."""
    layers: list[Any] = [module for module in unit.modules() if is_adapted(module)]
    return {matrix: layer for layer in layers for part in (layer.lora_A, layer.lora_B) for matrix in part.values()}


def _is_linear(module: nn.Module) -> bool:
    return isinstance(module, nn.Linear) or type(module).__name__ == "Conv1D"  # of GPT-2


def _check_targets(model: Any, spec: TrainSpec) -> None:
    """Check the names of the section as `kfjob.trainspec.linear_layers` does for a known shape."""
    assert spec.lora is not None  # noqa: S101 -- for mypy
    ends = {id(model.get_input_embeddings()), id(model.get_output_embeddings())}
    modules = [(f".{name}", module) for name, module in model.named_modules() if name]
    linear = [name for name, module in modules if _is_linear(module) and id(module) not in ends]
    for field, names in (("target_modules", spec.lora.target_modules), ("exclude_modules", spec.lora.exclude_modules)):
        for name in names:
            if name != ALL_LINEAR and not any(path.endswith(f".{name}") for path in linear):
                found = sorted({path.rpartition(".")[2] for path in linear})
                title = f"{type(model).__name__} has no linear layer `{name}` in its decoder"
                hint = f"its linear layers are {', '.join(found)}"
                raise KfjobError(title, location=f"lora.{field}", hint=hint)


@contextmanager
def _ignore_deprecations() -> Iterator[None]:
    """Ignore the warnings of transformers about the names that PEFT uses (peft 0.21 with transformers 5.23), and of PEFT."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        warnings.simplefilter("ignore", UserWarning)
        yield


def _import_peft() -> Any:
    try:
        import peft
    except ImportError as error:
        raise Package("peft", "lora").make_missing() from error
    return peft
