"""Shapes of causal language models, presets with the published numbers, and the parameter count of a shape. Pure data."""

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, Literal, Self, get_args

from pydantic import (
    ConfigDict,
    Field,
    NonNegativeFloat,
    PositiveFloat,
    PositiveInt,
    ValidationInfo,
    field_validator,
    model_validator,
)

from kfjob.base.errors import SpecError
from kfjob.validation.spec_model import FieldProblem, SpecModel, field_error, field_errors

Architecture = Literal["llama", "mistral", "qwen2", "gpt_neox", "mixtral", "qwen3_moe"]
MIXTURES: tuple[Architecture, ...] = ("mixtral", "qwen3_moe")
"""Families whose feed-forward blocks are experts, of which a router chooses some for each token."""


MAX_VOCABULARY = 2**24
"""Rows of an embedding."""
_MAX_WIDTH = 2**20
"""Width of a model or of a part of it, and its attention heads."""
_MAX_LAYERS = 2**14
"""Layers of a model."""
_MAX_EXPERTS = 2**16
"""Experts of a layer."""
_MAX_POSITIONS = 2**31 - 1
"""Tokens of a model's longest sequence."""
MAX_PARAMETERS = 10**13
"""Parameters of a model: 20 TB in bf16, ten times the largest published models."""


class ModelShape(SpecModel):
    """The shape of a decoder-only transformer, with the field names of its Hugging Face configuration."""

    model_config = ConfigDict(validate_default=False)

    architecture: Architecture = Field(default="llama", description="Model family in transformers")
    vocab_size: PositiveInt = Field(le=MAX_VOCABULARY, description="Rows of the embedding")
    hidden_size: PositiveInt = Field(le=_MAX_WIDTH, description="Width of the residual stream")
    intermediate_size: PositiveInt = Field(le=_MAX_WIDTH, description="Width of the feed-forward block")
    num_hidden_layers: PositiveInt = Field(le=_MAX_LAYERS, description="Number of decoder layers")
    head_dim: PositiveInt | None = Field(
        default=None, le=_MAX_WIDTH, description="Width of an attention head; default: `hidden_size` / `num_attention_heads`"
    )
    num_attention_heads: PositiveInt = Field(le=_MAX_WIDTH, description="Number of query heads")
    num_key_value_heads: PositiveInt | None = Field(
        default=None, le=_MAX_WIDTH, description="Number of key and value heads; default: one per query head"
    )
    max_position_embeddings: PositiveInt = Field(default=4096, le=_MAX_POSITIONS, description="Longest sequence in tokens")
    tie_word_embeddings: bool = Field(default=False, description="Use the embedding as the output head")
    rope_theta: PositiveFloat = Field(default=10000.0, description="Base of the rotary frequencies")
    rope_llama3_factor: PositiveFloat | None = Field(
        default=None, description="Factor of Llama 3.1's rotary scaling for more than 8192 positions"
    )
    rotary_pct: PositiveFloat = Field(default=1.0, le=1, description="Fraction of a head that is rotated (gpt_neox)")
    norm_eps: PositiveFloat = Field(default=1e-5, description="Epsilon of the norms")
    initializer_range: PositiveFloat = Field(default=0.02, description="Standard deviation of initial weights")
    sliding_window: PositiveInt | None = Field(default=None, description="Attention window in tokens (mistral)")
    num_experts: PositiveInt | None = Field(
        default=None, le=_MAX_EXPERTS, description="Experts in each layer (mixtral, qwen3_moe), each a feed-forward block"
    )
    num_experts_per_tok: PositiveInt | None = Field(default=None, le=_MAX_EXPERTS, description="Experts that compute a token")
    moe_intermediate_size: PositiveInt | None = Field(
        default=None,
        le=_MAX_WIDTH,
        description="Width of an expert (qwen3_moe); the experts of mixtral have `intermediate_size`",
    )
    norm_topk_prob: bool = Field(default=False, description="Scale the weights of a token's experts to a sum of 1 (qwen3_moe)")
    router_aux_loss_coef: NonNegativeFloat = Field(
        default=0.001, description="Factor of the load-balancing loss of the router; `train.router_aux_loss_coef` replaces it"
    )

    @field_validator("num_attention_heads")
    @classmethod
    def _check_heads(cls, heads: int, info: ValidationInfo) -> int:
        width, head_dim = (
            info.data.get("hidden_size"),
            info.data.get("head_dim", 0),
        )  # without a valid one, the width is unknown
        if width and width % heads and head_dim is None:
            raise field_error("heads", f"{heads} heads do not divide `hidden_size` {width}, and `head_dim` is not set")
        return heads

    @field_validator("num_key_value_heads")
    @classmethod
    def _check_key_value_heads(cls, groups: int | None, info: ValidationInfo) -> int | None:
        heads = info.data.get("num_attention_heads")
        if groups and heads and heads % groups:
            raise field_error("groups", f"{groups} key and value heads do not divide {heads} query heads")
        if groups and heads and groups != heads and info.data.get("architecture") == "gpt_neox":
            raise field_error("groups", "gpt_neox does not support grouped key and value heads")
        return groups

    @model_validator(mode="after")
    def _check_family(self) -> Self:
        if problems := (*_find_family_problems(self), *_find_rotary_problems(self)):
            raise field_errors(problems)
        if (count := count_parameters(self)) > MAX_PARAMETERS:
            title = f"a model of this shape has {count:.1e} parameters, and the limit is {MAX_PARAMETERS:.0e}"
            raise field_errors([FieldProblem(field="", title=title)])
        return self

    @property
    def head_size(self) -> int:
        """The width of one attention head, including the default."""
        return self.head_dim or self.hidden_size // self.num_attention_heads

    @property
    def rotary_size(self) -> int:
        """The numbers of a head that rotary position embeddings rotate."""
        return int(self.head_size * self.rotary_pct) if self.architecture == "gpt_neox" else self.head_size

    @property
    def key_value_heads(self) -> int:
        """The number of key and value heads, including the default."""
        return self.num_key_value_heads or self.num_attention_heads

    @property
    def experts(self) -> int:
        """The feed-forward blocks of a layer: its experts, or 1."""
        return self.num_experts or 1

    @property
    def experts_per_token(self) -> int:
        """The feed-forward blocks of a layer that compute a token."""
        return self.num_experts_per_tok or 1

    @property
    def feed_forward_size(self) -> int:
        """The width of a feed-forward block or of an expert."""
        return self.moe_intermediate_size or self.intermediate_size


_GROUPED_WIDTH = 8
"""Rows of a grouped matrix product must be multiples of 16 bytes (torch 2.15)."""


def _find_family_problems(shape: ModelShape) -> Iterator[FieldProblem]:
    """Yield the fields that the family needs and that it does not have."""
    is_mixture = shape.architecture in MIXTURES
    for field in ("num_experts", "num_experts_per_tok"):
        if is_mixture and getattr(shape, field) is None:
            yield FieldProblem(field=field, title=f"a {shape.architecture} model needs `{field}`")
        if not is_mixture and getattr(shape, field) is not None:
            hint = f"use `architecture: {MIXTURES[0]}` or `{MIXTURES[1]}`"
            yield FieldProblem(field=field, title=f"a {shape.architecture} model has no experts", hint=hint)
    if shape.architecture == "qwen3_moe" and shape.moe_intermediate_size is None:
        yield FieldProblem(field="moe_intermediate_size", title="a qwen3_moe model needs `moe_intermediate_size`")
    if shape.architecture != "qwen3_moe" and shape.moe_intermediate_size is not None:
        title = f"a {shape.architecture} model has no `moe_intermediate_size`"
        yield FieldProblem(field="moe_intermediate_size", title=title, hint="use `intermediate_size`")
    if shape.experts_per_token > shape.experts:
        title = f"`num_experts_per_tok` {shape.experts_per_token} is above `num_experts` {shape.experts}"
        yield FieldProblem(field="num_experts_per_tok", title=title)
    for field in ("hidden_size", "moe_intermediate_size" if shape.moe_intermediate_size else "intermediate_size"):
        if is_mixture and (width := getattr(shape, field)) % _GROUPED_WIDTH:
            title = f"`{field}` {width} is not a multiple of {_GROUPED_WIDTH}, as grouped matrix products need it"
            yield FieldProblem(field=field, title=title)
    if shape.head_dim and shape.architecture == "gpt_neox":
        yield FieldProblem(field="head_dim", title="gpt_neox does not support `head_dim`")


def _find_rotary_problems(shape: ModelShape) -> Iterator[FieldProblem]:
    """Yield the field that gives a head a width which rotary position embeddings cannot rotate: they rotate pairs."""
    width, rotated = shape.head_size, shape.rotary_size
    if rotated % 2 == 0 and rotated:
        return
    if rotated != width:
        title = f"`rotary_pct` {shape.rotary_pct:g} rotates {rotated} of the {width} numbers of a head, and must rotate pairs"
        yield FieldProblem(field="rotary_pct", title=title)
        return
    source = (
        "" if shape.head_dim else f" (`hidden_size` {shape.hidden_size} / `num_attention_heads` {shape.num_attention_heads})"
    )
    title = f"an attention head has the width {width}{source}, and rotary position embeddings need an even one"
    yield FieldProblem(field="head_dim" if shape.head_dim else "num_attention_heads", title=title)


_GEOMETRY = ("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads")


def find_config_problems(config: Mapping[str, object]) -> list[str]:
    """Return what makes the shape in a Hugging Face config.json impossible, for the dense families that kfjob knows."""
    family, optional = config.get("model_type"), ("head_dim", "num_key_value_heads", "max_position_embeddings")
    if family not in get_args(Architecture) or family in MIXTURES or any(config.get(name) is None for name in _GEOMETRY):
        return []
    names = (*_GEOMETRY, *(name for name in optional if config.get(name) is not None))
    fields = {name: config[name] for name in names} | ({"rotary_pct": config["rotary_pct"]} if "rotary_pct" in config else {})
    try:
        ModelShape.model_validate({"architecture": family, **fields})
    except SpecError as error:
        return [problem.title for problem in error.problems]
    return []


def count_embedding_parameters(shape: ModelShape) -> int:
    """Return the parameters of the input embedding; a tied output head has no parameters of its own."""
    return shape.vocab_size * shape.hidden_size


def count_parameters(shape: ModelShape) -> int:
    """Return the number of trainable parameters; tied parameters count once, and every expert counts.

    Source: transformers' modeling_llama, modeling_mistral, modeling_qwen2 (biases on q, k, v), modeling_gpt_neox (biases on all
    but the head, layer norms with bias), modeling_mixtral and modeling_qwen3_moe (norms of q and k).
    """
    h, i = shape.hidden_size, shape.feed_forward_size
    q, kv = shape.num_attention_heads * shape.head_size, shape.key_value_heads * shape.head_size
    if shape.architecture == "gpt_neox":
        layer = (3 * h * h + 3 * h) + (h * h + h) + (2 * h * i + i + h) + 4 * h
        final_norm = 2 * h
    else:
        layer = (2 * h * q + 2 * h * kv) + shape.experts * 3 * h * i + 2 * h
        layer += q + 2 * kv if shape.architecture == "qwen2" else 0
        layer += shape.experts * h if shape.num_experts else 0
        layer += 2 * shape.head_size if shape.architecture == "qwen3_moe" else 0
        final_norm = h
    embeddings = count_embedding_parameters(shape) * (1 if shape.tie_word_embeddings else 2)
    return embeddings + shape.num_hidden_layers * layer + final_norm


def count_idle_parameters(shape: ModelShape) -> int:
    """Return the number of parameters that do not compute a token: those of the experts that the router does not choose."""
    expert = 3 * shape.hidden_size * shape.feed_forward_size
    return shape.num_hidden_layers * (shape.experts - shape.experts_per_token) * expert


def _shape(**fields: Any) -> ModelShape:
    """Return a shape without validation, which takes a tenth of the time of `kfjob render`. A test validates them."""
    return ModelShape.model_construct(**fields)


def _llama2(hidden: int, intermediate: int, layers: int, heads: int, groups: int) -> ModelShape:
    return _shape(
        vocab_size=32000,
        hidden_size=hidden,
        intermediate_size=intermediate,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=groups,
    )


def _llama3(
    hidden: int, intermediate: int, layers: int, heads: int, *, positions: int = 8192, factor: float | None = None
) -> ModelShape:
    return _shape(
        vocab_size=128256,
        hidden_size=hidden,
        intermediate_size=intermediate,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=8,
        max_position_embeddings=positions,
        rope_theta=500000.0,
        rope_llama3_factor=factor,
        tie_word_embeddings=factor is not None,
    )


PRESETS: Mapping[str, ModelShape] = MappingProxyType(
    {
        # For tests and first steps: a Llama with 1.6 million parameters, and the smallest one that has every part.
        "tiny-llama": _shape(
            vocab_size=2048,
            hidden_size=192,
            intermediate_size=512,
            num_hidden_layers=2,
            num_attention_heads=6,
            num_key_value_heads=2,
            max_position_embeddings=1024,
            initializer_range=0.06,  # near 1 / sqrt(width); with 0.02 such a narrow model learns much more slowly
        ),
        "micro-llama": _shape(
            vocab_size=256,
            hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            max_position_embeddings=1024,
        ),
        # The default model of the eks script, see `kfjob.trainspec.script_arguments`.
        "gpt-neox-small": _shape(
            architecture="gpt_neox",
            vocab_size=50432,
            hidden_size=768,
            intermediate_size=3072,
            num_hidden_layers=12,
            num_attention_heads=12,
            max_position_embeddings=2048,
            rotary_pct=0.25,
        ),
        # Tiny models with experts, for tests and first runs.
        "micro-mixtral": _shape(
            architecture="mixtral",
            vocab_size=256,
            hidden_size=32,
            intermediate_size=48,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            max_position_embeddings=1024,
            num_experts=4,
            num_experts_per_tok=2,
            router_aux_loss_coef=0.02,
        ),
        "micro-qwen3-moe": _shape(
            architecture="qwen3_moe",
            vocab_size=256,
            hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=2,
            head_dim=16,
            num_attention_heads=4,
            num_key_value_heads=2,
            max_position_embeddings=1024,
            norm_eps=1e-6,
            num_experts=8,
            num_experts_per_tok=2,
            moe_intermediate_size=24,
            norm_topk_prob=True,
        ),
        "llama-2-7b": _llama2(4096, 11008, 32, 32, 32),
        "llama-2-13b": _llama2(5120, 13824, 40, 40, 40),
        "llama-2-70b": _llama2(8192, 28672, 80, 64, 8),
        "llama-3-8b": _llama3(4096, 14336, 32, 32),
        "llama-3-70b": _llama3(8192, 28672, 80, 64),
        "llama-3.2-1b": _llama3(2048, 8192, 16, 32, positions=131072, factor=32.0),
        "llama-3.2-3b": _llama3(3072, 8192, 28, 24, positions=131072, factor=32.0),
        "mistral-7b": _shape(
            architecture="mistral",
            vocab_size=32000,
            hidden_size=4096,
            intermediate_size=14336,
            num_hidden_layers=32,
            num_attention_heads=32,
            num_key_value_heads=8,
            max_position_embeddings=32768,
            sliding_window=4096,
        ),
        "qwen2-1.5b": _shape(
            architecture="qwen2",
            vocab_size=151936,
            hidden_size=1536,
            intermediate_size=8960,
            num_hidden_layers=28,
            num_attention_heads=12,
            num_key_value_heads=2,
            max_position_embeddings=131072,
            rope_theta=1000000.0,
            norm_eps=1e-6,
            tie_word_embeddings=True,
        ),
        "mixtral-8x7b": _shape(
            architecture="mixtral",
            vocab_size=32000,
            hidden_size=4096,
            intermediate_size=14336,
            num_hidden_layers=32,
            num_attention_heads=32,
            num_key_value_heads=8,
            max_position_embeddings=32768,
            rope_theta=1000000.0,
            num_experts=8,
            num_experts_per_tok=2,
            router_aux_loss_coef=0.02,
        ),
        "qwen3-30b-a3b": _shape(
            architecture="qwen3_moe",
            vocab_size=151936,
            hidden_size=2048,
            intermediate_size=6144,
            num_hidden_layers=48,
            head_dim=128,
            num_attention_heads=32,
            num_key_value_heads=4,
            max_position_embeddings=40960,
            rope_theta=1000000.0,
            norm_eps=1e-6,
            num_experts=128,
            num_experts_per_tok=8,
            moe_intermediate_size=768,
            norm_topk_prob=True,
        ),
    }
)
