"""The `lora:` section: low-rank adapters of a frozen base model, with the field names of PEFT's LoraConfig. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from pydantic import ConfigDict, Field, NonNegativeFloat, PositiveInt, field_validator

from kfjob.base.text import join_names
from kfjob.trainspec.models import ModelShape
from kfjob.validation.models import FieldProblem, SpecModel, field_error

if TYPE_CHECKING:
    from kfjob.trainspec.train_spec import TrainSpec

ALL_LINEAR = "all-linear"
"""PEFT's name for every linear layer but the head."""
TrainedBiases = Literal["none", "lora_only", "all"]
Quantization = Literal["nf4"]
_ENDS = ("embed_tokens", "embed_in", "lm_head", "embed_out")
"""The names of embeddings and heads."""


class LoraSpec(SpecModel):
    """Low-rank adapters (LoRA). Only they are trained, the base model is frozen. The names are those of PEFT's LoraConfig."""

    model_config = ConfigDict(validate_default=False)

    r: PositiveInt = Field(default=16, description="Rank of the adapters")
    lora_alpha: PositiveInt = Field(
        default=32, description="Scale of the adapters: their output is multiplied by `lora_alpha` / `r`"
    )
    lora_dropout: NonNegativeFloat = Field(default=0.0, lt=1, description="Dropout of the adapters' inputs")
    target_modules: tuple[str, ...] = Field(
        default=(ALL_LINEAR,),
        min_length=1,
        description="Names of the linear layers with an adapter, such as `q_proj`; `all-linear` is all but the head",
    )
    exclude_modules: tuple[str, ...] = Field(default=(), description="Names of linear layers without an adapter")
    bias: TrainedBiases = Field(
        default="none",
        description="Biases of the base that are trained: `none`, `lora_only` (of layers with an adapter), or `all`",
    )
    use_rslora: bool = Field(default=False, description="Scale the adapters by `lora_alpha` / sqrt(`r`) (rank-stabilised LoRA)")
    quantize: Quantization | None = Field(
        default=None, description="Form of the frozen linear layers: `nf4` is 4 bits (QLoRA); left out, that of the arithmetic"
    )

    @field_validator("target_modules", "exclude_modules", mode="before")
    @classmethod
    def _split_names(cls, names: object) -> object:
        return tuple(names.split(",")) if isinstance(names, str) else names

    @field_validator("target_modules")
    @classmethod
    def _check_targets(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        if ALL_LINEAR in names and len(names) > 1:
            raise field_error("targets", f"`{ALL_LINEAR}` includes every other name", hint="remove the other names")
        return names


@dataclass(frozen=True)
class LinearLayer:
    """A linear layer in a decoder layer."""

    name: str
    """The path of the module in the decoder layer: `self_attn.q_proj`."""
    inputs: int
    outputs: int
    has_bias: bool = False

    def matches(self, names: tuple[str, ...]) -> bool:
        """Return whether one of the names is the end of the path (as in peft 0.21, check_target_module_exists)."""
        return any(f".{self.name}".endswith(f".{name}") for name in names)


def list_linear_layers(shape: ModelShape) -> tuple[LinearLayer, ...]:
    """Return the linear layers of one decoder layer in transformers' model."""
    hidden, wide = shape.hidden_size, shape.intermediate_size
    if shape.architecture == "gpt_neox":
        return (
            LinearLayer("attention.query_key_value", hidden, 3 * hidden, has_bias=True),
            LinearLayer("attention.dense", hidden, hidden, has_bias=True),
            LinearLayer("mlp.dense_h_to_4h", hidden, wide, has_bias=True),
            LinearLayer("mlp.dense_4h_to_h", wide, hidden, has_bias=True),
        )
    heads, groups = shape.num_attention_heads * shape.head_size, shape.key_value_heads * shape.head_size
    has_bias = shape.architecture == "qwen2"
    attention = (
        LinearLayer("self_attn.q_proj", hidden, heads, has_bias),
        LinearLayer("self_attn.k_proj", hidden, groups, has_bias),
        LinearLayer("self_attn.v_proj", hidden, groups, has_bias),
        LinearLayer("self_attn.o_proj", heads, hidden),
    )
    if shape.num_experts:  # the experts of a layer, and its router, are parameters without linear layers
        return attention
    return (
        *attention,
        LinearLayer("mlp.gate_proj", hidden, wide),
        LinearLayer("mlp.up_proj", hidden, wide),
        LinearLayer("mlp.down_proj", wide, hidden),
    )


def list_targets(shape: ModelShape, lora: LoraSpec) -> list[LinearLayer]:
    """Return the layers of one decoder layer that have an adapter."""
    layers = [layer for layer in list_linear_layers(shape) if not layer.matches(lora.exclude_modules)]
    return layers if ALL_LINEAR in lora.target_modules else [layer for layer in layers if layer.matches(lora.target_modules)]


def count_layer_trained(shape: ModelShape, lora: LoraSpec) -> int:
    """Return the number of trained parameters in one decoder layer: two matrices for each target, and biases."""
    targets = list_targets(shape, lora)
    with_bias = {"none": [], "lora_only": targets, "all": list_linear_layers(shape)}[lora.bias]
    norms = 2 * shape.hidden_size if lora.bias == "all" and shape.architecture == "gpt_neox" else 0
    biases = sum(layer.outputs for layer in with_bias if layer.has_bias) + norms
    return count_layer_adapters(shape, lora) + biases


def count_layer_adapters(shape: ModelShape, lora: LoraSpec) -> int:
    """Return the number of parameters that adapters add to one decoder layer."""
    return sum(lora.r * (layer.inputs + layer.outputs) for layer in list_targets(shape, lora))


def count_trained(shape: ModelShape, lora: LoraSpec) -> int:
    """Return the number of trained parameters of the model; with `bias: all` also that of GPT-NeoX's last norm."""
    last_norm = shape.hidden_size if lora.bias == "all" and shape.architecture == "gpt_neox" else 0
    return shape.num_hidden_layers * count_layer_trained(shape, lora) + last_norm


def count_adapters(shape: ModelShape, lora: LoraSpec) -> int:
    """Return the number of parameters that adapters add to the model."""
    return shape.num_hidden_layers * count_layer_adapters(shape, lora)


def find_lora_problems(spec: TrainSpec, shape: ModelShape | None) -> Iterator[FieldProblem]:
    """Yield every violation of the rules for a spec with adapters; `shape` as in `train_rules`."""
    lora = spec.lora
    if lora is None:
        return
    if spec.full_state_dict:
        title = "`full_state_dict` writes whole weights, and a checkpoint with `lora` holds adapters only"
        hint = "remove `full_state_dict`; `kfjob-export --merge` writes merged weights"
        yield FieldProblem(field="full_state_dict", title=title, hint=hint)
    ends = [name for name in lora.target_modules if name.rpartition(".")[2] in _ENDS]
    if ends:
        title = f"`lora.target_modules` names `{ends[0]}`, and the trainer adapts only layers of the decoder"
        yield FieldProblem(field="lora.target_modules", title=title, hint=f"remove `{ends[0]}`")
    if shape and shape.num_experts and ALL_LINEAR in lora.target_modules:
        title = f"adapters of the experts of a {shape.architecture} model are not supported"
        hint = "name the layers of the attention, for example `[q_proj, v_proj]`"
        yield FieldProblem(field="lora.target_modules", title=title, hint=hint)
    elif shape:
        yield from _find_name_problems(lora, shape, known_problems=ends)


def _find_name_problems(lora: LoraSpec, shape: ModelShape, *, known_problems: list[str]) -> Iterator[FieldProblem]:
    layers = list_linear_layers(shape)
    hint = f"its linear layers are {join_names((layer.name.rpartition('.')[2] for layer in layers), limit=9)}"
    is_valid = True
    for field, names in (("target_modules", lora.target_modules), ("exclude_modules", lora.exclude_modules)):
        for name in names:
            if name != ALL_LINEAR and name not in known_problems and not any(layer.matches((name,)) for layer in layers):
                is_valid = False
                title = f"a {shape.architecture} model has no linear layer `{name}`"
                yield FieldProblem(field=f"lora.{field}", title=title, hint=hint)
    if is_valid and not known_problems and not list_targets(shape, lora):
        title = "no layer is left for an adapter"
        yield FieldProblem(field="lora.exclude_modules", title=title, hint="exclude fewer layers")
