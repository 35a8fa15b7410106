"""Find secrets in text by the notations that show them: assignments, options, headers and URLs. Pure.

The time is linear: a pattern finds a name with its separator, and the value of a secret is read once.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache

from kfjob.redaction.names import (
    MARKS,
    MAX_HARMLESS,
    REFERENCE,
    is_harmless,
    is_header,
    is_lone_word,
    is_number,
    is_password_name,
    is_secret_name,
    looks_random,
)

Span = tuple[int, int]
_TRAILING = ".,;:)]}>"
"""Marks after a value without quotes."""


def find_noted(text: str) -> Iterator[Span]:
    """Yield the range of every secret that its notation shows; the ranges may overlap."""
    lower = text.lower()
    if any(mark in lower for mark in MARKS):
        yield from _find_named(text, _compile_assignment(), is_option=False)
        if "-" in text:
            yield from _find_named(text, _compile_option(), is_option=True)
    if "://" in text and "@" in text:
        yield from find_url_passwords(text)


def find_url_passwords(text: str) -> Iterator[Span]:
    """Yield the passwords of URLs: `scheme://user:password@host`. A port before a path with an `@` is none."""
    for match in _compile_url().finditer(text):
        password = match["rest"].rpartition("@")[0]
        if password and not is_harmless(password) and not _compile_port().match(password):
            yield match.start("rest"), match.start("rest") + len(password)


def _find_named(text: str, names: re.Pattern[str], *, is_option: bool) -> Iterator[Span]:
    position = 0
    while match := names.search(text, position):
        position = match.end()
        if is_secret_name(match["name"]) and (span := _find_secret_value(text, match, is_option=is_option)):
            yield span
            position = max(position, span[1])


def _find_secret_value(text: str, name: re.Match[str], *, is_option: bool) -> Span | None:
    """Return the range of the value after a name; None for a reference, a placeholder, or a value that is no secret."""
    pattern = _compile_header() if is_header(name["name"]) else _compile_value()
    opening = _compile_list().match(text, name.end())
    start = opening.end() if opening else name.end()
    limit = start + MAX_HARMLESS
    match = pattern.match(text, start, limit)
    if match is None or match["reference"] or not _is_secret(name["name"], _get_value(match), is_option=is_option):
        return None
    if match.end() == limit and (whole := pattern.match(text, start)):
        match = whole
    if opening:
        found = _compile_list_end().search(text, match.end())
        start = match.start("quoted")
        return start, start + len(text[start : found.start() if found else len(text)].rstrip(" \t\\\"'`"))
    start = match.start("quoted" if match["quote"] else "bare")
    end = start + len(_get_value(match))
    before = text[name.start() - 1 : name.start()]
    quote = text.find(before, start, end) if is_header(name["name"]) and before in ('"', "'") else -1
    return start, quote if quote >= 0 else end


def _get_value(match: re.Match[str]) -> str:
    """Return a value without its quotes, or without the marks after it."""
    value: str = match["quoted"] if match["quote"] else match["bare"].rstrip(_TRAILING)
    return value


def _is_secret(name: str, value: str, *, is_option: bool) -> bool:
    if is_harmless(value):
        return False
    if is_option:
        return not (value.isupper() and is_secret_name(value))  # `--password PASSWORD` of a usage
    if is_lone_word(name) and not name.startswith("-"):
        return looks_random(value)
    return is_password_name(name) or not is_number(value)


_QUOTE = r"\\{0,8}[\"'`]"
"""A quote, also of JSON within JSON."""
_QUOTED = rf"[bBrRuUfF]{{0,2}}(?P<quote>{_QUOTE})(?P<quoted>(?>(?:[^\\\n\"'`]+|(?!(?P=quote))(?:\\[^\n]|[^\\\n]))*))"
_OBJECT = rf"\{{(?=\s{{0,40}}(?:{_QUOTE})?\w{{1,80}}(?:{_QUOTE})?:)"
"""The beginning of an object, such as a reference to a Kubernetes secret: what it holds has names of its own."""
_REFERENCE = rf"(?P<reference>{REFERENCE}(?=[\s,;\"'`&)\]}}]|\Z)|{_OBJECT})"


@cache
def _compile_assignment() -> re.Pattern[str]:
    """Return the pattern of a name with `=` or `:`, also in quotes; a space before `:` only in JSON."""
    separator = rf"[ \t]*=(?!=)[ \t]*|:[ \t]*|[ \t]+:[ \t]*(?={_QUOTE})"
    return re.compile(rf"(?<![\w.-])(?P<name>[\w.-]++)(?:{_QUOTE})?\]?(?:{separator})")


@cache
def _compile_option() -> re.Pattern[str]:
    """Return the pattern of an option before its value: `--token x`, or `'--token', 'x'` in a list."""
    return re.compile(rf"(?<![\w.-])(?P<name>-{{1,8}}[A-Za-z][\w.-]*+)(?:[ \t]+|{_QUOTE},[ \t]*)(?=[^\s-])")


@cache
def _compile_value() -> re.Pattern[str]:
    """Return the pattern of a value in quotes, or up to a space, a closing quote, or a mark before the next name."""
    bare = r"(?P<bare>(?>(?:[^\s\"'`,;&]+|[,;&](?![A-Za-z_][\w.-]{1,80}=)|[\"'`](?![\s,;:)\]}]|\Z))+))"
    return re.compile(f"{_REFERENCE}|{_QUOTED}|{bare}")


@cache
def _compile_list() -> re.Pattern[str]:
    """Return the pattern of the bracket before the texts of a list, which are one secret."""
    return re.compile(rf"\[[ \t]{{0,40}}(?=[bBrRuUfF]{{0,2}}{_QUOTE})")


@cache
def _compile_list_end() -> re.Pattern[str]:
    return re.compile(r"[\]\n]")


@cache
def _compile_header() -> re.Pattern[str]:
    """Return the pattern of the value of a header, which ends with its line, or with the quote before the header."""
    return re.compile(rf"{_REFERENCE}|{_QUOTED}|(?P<bare>[^\n]+)")


@cache
def _compile_url() -> re.Pattern[str]:
    return re.compile(r"://[^\s:@/?#\"'`<>\[]*+:(?P<rest>[^\s\"'`]++)")


@cache
def _compile_port() -> re.Pattern[str]:
    return re.compile(r"\d{1,5}[/?#]")
