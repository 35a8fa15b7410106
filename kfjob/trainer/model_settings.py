"""The settings of a model that change what it computes, but not the shapes of its parameters.

A checkpoint stores them, so that a run does not resume with a `config.json` that has changed meanwhile.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from torch import nn

from kfjob.trainer.shapes import unwrap

_IGNORED = {
    *("architectures", "auto_map", "dtype", "torch_dtype", "transformers_version", "id2label", "label2id"),
    *("chunk_size_feed_forward", "initializer_range", "is_encoder_decoder", "problem_type", "return_dict", "use_cache"),
    *("output_attentions", "output_hidden_states", "output_router_logits", "pretraining_tp", "gradient_checkpointing"),
}
"""Settings that do not change what a model computes in training, but for its initial weights."""
_IGNORED_ENDINGS = ("_token_id", "token_index")
_TRAINING_ENDINGS = ("dropout", "pdrop", "router_aux_loss_coef", "router_jitter_noise", "layerdrop")
"""Endings of settings that only regularise the training, which a run may change."""
_FIXED_ROTARY = {"default", "linear", "llama3"}
"""Rotary embeddings that do not depend on the longest sequence."""


def read_settings(model: nn.Module) -> dict[str, Any]:
    """Return the settings of a model, wrapped or not, by name; nested ones have names with dots."""
    config: Any = getattr(unwrap(model), "config", None)
    if config is None or not hasattr(config, "to_dict"):
        return {}
    text = json.dumps(config.to_dict(), default=str, sort_keys=True)
    plain = json.loads(text, parse_constant=str)  # a manifest holds no infinite numbers
    settings = {name: value for name, value in _flatten(plain) if not _is_ignored(name)}
    kinds = {value for name, value in settings.items() if name.endswith("rope_type")}
    if kinds <= _FIXED_ROTARY:
        settings.pop("max_position_embeddings", None)
    return settings


def find_different_settings(stored: Mapping[str, Any], present: Mapping[str, Any], *, training: bool) -> list[str]:
    """Return the names of the settings that differ: those of the training, or the others.

    A version of transformers may add or remove a setting, so one that only one side has does not count.
    """
    common = [name for name in stored if name in present]
    return [name for name in common if stored[name] != present[name] and name.endswith(_TRAINING_ENDINGS) == training]


def _is_ignored(name: str) -> bool:
    return name.endswith(_IGNORED_ENDINGS) or any(part in _IGNORED or part.startswith("_") for part in name.split("."))


def _flatten(settings: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in settings.items():
        if isinstance(value, dict):
            yield from _flatten(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value
