"""Check everything that a job needs before it starts, without creating anything."""

from __future__ import annotations

from pathlib import Path

from kfjob.api.images.check import ImageInspector
from kfjob.api.preflight.cluster import PreflightJob, check_cluster
from kfjob.api.preflight.images import check_images
from kfjob.api.preflight.job_name import check_job_name
from kfjob.api.preflight.result import CheckResults, Preflight
from kfjob.api.prepared import PreparedJob, sort_problems
from kfjob.kinds.registry import read_pod_templates
from kfjob.trainspec.packages import find_packages


def examine(job: PreparedJob, *, inspector: ImageInspector | None = None) -> Preflight:
    """Return what lint found, and whether the cluster (or this machine) has everything that a prepared job needs.

    Raises:
        SpecError: the job has errors that leave no plan.
        Unreachable: the cluster does not answer.
    """
    target = job.target
    results = CheckResults(problems=list(job.findings))
    if target.capabilities.runs_on_this_machine:
        _check_machine(job, results)
    else:
        pods = tuple(read_pod_templates(job.objects))
        preflight_job = PreflightJob(prepared=job, pods=pods, cluster=target.cluster.inventory(job.namespace))
        check_cluster(preflight_job, results)
        check_images(preflight_job, target, results, inspector=inspector)
        for package in find_packages(job.spec.train) if job.spec.train else ():
            results.skip(
                f"package {package.name} for `train.{package.field}`", "the registry does not show what an image installs"
            )
    return Preflight(
        job=job.name,
        namespace=job.namespace,
        backend=target.name,
        problems=tuple(sort_problems(job.locate(results.problems))),
        good=tuple(results.good),
        unchecked=tuple(results.unchecked),
    )


def _check_machine(prepared: PreparedJob, results: CheckResults) -> None:
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
