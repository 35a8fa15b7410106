"""Builds a transformers causal LM that is never complete in the memory of a rank with a shard.

The model is built on the meta device. Then one unit after the other is allocated, initialised (with new weights or from
safetensors) and sharded by the strategy. New weights depend only on the seed and the unit, so that every strategy and every
world size starts with the same ones.
"""

from __future__ import annotations

import importlib
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from kfjob.base.errors import KfjobError, SpecError
from kfjob.base.text import plural
from kfjob.trainer.attention import use_document_attention
from kfjob.trainer.context import Context
from kfjob.trainer.experts import prepare_experts
from kfjob.trainer.float8 import convert_linear_layers
from kfjob.trainer.hub import fetch_folder
from kfjob.trainer.layers import prepare_layers
from kfjob.trainer.lora import add_adapters, count_base_parameters, initialize_modules
from kfjob.trainer.loss import chunk_head
from kfjob.trainer.nf4 import check_quantizable, is_quantized, quantize_base, quantizes, round_base
from kfjob.trainer.shapes import full_shape
from kfjob.trainer.strategies import Strategy
from kfjob.trainer.strategies.base import COMPUTE_DTYPES
from kfjob.trainer.weights import FILES as WEIGHT_FILES
from kfjob.trainer.weights import PretrainedWeights
from kfjob.trainspec.model_shapes import ModelShape, count_parameters
from kfjob.trainspec.train_fields import Precision
from kfjob.trainspec.train_spec import TrainSpec, get_shape

CONFIG = "config.json"
_CLASSES = {
    "llama": ("LlamaConfig", "LlamaForCausalLM"),
    "mistral": ("MistralConfig", "MistralForCausalLM"),
    "qwen2": ("Qwen2Config", "Qwen2ForCausalLM"),
    "gpt_neox": ("GPTNeoXConfig", "GPTNeoXForCausalLM"),
    "mixtral": ("MixtralConfig", "MixtralForCausalLM"),
    "qwen3_moe": ("Qwen3MoeConfig", "Qwen3MoeForCausalLM"),
}


def build_model(
    spec: TrainSpec,
    strategy: Strategy,
    device: torch.device,
    *,
    vocab_size: int = 0,
    resumes: bool = False,
    context: Context | None = None,
) -> nn.Module:
    """Return the spec's model, initialised and wrapped, in training mode; `vocab_size` is the vocabulary size of the data.

    With a `context` the model computes this rank's part of each sample.

    If the run `resumes`, no weights are read, because a checkpoint will overwrite them; the frozen base of adapters is read.

    Raises:
        KfjobError: the model does not exist, is too small for the data, or does not have the expected structure.
    """
    model = build_meta_model(spec)
    if (rows := model.get_input_embeddings().weight.shape[0]) < vocab_size:
        raise KfjobError(
            f"the data has a vocabulary of {vocab_size}, the model's embedding {rows} rows",
            location="model",
            hint=f"set `vocab_size: {-(-vocab_size // 64) * 64}`" if get_shape(spec) else "use the tokenizer of the model",
        )
    add_adapters(model, spec)
    check_quantizable(model, spec)
    convert_linear_layers(model, spec)
    prepare_layers([layer for _, layer in _find_layers(model, spec.wrap)], spec)
    chunk_head(model, spec.loss_chunk, compiled=bool(spec.compile))
    use_document_attention(model, spec, context)
    prepare_experts(model, spec)
    weights = _open_weights(spec, model) if spec.lora or not resumes else None
    by_shard = strategy.shards_units and not quantizes(spec)  # whole weights are quantised
    return strategy.wrap(model.train(), _initialize_units(model, spec, device, weights, by_shard=by_shard))


def build_base_model(spec: TrainSpec) -> Any:
    """Return the spec's model without adapters on the host, in fp32, with the weights that a run starts with.

    With `lora.quantize` the weights in 4 bits have their rounded values.

    Raises:
        KfjobError: as `build_model`.
    """
    plain = spec.model_copy(update={"lora": None, "precision": "fp32"})
    model = build_meta_model(plain)
    for _ in _initialize_units(model, plain, torch.device("cpu"), _open_weights(plain, model), by_shard=False):
        pass
    round_base(model, spec, COMPUTE_DTYPES[spec.precision])
    return model


def _initialize_units(
    model: Any, spec: TrainSpec, device: torch.device, weights: PretrainedWeights | None, *, by_shard: bool
) -> Iterator[nn.Module]:
    """Yield the units of the model, then the model itself, each when its weights have been initialised.

    With `by_shard` the strategy shards a unit before it asks for the next one, and pretrained weights are read after that.
    """
    for number, (name, unit) in enumerate([*find_wrap_units(model, spec.wrap), ("", model)]):
        torch.manual_seed(spec.seed * 100_003 + number)
        initialize_modules(model, unit, _allocate(unit, device))
        if weights and not by_shard:
            weights.load_into(unit, name)
        _cast_parameters(unit, spec.precision)
        quantize_base(model, unit, spec)
        if unit is model:
            _check_model(model, get_shape(spec))
        yield unit
        if weights and by_shard:
            weights.load_into(unit, name)


def build_meta_model(spec: TrainSpec) -> Any:
    """Return the spec's transformers PreTrainedModel on the meta device, without memory."""
    shape = get_shape(spec)
    if shape is None:
        return _read_meta_model(_model_folder(spec, CONFIG), spec.vocab_size)
    module = importlib.import_module(f"transformers.models.{shape.architecture}")
    config_class, model_class = (getattr(module, name) for name in _CLASSES[shape.architecture])
    with torch.device("meta"):
        return model_class(config_class(**make_config_arguments(shape)))


def read_shape(model: Any) -> ModelShape | None:
    """Return the shape in the model's own configuration; None for other families, or if the number of parameters differs."""
    config = model.config
    if config.model_type not in _CLASSES:
        return None
    settings = {name: value for name in ModelShape.model_fields if (value := getattr(config, name, None)) is not None}
    try:
        shape = ModelShape.model_validate(settings | {"architecture": config.model_type})
    except SpecError:
        return None
    count = count_base_parameters(model, nn.Parameter.numel)
    return shape if count == count_parameters(shape) else None


def make_config_arguments(shape: ModelShape) -> dict[str, Any]:
    """Return the arguments of the shape's transformers configuration."""
    rope: dict[str, Any] = {"rope_type": "default", "rope_theta": shape.rope_theta}
    if shape.rope_llama3_factor:
        rope |= {"rope_type": "llama3", "factor": shape.rope_llama3_factor, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
        rope |= {"original_max_position_embeddings": 8192}
    shared = {"vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "initializer_range"}
    arguments = shape.model_dump(include=shared | {"max_position_embeddings", "tie_word_embeddings"})
    if shape.architecture == "gpt_neox":
        rope |= {"partial_rotary_factor": shape.rotary_pct}
        return arguments | {"layer_norm_eps": shape.norm_eps, "rope_parameters": rope, "use_cache": False}
    arguments |= {"num_key_value_heads": shape.key_value_heads, "rms_norm_eps": shape.norm_eps, "rope_parameters": rope}
    arguments |= {"head_dim": shape.head_dim} if shape.head_dim else {}
    if shape.architecture == "mistral":
        arguments["sliding_window"] = shape.sliding_window
    if shape.num_experts:
        arguments |= shape.model_dump(include={"num_experts_per_tok", "router_aux_loss_coef"})
    if shape.architecture == "mixtral":
        arguments["num_local_experts"] = shape.num_experts
    if shape.architecture == "qwen3_moe":
        arguments |= shape.model_dump(include={"num_experts", "moe_intermediate_size", "norm_topk_prob"})
    return arguments


def find_decoder_layers(model: Any) -> list[tuple[str, nn.Module]]:
    """Return (name, module) of each decoder layer.

    Raises:
        KfjobError: the number of layers differs from the configuration.
    """
    layer_classes = set(model._no_split_modules or ())  # noqa: SLF001 -- a list in transformers 4, a set in 5
    layers = [(name, module) for name, module in model.named_modules() if type(module).__name__ in layer_classes]
    expected = model.config.num_hidden_layers
    if len(layers) != expected:
        raise KfjobError(
            f"{type(model).__name__} has {plural(len(layers), 'decoder layer')}, its configuration has {expected}",
            cause=f"its layer classes are {', '.join(sorted(layer_classes))}" if layer_classes else "it names no layer class",
        )
    return layers


def find_wrap_units(model: Any, names: Sequence[str] | None = None) -> list[tuple[str, nn.Module]]:
    """Return (name, module) of the units to shard, inner ones first.

    The units are the decoder layers, or modules of the classes `names`, and the embedding and the head. Tied embedding and head
    share a parameter, so both stay in the root unit.

    Raises:
        KfjobError: the model has no such class, or the number of decoder layers differs from the configuration.
    """
    units = _find_layers(model, names)
    ends = {id(model.get_input_embeddings()), id(model.get_output_embeddings())} - {id(unit) for _, unit in units}
    if not has_tied_embeddings(model):
        units = units + [(name, module) for name, module in model.named_modules() if id(module) in ends]
    return units


def _find_layers(model: Any, names: Sequence[str] | None) -> list[tuple[str, nn.Module]]:
    """Return the decoder layers, or all modules of the classes `names`, the deepest first."""
    if names is None:
        return find_decoder_layers(model)
    layers = [(name, module) for name, module in model.named_modules() if name and type(module).__name__ in names]
    with_parameters = [module for name, module in model.named_modules() if name and next(module.parameters(), None) is not None]
    counts = Counter(type(module).__name__ for module in with_parameters)
    if missing := [name for name in names if name not in counts]:
        raise KfjobError(
            f"{type(model).__name__} has no layers of class `{missing[0]}`",
            location="wrap",
            cause=f"it has {', '.join(f'{count} {name}' for name, count in counts.items())}",
            hint="remove `wrap` to use the decoder layers",
        )
    return sorted(layers, key=lambda unit: -unit[0].count("."))


def has_tied_embeddings(model: Any) -> bool:
    """Return whether head and embedding are one parameter."""
    return bool(model.get_input_embeddings().weight is model.get_output_embeddings().weight)


def _allocate(unit: nn.Module, device: torch.device) -> Iterable[nn.Module]:
    """Replace the unit's meta tensors by uninitialised ones; yield the modules that had any, children first.

    Tied parameters are in one unit. `Module.to_empty` would untie them; `replacements` keeps them tied. It must not outlive the
    unit, or full tensors would stay in memory next to their shards.
    """
    replacements: dict[nn.Parameter, nn.Parameter] = {}
    for module in reversed(list(unit.modules())):
        parameters = [(name, value) for name, value in module.named_parameters(recurse=False) if value.is_meta]
        buffers = [(name, value) for name, value in module.named_buffers(recurse=False) if value.is_meta]
        for name, parameter in parameters:
            if parameter not in replacements:
                empty = torch.empty_like(parameter, device=device)
                replacements[parameter] = nn.Parameter(empty, requires_grad=parameter.requires_grad)
            module.register_parameter(name, replacements[parameter])
        for name, buffer in buffers:
            setattr(module, name, torch.empty_like(buffer, device=device))
        if parameters or buffers:
            yield module


@torch.no_grad()
def _cast_parameters(unit: nn.Module, precision: Precision) -> None:
    """Cast frozen parameters to the type of the arithmetic, and trained ones to bf16 with `bf16-true`.

    Buffers keep their precision, which rotary frequencies need.
    """
    trained = torch.bfloat16 if precision == "bf16-true" else torch.float32
    for parameter in unit.parameters():
        is_done = hasattr(parameter, "device_mesh") or is_quantized(parameter)
        if parameter.dtype == torch.float32 and not is_done:
            parameter.data = parameter.data.to(trained if parameter.requires_grad else COMPUTE_DTYPES[precision])


def _check_model(model: Any, shape: ModelShape | None) -> None:
    """Check that the model is initialised and matches its configuration."""
    tensors = [*model.named_parameters(), *model.named_buffers()]
    uninitialized = [name for name, tensor in tensors if tensor.is_meta]
    not_finite = [name for name, buffer in model.named_buffers() if not torch.isfinite(buffer).all()]
    if uninitialized or not_finite:
        raise KfjobError(f"{type(model).__name__} was not initialised: {', '.join((uninitialized + not_finite)[:3])}")
    if getattr(model.config, "tie_word_embeddings", False) and not has_tied_embeddings(model):
        raise KfjobError(f"embedding and head of {type(model).__name__} are not tied, but its configuration ties them")
    count = count_base_parameters(model, lambda parameter: math.prod(full_shape(parameter)))
    if shape and count != count_parameters(shape):
        raise KfjobError(f"{type(model).__name__} has {count} parameters, its shape has {count_parameters(shape)}")


def _model_folder(spec: TrainSpec, *files: str) -> Path:
    return fetch_folder(str(spec.model), files, kind="model", revision=spec.model_revision)


def _open_weights(spec: TrainSpec, model: Any) -> PretrainedWeights | None:
    """Return the pretrained weights of a model in a folder or on the hub, if it has any."""
    return PretrainedWeights.open(_model_folder(spec, *WEIGHT_FILES), model) if get_shape(spec) is None else None


def _read_meta_model(folder: Path, vocab_size: int | None) -> Any:
    if not (folder / CONFIG).exists():
        raise KfjobError(f"no model at `{folder}`", location="model", hint="use a folder with config.json, or a preset")
    from transformers import AutoConfig, AutoModelForCausalLM

    try:
        config = AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    except (OSError, ValueError, KeyError) as error:
        raise KfjobError(f"cannot read the model configuration in `{folder}`", location="model", cause=str(error)) from error
    if vocab_size and vocab_size != config.vocab_size:
        hint = "remove `vocab_size`, or set the shape instead of the folder"
        raise KfjobError(f"the model in `{folder}` has vocabulary {config.vocab_size}, not {vocab_size}", hint=hint)
    with torch.device("meta"):
        return AutoModelForCausalLM.from_config(config, dtype=torch.float32, trust_remote_code=False)  # type: ignore[no-untyped-call]
