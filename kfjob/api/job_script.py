"""Read the Python script that a job starts, if it is on this machine."""

from __future__ import annotations

from pathlib import Path

from kfjob.api.target import Target
from kfjob.errors import KfjobError
from kfjob.lint.script import Script
from kfjob.plan import JobPlan
from kfjob.plan.launch_commands import find_job_script
from kfjob.units import MIB

_MAX_SCRIPT_BYTES = MIB
"""Size of a script that the lint rules read."""


def read_script(plan: JobPlan, target: Target) -> Script | None:
    """Return the script of a plan; None without one, or if only the image or a volume of a cluster has it.

    A job on this machine finds its script where it starts, which may be the folder of a volume.
    """
    name = find_job_script(plan.words)
    try:
        file = _find_file(name, plan, target) if name else None
        if file is None or not file.is_file() or file.stat().st_size > _MAX_SCRIPT_BYTES:
            return None
        return Script(name, file.read_text(encoding="utf-8", errors="replace"))
    except (OSError, ValueError, KfjobError):  # a folder that the user cannot read, or a name that no file can have
        return None


def _find_file(name: str, plan: JobPlan, target: Target) -> Path | None:
    if target.kind.runs_on_this_machine:
        return target.machine.find_script(plan)
    return None if plan.pod.working_dir or Path(name).is_absolute() else Path(name)
