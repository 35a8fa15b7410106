"""Shapes of causal language models, presets with the published numbers, and the parameter count of a shape. Pure data."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal

from pydantic import ConfigDict, Field, PositiveFloat, PositiveInt, ValidationInfo, field_validator

from kfjob.spec.base import SpecModel, field_error

Architecture = Literal["llama", "mistral", "qwen2", "gpt_neox"]


class ModelShape(SpecModel):
    """The shape of a decoder-only transformer, with the field names of its Hugging Face configuration."""

    model_config = ConfigDict(validate_default=False)

    architecture: Architecture = Field(default="llama", description="Model family in transformers")
    vocab_size: PositiveInt = Field(description="Rows of the embedding")
    hidden_size: PositiveInt = Field(description="Width of the residual stream")
    intermediate_size: PositiveInt = Field(description="Width of the feed-forward block")
    num_hidden_layers: PositiveInt = Field(description="Number of decoder layers")
    num_attention_heads: PositiveInt = Field(description="Number of query heads")
    num_key_value_heads: PositiveInt | None = Field(
        default=None, description="Number of key and value heads; default: one per query head"
    )
    max_position_embeddings: PositiveInt = Field(default=4096, description="Longest sequence in tokens")
    tie_word_embeddings: bool = Field(default=False, description="Use the embedding as the output head")
    rope_theta: PositiveFloat = Field(default=10000.0, description="Base of the rotary frequencies")
    rope_llama3_factor: PositiveFloat | None = Field(
        default=None, description="Factor of Llama 3.1's rotary scaling for more than 8192 positions"
    )
    rotary_pct: PositiveFloat = Field(default=1.0, le=1, description="Fraction of a head that is rotated (gpt_neox)")
    norm_eps: PositiveFloat = Field(default=1e-5, description="Epsilon of the norms")
    initializer_range: PositiveFloat = Field(default=0.02, description="Standard deviation of initial weights")
    sliding_window: PositiveInt | None = Field(default=None, description="Attention window in tokens (mistral)")

    @field_validator("num_attention_heads")
    @classmethod
    def _check_heads(cls, heads: int, info: ValidationInfo) -> int:
        if (width := info.data.get("hidden_size")) and width % heads:
            raise field_error("heads", f"{heads} heads do not divide `hidden_size` {width}")
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

    @property
    def head_dim(self) -> int:
        """The width of one attention head."""
        return self.hidden_size // self.num_attention_heads

    @property
    def key_value_heads(self) -> int:
        """The number of key and value heads, including the default."""
        return self.num_key_value_heads or self.num_attention_heads


def count_embedding_parameters(shape: ModelShape) -> int:
    """Return the parameters of the input embedding; a tied output head has no parameters of its own."""
    return shape.vocab_size * shape.hidden_size


def count_parameters(shape: ModelShape) -> int:
    """Return the number of trainable parameters; tied parameters count once.

    Source: transformers' modeling_llama, modeling_mistral, modeling_qwen2 (biases on q, k, v) and modeling_gpt_neox (biases on
    all but the head, layer norms with bias).
    """
    h, i = shape.hidden_size, shape.intermediate_size
    kv = shape.key_value_heads * shape.head_dim
    if shape.architecture == "gpt_neox":
        layer = (3 * h * h + 3 * h) + (h * h + h) + (2 * h * i + i + h) + 4 * h
        final_norm = 2 * h
    else:
        layer = (2 * h * h + 2 * h * kv) + 3 * h * i + 2 * h
        layer += h + 2 * kv if shape.architecture == "qwen2" else 0
        final_norm = h
    embeddings = count_embedding_parameters(shape) * (1 if shape.tie_word_embeddings else 2)
    return embeddings + shape.num_hidden_layers * layer + final_norm


def _llama2(hidden: int, intermediate: int, layers: int, heads: int, groups: int) -> ModelShape:
    return ModelShape(
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
    return ModelShape(
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
        "tiny-llama": ModelShape(
            vocab_size=2048,
            hidden_size=192,
            intermediate_size=512,
            num_hidden_layers=2,
            num_attention_heads=6,
            num_key_value_heads=2,
            max_position_embeddings=1024,
            initializer_range=0.06,  # near 1 / sqrt(width); with 0.02 such a narrow model learns much more slowly
        ),
        "micro-llama": ModelShape(
            vocab_size=256,
            hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            max_position_embeddings=256,
        ),
        # The default model of the eks script, see `kfjob.spec.script_arguments`.
        "gpt-neox-small": ModelShape(
            architecture="gpt_neox",
            vocab_size=50432,
            hidden_size=768,
            intermediate_size=3072,
            num_hidden_layers=12,
            num_attention_heads=12,
            max_position_embeddings=2048,
            rotary_pct=0.25,
        ),
        "llama-2-7b": _llama2(4096, 11008, 32, 32, 32),
        "llama-2-13b": _llama2(5120, 13824, 40, 40, 40),
        "llama-2-70b": _llama2(8192, 28672, 80, 64, 8),
        "llama-3-8b": _llama3(4096, 14336, 32, 32),
        "llama-3-70b": _llama3(8192, 28672, 80, 64),
        "llama-3.2-1b": _llama3(2048, 8192, 16, 32, positions=131072, factor=32.0),
        "llama-3.2-3b": _llama3(3072, 8192, 28, 24, positions=131072, factor=32.0),
        "mistral-7b": ModelShape(
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
        "qwen2-1.5b": ModelShape(
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
    }
)
