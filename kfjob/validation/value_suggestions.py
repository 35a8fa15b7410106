"""Suggest the value that a user probably means by one that a field does not take.

Choices by closeness and by other programs' words, truth values as words, lists without brackets, and sections without their
field. Pure; a suggestion is never applied.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from itertools import chain
from types import MappingProxyType
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel

from kfjob.base.text import snake_case
from kfjob.validation.field_paths import Path
from kfjob.validation.model_fields import find_model

_CHOICE_WORDS: Mapping[str, str] = MappingProxyType(
    {
        "torchrun": "torch pytorch ddp elastic torch_distributed_run torch_elastic torchelastic torchx distributed",
        "launch": "torch_distributed_launch torch_launch distributed_launch",
        "accelerate": "hf huggingface accelerate_launch hf_accelerate",
        "deepspeed": "ds zero zero1 zero2 zero3 deep_speed megatron_deepspeed",
        "python": "python3 plain spawn script direct mp multiprocessing",
        "c10d": "tcp tcpstore store gloo nccl torch c10 default env dynamic",
        "etcd": "etcd3 etcdserver etcd_v3",
        "etcd-v2": "etcd2 etcdv2",
        "static": "env_init fixed master master_addr tcp_static",
        "fsdp": "fsdp1 fsdp2 fully_sharded fully_sharded_data_parallel full_shard",
        "ddp": "distributed_data_parallel data_parallel_distributed ddp_find_unused",
        "dp": "data_parallel dataparallel",
        "none": "no off false null single nothing disabled",
        "None": "no off false null nothing never keep",
        "Never": "no off false null nothing none disabled",
        "Always": "yes on true unless_stopped",
        "OnFailure": "failure failed on_error",
        "fp32": "float32 float f32 single full 32 tf32",
        "bf16": "bfloat16 bfloat b16 bf_16 bf16_mixed mixed",
        "fp16": "float16 half f16 16 fp16_mixed amp",
        "bf16-true": "pure_bf16 bf16_pure bfloat16_true full_bf16",
        "full": "full_shard zero3 fsdp all",
        "shard_grad_op": "zero2 grad_op",
        "hybrid": "hybrid_shard hsdp",
        "no_shard": "replicate ddp none",
        "cosine": "cos cosine_with_warmup cosine_annealing cosine_decay cosineannealinglr",
        "linear": "linear_with_warmup linear_decay",
        "constant": "constant_with_warmup fixed flat",
        "exponential": "exp exponential_decay",
        "plateau": "reduce_lr_on_plateau reducelronplateau",
        "wsd": "warmup_stable_decay trapezoidal",
        "stop": "fail abort error raise exit halt",
        "skip": "ignore continue pass",
        "roll_back": "restore revert rewind",
        "ignore": "none off continue pass no",
        "all": "full everything true yes",
        "chat": "messages conversations sharegpt instruct",
        "text": "raw plain corpus",
    }
)
"""Words for a choice in other programs, by the choice; a word counts only where the field has that choice."""
_TRUE = "true yes on y t enable enabled active activate sure ok yup yeah always 1 si oui ja"
_FALSE = "false no off n f disable disabled inactive never none nope null 0 non nein"
_MAX_WORD = 60
"""Characters of a value that may be another word for a valid one."""
_SIMILAR = 0.6
_MAX_PAIRS = 3
"""Names of a list that a hint writes as a mapping."""


def suggest_choice(value: object, choices: Sequence[str]) -> str | None:
    """Return the choice that a value probably means: in another spelling, a word of another program, or a typing error."""
    if not isinstance(value, str | int | float) or len(str(value)) > _MAX_WORD:
        return None
    word = snake_case(str(value))
    spellings = {snake_case(choice): choice for choice in choices}
    if word in spellings:
        return spellings[word]
    for choice in choices:
        if word in _CHOICE_WORDS.get(choice, "").split():
            return choice
    matches = difflib.get_close_matches(word, list(spellings), n=1, cutoff=_SIMILAR)
    return spellings[matches[0]] if matches else None


def suggest_truth(value: object) -> str | None:
    """Return `true` or `false` for a word that means it."""
    if not isinstance(value, str | int | float) or len(str(value)) > _MAX_WORD:
        return None
    word = snake_case(str(value))
    for answer, words in (("true", _TRUE), ("false", _FALSE)):
        if word in words.split():
            return answer
    matches = difflib.get_close_matches(word, ("true", "false"), n=1, cutoff=_SIMILAR)
    return matches[0] if matches else None


def suggest_section(value: object, path: Path, root: type[BaseModel]) -> str | None:
    """Return how to write the section with the field that a scalar in its place probably means, or with any of its fields."""
    section = find_model(root, path)
    if section is None or not path or isinstance(value, dict | list | None):
        return None
    if value is True and not any(info.is_required() for info in section.model_fields.values()):
        return f"write `{path[-1]}: {{}}` to use the defaults"
    fits = {name: text for name, info in section.model_fields.items() if (text := _fit(value, info.annotation))}
    if len(fits) > 1:
        required = {name: text for name, text in fits.items() if section.model_fields[name].is_required()}
        fits = required or fits
    if len(fits) == 1:
        [(name, text)] = fits.items()
        return f"write `{path[-1]}: {{{name}: {text}}}`"
    return f"write `{path[-1]}: {{FIELD: VALUE}}`; the fields are {', '.join(sorted(section.model_fields))}"


def suggest_list(value: object, path: Path) -> str | None:
    """Return how to write a value in a list."""
    if isinstance(value, dict):
        return "begin each item with `- `"
    if isinstance(value, str | int | float) and not isinstance(value, bool) and path and len(str(value)) <= _MAX_WORD:
        items = ", ".join(part.strip() for part in str(value).split(","))
        return f"write `{path[-1]}: [{items}]`"
    return None


def suggest_mapping(value: object, path: Path) -> str | None:
    """Return how to write a list of pairs (`- A=1`, `- {name: A, value: 1}`) as a mapping."""
    items = value if isinstance(value, list) else str(value).split() if isinstance(value, str) else []
    keys = [key for item in items[:_MAX_PAIRS] if (key := _read_key(item))]
    if not keys or not path:
        return None
    more = ", …" if len(items) > len(keys) else ""
    return f"write `{path[-1]}: {{{', '.join(f'{key}: VALUE' for key in keys)}{more}}}`"  # the values may be secrets


def _read_key(item: object) -> str | None:
    """Return the name in `A=1`, `{name: A, value: 1}` or `{A: 1}`."""
    if isinstance(item, str):
        key, equals, _ = item.partition("=")
        return key if equals else None
    if isinstance(item, dict) and "name" in item:
        return str(item["name"])
    return str(next(iter(item))) if isinstance(item, dict) and len(item) == 1 else None


def _fit(value: object, annotation: Any) -> str | None:
    """Return the value as a field of this type takes it; None if it does not."""
    choices = list_choices(annotation)
    if choices:
        return suggest_choice(value, choices)
    return str(value) if _holds(annotation, int) and isinstance(value, int) and not isinstance(value, bool) else None


def list_choices(annotation: Any) -> tuple[str, ...]:
    """Return the texts of the `Literal` in a type, which may also take None."""
    if get_origin(annotation) is Literal:
        return tuple(str(choice) for choice in get_args(annotation))
    return tuple(chain.from_iterable(list_choices(part) for part in get_args(annotation) if part is not type(None)))


def _holds(annotation: Any, kind: type) -> bool:
    return annotation is kind or any(part is kind for part in get_args(annotation))
