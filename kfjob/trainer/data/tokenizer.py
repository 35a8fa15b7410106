"""A tokenizer from a folder with tokenizer.json, or from the hub: which of its tokens ends a text, and how it writes a chat."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from kfjob.errors import KfjobError
from kfjob.trainer.hub import folder_of

CONFIG = "tokenizer_config.json"
FILES = ("tokenizer.json", CONFIG, "chat_template.jinja", "special_tokens_map.json")
_COMMON = ("<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>", "<|im_end|>")

Ends = npt.NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class TextTokenizer:
    """Text to token numbers."""

    encode: Callable[[str], list[int]]
    encode_with_spans: Callable[[str], tuple[list[int], list[tuple[int, int]]]]
    """Token numbers, and the characters that each stands for."""
    vocab_size: int
    end_of_text: int
    fingerprint: str
    """SHA-256 of tokenizer.json."""
    folder: Path
    chat_template: str | None = None
    special_tokens: dict[str, str] = field(default_factory=dict)
    """What a chat template may name: bos_token, eos_token and so on."""


def open_tokenizer(place: Path | str) -> TextTokenizer:
    """Read `tokenizer.json`; the end-of-text token is the one that tokenizer_config.json names, else a common one.

    Raises:
        KfjobError: the file is missing, is no tokenizer, or has no end-of-text token.
    """
    import tokenizers

    folder = folder_of(place, FILES, what="tokenizer")
    path = folder / "tokenizer.json" if folder.is_dir() else folder
    if not path.exists():
        raise KfjobError(f"no tokenizer at `{path}`", hint="`tokenizer:` names a folder with tokenizer.json")
    try:
        content = path.read_bytes()
        tokenizer = tokenizers.Tokenizer.from_buffer(content)
    except Exception as error:  # the library raises no narrower one
        raise KfjobError(f"cannot read the tokenizer `{path}`", cause=str(error)) from error
    config = _configuration(path.parent)
    special = {name: text for name, value in config.items() if name.endswith("_token") and (text := _text(value))}
    named = (tokenizer.token_to_id(token) for token in (special.get("eos_token"), *_COMMON) if token)
    end_of_text = next((number for number in named if number is not None), None)
    if end_of_text is None:
        hint = "name one as `eos_token` in the tokenizer_config.json beside it"
        raise KfjobError(f"the tokenizer `{path}` has no end-of-text token", hint=hint)

    def encode_with_spans(text: str) -> tuple[list[int], list[tuple[int, int]]]:
        encoding = tokenizer.encode(text, add_special_tokens=False)
        return encoding.ids, encoding.offsets

    return TextTokenizer(
        encode=lambda text: list(tokenizer.encode(text, add_special_tokens=False).ids),
        encode_with_spans=encode_with_spans,
        vocab_size=tokenizer.get_vocab_size(),
        end_of_text=end_of_text,
        fingerprint=hashlib.sha256(content).hexdigest(),
        folder=path.parent,
        chat_template=_template(path.parent, config),
        special_tokens={"eos_token": str(tokenizer.id_to_token(end_of_text))} | special,
    )


def _configuration(folder: Path) -> dict[str, Any]:
    path = folder / CONFIG
    if not path.exists():
        return {}
    try:
        found = json.loads(path.read_text())
    except ValueError as error:
        raise KfjobError(f"cannot read `{path}`", cause=str(error)) from error
    if not isinstance(found, dict):
        raise KfjobError(f"cannot read `{path}`", cause="it is no JSON object")
    return found


def _text(token: Any) -> str | None:
    """A token as it is written in configurations: plain, or with its properties."""
    text = token.get("content") if isinstance(token, dict) else token
    return text if isinstance(text, str) else None


def _template(folder: Path, config: dict[str, Any]) -> str | None:
    """The chat template: a file of its own (transformers 5), or in the configuration, where there may be several by name."""
    if (path := folder / "chat_template.jinja").exists():
        return path.read_text(encoding="utf-8")
    found = config.get("chat_template")
    if isinstance(found, list):
        found = {entry["name"]: entry["template"] for entry in found}.get("default")
    return found if isinstance(found, str) else None
