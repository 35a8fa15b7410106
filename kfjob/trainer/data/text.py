"""Text read in lanes and tokenised as it is read, resumable at every sample.

A file is cut into V lanes of about equal size, each a run of whole documents (lines). A lane reads a window of documents,
shuffles it, and packs the tokens into samples without a gap, one end-of-text token between documents. All its randomness is a
function of the seed and of where it is, so that four numbers, the cursor, are its whole state: nothing buffered is kept.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from kfjob.errors import KfjobError
from kfjob.trainer.data.permutation import mixed, permuted

Tokens = npt.NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class Cursor:
    """Where a lane's next sample begins."""

    epoch: int = 0
    window: int
    """Byte at which the window begins."""
    document: int = 0
    """Its place in the shuffled window."""
    token: int = 0


@dataclass(frozen=True, kw_only=True)
class TextFile:
    """A file of documents, one a line: plain, or JSON with the text in one field."""

    path: Path
    text_field: str
    encode: Callable[[str], list[int]]
    end_of_text: int

    def begin(self, lane: int, lanes: int) -> int:
        """The byte at which the lane's first document begins: the first line that begins in its share of the file."""
        size = self.path.stat().st_size
        share = size * lane // lanes
        if share == 0:
            return 0
        with self.path.open("rb") as file:
            file.seek(share - 1)
            file.readline()
            return file.tell()

    def documents(self, begin: int, end: int) -> Iterator[tuple[int, str]]:
        """(byte after it, text) of each document that begins in [begin, end); empty ones are left out."""
        with self.path.open("rb") as file:
            file.seek(begin)
            while file.tell() < end:
                at = file.tell()
                if text := self._text(file.readline(), at):
                    yield file.tell(), text

    def tokens(self, text: str) -> Tokens:
        """A document's tokens and the end-of-text token."""
        return np.array([*self.encode(text), self.end_of_text], dtype=np.int64)

    def _text(self, line: bytes, at: int) -> str:
        try:
            text = self._field(line) if self.path.suffix == ".jsonl" and line.strip() else line.decode()
        except (UnicodeDecodeError, json.JSONDecodeError, LookupError, TypeError) as error:
            with self.path.open("rb") as file:
                number = file.read(at).count(b"\n") + 1
            raise KfjobError(f"cannot read line {number} of `{self.path}`", cause=str(error)) from error
        return text.strip()

    def _field(self, line: bytes) -> str:
        fields = json.loads(line)
        if not isinstance(fields, dict) or self.text_field not in fields:
            raise LookupError(f"no field `{self.text_field}`")
        if not isinstance(text := fields[self.text_field], str):
            raise TypeError(f"the field `{self.text_field}` is no text")
        return text


class TextLane:
    """One lane: samples of `length` + 1 tokens, each beginning with the last token of the one before it."""

    def __init__(self, file: TextFile, *, lane: int, lanes: int, length: int, window: int, seed: int) -> None:
        """Stand at the lane's beginning."""
        self._file, self._length, self._window = file, length, window
        self._begin, self._end = file.begin(lane, lanes), file.begin(lane + 1, lanes)
        self._key = mixed(lane, seed)
        self.move(Cursor(window=self._begin))

    def move(self, cursor: Cursor) -> None:
        """Go on at `cursor`."""
        self._skip = cursor.token
        self._pieces: deque[tuple[Cursor, Tokens]] = deque()
        self._source = self._shuffled(cursor)

    @property
    def cursor(self) -> Cursor:
        """Where the next sample begins."""
        self._fill(1)
        at = self._pieces[0][0]
        return Cursor(epoch=at.epoch, window=at.window, document=at.document, token=self._skip)

    def sample(self) -> Tokens:
        """The next sample."""
        self._fill(self._length + 1)
        tokens = np.concatenate([piece for _, piece in self._pieces])[self._skip : self._skip + self._length + 1]
        self._skip += self._length
        while self._pieces and self._skip >= len(self._pieces[0][1]):
            self._skip -= len(self._pieces.popleft()[1])
        return tokens

    def _fill(self, tokens: int) -> None:
        while sum(len(piece) for _, piece in self._pieces) - self._skip < tokens:
            self._pieces.append(next(self._source))

    def _shuffled(self, cursor: Cursor) -> Iterator[tuple[Cursor, Tokens]]:
        """Documents for ever, epoch after epoch, from the document of `cursor` on."""
        epoch, window, first = cursor.epoch, cursor.window, cursor.document
        while True:
            documents, end = self._read(window)
            key = mixed(window, mixed(epoch, self._key))
            for place in range(first, len(documents)):
                text = documents[permuted(place, len(documents), key)]
                yield Cursor(epoch=epoch, window=window, document=place), self._file.tokens(text)
            window, first = end, 0
            if end >= self._end:
                epoch, window = epoch + 1, self._begin

    def _read(self, window: int) -> tuple[list[str], int]:
        """The documents of the window that begins at this byte, and the byte after them."""
        documents: list[str] = []
        for after, text in self._file.documents(window, self._end):
            documents.append(text)
            if len(documents) == self._window:
                return documents, after
        if not documents and window == self._begin:
            raise KfjobError(
                f"`{self._file.path}` is too small for the number of lanes",
                cause="no document begins in the share of one lane",
                hint="use a smaller `lanes` (a multiple of the number of ranks), or shorter documents",
            )
        return documents, self._end
