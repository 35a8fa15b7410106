"""From a record to the tokens of a document, and which of them are to be learnt."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from kfjob.trainer.data.tokenizer import TextTokenizer

Tokens = npt.NDArray[np.int64]
Learnt = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Document:
    """Tokens; `learnt` tells which of them the model is taught to say, None stands for all."""

    tokens: Tokens
    learnt: Learnt | None = None


class Encoder(Protocol):
    """How a kind of record becomes a document."""

    cut: bool
    """Whether a document that is longer than a sample goes on in the next one. Else its end is left out."""
    columns: list[str]
    """Fields that are looked at."""

    def pick(self, record: Mapping[str, Any]) -> Any:
        """What of a record is kept until it is encoded; None where there is nothing."""

    def encode(self, item: Any) -> Document:
        """Tokenise what was picked."""


class TextEncoder:
    """The text of one field, with an end-of-text token after it."""

    cut = True

    def __init__(self, text_field: str, tokenizer: TextTokenizer) -> None:
        """Read the field `text_field`."""
        self.columns = [text_field]
        self._field = text_field
        self._encode: Callable[[str], list[int]] = tokenizer.encode
        self._end = tokenizer.end_of_text

    def pick(self, record: Mapping[str, Any]) -> str | None:
        """The text, without white space around it."""
        if not isinstance(record, Mapping) or self._field not in record:
            also = ", but `messages`" if isinstance(record, Mapping) and "messages" in record else ""
            raise LookupError(f"no field `{self._field}`{also}")
        if not isinstance(text := record[self._field], str):
            raise TypeError(f"the field `{self._field}` is no text")
        return text.strip() or None

    def encode(self, item: str) -> Document:
        """All of it is learnt."""
        return Document(np.array([*self._encode(item), self._end], dtype=np.int64))
