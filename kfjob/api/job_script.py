"""Read the Python script or the shell script that a job starts, if it is on this machine."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from kfjob.api.target import Target
from kfjob.base.errors import KfjobError
from kfjob.base.units import MIB
from kfjob.lint.script import Script
from kfjob.plan import JobPlan
from kfjob.plan.job_scripts import find_job_script, find_shell_file

_MAX_SCRIPT_BYTES = MIB
"""Size of a script that the lint rules read."""


def read_script(plan: JobPlan, target: Target) -> Script | None:
    """Return the script of a plan; None without one, or if only the image or a volume of a cluster has it.

    A job on this machine finds its script where it starts, which may be the folder of a volume.
    """
    name = find_job_script(plan.words)
    return _read(name, lambda: _find_file(name, plan, target))


def read_shell_script(plan: JobPlan, target: Target) -> Script | None:
    """Return the file of `bash run.sh` or `./run.sh`; None for another command, or if this machine does not have it."""
    name = find_shell_file(plan.words)
    return _read(name, lambda: _find_in_start_folder(name, plan, target))


def _read(name: str, find_file: Callable[[], Path | None]) -> Script | None:
    try:
        file = find_file() if name else None
        if file is None or not file.is_file() or file.stat().st_size > _MAX_SCRIPT_BYTES:
            return None
        return Script(name, file.read_text(encoding="utf-8", errors="replace"))
    except (OSError, ValueError, KfjobError):  # a folder that the user cannot read, or a name that no file can have
        return None


def _find_file(name: str, plan: JobPlan, target: Target) -> Path | None:
    if target.capabilities.runs_on_this_machine and (plan.volumes or "$(" in name):  # a volume or a variable may move it
        return target.machine.find_first_pod(plan).script
    return _find_in_start_folder(name, plan, target)


def _find_in_start_folder(name: str, plan: JobPlan, target: Target) -> Path | None:
    if target.capabilities.runs_on_this_machine:
        return Path(plan.spec.pod.working_dir or plan.start_folder, name)
    return None if plan.spec.pod.working_dir or Path(name).is_absolute() else Path(name)
