"""`.dockerignore`: which files of a folder are left out. Pure.

The rules are those of Docker's builder (moby/patternmatcher v0.6: `ignorefile` reads, `PatternMatcher` matches): comments,
blank lines, `!` to take back; the last pattern that matches decides, a folder that matches takes all beneath it along; `*`
and `?` stop at `/`, `**` does not; classes and the backslash are as in Go's filepath.Match.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from kfjob.errors import UsageError

_SPECIAL = set("*?[]\\")


@dataclass(frozen=True)
class Pattern:
    """One line."""

    regex: re.Pattern[str] = field(repr=False)
    text: str  # cleaned
    is_negated: bool  # it began with `!`

    def matches(self, path: str) -> bool:
        """Whether this very path is meant; what lies beneath one that is, `Ignore` knows."""
        return self.regex.fullmatch(path) is not None


@dataclass(frozen=True)
class IgnorePatterns:
    """All lines of a file, in their order."""

    patterns: tuple[Pattern, ...] = ()

    def excludes(self, path: str) -> bool:
        """Whether the file or folder at `path` (relative, with `/`) is left out."""
        parts = path.split("/")
        ways = ["/".join(parts[:count]) for count in range(1, len(parts) + 1)]
        omitted = False
        for pattern in self.patterns:
            if omitted == pattern.is_negated and any(pattern.matches(way) for way in ways):
                omitted = not pattern.is_negated
        return omitted

    def may_include_again(self, folder: str) -> bool:
        """Whether something within a folder that is left out may come back, so that it has to be looked through."""
        back = (pattern.text for pattern in self.patterns if pattern.is_negated)
        return any(set(text) & _SPECIAL or text.startswith(f"{folder}/") for text in back)


def parse_ignore(text: str, *, file: str = ".dockerignore") -> IgnorePatterns:
    """What a `.dockerignore` says.

    Raises:
        UsageError: a line is not a pattern, with its number.
    """
    return IgnorePatterns(tuple(_patterns(text.removeprefix("\ufeff"), file)))


def _patterns(text: str, file: str) -> Iterator[Pattern]:
    for number, line in enumerate(text.splitlines(), 1):
        said = line.strip()
        if line.startswith("#") or not said:
            continue
        taken_back = said.startswith("!")
        cleaned = posixpath.normpath(said.removeprefix("!").strip() or ".").lstrip("/") or "."
        if taken_back and said == "!":
            raise UsageError("`!` takes back nothing", location=f"{file}:{number}")
        try:
            yield Pattern(re.compile(_regex(cleaned), re.DOTALL), cleaned, taken_back)
        except re.error as err:
            raise UsageError(f"`{said}` is not a pattern", location=f"{file}:{number}", cause=str(err)) from err


def _regex(pattern: str) -> str:
    """As patternmatcher compiles it: `**/` is any number of folders, none too; `**` at the end is everything."""
    if pattern.startswith("**") and not set(pattern[2:]) & _SPECIAL:
        rest = re.escape(pattern[2:])  # patternmatcher compares only the end of such a path
        return f"(?:.*{rest}|{re.escape(pattern[3:])})" if pattern[2:3] == "/" else f".*{rest}"
    out, at = "", 0
    while at < len(pattern):
        part, at = _token(pattern, at)
        out += part
    return out


def _token(pattern: str, at: int) -> tuple[str, int]:
    """The expression of what stands at a place, and where the next begins."""
    if pattern.startswith("**", at):
        after = at + 3 if pattern.startswith("/", at + 2) else at + 2
        return ("(?:.*/)?", after) if after < len(pattern) else (".*", after)
    match pattern[at]:
        case "*":
            return "[^/]*", at + 1
        case "?":
            return "[^/]", at + 1
        case "\\":
            return re.escape(pattern[at + 1 : at + 2] or "\\"), at + 2
        case "[":
            return _character_class(pattern, at)
        case other:
            return re.escape(other), at + 1


def _character_class(pattern: str, at: int) -> tuple[str, int]:
    end = pattern.find("]", at + 1)
    if end < 0:
        raise re.error("a `[` is not closed")
    inner = pattern[at + 1 : end].replace("[", "\\[")
    return f"[{inner}]", end + 1
