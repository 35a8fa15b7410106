"""What a job needs of this machine."""

from __future__ import annotations

from pathlib import Path

from kfjob.api.preflight.result import Checked
from kfjob.api.target import Target
from kfjob.backends.open import open_machine
from kfjob.errors import NotFound
from kfjob.plan import JobPlan


def check(plan: JobPlan, target: Target, found: Checked) -> None:
    """Its name, cores and GPUs, its program and the folders that it mounts."""
    try:
        target.backend.get(plan.name, namespace=plan.namespace)
    except NotFound:
        found.good.append("names are free")
    else:
        hint = f"`kfjob stop {plan.name}` removes it, `kfjob relaunch {plan.name}` starts it again"
        found.error(f"there is a job `{plan.name}` on this machine already", "name", hint=hint)
    for requirement in open_machine(state=target.settings.state).check_requirements(plan):
        if err := requirement.problem:
            found.error(err.title, requirement.path, detail=err.cause or "", hint=err.hint or "")
        else:
            found.good.append(requirement.summary)
    for index, volume in enumerate(plan.volumes):
        if volume.host_path and not Path(volume.host_path).exists():
            found.error(f"volume `{volume.name}`: `{volume.host_path}` is not on this machine", f"volumes.{index}.host_path")
