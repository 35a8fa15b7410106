r"""Redact the command line of a shell word by word, so that what remains is still a command line.

In text, a secret ends at a space or a quote. A shell joins quoted and escaped parts to one word: `PASSWORD='it'\''s me'`. So
each word is read as the shell reads it, and is replaced as a whole from the beginning of its secret.
"""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Iterator
from dataclasses import dataclass

from kfjob.base.shells import find_scripts
from kfjob.redaction.redactor import REDACTED, Redactor

_TOKEN = re.compile(
    r"""(?P<word>(?>(?:[^\s;&|<>()"'\\$]++|\\.|\$'(?>(?:[^'\\]++|\\.)*)(?:'|\Z)|\$\([^()]*+\)|\$|"(?>(?:[^"\\]++|\\.)*)(?:"|\Z)|'[^']*+(?:'|\Z)|\\\Z)+))"""
    r"|(?P<operator>[;&|<>()]++)",
    re.DOTALL,
)
_PLAIN = re.compile(r"""[^\s"'\\$]*""")
"""The beginning of a word that means itself."""
_MARKS = re.compile(r"""[\s"'`\\;&|<>()]""")
"""Characters that have no meaning within a word that the shell has read."""
_NAMED = re.compile(r"-{0,2}[A-Za-z_][\w.-]*\+?=")
_EMPTY_VARIABLE = re.compile(r"[A-Za-z_]\w*=")
"""The next word is no value of this one."""
_NO_SPAN = (sys.maxsize, sys.maxsize)
_CUT_MARGIN = 4096
"""Characters after the limit that are read, so that a secret is whole where the line is cut."""
_ANSI = re.compile(r"\$(?=')")


@dataclass(frozen=True)
class _Word:
    start: int
    end: int
    source: str
    text: str
    """What the program receives; the source if a quote is open."""


def redact_command(line: str, limit: int = sys.maxsize) -> str:
    """Return a command line without its secrets; the other words keep their spelling.

    `…` replaces the words of a longer line from the one that would exceed `limit` characters.
    """
    pieces: list[str] = []
    position = size = 0
    is_cut, line = len(line) > limit + _CUT_MARGIN, line[: limit + _CUT_MARGIN]
    for word, text in _redact_words(line):
        size += word.start - position + len(text)
        if size > limit or (is_cut and word.end == len(line)):
            return "".join([*pieces, "…"])
        pieces += [line[position : word.start], text]
        position = word.end
    rest = line[position:]
    return "".join([*pieces, rest if not is_cut and size + len(rest) <= limit else "…"])


def redact_variable(name: str, value: str) -> str:
    """Return the value of a variable of the environment without secrets."""
    return str(Redactor().value(value, name, is_environment=True))


def _redact_words(line: str) -> Iterator[tuple[_Word, str]]:
    """Yield each word with the text that replaces it. The words between two operators explain each other."""
    words: list[_Word] = []
    for match in _TOKEN.finditer(line):
        if match["operator"]:
            yield from _redact_chunk(words)
            words = []
        else:
            words.append(_Word(match.start(), match.end(), match[0], _decode(match[0])))
    yield from _redact_chunk(words)


def _decode(source: str) -> str:
    try:
        return " ".join(shlex.split(_ANSI.sub("", source)))
    except ValueError:  # an open quote
        return source


def _redact_chunk(words: list[_Word]) -> Iterator[tuple[_Word, str]]:
    """Yield the words of one simple command, each with its source without secrets."""
    plain = [_MARKS.sub("x", word.text) for word in words]  # each is one word of text, too
    spans = iter(Redactor().find_spans(" ".join(plain)))
    redacted = Redactor().value(["", *(word.text for word in words)])[1:]
    first, end = next(spans, _NO_SPAN)
    scripts = find_scripts([word.text for word in words])
    before, start, hidden_end = "", 0, 0
    for index, (word, text, plain_text) in enumerate(zip(words, redacted, plain, strict=True)):
        while end <= start:
            first, end = next(spans, _NO_SPAN)
        stop = start + len(plain_text)
        is_value = first >= hidden_end and not (first == start and _EMPTY_VARIABLE.fullmatch(before))
        if index in scripts:
            script = redact_command(word.text)
            yield word, word.source if script == word.text else shlex.quote(script)
        else:
            yield word, _redact_word(word, text, max(0, first - start) if first < stop and is_value else None)
        hidden_end = stop if text != word.text else hidden_end  # a secret that begins there ends there
        before, start = word.text, stop + 1


def _redact_word(word: _Word, redacted: str, hit: int | None) -> str:
    """Return the source of a word without its secret; `hit` is where one begins that the whole command shows."""
    if word.text.endswith("=$"):  # before `(`
        return word.source
    named = _NAMED.match(word.text)
    if named and redacted != word.text:
        name, value = named[0].strip("-+="), redacted[named.end() :]
        is_whole = value.startswith(REDACTED) or redact_variable(name, word.text[named.end() :]) == REDACTED
        return named[0] + (REDACTED if is_whole else shlex.quote(value))
    if redacted != word.text:
        return redacted if redacted == REDACTED else shlex.quote(redacted)
    if hit is None:
        return word.source
    plain = _PLAIN.match(word.source, 0, hit)
    return f"{plain[0] if plain else ''}{REDACTED}"
