"""A tokenizer from a folder with tokenizer.json, and which of its tokens ends a text."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from kfjob.errors import KfjobError

_COMMON = ("<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>", "<|im_end|>")


@dataclass(frozen=True, kw_only=True)
class TextTokenizer:
    """Text to token numbers."""

    encode: Callable[[str], list[int]]
    vocab_size: int
    end_of_text: int


def open_tokenizer(folder: Path) -> TextTokenizer:
    """Read `tokenizer.json`; the end-of-text token is the one that tokenizer_config.json names, else a common one.

    Raises:
        KfjobError: the file is missing, is no tokenizer, or has no end-of-text token.
    """
    import tokenizers

    path = folder / "tokenizer.json" if folder.is_dir() else folder
    if not path.exists():
        raise KfjobError(f"no tokenizer at `{path}`", hint="`tokenizer:` names a folder with tokenizer.json")
    try:
        tokenizer = tokenizers.Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises no narrower one
        raise KfjobError(f"cannot read the tokenizer `{path}`", cause=str(error)) from error
    named = (tokenizer.token_to_id(token) for token in (_configured_end(path.parent), *_COMMON) if token)
    end_of_text = next((number for number in named if number is not None), None)
    if end_of_text is None:
        hint = "name one as `eos_token` in the tokenizer_config.json beside it"
        raise KfjobError(f"the tokenizer `{path}` has no end-of-text token", hint=hint)
    return TextTokenizer(
        encode=lambda text: list(tokenizer.encode(text, add_special_tokens=False).ids),
        vocab_size=tokenizer.get_vocab_size(),
        end_of_text=end_of_text,
    )


def _configured_end(folder: Path) -> str | None:
    path = folder / "tokenizer_config.json"
    if not path.exists():
        return None
    try:
        token = json.loads(path.read_text()).get("eos_token")
    except (ValueError, AttributeError) as error:
        raise KfjobError(f"cannot read `{path}`", cause=str(error)) from error
    return token.get("content") if isinstance(token, dict) else token
