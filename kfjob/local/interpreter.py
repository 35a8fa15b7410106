"""Find the programs of a job on this machine: on the user's PATH, or beside the Python that the user has chosen."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from kfjob.backends.base import Requirement
from kfjob.base.errors import Refused
from kfjob.shell.commands import PYTHON_STARTERS, is_python
from kfjob.trainspec import OWN_TRAINER
from kfjob.trainspec.packages import find_packages

if TYPE_CHECKING:
    from kfjob.plan import JobPlan

OWN = Path(sys.executable)
"""The Python that runs kfjob. Its programs are used last, because the user's environment may have another torch."""
_CHOICE = "`--python`, or `local_python` in `kfjob.toml`"
_IMPORT_SECONDS = 60
"""Time that a Python has to say whether it finds the trainer."""


class Interpreter(Struct, frozen=True, kw_only=True):
    """Where a job finds `python`, `torchrun` and other programs."""

    chosen: Path | None = None
    """The Python that the user has chosen, or its virtual environment; None: the first on PATH."""

    def search_path(self, path: str, argv: Sequence[str]) -> str:
        """Return `path` with the chosen Python's folder first and that of kfjob's own Python last.

        kfjob's trainer (`argv`) runs with kfjob's own Python, if that has torch.
        """
        folders = path.split(os.pathsep)
        if self.chosen:
            folders = [str(self._chosen_file().parent), *folders]
        elif OWN_TRAINER in argv and (OWN.parent / "torchrun").exists():
            folders = [str(OWN.parent), *folders]
        return os.pathsep.join(dict.fromkeys([*folders, str(OWN.parent)]))

    def find_program(self, argv: Sequence[str], path: str, *, folder: str = "") -> str:
        """Return the file of the program of a command line; a relative path is relative to `folder`, where agents start.

        `path` is the PATH of the agents before `search_path`.

        Raises:
            Refused: this machine, or the chosen Python, does not have the program, or kfjob's trainer is not beside it.
        """
        program = self._find(argv[0], self.search_path(path, argv), folder)
        if OWN_TRAINER in argv:
            _check_trainer(Path(program))
        return program

    def _find(self, name: str, path: str, folder: str) -> str:
        if "/" in name:
            # absolute, because a name without a folder (`Path("./x")` is `x`) would be searched on PATH
            if file := shutil.which(Path(folder).absolute() / name):
                return str(file)
            raise _make_missing(name, folder)
        if self.chosen and is_python(name):
            return str(self._chosen_file())
        if self.chosen and name in PYTHON_STARTERS:  # another environment's would start another Python
            if file := shutil.which(name, path=str(self._chosen_file().parent)):
                return file
            raise Refused(
                f"program `{name}` is not beside `{self._chosen_file()}`",
                hint=f"install it in that environment, or choose another Python ({_CHOICE})",
            )
        if file := shutil.which(name, path=path):
            return file
        raise _make_missing(name, folder)

    def _chosen_file(self) -> Path:
        """Return the file of the chosen Python. Links are kept, because they lead out of a virtual environment.

        Raises:
            Refused: there is no such program.
        """
        chosen = Path(os.path.abspath(self.chosen or OWN))  # noqa: PTH100 - `resolve` would follow links
        file = chosen / "bin" / "python" if os.path.isdir(chosen) else chosen  # noqa: PTH112 - False for an impossible path
        if shutil.which(file):
            return file
        raise Refused(
            f"there is no Python at `{chosen}`",
            cause=f"`{file}` is not a program" if file != chosen else None,
            hint=f"name a Python, or the folder of a virtual environment ({_CHOICE})",
        )


def _make_missing(name: str, folder: str) -> Refused:
    """Return the error for a program that this machine does not have."""
    file = Path(folder) / name
    if not file.is_file():
        return Refused(
            f"program `{name}` is not on this machine",
            cause="it is neither on PATH nor beside kfjob's Python" if "/" not in name else None,
            hint=f"install it, or name the environment that has it ({_CHOICE}), or run with `--backend kubernetes`",
        )
    can_execute = os.access(file, os.X_OK)
    hint = f"write `./{name}`" if can_execute else f"run `chmod +x {name}`"
    if name.endswith(".py"):
        hint = f"write `python {name}`, or `torchrun {name}` for several processes"
    cause = "its folder is not on PATH" if can_execute else f"`{file.absolute()}` cannot be executed"
    return Refused(f"`{name}` is a file, not a program", cause=cause, hint=hint)


def _check_trainer(program: Path) -> None:
    """Check that the Python beside a program finds kfjob's trainer.

    Raises:
        Refused: it does not.
    """
    if program.parent == OWN.parent or not find_missing(program, (OWN_TRAINER.partition(".")[0],)):
        return
    python = _find_python(program)
    raise Refused(
        f"`{python}` does not have kfjob, whose trainer the job runs",
        cause=f"the job's `{program.name}` is in that environment",
        hint=f"`uv pip install --python {python} 'kfjob[trainer]'`, or choose another Python with `--python`",
    )


def _find_python(program: Path) -> Path:
    return program if is_python(program.name) else program.parent / "python"


@cache
def find_missing(program: Path, modules: tuple[str, ...]) -> tuple[str, ...]:
    """Return the modules that the Python beside a program does not find; nothing is imported. None without a Python there.

    It asks once: a plan is checked, and then each of its agents.

    Raises:
        Refused: the Python does not work.
    """
    python = _find_python(program)
    if not modules or not shutil.which(python):
        return ()
    code = "import importlib.util as u, sys; print(*(name for name in sys.argv[1:] if u.find_spec(name) is None))"
    argv = [str(python), "-P", "-c", code, *modules]  # -P: without the modules of the current folder
    try:
        result = subprocess.run(argv, capture_output=True, text=True, timeout=_IMPORT_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as err:
        cause = getattr(err, "strerror", None) or f"it did not end within {_IMPORT_SECONDS} s"
        hint = "choose another Python with `--python`"
        raise Refused(f"`{python}` does not work as a Python", cause=cause, hint=hint) from err
    return tuple(result.stdout.split()) if result.returncode == 0 else modules


def check_packages(plan: JobPlan, program: str) -> Iterator[Requirement]:
    """Yield the optional packages of kfjob's trainer, and whether the Python of its program finds them."""
    packages = list(find_packages(plan.spec.train)) if plan.spec.train and program else []
    missing = find_missing(Path(program), tuple(package.name for package in packages))
    for package in packages:
        hint = f"`uv pip install --python {_find_python(Path(program))} {package.name}`"
        problem = package.make_missing(hint) if package.name in missing else None
        yield Requirement(path=f"train.{package.field}", summary=f"package {package.name}", problem=problem)
