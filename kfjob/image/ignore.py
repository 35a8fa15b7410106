"""Match paths against a `.dockerignore`. Pure.

The rules are those of Docker's builder (moby/patternmatcher v0.6: `ignorefile` reads, `PatternMatcher` matches): comments,
blank lines, and `!` to include again. The last matching pattern decides, and a matching folder excludes everything beneath it.
`*` and `?` do not match `/`, `**` does. Character classes and the backslash work as in Go's filepath.Match.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator
from functools import cached_property
from itertools import islice

from msgspec import Struct

from kfjob.base.errors import UsageError
from kfjob.base.patterns import PatternError
from kfjob.image.path_patterns import PathPatterns

MAX_PATTERNS = 1000
"""Patterns of a `.dockerignore`; each is matched against each path."""
MAX_PATTERN_LENGTH = 4096
"""Characters of a pattern: PATH_MAX of Linux (limits.h)."""
_MAX_SHOWN = 80
"""Characters of a wrong pattern in an error."""
_SPECIAL = set("*?[]\\")


class IgnorePattern(Struct, frozen=True):
    """A line of the file."""

    text: str  # normalised, without `!`
    is_negated: bool  # the line starts with `!`


class IgnorePatterns(Struct, frozen=True, dict=True):
    """The patterns of a file, in order."""

    patterns: tuple[IgnorePattern, ...] = ()

    @cached_property
    def _path_patterns(self) -> PathPatterns:
        return PathPatterns([pattern.text for pattern in self.patterns])

    def excludes(self, path: str) -> bool:
        """Return whether the file or folder at `path` (relative, with `/`) is excluded."""
        is_excluded = False
        for pattern, matches in zip(self.patterns, self._path_patterns.match(path), strict=True):
            if matches:
                is_excluded = not pattern.is_negated
        return is_excluded

    def may_include_again(self, folder: str) -> bool:
        """Return whether a negated pattern may match something within an excluded folder."""
        negated = (pattern.text for pattern in self.patterns if pattern.is_negated)
        return any(set(text) & _SPECIAL or text.startswith(f"{folder}/") for text in negated)


def parse_ignore(text: str, *, file: str = ".dockerignore") -> IgnorePatterns:
    """Return the patterns of a `.dockerignore`.

    Raises:
        UsageError: a line is not a pattern; the location has its number. Or there are too many.
    """
    patterns = tuple(islice(_parse_lines(text.removeprefix("\ufeff"), file), MAX_PATTERNS + 1))
    if len(patterns) > MAX_PATTERNS:
        raise UsageError(f"`{file}` has more than {MAX_PATTERNS} patterns", hint="exclude whole folders")
    return IgnorePatterns(patterns)


def _parse_lines(text: str, file: str) -> Iterator[IgnorePattern]:
    for number, raw_line in enumerate(text.splitlines(), 1):
        line = raw_line.strip()
        if raw_line.startswith("#") or not line:
            continue
        is_negated = line.startswith("!")
        pattern = posixpath.normpath(line.removeprefix("!").strip() or ".").lstrip("/") or "."
        if line == "!":
            raise UsageError("`!` needs a pattern", location=f"{file}:{number}")
        if len(pattern) > MAX_PATTERN_LENGTH:
            cause = f"it has {len(pattern)} characters, and a path has {MAX_PATTERN_LENGTH} at most"
            raise UsageError(f"`{line[:_MAX_SHOWN]}` is not a pattern", location=f"{file}:{number}", cause=cause)
        try:
            PathPatterns([pattern])
        except PatternError as err:
            raise UsageError(f"`{line[:_MAX_SHOWN]}` is not a pattern", location=f"{file}:{number}", cause=str(err)) from err
        yield IgnorePattern(pattern, is_negated)
