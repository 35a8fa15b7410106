"""A tokenizer from a folder with tokenizer.json, or from the hub, with its chat template and the tokens around a text."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kfjob.base.errors import KfjobError
from kfjob.base.parsing import ParseError, parse_json_object, read_document
from kfjob.trainer.hub import fetch_folder

CONFIG = "tokenizer_config.json"
FILES = ("tokenizer.json", CONFIG, "chat_template.jinja", "special_tokens_map.json")
_COMMON_END_TOKENS = ("<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>", "<|im_end|>")


def copy_tokenizer(source: Path, target: Path) -> None:
    """Copy the files of a tokenizer from one folder to another.

    Raises:
        KfjobError: a file is a link that leads out of the folder, or out of the hub's cache.
    """
    folder = source.resolve()
    cache = folder.parents[1] / "blobs" if folder.parent.name == "snapshots" else folder
    for name in FILES:
        file = (folder / name).resolve()
        if not file.exists():
            continue
        if not file.is_file() or not (file.is_relative_to(folder) or file.is_relative_to(cache)):
            raise KfjobError(f"`{source / name}` is a link that leads out of its folder", hint="replace the link by the file")
        shutil.copyfile(file, target / name)


@dataclass(frozen=True, kw_only=True)
class TextTokenizer:
    """Turns text into token ids."""

    encode: Callable[[str], list[int]]
    """Returns the token ids of the text alone, without special tokens."""
    encode_with_spans: Callable[[str], tuple[list[int], list[tuple[int, int]]]]
    """Returns token ids, and for each the span of characters that it stands for."""
    vocab_size: int
    """Above every token id; the ids may have gaps."""
    end_of_text: int
    begin_of_text: int | None
    """The token with which every text begins; None if the tokenizer adds none."""
    fingerprint: str
    """SHA-256 of everything that the tokens of a text depend on."""
    folder: Path
    chat_template: str | None = None
    special_tokens: dict[str, str] = field(default_factory=dict)
    """The tokens that a chat template can use: bos_token, eos_token and so on."""

    def fingerprint_template(self) -> str:
        """Return the SHA-256 of what the text of a conversation depends on."""
        return hashlib.sha256(json.dumps([self.chat_template, self.special_tokens], sort_keys=True).encode()).hexdigest()


def open_tokenizer(location: Path | str) -> TextTokenizer:
    """Read `tokenizer.json`; the end-of-text token is the one in tokenizer_config.json, else a common one.

    A text begins with `bos_token` if the configuration has `add_bos_token: true`. Without this setting, the post-processor in
    tokenizer.json decides (Llama 3).

    Raises:
        KfjobError: the file is missing or invalid, or the tokenizer has no end-of-text token.
    """
    import tokenizers

    folder = fetch_folder(location, FILES, kind="tokenizer")
    try:
        path = folder / "tokenizer.json" if folder.is_dir() else folder
        content = read_document(path)
        tokenizer = tokenizers.Tokenizer.from_buffer(content)
    except FileNotFoundError as error:
        hint = "set `tokenizer` to a folder with tokenizer.json"
        raise KfjobError(f"no tokenizer at `{path}`", location="tokenizer", hint=hint) from error
    except Exception as error:  # the library raises no narrower one
        hint = "set `tokenizer` to the tokenizer.json that `tokenizers` or transformers has saved, or to its folder"
        raise KfjobError(f"cannot read the tokenizer `{folder}`", location="tokenizer", cause=str(error), hint=hint) from error
    if tokenizer.truncation is not None or tokenizer.padding is not None:  # documents are divided and filled up later
        tokenizer.no_truncation()
        tokenizer.no_padding()
        content += b"whole"
    config = _read_config(path.parent)
    special_tokens = {name: text for name, value in config.items() if name.endswith("_token") and (text := _token_text(value))}
    end_tokens = (special_tokens.get("eos_token"), *_COMMON_END_TOKENS)
    token_ids = (tokenizer.token_to_id(token) for token in end_tokens if token)
    end_of_text = next((token_id for token_id in token_ids if token_id is not None), None)
    if end_of_text is None:
        hint = f"set `eos_token` in {CONFIG}, in the same folder"
        raise KfjobError(f"the tokenizer `{path}` has no end-of-text token", hint=hint)

    begin_of_text = _find_begin_of_text(tokenizer, special_tokens.get("bos_token"), config.get("add_bos_token"))

    def encode_with_spans(text: str) -> tuple[list[int], list[tuple[int, int]]]:
        encoding = tokenizer.encode(text, add_special_tokens=False)
        return encoding.ids, encoding.offsets

    return TextTokenizer(
        encode=lambda text: list(tokenizer.encode(text, add_special_tokens=False).ids),
        encode_with_spans=encode_with_spans,
        vocab_size=max(tokenizer.get_vocab().values(), default=0) + 1,
        end_of_text=end_of_text,
        begin_of_text=begin_of_text,
        fingerprint=hashlib.sha256(content + (b"" if begin_of_text is None else b"bos")).hexdigest(),
        folder=path.parent,
        chat_template=_read_chat_template(path.parent, config),
        special_tokens={"eos_token": str(tokenizer.id_to_token(end_of_text))} | special_tokens,
    )


def _find_begin_of_text(tokenizer: Any, token: str | None, add: Any) -> int | None:
    """Return the token with which the tokenizer begins a text; `add` is its own setting, None without one."""
    token_id: int | None = tokenizer.token_to_id(token) if token else None
    if add is None:
        return token_id if token_id in tokenizer.encode("").ids[:1] else None
    return token_id if add else None


def _read_config(folder: Path) -> dict[str, Any]:
    path = folder / CONFIG
    if not path.exists():
        return {}
    try:
        return parse_json_object(read_document(path))
    except (OSError, ParseError) as error:
        raise KfjobError(f"cannot read `{path}`", cause=str(error)) from error


def _token_text(token: Any) -> str | None:
    """Return the text of a token, which configurations write plainly or as an object with properties."""
    text = token.get("content") if isinstance(token, dict) else token
    return text if isinstance(text, str) else None


def _read_template(path: Path) -> str:
    try:
        return read_document(path).decode()
    except (OSError, ValueError) as error:
        raise KfjobError(f"cannot read `{path}`", cause=str(error)) from error


def _read_chat_template(folder: Path, config: dict[str, Any]) -> str | None:
    """Return the chat template: from its own file (transformers 5), or from the configuration, which may name several."""
    if (path := folder / "chat_template.jinja").exists():
        return _read_template(path)
    template = config.get("chat_template")
    if isinstance(template, list):
        try:
            template = {entry["name"]: entry["template"] for entry in template}.get("default")
        except (TypeError, KeyError) as error:
            title = f"`chat_template` in `{folder / CONFIG}` is not a list of templates with `name` and `template`"
            raise KfjobError(title, location="tokenizer") from error
    return template if isinstance(template, str) else None
