r"""Redact the command line of a shell word by word, so that what remains is still a command line.

In text, a secret ends at a space or a quote. A shell joins quoted and escaped parts to one word: `PASSWORD='it'\''s me'`. So
each word is read as the shell reads it.
"""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Iterator
from functools import cache

from kfjob.base.shells import find_scripts
from kfjob.redaction.redactor import REDACTED, Redactor

_NAMED = r"-{0,2}[A-Za-z_][\w.-]*\+?="
_ANSI = r"\$(?=')"
_CUT_MARGIN = 4096
"""Characters after the limit that are read, so that a secret is whole where the line is cut."""


def redact_command(line: str, limit: int = sys.maxsize) -> str:
    """Return a command line without its secrets; the other words keep their spelling.

    `…` replaces the words of a longer line from the one that would exceed `limit` characters.
    """
    pieces: list[str] = []
    position = size = 0
    is_cut, line = len(line) > limit + _CUT_MARGIN, line[: limit + _CUT_MARGIN]
    for match, text in _redact_words(line):
        size += match.start() - position + len(text)
        if size > limit or (is_cut and match.end() == len(line)):
            return "".join([*pieces, "…"])
        pieces += [line[position : match.start()], text]
        position = match.end()
    rest = line[position:]
    return "".join([*pieces, rest if not is_cut and size + len(rest) <= limit else "…"])


def _redact_words(line: str) -> Iterator[tuple[re.Match[str], str]]:
    """Yield each word with the text that replaces it."""
    matches = list(_compile_word().finditer(line))
    words = [_decode(match[0]) for match in matches]
    redacted = Redactor().value(words)
    scripts = find_scripts(words)
    for index, (match, word, text) in enumerate(zip(matches, words, redacted, strict=True)):
        if index in scripts:
            script = redact_command(word)
            yield match, match[0] if script == word else shlex.quote(script)
        else:
            yield match, match[0] if text == word else _quote(text)


def _quote(word: str) -> str:
    """Return a redacted word as a shell reads it; the mark itself needs no quotes."""
    named = re.match(_NAMED, word)
    start = named.end() if named else 0
    return word[:start] + (word[start:] if word[start:] == REDACTED else shlex.quote(word[start:]))


def _decode(source: str) -> str:
    """Return what the program receives; the source if a quote is open."""
    try:
        return " ".join(shlex.split(re.sub(_ANSI, "", source)))
    except ValueError:
        return source


@cache
def _compile_word() -> re.Pattern[str]:
    """Return the pattern of a word with its quotes, escapes and `$(…)`."""
    return re.compile(
        r"""(?>(?:[^\s;&|<>()"'\\$]++|\\.|\$'(?>(?:[^'\\]++|\\.)*)(?:'|\Z)|\$\([^()]*+\)|\$"""
        r"""|"(?>(?:[^"\\]++|\\.)*)(?:"|\Z)|'[^']*+(?:'|\Z)|\\\Z)+)""",
        re.DOTALL,
    )
