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
OPERATORS = frozenset(("|", "||", "|&", "&&", "&", ";", ">", ">>", "<", "2>&1", "&>"))
"""Words of a list that only a shell reads."""
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
        live = " --no-capture-output" if words[0] == "conda" else ""
        run = f"write `{words[0]} run{live} -n NAME` and the program"
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
    line = " ".join(word if word in OPERATORS else shlex.quote(word) for word in words)
    return ShellSyntax(_join_parts(first), _explain(first, line)) if first else None


def hides_failure(script: str) -> bool:
    """Return whether a script ends with a pipe whose exit code is that of its last program: `python train.py | tee log`."""
    masked = re.sub(r"\$\([^()]*\)", "", _QUOTED.sub("_", script))
    last = re.split(r"&&|\|\||[;\n]", masked.rstrip(" ;\n"))[-1]
    return "|" in last and "pipefail" not in masked


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


def _has_secret(line: str) -> bool:
    """Return whether a word of a line holds a secret, or a quote is open, so that nobody knows."""
    try:
        words = shlex.split(line.replace("$'", "'"))
    except ValueError:
        return True
    return bool(Redactor().value(words) != words)


def show_script(text: str, *, fails_late: bool = False) -> str:
    """Return a text for `bash -c` in a hint; `…` for one that is long or holds a secret, because a part is no command line.

    `fails_late`: the script must fail if a program before the last one fails.
    """
    script = f"set -eo pipefail; {text}" if fails_late else text
    return script if len(script) <= _MAX_EXAMPLE and not _has_secret(text) else "…"


def _explain(first: Sequence[str], text: str, *, fails_late: bool = False) -> str:
    """Return the advice: a field of the spec or quotes, or a shell that fails if a program before the last one fails."""
    command = ["bash", "-c", show_script(text, fails_late=fails_late)]
    shell = f"use `command: {json.dumps(command, ensure_ascii=False)}`"
    if first[:1] == ["cd"]:
        return f"set `pod.working_dir` (an absolute path), or {shell}"
    if first and (first[0] == "export" or first[0].endswith("=")):
        name = "" if first[0] == "export" else f".{first[0][:-1]}"
        return f"set `env{name}` in the spec, or {shell}"
    may_be_text = not first and re.search(r"[^\s\d|&;<>][|<>;]|[*~]", text)  # as in `torch>=2.1`
    return f"write text in single quotes, or {shell}" if may_be_text else shell
