"""Find the names that a shell script sets itself, and the commands that may set any name. Pure.

A name that is found here stays in the script for the shell. So a form that could be an assignment counts as one: a name that
stays appears in a notice, and a name that is replaced by mistake appears nowhere.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator

from msgspec import Struct

_NAME = r"[A-Za-z_][A-Za-z0-9_]*+"
_WORD_BEGIN = r"(?<![^\s;&|(){}`\"'!])"
_COMMAND_BEGIN = r"(?:^|[;&|({!`\"']|\b(?:if|elif|then|else|while|until|do|time|command|builtin)\b)[ \t]*+"
_ARGUMENTS = r"(?>(?:[^\\\n;|&<>)]++|\\\n?)*)"
_SUBSTITUTION = r"\$\((?>(?:[^()]++|\([^()]*+\))*)\)"
_VALUE = rf"(?:\"(?>(?:[^\"\\]++|\\.)*)\"|'[^']*+'|(?>(?:{_SUBSTITUTION}|`[^`]*+`|\\[\s\S]|[^\s;&|\"'`\\$]++|\$)*))"
"""A quote counts only at the start: `eval 'B=1'` has its closing quote behind the value."""
_PRINTED = re.compile(
    rf"{_COMMAND_BEGIN}echo(?P<words>(?>(?:[ \t]++"
    r"(?>(?:\"(?>(?:[^\"\\\n`$]++|\\[^\n]|\$(?!\())*)\"|'[^'\n]*+'|[^\s;&|<>()`\"'$]++|\$(?!\())*))+))",
    re.MULTILINE,
)
"""Words that are only printed: `echo "B=$B"` sets nothing."""
_COMMENT = re.compile(r"(?<![^\s;])#[^\n]*")
_TARGET = rf"{_WORD_BEGIN}(?P<name>{_NAME})(?:\[[^\]\n]{{0,200}}\])?\+?="
_ASSIGNMENT = re.compile(_TARGET)
_WITH_VALUE = re.compile(rf"{_TARGET}{_VALUE}")
_OTHER = re.compile(
    rf"(?<![-\w./])(?:read|mapfile|readarray|getopts|unset|local|declare|typeset|coproc|for|select|export[ \t]++-n)\b"
    rf"(?P<names>{_ARGUMENTS})"
    rf"|\b(?:printf[ \t]++-v|wait[ \t]++(?:-n[ \t]++)?-p|env[ \t]++-u)[ \t]*+[\"']?(?P<option>{_NAME})"
    rf"|\$\{{(?P<default>{_NAME}):?="
    rf"|\{{(?P<descriptor>{_NAME})\}}[<>]"
    rf"|(?:\(\(|\$\[)(?P<arithmetic>(?>(?:[^()\]]++|\((?!\()|\)(?!\)))*))"
    rf"|(?<![-\w./])let\b(?P<let>{_ARGUMENTS})"
)
_ARGUMENT_NAME = re.compile(rf"(?<!\S)-[A-Za-z]*?a(?P<attached>{_NAME})|(?<![^\s\"'=])(?P<name>{_NAME})")
"""An argument that is a name, also behind the option of an array: `-raB`."""
_ARITHMETIC = re.compile(
    rf"(?<![\w$])(?:(?P<name>{_NAME})(?:\[[^\]\n]{{0,200}}\])?\s{{0,20}}(?:\+\+|--|(?:[-+*/%&|^]|<<|>>)?=(?!=))"
    rf"|(?<=[-+][-+])(?P<prefixed>{_NAME}))"
)
_OPENS_NAMES = re.compile(
    rf"{_COMMAND_BEGIN}(?:(?P<source>(?:\.|source)[ \t]++(?P<file>[^\s;&|<>()\"'`]++|\"[^\"\n]*+\"|'[^'\n]*+'))"
    rf"|(?P<builtin>eval|export|declare|typeset|local|readonly)\b(?>(?:[ \t]++-\w++)*)[ \t]++[\"']?[$`])",
    re.MULTILINE,
)
_BLOCK = re.compile(r"(?<![^\s;(){}])(?:(?P<open>do|\{)|(?P<close>done|\}))(?![^\s;&|()<>])")


class Assignments(Struct, frozen=True):
    """What a script sets; offsets count from the start of the script."""

    ends: dict[str, int]
    """Offset behind the first assignment of each name. A use before it gets its value from elsewhere."""
    _openers: tuple[tuple[int, str], ...] = ()
    _blocks: tuple[tuple[int, int], ...] = ()

    def find_doubt(self, name: str, offset: int) -> str:
        """Return why the name may have a value from the script at the offset, although it comes first there; "" if not."""
        index = bisect_left(self._openers, (offset, ""))
        if index:
            return f"{self._openers[index - 1][1]} may set it before"
        block = bisect_right(self._blocks, (offset, 0)) - 1
        if name in self.ends and block >= 0 and self._blocks[block][1] > 0:
            return "the script sets it later, and this part can run again after that"
        return ""


NO_ASSIGNMENTS = Assignments({})


def find_assignments(script: str) -> Assignments:
    """Return the names that a script sets, and where other files and commands may set names."""
    text = _PRINTED.sub(
        lambda match: match[0].removesuffix(match["words"]) + " " * len(match["words"]), _blank(_COMMENT, script)
    )
    ends: dict[str, int] = {}
    values = {match.start(): match.end() for match in _WITH_VALUE.finditer(text)}
    for name, start, end in _find_names(text):
        behind = values.get(start, end)
        ends[name] = min(behind, ends.get(name, behind))
    openers = tuple((match.end(), _describe(match)) for match in _OPENS_NAMES.finditer(text))
    return Assignments(ends, openers, tuple(_find_blocks(text)))


def _blank(pattern: re.Pattern[str], text: str) -> str:
    return pattern.sub(lambda match: " " * len(match[0]), text)


def _find_names(text: str) -> Iterator[tuple[str, int, int]]:
    """Yield each name that is set, with the offsets of its form; a name can come more than once."""
    for match in _ASSIGNMENT.finditer(text):
        yield match["name"], match.start(), match.end()
    for match in _OTHER.finditer(text):
        for group, pattern in (("names", _ARGUMENT_NAME), ("arithmetic", _ARITHMETIC), ("let", _ARITHMETIC)):
            for found in pattern.finditer(match[group] or ""):
                start = match.start(group) + found.start()
                yield found[found.lastgroup or 0], start, match.start(group) + found.end()
        for group in ("option", "default", "descriptor"):
            if match[group]:
                yield match[group], match.start(), match.end()


def _describe(match: re.Match[str]) -> str:
    file = (match["file"] or "").strip("\"'")
    return f"the script reads `{file}`, which" if file else f"`{match['builtin']}`"


def _find_blocks(text: str) -> Iterator[tuple[int, int]]:
    """Yield where the number of open loops and groups of commands changes, with the number."""
    depth = 0
    for match in _BLOCK.finditer(text):
        depth += 1 if match["open"] else -1
        yield match.end(), max(depth, 0)
