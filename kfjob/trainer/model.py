"""A transformers causal LM that is never whole in the memory of a rank that holds a shard.

It is built on the meta device; then unit by unit is given memory, filled (with fresh weights or from safetensors) and handed to
the strategy, which shards it before the next unit is made. Fresh weights depend on the seed and the unit only, so that every
strategy and every number of ranks starts from the same ones.
"""

from __future__ import annotations

import importlib
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from kfjob.errors import KfjobError, SpecError
from kfjob.spec.models import ModelShape, count_parameters
from kfjob.spec.train import TrainSpec, get_shape
from kfjob.trainer.hub import fetch_folder
from kfjob.trainer.layers import prepare_layers
from kfjob.trainer.loss import chunk_head
from kfjob.trainer.shapes import whole_shape
from kfjob.trainer.strategies import Strategy
from kfjob.trainer.weights import FILES as WEIGHTS
from kfjob.trainer.weights import Weights

CONFIG = "config.json"
_CLASSES = {
    "llama": ("LlamaConfig", "LlamaForCausalLM"),
    "mistral": ("MistralConfig", "MistralForCausalLM"),
    "qwen2": ("Qwen2Config", "Qwen2ForCausalLM"),
    "gpt_neox": ("GPTNeoXConfig", "GPTNeoXForCausalLM"),
}


def build_model(spec: TrainSpec, strategy: Strategy, device: torch.device, *, vocab_size: int = 0) -> nn.Module:
    """The model of the spec, filled and wrapped, in training mode; `vocab_size` is what the data needs.

    Raises:
        KfjobError: there is no such model, or its parts are not what they must be.
    """
    model = meta_model(spec)
    if (rows := model.get_input_embeddings().weight.shape[0]) < vocab_size:
        raise KfjobError(
            f"the data has a vocabulary of {vocab_size}, the model's embedding {rows} rows",
            location="model",
            hint=f"set `vocab_size: {-(-vocab_size // 64) * 64}`",
        )
    prepare_layers([layer for _, layer in _layers(model, spec.wrap)], spec)
    chunk_head(model, spec.loss_chunk)
    strategy.plan(model)
    weights = Weights.of(_folder(spec, *WEIGHTS)) if get_shape(spec) is None else None
    for number, (name, unit) in enumerate([*wrap_units(model, spec.wrap), ("", model)]):
        torch.manual_seed(spec.seed * 100_003 + number)
        made = list(_give_memory(unit, device))
        for module in made:
            model._initialize_weights(module)  # noqa: SLF001 -- as PreTrainedModel.init_weights does for each module
        if weights:
            weights.fill(unit, name)
        if spec.precision == "bf16-true":
            _round(unit)
        if unit is not model:
            strategy.wrap_unit(unit)
    _check(model, get_shape(spec))
    return strategy.wrap_model(model.train())


def meta_model(spec: TrainSpec) -> Any:
    """The model without memory: a transformers PreTrainedModel on the meta device."""
    shape = get_shape(spec)
    if shape is None:
        return _from_folder(_folder(spec, CONFIG), spec.vocab_size)
    module = importlib.import_module(f"transformers.models.{shape.architecture}")
    config_class, model_class = (getattr(module, name) for name in _CLASSES[shape.architecture])
    with torch.device("meta"):
        return model_class(config_class(**config_arguments(shape)))


def shape_in(model: Any) -> ModelShape | None:
    """What the model's own configuration says, where its parameters are as many as such a shape has; None for other kinds."""
    config = model.config
    if config.model_type not in _CLASSES:
        return None
    said = {name: value for name in ModelShape.model_fields if (value := getattr(config, name, None)) is not None}
    try:
        shape = ModelShape.model_validate(said | {"architecture": config.model_type})
    except SpecError:
        return None
    count = sum(parameter.numel() for parameter in model.parameters())
    return shape if count == count_parameters(shape) else None


def config_arguments(shape: ModelShape) -> dict[str, Any]:
    """The shape as the arguments of its transformers configuration."""
    rope: dict[str, Any] = {"rope_type": "default", "rope_theta": shape.rope_theta}
    if shape.rope_llama3_factor:
        rope |= {"rope_type": "llama3", "factor": shape.rope_llama3_factor, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
        rope |= {"original_max_position_embeddings": 8192}
    same = {"vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "initializer_range"}
    arguments = shape.model_dump(include=same | {"max_position_embeddings", "tie_word_embeddings"})
    if shape.architecture == "gpt_neox":
        rope |= {"partial_rotary_factor": shape.rotary_pct}
        return arguments | {"layer_norm_eps": shape.norm_eps, "rope_parameters": rope, "use_cache": False}
    arguments |= {"num_key_value_heads": shape.key_value_heads, "rms_norm_eps": shape.norm_eps, "rope_parameters": rope}
    return arguments | ({"sliding_window": shape.sliding_window} if shape.architecture == "mistral" else {})


def decoder_layers(model: Any) -> list[tuple[str, nn.Module]]:
    """(name, module) of each decoder layer.

    Raises:
        KfjobError: the layers found are not as many as the configuration says.
    """
    layer_classes = set(model._no_split_modules or ())  # noqa: SLF001 -- a list in transformers 4, a set in 5
    layers = [(name, module) for name, module in model.named_modules() if type(module).__name__ in layer_classes]
    expected = model.config.num_hidden_layers
    if len(layers) != expected:
        raise KfjobError(
            f"found {len(layers)} decoder layers in {type(model).__name__}, its configuration says {expected}",
            cause=f"looked for {', '.join(sorted(layer_classes)) or 'nothing: the model names no layer class'}",
        )
    return layers


def wrap_units(model: Any, names: Sequence[str] | None = None) -> list[tuple[str, nn.Module]]:
    """(name, module) of the parts that are sharded one by one, inner ones first: the decoder layers, or modules of the classes
    `names`, and embedding and head unless they are tied.

    Tied ones share a parameter, so both stay in the root unit.

    Raises:
        KfjobError: the model has no such class, or not the layers that its configuration promises.
    """
    units = _layers(model, names)
    ends = {id(model.get_input_embeddings()), id(model.get_output_embeddings())} - {id(unit) for _, unit in units}
    if not tied(model):
        units = units + [(name, module) for name, module in model.named_modules() if id(module) in ends]
    return units


def _layers(model: Any, names: Sequence[str] | None) -> list[tuple[str, nn.Module]]:
    """The decoder layers, or all modules of the classes `names`, the deepest first."""
    if names is None:
        return decoder_layers(model)
    found = [(name, module) for name, module in model.named_modules() if name and type(module).__name__ in names]
    weighty = [module for name, module in model.named_modules() if name and next(module.parameters(), None) is not None]
    there = Counter(type(module).__name__ for module in weighty)
    if missing := [name for name in names if name not in there]:
        raise KfjobError(
            f"{type(model).__name__} has no layers of class `{missing[0]}`",
            location="wrap",
            cause=f"it has {', '.join(f'{many} {name}' for name, many in there.items())}",
            hint="leave `wrap` out, and the decoder layers are found",
        )
    return sorted(found, key=lambda unit: -unit[0].count("."))


def tied(model: Any) -> bool:
    """Whether head and embedding are one parameter."""
    return bool(model.get_input_embeddings().weight is model.get_output_embeddings().weight)


def _give_memory(unit: nn.Module, device: torch.device) -> Iterable[nn.Module]:
    """Replace the unit's meta tensors by real ones, uninitialised; yield the modules that had some, children first.

    `Module.to_empty` would give tied parameters, which are in one unit, memory of their own: `twins` keeps them one. It must
    not outlive the unit, or whole tensors would stay beside their shards.
    """
    twins: dict[nn.Parameter, nn.Parameter] = {}
    for module in reversed(list(unit.modules())):
        parameters = [(name, value) for name, value in module.named_parameters(recurse=False) if value.is_meta]
        buffers = [(name, value) for name, value in module.named_buffers(recurse=False) if value.is_meta]
        for name, parameter in parameters:
            if parameter not in twins:
                empty = torch.empty_like(parameter, device=device)
                twins[parameter] = nn.Parameter(empty, requires_grad=parameter.requires_grad)
            module.register_parameter(name, twins[parameter])
        for name, buffer in buffers:
            setattr(module, name, torch.empty_like(buffer, device=device))
        if parameters or buffers:
            yield module


@torch.no_grad()
def _round(unit: nn.Module) -> None:
    """Parameters in bf16; buffers keep their precision, for rotary frequencies need it."""
    for parameter in unit.parameters():
        if parameter.dtype == torch.float32 and not hasattr(parameter, "device_mesh"):
            parameter.data = parameter.data.to(torch.bfloat16)


def _check(model: Any, shape: ModelShape | None) -> None:
    """Hold the built model against what it was built from."""
    tensors = [*model.named_parameters(), *model.named_buffers()]
    bare = [name for name, tensor in tensors if tensor.is_meta]
    wild = [name for name, buffer in model.named_buffers() if not torch.isfinite(buffer).all()]
    if bare or wild:
        raise KfjobError(f"{type(model).__name__} was not initialised: {', '.join((bare + wild)[:3])}")
    if getattr(model.config, "tie_word_embeddings", False) and not tied(model):
        raise KfjobError(f"embedding and head of {type(model).__name__} are to be tied and are not")
    count = sum(math.prod(whole_shape(parameter)) for parameter in model.parameters())
    if shape and count != count_parameters(shape):
        raise KfjobError(f"{type(model).__name__} has {count} parameters, its shape says {count_parameters(shape)}")


def _folder(spec: TrainSpec, *files: str) -> Path:
    return fetch_folder(str(spec.model), files, kind="model", revision=spec.model_revision)


def _from_folder(folder: Path, vocab_size: int | None) -> Any:
    if not (folder / CONFIG).exists():
        raise KfjobError(f"no model at `{folder}`", location="model", hint="a folder with config.json, or a preset's name")
    from transformers import AutoConfig, AutoModelForCausalLM

    try:
        config = AutoConfig.from_pretrained(folder, local_files_only=True)
    except (OSError, ValueError, KeyError) as error:
        raise KfjobError(f"cannot read the model configuration in `{folder}`", location="model", cause=str(error)) from error
    if vocab_size and vocab_size != config.vocab_size:
        hint = "leave `vocab_size` out, or give the shape instead of the folder"
        raise KfjobError(f"the model in `{folder}` has vocabulary {config.vocab_size}, not {vocab_size}", hint=hint)
    with torch.device("meta"):
        return AutoModelForCausalLM.from_config(config, dtype=torch.float32)  # type: ignore[no-untyped-call]
