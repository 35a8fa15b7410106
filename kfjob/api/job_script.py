"""Read the Python script that a job starts, if it is on this machine."""

from __future__ import annotations

from pathlib import Path

from kfjob.lint.script import Script
from kfjob.plan import JobPlan
from kfjob.plan.launch_commands import split_commands
from kfjob.plan.programs import find_script
from kfjob.units import MIB

_MAX_SCRIPT_BYTES = MIB
"""Size of a script that the lint rules read."""


def read_script(plan: JobPlan) -> Script | None:
    """Return the script of a plan; None without one, or if it is in the image or in a volume of the job."""
    name = next(filter(None, map(find_script, split_commands(plan.command))), "")
    is_local = plan.kind.runs_on_this_machine
    if not name or (not is_local and (plan.pod.working_dir or Path(name).is_absolute())):
        return None
    file = Path((plan.pod.working_dir or plan.start_folder) if is_local else "") / name
    try:
        if not file.is_file() or file.stat().st_size > _MAX_SCRIPT_BYTES:
            return None
        return Script(name, file.read_text(encoding="utf-8", errors="replace"))
    except (OSError, ValueError):  # a folder that the user cannot read, or a name that no file can have
        return None
