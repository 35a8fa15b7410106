"""What a shell is: its programs, the form of its variables' names, and the variables that it sets itself (bash 5.2)."""

from __future__ import annotations

import re

SHELLS = ("bash", "sh", "dash", "ash", "zsh", "ksh")
NAME = r"[A-Za-z_][A-Za-z0-9_]*"
"""Pattern of a variable's name, for the patterns of other modules. Kubernetes allows more names in `env`."""
_NAME = re.compile(NAME)
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


def is_shell(word: str) -> bool:
    """Return whether a word of a command is a shell: `bash`, `/bin/sh`."""
    return word.rpartition("/")[2] in SHELLS


def is_name(text: str) -> bool:
    """Return whether a text can be the name of a variable."""
    return _NAME.fullmatch(text) is not None


def is_computed_by_shell(name: str) -> bool:
    """Return whether a shell computes the variable's value, also after an assignment."""
    return name in _COMPUTED or _BASH.fullmatch(name) is not None


def is_set_by_shell(name: str, *, in_terminal: bool = False) -> bool:
    """Return whether the variable has a value in every shell, or in every one of a terminal."""
    return name in _INITIAL or is_computed_by_shell(name) or (in_terminal and name in _TERMINAL)
