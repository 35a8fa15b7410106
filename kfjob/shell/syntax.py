"""Find what only a shell understands in a command, and say how to write it without one, or with one.

The words of a command are passed to the program as they are. A pipe, a redirection or `VAR=1` would reach the program as
arguments. Text in quotes is data. So are `--include=*.py`, which a shell passes as text too, the values of options that take a
pattern (`--glob *.py`, `--pattern a|b`), and comparisons with a number (`--where x>1`). A word such as `model.layers[0]=x` or
`train[:10%]` is no pattern of file names. In a list, the user has separated the words, so only the program is checked.
"""

from __future__ import annotations

import itertools
import json
import re
import shlex
from collections.abc import Iterator, Sequence

from msgspec import Struct

from kfjob.redaction import Redactor
from kfjob.redaction.shell_words import redact_command, redact_variable

_BUILTIN_NAMES = """
    cd export source . set unset ulimit umask eval exec trap alias pushd popd shopt wait if for while until case function [[
    ! { let read declare typeset local readonly shift builtin command type hash select coproc
"""
_BUILTINS = frozenset(_BUILTIN_NAMES.split())
"""Commands and keywords of the shell that no program of this name can replace."""
_OPERATOR = re.compile(r"\|\|?|&&?|;;?|\d*(>>?|<<?<?)(&\d|\|)?|&>>?|\d*>&\d")
_REDIRECTION = re.compile(r"(\d*|&)(>>?|<<?<?)[^=<>].*|\d*>&\d?.*")
_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=")
_SUBSTITUTION = re.compile(r"\$\((?![A-Za-z_][A-Za-z0-9_]*\))|`")
"""`$(hostname -i)` or backquotes; Kubernetes itself replaces `$(NAME)`."""
_VARIABLE = r"\$(?:[A-Za-z_][A-Za-z0-9_]*|\{[A-Za-z_][A-Za-z0-9_]*\})"
_SPECIAL_VARIABLE = re.compile(r"(?<!\$)\$[0-9?@#!*]")
"""`$1`, `$?`, `$@` …"""
_BRACES = re.compile(r"(?<![$=:])\{[^{}:]*(?:,|\.\.)[^{}:]*\}")
"""`{a,b}` or `{1..3}`, which a shell replaces by several words; `{a: 1, b: 2}` is a mapping."""
_TEXT_OPTION = r"(?i)-.*(?:pattern|regex|glob|filter|includ|exclud|ignor|match|where|expr|modules|grep|select|query).*"
"""An option whose value is a pattern or a condition, which the program reads itself."""
_READER = r"\|&?(?:tee|cat|grep|egrep|head|tail|less|more|sed|awk|ts|sort|wc)$"
"""The end of a word with a pipe into a program that reads text."""
_COMPARISON = re.compile(r">>?\d+(?:\.\d+)?(?:e[-+]?\d+)?")
_REPLACED_IN_VALUE = r"[$`]|(?:^|:)~"
"""What a shell replaces in the value of `VAR=value`, and `env` in a spec does not."""
_ACTIVATIONS = frozenset({"conda", "mamba", "micromamba"})
_WILDCARD = re.compile(r"\?(?=.)|\[[^\[\]]+\]")
_EXTENSION = re.compile(r"[./]\w")
_HOME = re.compile(r"(?:[A-Za-z_][A-Za-z0-9_]*=)?~(?:/.*)?")
"""A word in which a shell replaces `~`; it does not in `--data=~/x` and in Hydra's `~optimizer`."""
_LIST_OPERATORS = ("&&", "||", "|", ";", "2>&1")
_TEXT_PARTS = frozenset("|;*?[{~#><")
"""First characters of the parts that a user may have meant as text."""
_NOHUP = r"(^|&&\s*|;\s*)nohup\s+"
_MAX_EXAMPLE = 4000
"""Characters of the shell text that a hint quotes."""
_QUOTED = "\ue000"
"""Stands for each character of a quoted word."""


class ShellSyntax(Struct, frozen=True):
    """A part of a command that needs a shell."""

    parts: tuple[str, ...]
    """All parts, as phrases for a message."""
    hint: str

    @property
    def phrase(self) -> str:
        """The parts in one phrase: `` `cd`, `&&` and `|` ``."""
        return _join_parts(self.parts)

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
    parts = ["several lines"] if _has_several_lines(line) else []
    first = tuple(_find_in_program(words[0]))
    pairs = itertools.pairwise(["", *words])
    arguments = dict.fromkeys(part for before, word in pairs for part in _find_in_word(word, before))
    is_background = words[-1].endswith("&") and not words[-1].endswith("&&")
    if any(word.endswith("&") and not word.endswith("&&") for word in words):
        arguments |= {"&": None}
    parts += [_quote_part(part) for part in (*first, *arguments)]
    if not parts:
        return None
    variables = (f"`{match[0]}`" for word in words for match in re.finditer(_VARIABLE, word))
    if is_background:
        return ShellSyntax(tuple(dict.fromkeys([*parts, *variables])), _without_background(line))
    if words[0] in _ACTIVATIONS and words[1:2] == ["activate"]:
        hint = _explain_activation(words)
    elif first:
        hint = _explain_program(words[0], line) if "several lines" not in parts else _with_shell(line)
    else:
        hint = _explain_arguments([*arguments], line)
    return ShellSyntax(tuple(dict.fromkeys([*parts, *variables])), hint)


def _explain_arguments(arguments: Sequence[str], line: str) -> str:
    """Return the advice for parts behind the program: what runs them in a shell, and what passes them as text."""
    shell = _with_shell(line)
    if not arguments or not all(part[0] in _TEXT_PARTS or _SPECIAL_VARIABLE.fullmatch(part) for part in arguments):
        return shell
    verb = "reaches" if len(arguments) == 1 else "reach"
    text = f"in single quotes, {_join_parts([*map(_quote_part, arguments)])} {verb} the program as text"
    if all(map(_SPECIAL_VARIABLE.fullmatch, arguments)) and not _has_several_lines(line):
        return text  # a shell has no value for it either
    return f"to run it in a shell, {shell}; {text}"


def _has_several_lines(line: str) -> bool:
    """Return whether a command has line ends outside of quotes."""
    return "\n" in re.sub(r"'[^']*'|\"(?:[^\"\\]|\\.)*\"", "", line)


def find_in_words(words: Sequence[str]) -> ShellSyntax | None:
    """Return what needs a shell in a list of words: a program that no system has. The other words are not checked."""
    if not words:
        return None
    if len(words) == 1 and re.search(r"\s", words[0].strip()):
        separate = Redactor().value(words[0].split())
        return ShellSyntax(("spaces in the name of the program",), f"write `command: {json.dumps(separate)}`")
    line = " ".join(word if word in _LIST_OPERATORS else shlex.quote(word) for word in words)
    parts = tuple(_quote_part(part) for part in _find_in_program(words[0]))
    if not parts:
        return None
    if words[0] in ("exec", "command"):
        return ShellSyntax(parts, _without_prefix(words))
    return ShellSyntax(parts, _explain_program(words[0], line))


def _quote_part(part: str) -> str:
    """Return a part for a message; a backquote cannot stand in backquotes."""
    return "a backquote" if part == "`" else f"`{part}`"


def _join_parts(parts: Sequence[str]) -> str:
    *first, last = parts
    return f"{', '.join(first)} and {last}" if first else last


def _without_prefix(words: Sequence[str]) -> str:
    """Return the advice to start the program of `exec` or `command` itself."""
    prefix, *program = words
    if not program:
        return "write a program and its arguments"
    shown = shlex.split(redact_command(shlex.join(program), _MAX_EXAMPLE))
    reason = ": without a shell, there is nothing to replace" if prefix == "exec" else ""
    return f"write `command: {json.dumps(shown, ensure_ascii=False)}`{reason}"


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
    is_option = word.startswith("-")
    is_value = not is_option and before.startswith("-") and "=" not in before
    option = word.partition("=")[0] if is_option else before
    takes_text = (is_value or "=" in word) and re.fullmatch(_TEXT_OPTION, option) is not None
    if _OPERATOR.fullmatch(word) or _REDIRECTION.fullmatch(word):
        yield word.replace(_QUOTED, "")
        return
    substitution = _SUBSTITUTION.search(word)
    special = _SPECIAL_VARIABLE.search(word)
    parts = (
        ("&&" in word, "&&"),
        (bool(substitution), substitution[0] if substitution else ""),
        (";" in word, ";"),
        (bool(_HOME.fullmatch(word)), "~"),
        (bool(special), special[0] if special else ""),
        ("|" in word and (not takes_text or bool(re.search(_READER, word))), "||" if "||" in word else "|"),
        (word.startswith("#") and not is_option and not is_value, "#"),
    )
    yield from (part for applies, part in parts if applies)
    word = _SPECIAL_VARIABLE.sub("", word)
    if not takes_text and (redirection := _find_redirection(word, is_value=is_value or is_option)):
        yield redirection
    if not (takes_text or is_option or "=" in word or "://" in word):
        yield from _find_expansions(word, is_value=is_value)


def _find_redirection(word: str, *, is_value: bool) -> str:
    """Return `>` in a word such as `x>log`; "" in `x>1` as the value of an option, `x>=1` and `key=a>b`."""
    match = re.search(r"(?<![-=<>])>>?(?!=)", word)
    if not match or ("=" in word and not word.startswith("-")):
        return ""
    return "" if is_value and _COMPARISON.fullmatch(word, match.start()) else match[0]


def _find_expansions(word: str, *, is_value: bool) -> Iterator[str]:
    """Yield what a shell replaces by several words: `*`, `?` and `[…]` by file names, and `{…}`; and `&` between commands.

    A word with `?` or `[…]` is a pattern of file names if it is a path or has an extension. The value of an option is one only
    if it is a path, or also with `*` if it has an extension: `--scale 2*3` is none.
    """
    if not is_value and re.search(r"[^&]&[^&]", word):
        yield "&"
    if _BRACES.search(word):
        yield "{…}"
    if "*" in word:
        if not is_value or word == "*" or "/" in word or re.search(r"\*\.\w|\w\.\*", word):
            yield "*"
        return
    wildcards = list(_WILDCARD.finditer(word))
    has_folder = bool(wildcards) and "/" in word[: wildcards[-1].start()]
    if has_folder or (wildcards and not is_value and _EXTENSION.search(word, wildcards[0].start())):
        yield "?" if wildcards[0][0] == "?" else "[…]"


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
                word += character if quote == '"' and _is_replaced(word, character) else _QUOTED
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


def _is_replaced(before: str, character: str) -> bool:
    """Return whether a shell replaces this character in double quotes: in a substitution or the name of a variable."""
    if character in "$`(":
        return True
    if before.endswith("$"):
        return re.match(r"[\w{?@#!*]", character) is not None
    return re.match(r"[\w}]", character) is not None and re.search(r"\$\{?\w*$", before) is not None


def _with_shell(line: str) -> str:
    """Return the advice to start a shell with this text, which fails if a program before a pipe or another command fails."""
    text, words = line.strip(), list(_split(line))
    has_several = _has_several_lines(line) or any(";" in word for word in words)
    flags = "e" if has_several and not re.search(r"\bset -\w*e", text) else ""
    if any("|" in word.replace("||", "") for word in words):
        flags += "o pipefail"
    text = f"set -{flags}; {text}" if flags else text
    script = redact_command(text, _MAX_EXAMPLE)
    return f"use `command: {json.dumps(['bash', '-c', script], ensure_ascii=False)}`"


def _find_replaced(value: str) -> str:
    """Return what a shell replaces in the value of a variable, for a message; "" without it."""
    match = re.search(_VARIABLE, value) or _SPECIAL_VARIABLE.search(value) or re.search(_REPLACED_IN_VALUE, value)
    if not match:
        return ""
    part = {"$": "$(", ":~": "~"}.get(match[0], match[0])
    return _quote_part(part)


def _explain_activation(words: Sequence[str]) -> str:
    """Return the advice for `conda activate`, which a shell that runs one command refuses."""
    name = "".join(words[2:3]).strip(";&")
    live = " --no-capture-output" if words[0] == "conda" else ""
    where = f"-n {name}" if name and "/" not in name else f"-p {name}" if name else "-n NAME"
    return (
        f"`{words[0]} activate` works in an interactive shell only: for a local job, choose the environment with "
        f"`--python FOLDER`, or start the program with `{words[0]} run{live} {where}`"
    )


def _without_background(line: str) -> str:
    """Return the advice to start the command itself: a shell would end at once, and its job with it."""
    command = re.sub(_NOHUP, r"\1", line.strip().removesuffix("&").rstrip())
    needs_shell = find_in_line(command)
    words = json.dumps(shlex.split(redact_command(command, _MAX_EXAMPLE)), ensure_ascii=False)
    hint = needs_shell.hint if needs_shell else f"write `command: {words}`"
    return f"{hint}, without `&`: kfjob runs the job in the background already, and `kfjob logs` shows its output"


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
        for masked in _split(line):
            name, _, value = masked.partition("=")
            if _ASSIGNMENT.match(masked) and (replaced := _find_replaced(value)):
                return f"set `env.{name}` to a value without {replaced}, which nothing replaces there, or {shell}"
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
