"""The command that installs packages for a job of this machine: for its own Python, in the way of that Python's environment."""

from __future__ import annotations

import shlex
from pathlib import Path

from kfjob.shell.commands import is_python

_LINE_BYTES = 4096
"""Most bytes of a program's first line."""


def find_installer(program: Path) -> str:
    """Return a command to which packages are added: `/venv/bin/python -m pip install`; "" if the job's Python is unknown.

    `program` is the file of the job's program: a Python, a program that names its Python in its first line (torchrun), or uv,
    which runs the job in the project of its folder.
    """
    if program.name == "uv":
        return "uv add"
    python = program if is_python(program.name) else _read_python(program)
    if python is None:
        return ""
    file = shlex.quote(str(python))
    has_pip = any(python.parent.parent.glob("lib*/python3*/*-packages/pip"))  # uv makes environments without it
    return f"{file} -m pip install" if has_pip else f"uv pip install --python {file}"


def _read_python(program: Path) -> Path | None:
    """Return the Python in the first line of a program; None if it has none, or one that PATH decides."""
    try:
        with program.open("rb") as file:
            line = file.readline(_LINE_BYTES).decode(errors="replace")
    except OSError:
        return None
    words = line.removeprefix("#!").split()
    return Path(words[0]) if line.startswith("#!") and words and is_python(words[0]) else None
