"""Find the script that the command of a job runs."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Sequence

from kfjob.base.shells import find_script_file
from kfjob.plan.unconnected_programs import split_commands
from kfjob.shell.commands import find_script

_FOLDER_OPTIONS = ("--cwd", "--directory", "-C", "--chdir")
"""Options by which runners and `env` start a program in another folder."""
_SHELL_SETTINGS = ("set", "export", "echo", "ulimit", "umask", "true")
"""Parts of a shell that make no files."""


def find_job_script(command: Sequence[str], *, at_start: bool = False) -> str:
    """Return the first Python script that a command runs, in the folder that a `cd` before it names; "" without one.

    With `at_start` only one that no other program could fetch or write before. "" also where only the shell, or an option of a
    program such as `uv run`, knows the folder.
    """
    folder = ""
    for words in split_commands(command):
        if words[:1] == ["cd"]:
            folder = posixpath.join(folder, words[1]) if len(words) > 1 else "~"
        elif script := find_script(words):
            options = {word.partition("=")[0] for word in command[: _count_before(script, command)]}
            is_known = not re.search(r"[$`*?]|^[~-]", folder) and options.isdisjoint(_FOLDER_OPTIONS)
            return posixpath.join(folder, script) if is_known else ""
        elif at_start and words and words[0] not in _SHELL_SETTINGS:
            return ""
    return ""


def find_program_file(command: Sequence[str]) -> str:
    """Return the file that a command runs: a Python script or a shell script; "" without one."""
    return find_job_script(command) or find_shell_file(command)


def find_shell_file(words: Sequence[str]) -> str:
    """Return the file that a shell, or the system, reads as a shell script; "" without one."""
    is_file = bool(words) and words[0].endswith((".sh", ".bash"))
    return words[0] if is_file else find_script_file(words)


def _count_before(word: str, command: Sequence[str]) -> int:
    return command.index(word) if word in command else len(command)
