"""Find what only a shell understands in a command, and say how to write it without one, or with one.

The words of a command are passed to the program as they are. A pipe, a redirection or `VAR=1` would reach the program as
arguments. Text in quotes is data. So is a `*` or `~` in `--include=*.py`, in Hydra's `lr=2*x` and `~optimizer`, and in a URL.
In a list, the user has separated the words, so only the program is checked.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Sequence

from msgspec import Struct

from kfjob.redaction import Redactor

_BUILTIN_NAMES = """
    cd export source . set unset ulimit umask eval exec trap alias pushd popd wait if for while until case function [[ ! { let
    read declare local readonly shift command
"""
_BUILTINS = frozenset(_BUILTIN_NAMES.split())
"""Commands and keywords of the shell that no program of this name can replace."""
_QUOTED = re.compile(r"'[^']*'|\"(?:[^\"\\]|\\.)*\"|\\.", re.DOTALL)
_SUBSTITUTION = re.compile(r"\$\((?![A-Za-z_][A-Za-z0-9_]*\))|`")
"""`$(hostname -i)` or backquotes; Kubernetes itself replaces `$(NAME)`."""
_OPERATOR = re.compile(r"(?:(?<!\S)[\d&])?[<>]+(?:&\d)?|[;&|]+|(?<!\S)#(?!\S)")
_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=")
_BACKGROUND = re.compile(r"(?<!&)&\s*$")
_PATH = re.compile(r"[^-=:][^=:]*")
"""A word that can be a path: no option, override or URL."""
_ACTIVATIONS = ("conda", "mamba", "micromamba")
_LIST_OPERATORS = ("&&", "||", "|", ";", "2>&1")
_MAX_EXAMPLE = 4000
"""Characters of the shell text that a hint quotes."""


class ShellSyntax(Struct, frozen=True):
    """A part of a command that needs a shell."""

    phrase: str
    """All parts: `` `cd`, `&&` and `|` ``."""
    hint: str

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
    masked = _QUOTED.sub(_mask, line.strip())
    words = re.split(r"[\s;&|<>]+", masked)
    first = _find_in_program(words[0])
    parts = [*first, *_SUBSTITUTION.findall(masked), *_OPERATOR.findall(masked)]
    parts += ["*" for word in words if "*" in word and _PATH.fullmatch(word) and re.search(r"[/.]|^\*$", word)]
    parts += ["~" for word in words if re.fullmatch("~(/.*)?", word)]
    parts += ["\n"] if "\n" in masked else []
    if not parts:
        return None
    if words[0] in _ACTIVATIONS and words[1:2] == ["activate"]:
        run = f"write `{words[0]} run -n NAME` and the program"
        hint = f"for a local job, choose the environment with `--python FOLDER`; else {run}"
    elif background := _BACKGROUND.search(masked):
        rest = find_in_line(re.sub(r"^nohup\s+", "", line.strip()[: background.start() - len(masked)].strip()))
        hint = (rest.hint if rest else "write it") + " without `&`: kfjob runs the job in the background already"
    else:
        hint = _explain(first, line.strip(), fails_late=bool(re.search(r"[;|\n]", masked)))
    return ShellSyntax(_join_parts(parts), hint)


def find_in_words(words: Sequence[str]) -> ShellSyntax | None:
    """Return what needs a shell in a list of words: a program that no system has. The other words are not checked."""
    if len(words) == 1 and re.search(r"\s", words[0].strip()):
        separate = Redactor().value(words[0].split())
        return ShellSyntax("spaces in the name of the program", f"write `command: {json.dumps(separate)}`")
    first = _find_in_program(words[0]) if words else []
    line = " ".join(word if word in _LIST_OPERATORS else shlex.quote(word) for word in words)
    return ShellSyntax(_join_parts(first), _explain(first, line)) if first else None


def _mask(quoted: re.Match[str]) -> str:
    """Return what a shell sees in quotes: only what it replaces in double quotes."""
    return "_" + "".join(_SUBSTITUTION.findall(quoted[0]) if quoted[0].startswith('"') else ())


def _find_in_program(word: str) -> list[str]:
    """Return what only a shell takes as the beginning of a command: `cd`, `A=` or `(`."""
    if match := _ASSIGNMENT.match(word):
        return [match[0]]
    return [word] if word in _BUILTINS else ["("] if word.startswith("(") else []


def _join_parts(parts: Sequence[str]) -> str:
    names = {"`": "a backquote", "\n": "several lines"}
    *others, last = dict.fromkeys(names.get(part, f"`{part}`") for part in parts)
    return f"{', '.join(others)} and {last}" if others else last


def _without_prefix(words: Sequence[str]) -> str:
    """Return the advice to start the program of `exec` or `command` itself."""
    prefix, *program = words
    if not program:
        return "write a program and its arguments"
    reason = ": without a shell, there is nothing to replace" if prefix == "exec" else ""
    return f"write `command: {_show_words(program)}`{reason}"


def _show_words(words: Sequence[str]) -> str:
    """Return the words of a command without secrets as JSON, for a hint; `…` replaces those of a long command."""
    shown = Redactor().value([*words]) if sum(map(len, words)) <= _MAX_EXAMPLE else ["…"]
    return json.dumps(shown, ensure_ascii=False)


def _has_secret(line: str) -> bool:
    """Return whether a word of a line holds a secret, or a quote is open, so that nobody knows."""
    try:
        words = shlex.split(line.replace("$'", "'"))
    except ValueError:
        return True
    return bool(Redactor().value(words) != words)


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
    script = text if len(text) <= _MAX_EXAMPLE and not _has_secret(text) else "…"  # a part of it is no command line
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
    hint = needs_shell.hint if needs_shell else f"write `command: {_show_words(shlex.split(command))}`"
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
        shown = ((name, Redactor().value(value, name, is_environment=True)) for name, _, value in pairs)
        fields = ", ".join(f"{name}: {json.dumps(value, ensure_ascii=False)}" for name, value in shown)
        return f"set `env: {{{fields}}}` in the spec, or {shell}" if fields else shell
    if word == "cd":
        folder = f": {words[1]}" if words[1:] and words[1].startswith("/") else ""
        return f"set `pod.working_dir{folder}` (an absolute path), or {shell}"
    if word in ("source", ".") and words[1:] and words[1].endswith("/bin/activate"):
        return f"for a local job, choose the Python with `--python {words[1].removesuffix('/bin/activate')}`, or {shell}"
    return shell
