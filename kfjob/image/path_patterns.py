"""Match a path against many glob patterns, in linear time. No I/O.

RE2 (`kfjob.base.patterns`) runs the regular expression that Docker's builder derives from a glob: its time stays linear for
patterns such as `**/*a*a*a*b`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from kfjob.base.patterns import Pattern, PatternError

_TOKEN = re.compile(r"\*\*/(?=.)|\*\*|\*|\?|\\.?|\[[^\]]*\]|[^*?\\\[]+|.", re.DOTALL)
_WILDCARDS = {"*": "[^/]*", "?": "[^/]"}


class PathPatterns:
    """The regular expressions of all patterns."""

    def __init__(self, patterns: Sequence[str]) -> None:
        """Compile the patterns.

        Raises:
            PatternError: a pattern is not valid.
        """
        texts = [_translate(pattern) for pattern in patterns]
        self._patterns = [_compile(text) for text in texts]
        self._any = _compile("|".join(texts))

    def match(self, path: str) -> list[bool]:
        """Return for each pattern whether it matches the path or a folder above it."""
        if self._any.match(path) is None:  # nearly all paths
            return [False] * len(self._patterns)
        return [pattern.match(path) is not None for pattern in self._patterns]


def _compile(text: str) -> Pattern:
    pattern = Pattern(f"(?s)(?:{text})(?:/.*)?$")
    pattern.check()
    return pattern


def _translate(pattern: str) -> str:
    """Return the regular expression: `**/` is any number of folders, another `**` is everything, `*` and `?` exclude `/`."""
    return "".join(map(_translate_token, _TOKEN.findall(pattern)))


def _translate_token(part: str) -> str:
    if part in _WILDCARDS:
        return _WILDCARDS[part]
    if part.startswith("**"):
        return "(?:.*/)?" if part.endswith("/") else ".*"
    if part.startswith("[") and part != "[":
        return f"[{part[1:-1].replace('[', chr(92) + '[')}]"
    if part == "[":
        raise PatternError("a `[` is not closed")
    return re.escape(part[1:] or part if part.startswith("\\") else part)
