"""What a shell is: its programs, which words it reads, its variables' names, and those that it sets itself (bash 5.2)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

SHELLS = ("bash", "sh", "dash", "ash", "zsh", "ksh")
NAME = r"[A-Za-z_][A-Za-z0-9_]*"
"""Pattern of a variable's name, for the patterns of other modules. Kubernetes allows more names in `env`."""
_COMPUTED_NAMES = """
    UID EUID PPID RANDOM SRANDOM SECONDS LINENO EPOCHSECONDS EPOCHREALTIME SHELLOPTS HISTCMD FUNCNAME GROUPS DIRSTACK _
"""
_COMPUTED = frozenset(_COMPUTED_NAMES.split())
_INITIAL_NAMES = """
    HOME HOSTNAME PATH PWD OLDPWD SHELL SHLVL TERM IFS OPTARG OPTIND OPTERR HOSTTYPE OSTYPE MACHTYPE PIPESTATUS PS4
"""
_INITIAL = frozenset(_INITIAL_NAMES.split())
_TERMINAL = frozenset(("COLUMNS", "LINES", "PS1", "PS2", "PS3"))
_BASH = re.compile(r"BASH(?:PID|OPTS|_\w+)?", re.ASCII)


_SCRIPT_RUNNERS = ("su", "runuser", "script", "flock")
"""Programs that give the word after their option `-c` to a shell."""
_COMMAND_OPTION = re.compile(r"-[a-z]*c|--command")
_SPLIT_OPTION = re.compile(r"-[a-zA-Z]*S|--split-string")
"""Option of `env` before a text that it reads as a shell does."""
_FILE_OPTIONS = ("--rcfile", "--init-file")
_LETTERS = "[-+][abcefhiklmnoprstuvxBCDEHIOPT]+"
"""Options of a shell in one word, as in `-euo pipefail`."""
_NAMED_OPTIONS = "[oO]"
"""Letters of a shell's options that the next word names."""


def is_shell(word: str) -> bool:
    """Return whether a word of a command is a shell: `bash`, `/bin/sh`."""
    return word.rpartition("/")[2] in SHELLS


def find_scripts(words: Sequence[str]) -> frozenset[int]:
    """Return the indexes of the words that a shell reads as a script: 2 in `bash -c "run $X" name`.

    The shell can be behind other programs, such as env, tini and nohup. Its other words are not scripts: in
    `bash run.sh $X`, no shell replaces `$X`.
    """
    return frozenset(_find_scripts(words))


def find_own_script(words: Sequence[str]) -> int | None:
    """Return the index of the script of the shell that is the first word; None for another program, or without a script.

    In `bash entry.sh -c x`, the `-c` is an argument of `entry.sh`.
    """
    if not words or not is_shell(words[0]):
        return None
    index, has_script = _skip_options(words, 1)
    return index if has_script else None


def find_script_file(words: Sequence[str]) -> str:
    """Return the file that the shell in the first word reads; "" for another program, a script in the command, or no file."""
    if not words or not is_shell(words[0]):
        return ""
    index, has_script = _skip_options(words, 1)
    return "" if has_script else "".join(words[index : index + 1])


def _find_scripts(words: Sequence[str]) -> Iterator[int]:
    option: re.Pattern[str] | None = None
    index = 0
    while index < len(words):
        word, index = words[index], index + 1
        name = word.rpartition("/")[2]
        if name in SHELLS:
            index, has_script = _skip_options(words, index)
            if has_script:
                yield index
                index += 1
        elif name in _SCRIPT_RUNNERS:
            option = _COMMAND_OPTION
        elif name == "env":
            option = _SPLIT_OPTION
        elif option and option.fullmatch(word) and index < len(words):
            yield index
            index += 1


def _skip_options(words: Sequence[str], index: int) -> tuple[int, bool]:
    """Return the index of the first word after a shell's options, and whether it is a script, because one of them is `-c`."""
    has_script = False
    while index < len(words):
        word = words[index]
        if word in ("-", "--"):
            index += 1
            break
        if word.startswith("--"):
            index += 1 + (word in _FILE_OPTIONS)
        elif re.fullmatch(_LETTERS, word):
            has_script = has_script or (word[0] == "-" and "c" in word)
            index += 1 + len(re.findall(_NAMED_OPTIONS, word))
        else:
            break
    return index, has_script and index < len(words)


def is_name(text: str) -> bool:
    """Return whether a text can be the name of a variable."""
    return re.fullmatch(NAME, text) is not None


def is_computed_by_shell(name: str) -> bool:
    """Return whether a shell computes the variable's value, also after an assignment."""
    return name in _COMPUTED or _BASH.fullmatch(name) is not None


def is_set_by_shell(name: str, *, in_terminal: bool = False) -> bool:
    """Return whether the variable has a value in every shell, or in every one of a terminal."""
    return name in _INITIAL or is_computed_by_shell(name) or (in_terminal and name in _TERMINAL)
