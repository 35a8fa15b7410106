"""Find what only a shell understands in a command, and say how to write it without one, or with one.

The words of a command are passed to the program as they are. A pipe, a redirection or `VAR=1` would reach the program as
arguments. Text in quotes is data, and so is a word that an option takes: `--pattern a|b` and `--include=*.py` need no shell.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from kfjob.redaction import cut_text

_BUILTIN_NAMES = """
    cd export source . set unset ulimit umask eval exec trap alias pushd popd shopt wait if for while until case function [[
"""
_BUILTINS = frozenset(_BUILTIN_NAMES.split())
"""Commands and keywords of the shell that no program of this name can replace."""
_OPERATOR = re.compile(r"\|\|?|&&?|;;?|\d*(>>?|<<?<?)(&\d|\|)?|&>>?|\d*>&\d")
_REDIRECTION = re.compile(r"(\d*|&)(>>?|<)[^=>].*|\d*>&\d?.*")
_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=")
_SUBSTITUTION = re.compile(r"\$\((?![A-Za-z_][A-Za-z0-9_]*\))|`")
"""`$(hostname -i)` or backquotes; Kubernetes itself replaces `$(NAME)`."""
_VARIABLE = re.compile(r"\$(?:[A-Za-z_][A-Za-z0-9_]*|\{[A-Za-z_][A-Za-z0-9_]*\})")
_LIST_OPERATORS = ("&&", "||", "|", "2>&1")
_MAX_EXAMPLE = 120
"""Characters of the shell text that a hint quotes."""
_QUOTED = "\ue000"
"""Stands for each character of a quoted word."""


@dataclass(frozen=True)
class ShellSyntax:
    """A part of a command that needs a shell."""

    parts: tuple[str, ...]
    """All parts, as phrases for a message."""
    hint: str

    @property
    def phrase(self) -> str:
        """The parts in one phrase: `` `cd`, `&&` and `|` ``."""
        *first, last = self.parts
        return f"{', '.join(first)} and {last}" if first else last


def join_lines(line: str) -> str:
    r"""Return a command with its continued lines joined: after a `\`, and before a line that begins with an option."""
    joined = re.sub(r"\\\r?\n[ \t]*", " ", line.strip())
    return re.sub(r"(?<![ \t])[ \t]*\r?\n[ \t]*(?=-)", " ", joined)


def find_in_line(line: str) -> ShellSyntax | None:
    """Return the parts of a command line that need a shell; None if it can run without one."""
    words = list(_split(line))
    if not words:
        return None
    parts, hint = [], _with_shell(line)
    if "\n" in "".join(word for word in re.split(r"'[^']*'|\"(?:[^\"\\]|\\.)*\"", line)):
        parts.append("several lines")
    if match := _ASSIGNMENT.match(words[0]):
        parts.append(f"`{match[0]}…`")
        hint = hint if parts[1:] else _explain_assignment(words, line)
    elif words[0] in _BUILTINS:
        parts.append(f"`{words[0]}`")
        hint = _explain_folder(line) if words[0] == "cd" and not parts[1:] else hint
    option = False
    for word in words:
        parts += [f"`{part}`" for part in _find_in_word(word, follows_option=option)]
        option = word.startswith("-") and "=" not in word
    if not parts:
        return None
    variables = (f"`{match[0]}`" for word in words for match in _VARIABLE.finditer(word))
    return ShellSyntax(tuple(dict.fromkeys([*parts, *variables])), hint)


def find_in_words(words: Sequence[str]) -> ShellSyntax | None:
    """Return what needs a shell in a list of words; None for the words of a shell's own script."""
    if not words:
        return None
    if len(words) == 1 and re.search(r"\s", words[0].strip()):
        return ShellSyntax(("spaces in the name of the program",), f"write `command: {json.dumps(words[0].split())}`")
    parts, hint = [], _with_shell(shlex.join(words))
    if words[0] in _BUILTINS:
        parts.append(f"`{words[0]}`")
    elif match := _ASSIGNMENT.match(words[0]):
        parts.append(f"`{match[0]}…`")
        hint = _explain_assignment(list(words), shlex.join(words))
    if operators := [word for word in words if word in _LIST_OPERATORS]:
        parts += [f"`{operator}`" for operator in operators]
        hint = _with_shell(" ".join(words))
    return ShellSyntax(tuple(dict.fromkeys(parts)), hint) if parts else None


def _find_in_word(word: str, *, follows_option: bool) -> Iterator[str]:
    """Yield the parts of one word that need a shell; quoted characters of the word are masked."""
    is_value = follows_option or word.startswith("-")
    substitution = _SUBSTITUTION.search(word)
    parts = (
        (bool(_OPERATOR.fullmatch(word)) or (bool(_REDIRECTION.fullmatch(word)) and not follows_option), word),
        ("&&" in word, "&&"),
        (bool(substitution), substitution[0] if substitution else ""),
        (word.endswith(";"), ";"),
        (word == "~" or word.startswith("~/"), "~"),
        ("|" in word and not is_value, "|"),
        ("*" in word.partition("=")[0] and not is_value, "*"),
    )
    if parts[0][0]:
        yield word.replace(_QUOTED, "")
        return
    yield from (part.replace(_QUOTED, "") for applies, part in parts if applies)


def _split(line: str) -> Iterator[str]:
    """Yield the words of a line with their quoted characters masked."""
    word, quote, started = "", "", False
    characters = iter(line)
    for character in characters:
        if quote:
            if character == quote:
                quote = ""
            elif quote == '"' and character == "\\":
                next(characters, "")
                word += _QUOTED
            else:
                word += character if character in "$`(" and quote == '"' else _QUOTED
        elif character in "'\"":
            quote, started = character, True
        elif character == "\\":
            next(characters, "")
            word += _QUOTED
        elif character.isspace():
            if word or started:
                yield word
            word, started = "", False
        else:
            word += character
    if word or started:
        yield word


def _with_shell(line: str) -> str:
    text = line.strip()
    if re.search(r"(?<!\|)\|(?!\|)", text):  # else the exit code of the program before the pipe is lost
        text = f"set -o pipefail; {text}"
    text = text if len(text) <= _MAX_EXAMPLE else f"{cut_text(text, _MAX_EXAMPLE)}…"
    return f"use `command: {json.dumps(['bash', '-c', text], ensure_ascii=False)}`"


def _explain_assignment(words: Sequence[str], line: str) -> str:
    """Return a hint with `env` for a command that begins with assignments."""
    pairs = [word.partition("=") for word in words]
    count = next((index for index, (name, equals, _) in enumerate(pairs) if not equals or not name.isidentifier()), len(pairs))
    fields = ", ".join(f"{name}: {'…' if _QUOTED in value else json.dumps(value)}" for name, _, value in pairs[:count])
    return f"set `env: {{{fields}}}` in the spec, or {_with_shell(line)}"


def _explain_folder(line: str) -> str:
    """Return a hint with the working directory for a command that begins with `cd`."""
    match = re.match(r"\s*cd\s+([^\s;&|]+)", line)
    folder = f": {match[1]}" if match and match[1].startswith("/") else ""
    return f"set `pod.working_dir{folder}` (an absolute path), or {_with_shell(line)}"
