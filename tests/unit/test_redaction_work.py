"""The work of redaction is linear in the length of a text: the characters that its searches examine are counted.

Every pattern of `kfjob.redaction` is replaced by one that counts what it reads, and the text by one that counts what its own
methods read. Twice the text may need twice the work.
"""

from __future__ import annotations

import pkgutil
import re
from collections.abc import Callable, Iterator
from importlib import import_module
from itertools import product
from typing import Any

import pytest

import kfjob.redaction
from kfjob.redaction import Redactor, cut_text
from kfjob.redaction.redactor import REDACTED
from tests.unit.test_patterns import UNITS as PATTERN_UNITS

NAMES = ("password=", "hf_token=<", "key=a", "Authorization: see the x ", "--password ", "password='a'' ", "token:[")
AROUND = (("", ""), ("&", "a;b=c"), (",", "a;"), (";", ",a="), ("(", "a)"))
UNITS = (
    *(before + name + after for name, (before, after) in product(NAMES, AROUND)),
    *("<password>", "\n<password>", '"-ua:b', '"mysql"-pa', "mysql -p'a'", "http://a:b", "\u200beyJ", "[password=''a],"),
)
"""Hostile texts are repetitions of these."""
WORST = (
    *PATTERN_UNITS,
    *("key=[", "key=[ ", "key='", 'key="', 'key=\\"', "password={", "password: [\n", "token: ", "password |\n ", "api key: "),
    *("login ", "login -p ", "-u a:", "machine a login ", "cookie: a ", "key = key = ", "token=a&", "secret=a,b=", "(key=a,"),
    *(
        "://a:",
        "://a:b@",
        "a:1234:a:a:",
        "@tcp(a:",
        "%20",
        "\u200b",
        "hf_\u200b",
        "\x1b[0mkey=",
        "-----BEGIN RSA PRIVATE KEY-----",
    ),
    *("password=[", "password=(a", "pass=<a", "password=`", "\\x1b[0m", "tokens: [a, "),
)
"""More units: shapes that need much work from some pattern, and beginnings of values that do not end."""
ENDINGS = (";", ",", ")", ",;", ")]}", "])}", ";)", "'", "\"'")
"""A value ends with repetitions of these."""
LENGTH = 1200


class Counter:
    """Characters that were examined."""

    def __init__(self) -> None:
        self.count = 0

    def add(self, number: int) -> None:
        self.count += max(1, number)


class CountedPattern:
    """A pattern that counts the characters from where it begins to where its match ends."""

    def __init__(self, pattern: re.Pattern[str], counter: Counter) -> None:
        self._pattern, self._counter = pattern, counter

    def __getattr__(self, name: str) -> Any:
        return getattr(self._pattern, name)

    def match(self, text: str, position: int = 0, end: int = 2**62) -> re.Match[str] | None:
        match = self._pattern.match(text, position, end)
        self._counter.add(match.end() - position if match else 1)
        return match

    def search(self, text: str, position: int = 0, end: int = 2**62) -> re.Match[str] | None:
        match = self._pattern.search(text, position, end)
        self._counter.add((match.end() if match else min(end, len(text))) - position)
        return match

    def finditer(self, text: str, position: int = 0, end: int = 2**62) -> Iterator[re.Match[str]]:
        for match in self._pattern.finditer(text, position, end):
            self._counter.add(match.end() - position)
            position = match.end()
            yield match
        self._counter.add(min(end, len(text)) - position)


class CountedText(str):
    """A text that counts the characters that its own methods read."""

    __slots__ = ("counter",)
    counter: Counter

    def find(self, part: str, start: int = 0, end: int = 2**62) -> int:  # type: ignore[override]
        found = super().find(part, start, end)
        self.counter.add((found if found >= 0 else min(end, len(self))) - start)
        return found

    def rfind(self, part: str, start: int = 0, end: int = 2**62) -> int:  # type: ignore[override]
        found = super().rfind(part, start, end)
        self.counter.add(min(end, len(self)) - (found if found >= 0 else start))
        return found

    def count(self, part: str, start: int = 0, end: int = 2**62) -> int:  # type: ignore[override]
        self.counter.add(min(end, len(self)) - start)
        return super().count(part, start, end)

    def __getitem__(self, index: Any) -> str:
        part = super().__getitem__(index)
        self.counter.add(len(part))
        return part


@pytest.fixture
def count(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], int]:
    """Return the characters that redacting a text examines."""
    counter = Counter()

    def wrap(value: Any) -> Any:
        if isinstance(value, re.Pattern):
            return CountedPattern(value, counter)
        if isinstance(value, dict) and any(isinstance(item, re.Pattern) for item in value.values()):
            return {key: wrap(item) for key, item in value.items()}
        return value

    for module in pkgutil.walk_packages(kfjob.redaction.__path__, "kfjob.redaction."):
        imported = import_module(module.name)
        for name, value in list(vars(imported).items()):
            if (wrapped := wrap(value)) is not value:
                monkeypatch.setattr(imported, name, wrapped)

    def count(text: str) -> int:
        counter.count = 0
        counted = CountedText(text)
        counted.counter = counter
        Redactor().text(counted)
        return counter.count

    return count


def is_linear(count: Callable[[str], int], make: Callable[[int], str]) -> bool:
    """Return whether four times the text needs less than eight times the work."""
    return count(make(4 * LENGTH)) < 8 * count(make(LENGTH))


def test_counting_notices_work_that_grows_with_the_square(count: Callable[[str], int]):
    pattern = CountedPattern(re.compile("x"), counter := Counter())

    def count_suffixes(text: str) -> int:
        counter.count = 0
        for position in range(len(text)):
            pattern.search(text, position)
        return counter.count

    assert not is_linear(count_suffixes, lambda length: "a" * length)
    assert count("password=x") > len("password=x")


def repeat(start: str, unit: str, end: str = "") -> Callable[[int], str]:
    """Return the function that makes a text of about so many characters."""
    return lambda length: start + unit * (length // len(unit)) + end


def test_names_one_after_another_are_read_once(count: Callable[[str], int]):
    assert [unit for unit in UNITS if not is_linear(count, repeat("", unit, ">"))] == []


@pytest.mark.parametrize("unit", WORST, ids=ascii)
def test_hostile_text_is_read_once(count: Callable[[str], int], unit: str):
    assert is_linear(count, repeat("", unit))


@pytest.mark.parametrize("ending", ENDINGS)
def test_the_end_of_a_value_is_read_once(count: Callable[[str], int], ending: str):
    for start in ("password=x", '([{"password=x'):
        assert is_linear(count, repeat(start, ending)), start


def test_nested_lists_are_read_once(count: Callable[[str], int]):
    assert is_linear(count, lambda length: "password=" + "[" * (length // 2) + "]" * (length // 2))


@pytest.mark.parametrize("limit", [200, 4000])
def test_a_text_is_cut_before_it_is_redacted(monkeypatch: pytest.MonkeyPatch, limit: int):
    lengths: list[int] = []
    read = Redactor.text

    def note(redactor: Redactor, text: str) -> str:
        lengths.append(len(text))
        return read(redactor, text)

    monkeypatch.setattr(Redactor, "text", note)
    assert len(cut_text("word " * 200_000, limit)) <= limit
    assert max(lengths) < limit + 5000


@pytest.mark.parametrize("place", range(150, 260, 7))
def test_a_secret_at_the_cut_is_not_shown_in_part(place: int):
    secret = "Zq81xxPlum7W" * 1000
    for text in (
        f"password={secret}",
        f"https://u:{secret}@h/",
        f"hf_{secret}",
        f"password='{secret}'",
        f'"token": "{secret}"',
    ):
        assert "Zq81" not in cut_text("word " * (place // 5) + text, 200)


def test_secrets_before_the_cut_do_not_uncover_a_part_of_one_behind_it():
    text = "".join(f"password={'Zq81xxPlum7W' * 50} the next\n" for _ in range(200)) + "rest " * 2000
    for limit in (200, 4000):
        assert "Zq81" not in cut_text(text, limit).replace(REDACTED, "")
