"""Find known secrets wherever they stand: those of a job, and the credentials that this process uses itself.

`remember_credential` is called where a credential is loaded. A server may quote it in an error, so no redactor lets it pass.
"""

from __future__ import annotations

import base64
import json
import re
import threading
from collections.abc import Iterable, Iterator
from urllib.parse import quote

from ahocorasick_rs import AhoCorasick, MatchKind

from kfjob.redaction.forms import fold_text
from kfjob.redaction.values import MIN_WORD, PLAIN, RANDOM_LENGTH

MIN_VALUE = 4
"""Known secrets of at least this many characters are replaced wherever they stand; shorter ones only in their own field."""
_SHORT = 8
"""A known secret below this length is replaced as a whole word only. One of letters alone is an ordinary word, too: it stays
in longer names such as `train-worker-0` and `wrong.example`."""
_JOINED_BEFORE, _JOINED_AFTER = re.compile(r"\w[-_.]\Z"), re.compile(r"[-_.]\w")
_URL_LETTERS = str.maketrans("+/", "-_")

Span = tuple[int, int]


class KnownSecrets:
    """Values that are secrets wherever they stand."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        """Prepare the search for every spelling of the secrets."""
        self._texts = sorted({text for secret in secrets for text in _list_spellings(secret)})
        self._search = AhoCorasick(self._texts, matchkind=MatchKind.LeftmostLongest) if self._texts else None

    def find(self, text: str) -> Iterator[Span]:
        """Yield the ranges of the secrets in a text."""
        for index, start, end in self._search.find_matches_as_indexes(text) if self._search else ():
            if _stands_alone(self._texts[index], text, start, end):
                yield start, end

    def find_cut(self, text: str) -> Iterator[Span]:
        """Yield the beginning of a secret with which a text ends that was cut."""
        for known in self._texts:
            start = text.find(known[:MIN_VALUE], max(0, len(text) - len(known)))
            while start >= 0 and not known.startswith(text[start:]):
                start = text.find(known[:MIN_VALUE], start + 1)
            if start >= 0:
                yield start, len(text)


class _Credentials:
    """The credentials of this process, from every thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._secrets: set[str] = set()
        self.known = KnownSecrets()

    def add(self, secrets: Iterable[str]) -> None:
        with self._lock:
            if not self._secrets.issuperset(secrets := set(secrets)):
                self._secrets |= secrets
                self.known = KnownSecrets(self._secrets)


_CREDENTIALS = _Credentials()


def remember_credential(secret: str) -> None:
    """Redact a token, key or password of this process from now on, also where it is encoded in base64."""
    encoded = base64.b64encode(secret.encode("utf-8", "surrogateescape")).decode()
    _CREDENTIALS.add([secret, encoded] if len(secret) >= MIN_VALUE else [])


def get_credentials() -> KnownSecrets:
    """Return the credentials of this process."""
    return _CREDENTIALS.known


def _stands_alone(secret: str, text: str, start: int, end: int) -> bool:
    """Return whether a secret at this place is more than a part of another word or name."""
    if len(secret) >= _SHORT:
        return True
    if _is_word(text[start - 1 : start]) or _is_word(text[end : end + 1]):
        return False
    is_joined = _JOINED_BEFORE.search(text, max(0, start - 2), start) or _JOINED_AFTER.match(text, end)
    return not (secret.isalpha() and is_joined)


def _is_word(character: str) -> bool:
    return character.isascii() and character.isalnum()


def _list_spellings(secret: str) -> Iterator[str]:
    """Yield a secret as it may stand in a text: itself, folded, its lines, encoded for a URL, escaped in JSON."""
    if len(secret) < MIN_VALUE or PLAIN.fullmatch(secret) or (secret.isdecimal() and len(secret) < MIN_WORD):
        return
    yield from (secret, quote(secret, safe="", errors="replace"), json.dumps(secret)[1:-1])
    if len(folded := fold_text(secret)) >= MIN_VALUE:
        yield folded
    yield from _list_base64(secret)
    lines = [line.strip() for line in secret.splitlines()]
    yield from (line for line in lines if len(lines) > 1 and len(line) >= RANDOM_LENGTH and not line.startswith("-----"))


def _list_base64(secret: str) -> Iterator[str]:
    """Yield the letters of base64 that a secret determines, for each place where it may begin within three bytes."""
    data = secret.encode("utf-8", "surrogateescape")
    for offset in range(3 if len(data) >= _SHORT else 0):
        first, last = -(-offset * 4 // 3), (offset + len(data)) * 4 // 3
        letters = base64.b64encode(bytes(offset) + data).decode()[first:last]
        yield from {letters, letters.translate(_URL_LETTERS)}
