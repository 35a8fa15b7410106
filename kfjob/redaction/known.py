"""Find known secrets wherever they stand: those of a job, and the credentials that this process uses itself.

`remember_credential` is called where a credential is loaded. A server may quote it in an error, so no redactor lets it pass.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterable, Iterator
from typing import Any

from kfjob.redaction.names import is_harmless

MIN_VALUE = 4
"""Known secrets of at least this many characters are replaced wherever they stand; shorter ones only in their own field."""
_MIN_NUMBER = 6
_SHORT = 8
"""A known secret below this length may be an ordinary word, too: it stays in longer names such as `train-worker-0`."""
_MIN_LINE = 16
"""Characters of a line of a secret that is replaced alone."""
_JOINED = r"[-_.]?\w"

Span = tuple[int, int]


class KnownSecrets:
    """Values that are secrets wherever they stand."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        """Prepare the search for every spelling of the secrets."""
        self._texts = sorted({text for secret in secrets for text in _list_spellings(secret)})
        self._search = _build_search(self._texts) if self._texts else None

    def find(self, text: str) -> Iterator[Span]:
        """Yield the ranges of the secrets in a text."""
        for index, start, end in self._search.find_matches_as_indexes(text) if self._search else ():
            if _stands_alone(self._texts[index], text, start, end):
                yield start, end


class _Credentials:
    """The credentials of this process, from every thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._secrets: set[str] = set()
        self.known = KnownSecrets()

    def add(self, secret: str) -> None:
        with self._lock:
            if secret not in self._secrets:
                self._secrets.add(secret)
                self.known = KnownSecrets(self._secrets)


_CREDENTIALS = _Credentials()


def remember_credential(secret: str) -> None:
    """Redact a token, key or password of this process from now on."""
    _CREDENTIALS.add(secret)


def get_credentials() -> KnownSecrets:
    """Return the credentials of this process."""
    return _CREDENTIALS.known


def _build_search(texts: list[str]) -> Any:
    from ahocorasick_rs import AhoCorasick, MatchKind

    return AhoCorasick(texts, matchkind=MatchKind.LeftmostLongest)


def _stands_alone(secret: str, text: str, start: int, end: int) -> bool:
    """Return whether a secret at this place is more than a part of another word or name."""
    before, after = text[max(0, start - 2) : start][::-1], text[end : end + 2]
    return len(secret) >= _SHORT or not (re.match(_JOINED, before) or re.match(_JOINED, after))


def _list_spellings(secret: str) -> Iterator[str]:
    """Yield a secret as it may stand in a text: itself, encoded for a URL, escaped in JSON, in base64, and its lines."""
    if len(secret) < MIN_VALUE or is_harmless(secret) or (secret.isdecimal() and len(secret) < _MIN_NUMBER):
        return
    import base64  # most commands know no secret
    import json
    from urllib.parse import quote

    yield from (secret, quote(secret, safe="", errors="replace"), json.dumps(secret)[1:-1])
    if len(secret) >= _SHORT:
        yield base64.b64encode(secret.encode("utf-8", "surrogateescape")).decode().rstrip("=")
    lines = [line.strip() for line in secret.splitlines()]
    yield from (line for line in lines if len(lines) > 1 and len(line) >= _MIN_LINE and not line.startswith("-----"))
