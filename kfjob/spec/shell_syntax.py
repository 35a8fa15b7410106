"""Find what only a shell understands in a command, and say how to write it without one, or with one.

The words of a command are passed to the program as they are. A pipe, a redirection or `VAR=1` would reach the program as
arguments. Text in quotes is data. So is a pattern in the value of an option: a shell passes `--include=*.py` as text too, and
a program that takes `--glob *.py` or `--pattern a|b` reads the pattern itself. A word such as `model.layers[0]=x` or
`train[:10%]` is no pattern of file names. In a list, the user has separated the words, so only the program is checked.
"""

from __future__ import annotations

import itertools
import json
import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from kfjob.redaction import Redactor, redact_command, redact_variable

_BUILTIN_NAMES = """
    cd export source . set unset ulimit umask eval exec trap alias pushd popd shopt wait if for while until case function [[
    ! {
"""
_BUILTINS = frozenset(_BUILTIN_NAMES.split())
"""Commands and keywords of the shell that no program of this name can replace."""
_OPERATOR = re.compile(r"\|\|?|&&?|;;?|\d*(>>?|<<?<?)(&\d|\|)?|&>>?|\d*>&\d")
_REDIRECTION = re.compile(r"(\d*|&)(>>?|<<?<?)[^=<>].*|\d*>&\d?.*")
_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=")
_SUBSTITUTION = re.compile(r"\$\((?![A-Za-z_][A-Za-z0-9_]*\))|`")
"""`$(hostname -i)` or backquotes; Kubernetes itself replaces `$(NAME)`."""
_VARIABLE = re.compile(r"\$(?:[A-Za-z_][A-Za-z0-9_]*|\{[A-Za-z_][A-Za-z0-9_]*\})")
_WILDCARD = re.compile(r"\?(?=.)|\[[^\[\]]+\]")
_EXTENSION = re.compile(r"[./]\w")
_HOME = re.compile(r"(?:[A-Za-z_][A-Za-z0-9_]*=)?~(?:/.*)?")
"""A word in which a shell replaces `~`; it does not in `--data=~/x` and in Hydra's `~optimizer`."""
_LIST_OPERATORS = ("&&", "||", "|", ";", "2>&1")
_TEXT_PARTS = frozenset("|;*?[~#><")
"""First characters of the parts that a user may have meant as text."""
_MAX_EXAMPLE = 4000
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

    @property
    def title(self) -> str:
        """The problem in one sentence."""
        return f"the command needs a shell for {self.phrase}, and runs without one"


def join_lines(line: str) -> str:
    r"""Return a command with its continued lines joined: after a `\`, and before a line that begins with an option."""
    joined = re.sub(r"\\\r?\n[ \t]*", " ", line.strip())
    return re.sub(r"(?<![ \t])[ \t]*\r?\n[ \t]*(?=-)", " ", joined)


def find_in_line(line: str) -> ShellSyntax | None:
    """Return the parts of a command line that need a shell; None if it can run without one."""
    words = list(_split(line))
    if not words:
        return None
    parts = ["several lines"] if "\n" in re.sub(r"'[^']*'|\"(?:[^\"\\]|\\.)*\"", "", line) else []
    first = tuple(_find_in_program(words[0]))
    pairs = itertools.pairwise(["", *words])
    arguments = dict.fromkeys(part for before, word in pairs for part in _find_in_word(word, before))
    if words[-1].endswith("&") and not words[-1].endswith("&&"):
        arguments |= {"&": None}
    parts += [f"`{part}`" for part in (*first, *arguments)]
    if not parts:
        return None
    variables = (f"`{match[0]}`" for word in words for match in _VARIABLE.finditer(word))
    hint = _explain_program(words[0], line) if first and "several lines" not in parts else _with_shell(line)
    if not first and arguments and all(part[0] in _TEXT_PARTS for part in arguments):
        hint += "; in quotes, it reaches the program as text"
    return ShellSyntax(tuple(dict.fromkeys([*parts, *variables])), hint)


def find_in_words(words: Sequence[str]) -> ShellSyntax | None:
    """Return what needs a shell in a list of words: a program that no system has. The other words are not checked."""
    if not words:
        return None
    if len(words) == 1 and re.search(r"\s", words[0].strip()):
        separate = Redactor().value(words[0].split())
        return ShellSyntax(("spaces in the name of the program",), f"write `command: {json.dumps(separate)}`")
    line = " ".join(word if word in _LIST_OPERATORS else shlex.quote(word) for word in words)
    parts = tuple(f"`{part}`" for part in _find_in_program(words[0]))
    if not parts:
        return None
    return ShellSyntax(parts, _without_exec(words[1:]) if words[0] == "exec" else _explain_program(words[0], line))


def _without_exec(words: Sequence[str]) -> str:
    """Return the advice to start the program of `exec` itself."""
    if not words:
        return "write a program and its arguments"
    shown = shlex.split(redact_command(shlex.join(words), _MAX_EXAMPLE))
    return f"write `command: {json.dumps(shown, ensure_ascii=False)}`: without a shell, there is nothing to replace"


def _find_in_program(word: str) -> Iterator[str]:
    """Yield what only a shell takes as the beginning of a command: `cd`, `A=1` or `(`."""
    if match := _ASSIGNMENT.match(word):
        yield f"{match[0]}…"
    elif word in _BUILTINS:
        yield word
    elif word.startswith("("):
        yield "("


def _find_in_word(word: str, before: str) -> Iterator[str]:
    """Yield the parts of one word that need a shell; quoted characters of the word are masked."""
    is_value = word.startswith("-") or (before.startswith("-") and "=" not in before)
    if _OPERATOR.fullmatch(word) or _REDIRECTION.fullmatch(word):
        yield word.replace(_QUOTED, "")
        return
    substitution = _SUBSTITUTION.search(word)
    redirection = re.search(r"(?<![-=<>])>>?(?!=)", word)
    parts = (
        ("&&" in word, "&&"),
        (bool(substitution), substitution[0] if substitution else ""),
        (";" in word, ";"),
        (bool(_HOME.fullmatch(word)), "~"),
        ("|" in word and (not is_value or word.startswith("|")), "||" if "||" in word else "|"),
        (redirection and not is_value and "=" not in word, redirection[0] if redirection else ""),
        (word.startswith("#") and not is_value, "#"),
    )
    yield from (part for applies, part in parts if applies)
    if not is_value and "://" not in word and (wildcard := _find_wildcard(word)):
        yield wildcard


def _find_wildcard(word: str) -> str:
    """Return what a shell replaces by file names: `*`, and `?` or `[…]` if the word is a path or has an extension."""
    if "=" in word or "*" in word:
        return "" if "=" in word else "*"
    wildcards = list(_WILDCARD.finditer(word))
    if not wildcards or not ("/" in word[: wildcards[-1].start()] or _EXTENSION.search(word, wildcards[0].start())):
        return ""
    return "?" if wildcards[0][0] == "?" else "[…]"


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
    """Return the advice to start a shell with this text, in which the exit code of a program before a pipe is kept."""
    text = line.strip()
    if any("|" in word.replace("||", "") for word in _split(text)):
        text = f"set -o pipefail; {text}"
    script = redact_command(text, _MAX_EXAMPLE)
    return f"use `command: {json.dumps(['bash', '-c', script], ensure_ascii=False)}`"


def _explain_program(word: str, line: str) -> str:
    """Return the field that replaces the beginning of a command, and the command with a shell."""
    shell = _with_shell(line)
    lexer = shlex.shlex(line, posix=True, punctuation_chars=";&|")
    lexer.whitespace_split, lexer.commenters = True, ""
    try:
        words = list(itertools.takewhile(lambda part: part.strip(";&|"), lexer))
    except ValueError:  # an open quote
        return shell
    if word == "export":
        words = words[1:]
    if word == "export" or _ASSIGNMENT.match(word):
        pairs = [match.string.partition("=") for match in itertools.takewhile(bool, map(_ASSIGNMENT.match, words)) if match]
        shown = ((name, redact_variable(name, value)) for name, _, value in pairs)
        fields = ", ".join(f"{name}: {json.dumps(value, ensure_ascii=False)}" for name, value in shown)
        return f"set `env: {{{fields}}}` in the spec, or {shell}" if fields else shell
    if word == "cd":
        folder = f": {words[1]}" if words[1:] and words[1].startswith("/") else ""
        return f"set `pod.working_dir{folder}` (an absolute path), or {shell}"
    if word in ("source", ".") and words[1:] and words[1].endswith("/bin/activate"):
        return f"for a local job, choose the Python with `--python {words[1].removesuffix('/bin/activate')}`, or {shell}"
    return shell
