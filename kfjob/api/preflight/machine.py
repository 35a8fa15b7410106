"""Check what a job needs of this machine."""

from __future__ import annotations

from pathlib import Path

from kfjob.api.preflight.job_name import check_job_name
from kfjob.api.preflight.result import CheckResults
from kfjob.api.prepared import PreparedJob


def check_machine(prepared: PreparedJob, results: CheckResults) -> None:
    """Check the job's name, cores, GPUs, program and mounted folders, and add to the results."""
    plan = prepared.plan
    if check_job_name(prepared, results):
        results.ok("names are free")
    for requirement in prepared.target.machine.check_requirements(plan):
        if err := requirement.problem:
            results.error(err.title, requirement.path, detail=err.cause or "", hint=err.hint or "")
        else:
            results.ok(requirement.summary)
    for index, volume in enumerate(plan.volumes):
        if volume.host_path and not Path(volume.host_path).exists():
            title = f"volume `{volume.name}`: `{volume.host_path}` is not on this machine"
            results.error(title, f"volumes.{index}.host_path")
