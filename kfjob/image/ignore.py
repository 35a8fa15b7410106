"""Match paths against a `.dockerignore`. Pure.

The rules are those of Docker's builder (moby/patternmatcher v0.6: `ignorefile` reads, `PatternMatcher` matches): comments,
blank lines, and `!` to include again. The last matching pattern decides, and a matching folder excludes everything beneath it.
`*` and `?` do not match `/`, `**` does. Character classes and the backslash work as in Go's filepath.Match.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from kfjob.errors import UsageError

_SPECIAL = set("*?[]\\")


@dataclass(frozen=True)
class IgnorePattern:
    """A line of the file."""

    regex: re.Pattern[str] = field(repr=False)
    text: str  # normalised, without `!`
    is_negated: bool  # the line starts with `!`

    def matches(self, path: str) -> bool:
        """Return whether the pattern matches the path itself; `IgnorePatterns` handles the folders above it."""
        return self.regex.fullmatch(path) is not None


@dataclass(frozen=True)
class IgnorePatterns:
    """The patterns of a file, in order."""

    patterns: tuple[IgnorePattern, ...] = ()

    def excludes(self, path: str) -> bool:
        """Return whether the file or folder at `path` (relative, with `/`) is excluded."""
        parts = path.split("/")
        prefixes = ["/".join(parts[:count]) for count in range(1, len(parts) + 1)]
        is_excluded = False
        for pattern in self.patterns:
            if is_excluded == pattern.is_negated and any(pattern.matches(prefix) for prefix in prefixes):
                is_excluded = not pattern.is_negated
        return is_excluded

    def may_include_again(self, folder: str) -> bool:
        """Return whether a negated pattern may match something within an excluded folder."""
        negated = (pattern.text for pattern in self.patterns if pattern.is_negated)
        return any(set(text) & _SPECIAL or text.startswith(f"{folder}/") for text in negated)


def parse_ignore(text: str, *, file: str = ".dockerignore") -> IgnorePatterns:
    """Return the patterns of a `.dockerignore`.

    Raises:
        UsageError: a line is not a pattern; the location has its number.
    """
    return IgnorePatterns(tuple(_parse_lines(text.removeprefix("\ufeff"), file)))


def _parse_lines(text: str, file: str) -> Iterator[IgnorePattern]:
    for number, raw_line in enumerate(text.splitlines(), 1):
        line = raw_line.strip()
        if raw_line.startswith("#") or not line:
            continue
        is_negated = line.startswith("!")
        pattern = posixpath.normpath(line.removeprefix("!").strip() or ".").lstrip("/") or "."
        if line == "!":
            raise UsageError("`!` needs a pattern", location=f"{file}:{number}")
        try:
            yield IgnorePattern(re.compile(_compile(pattern), re.DOTALL), pattern, is_negated)
        except re.error as err:
            raise UsageError(f"`{line}` is not a pattern", location=f"{file}:{number}", cause=str(err)) from err


def _compile(pattern: str) -> str:
    """Return patternmatcher's regular expression: `**/` matches any number of folders, `**` at the end matches everything."""
    if pattern.startswith("**") and not set(pattern[2:]) & _SPECIAL:
        rest = re.escape(pattern[2:])  # patternmatcher compares only the end of such a path
        return f"(?:.*{rest}|{re.escape(pattern[3:])})" if pattern[2:3] == "/" else f".*{rest}"
    regex, position = "", 0
    while position < len(pattern):
        part, position = _compile_token(pattern, position)
        regex += part
    return regex


def _compile_token(pattern: str, start: int) -> tuple[str, int]:
    """Return the expression of the token at `start`, and the position after the token."""
    if pattern.startswith("**", start):
        end = start + 3 if pattern.startswith("/", start + 2) else start + 2
        return ("(?:.*/)?", end) if end < len(pattern) else (".*", end)
    match pattern[start]:
        case "*":
            return "[^/]*", start + 1
        case "?":
            return "[^/]", start + 1
        case "\\":
            return re.escape(pattern[start + 1 : start + 2] or "\\"), start + 2
        case "[":
            return _compile_class(pattern, start)
        case literal:
            return re.escape(literal), start + 1


def _compile_class(pattern: str, start: int) -> tuple[str, int]:
    end = pattern.find("]", start + 1)
    if end < 0:
        raise re.error("a `[` is not closed")
    members = pattern[start + 1 : end].replace("[", "\\[")
    return f"[{members}]", end + 1
