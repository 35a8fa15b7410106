"""Split a Dockerfile into its instructions as BuildKit does (frontend/dockerfile/parser). Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator

_DIRECTIVE = re.compile(r"#\s*(\w+)\s*=\s*(\S+)\s*")
_CONTINUED = {"\\": re.compile(r"(?<!\\)\\[ \t]*+$"), "`": re.compile(r"(?<!`)`[ \t]*+$")}
"""The end of a line that continues, by the escape character."""
_WORD = re.compile(r"""(?>(?:"(?>(?:\\.|[^"\\]++)*)"|'[^']*+'|\\.|[^\s"'\\]++)+)""")
_HEREDOC = re.compile(r"""\d*<<(-?)(["']?)([^<\s"']+)\2""")
_TAKES_HEREDOCS = re.compile(r"\s*(?:ONBUILD\s+)?(?:RUN|COPY|ADD)\s", re.IGNORECASE)


def list_instructions(text: str) -> Iterator[str]:
    """Yield each instruction as one line, without comments, continuations and the bodies of heredocs."""
    lines = text.removeprefix("\ufeff").splitlines()
    continued = _CONTINUED[_find_escape(lines)]
    rest = iter(lines)
    parts: list[str] = []  # the lines of the instruction so far, without the characters that continue them
    for line in rest:
        if line.lstrip().startswith("#") or (parts and not line.strip()):
            continue
        if end := continued.search(line):
            parts.append(line[: end.start()])
            continue
        instruction = "".join([*parts, line])
        parts = []
        if instruction.strip():
            yield instruction
            for heredoc in _find_heredocs(instruction):
                _skip_heredoc(rest, *heredoc)
    if any(map(str.strip, parts)):
        yield "".join(parts)


def has_heredoc(text: str) -> bool:
    """Return whether an instruction of a Dockerfile opens a heredoc."""
    return any(_find_heredocs(instruction) for instruction in list_instructions(text))


def split_words(instruction: str) -> list[str]:
    """Return the words of an instruction, with their quotes."""
    return [word[0] for word in _WORD.finditer(instruction)]


def _find_escape(lines: list[str]) -> str:
    """Return the escape character: a backslash, or that of the directive `escape`, which stands before everything else."""
    for line in lines:
        match = _DIRECTIVE.fullmatch(line.strip())
        if match is None:
            break
        if match[1].lower() == "escape":
            return match[2] if match[2] in _CONTINUED else "\\"
    return "\\"


def _find_heredocs(instruction: str) -> list[tuple[str, bool]]:
    """Return the last lines of the heredocs that an instruction opens, and whether they may begin with tabs."""
    if not _TAKES_HEREDOCS.match(instruction):
        return []
    matches = map(_HEREDOC.fullmatch, split_words(instruction))
    return [(match[3], bool(match[1])) for match in matches if match]


def _skip_heredoc(lines: Iterator[str], end: str, may_begin_with_tabs: bool) -> None:  # noqa: FBT001 - one caller
    for line in lines:
        if (line.lstrip("\t") if may_begin_with_tabs else line) == end:
            return
