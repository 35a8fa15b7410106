"""Encoders: they turn a record into the tokens of a document and a loss mask."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from kfjob.trainer.data.records import MAX_DOCUMENT_CHARACTERS, NO_OBJECT, RecordError, check_size
from kfjob.trainer.data.tokenizer import TextTokenizer

Tokens = npt.NDArray[np.int64]
LossMask = npt.NDArray[np.bool_]
_MAX_FIELDS, _MAX_NAME = 10, 40
"""Fields of a record that a message names, and the characters of each."""


@dataclass(frozen=True)
class Document:
    """The tokens of a document; `loss_mask` is true for the tokens that the model learns to predict, None means all."""

    tokens: Tokens
    loss_mask: LossMask | None = None


class Encoder(Protocol):
    """Turns records of one format into documents."""

    @property
    def splits_documents(self) -> bool:
        """Whether a document that is longer than a sample continues in the next one; otherwise it is truncated."""

    @property
    def columns(self) -> Sequence[str]:
        """The fields that `extract` reads."""

    def extract(self, record: Mapping[str, Any]) -> Any:
        """Return the part of a record that `encode` needs; None skips the record."""

    def encode(self, item: Any) -> Document:
        """Tokenise what `extract` returned."""


def describe_fields(record: Mapping[str, Any]) -> str:
    """Return the end of a message about a record without its text: the fields that it has."""
    names = [f"`{str(name)[:_MAX_NAME]}`" for name in islice(record, _MAX_FIELDS)]
    return f"; the record has {', '.join(names)}{', …' if len(record) > _MAX_FIELDS else ''}" if names else ""


class TextEncoder:
    """Encodes the text of one field between the tokenizer's begin-of-text token, if it adds one, and an end-of-text token."""

    splits_documents = True

    def __init__(self, text_field: str, tokenizer: TextTokenizer) -> None:
        """Read the text from the field `text_field`."""
        self.columns = (text_field,)
        self._field = text_field
        self._encode: Callable[[str], list[int]] = tokenizer.encode
        self._begin = [] if tokenizer.begin_of_text is None else [tokenizer.begin_of_text]
        self._end_of_text = tokenizer.end_of_text

    def extract(self, record: Mapping[str, Any]) -> str | None:
        """Return the text without surrounding white space; None if it is empty."""
        if not isinstance(record, Mapping):
            raise RecordError(NO_OBJECT)
        if self._field not in record and "messages" in record:
            hint = "set `data_format: chat` to read conversations"
            raise RecordError(f"no field `{self._field}`, but `messages`", hint=hint)
        if self._field not in record:
            hint = "set `text_field` to the field that holds the text"
            raise RecordError(f"no field `{self._field}`{describe_fields(record)}", hint=hint)
        if not isinstance(text := record[self._field], str):
            raise RecordError(f"the field `{self._field}` is not text")
        check_size(len(text), MAX_DOCUMENT_CHARACTERS, "the text", "characters")
        return text.strip() or None

    def encode(self, item: str) -> Document:
        """Tokenise the text; the model learns all of it."""
        return Document(np.array([*self._begin, *self._encode(item), self._end_of_text], dtype=np.int64))
