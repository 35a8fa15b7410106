"""Rules for jobs whose number of agents can change."""

from __future__ import annotations

from collections.abc import Iterator

from kfjob.lint.job import Job
from kfjob.lint.rules import Violation, rule
from kfjob.lint.torchrun import read_torchrun_flags


@rule("elastic-cancelled", "warning", local=True)
def elastic_cancelled(job: Job) -> Iterator[Violation]:
    """The command of an elastic job has no `--nnodes` and no `--standalone`.

    torchrun reads the bounds of the job from `PET_NNODES`, and a flag on the command line overrides a variable. The job is then
    not elastic, and the first lost agent stops it.
    """
    if job.spec.min_nodes == job.spec.max_nodes or job.unconnected:
        return
    for flag, value in read_torchrun_flags(job).items():
        if flag in ("nnodes", "standalone") and value != f"{job.spec.min_nodes}:{job.spec.max_nodes}":
            option = flag if value is None else f"{flag}={value}"
            hint = "remove it: `PET_NNODES` holds the bounds"
            yield Violation(path=job.program_field, message=f"`--{option}` in the command overrides `elastic`", hint=hint)


@rule("elastic-never", "warning")
def elastic_never(job: Job) -> Iterator[Violation]:
    """The pods of an elastic job are restarted.

    With restart policy `Never` the operator fails the job as soon as one pod fails, also if `elastic.min` agents are left. A
    drained node is enough: operator 1.9 counts a pod that is being deleted as failed.
    """
    if job.spec.is_dynamic and job.spec.min_nodes < job.spec.max_nodes and job.plan.restarts.policy == "Never":
        yield Violation(
            path="restarts.policy",
            message="with restart policy `Never` one failed pod ends the elastic job",
            hint="set `master: {restart_policy: OnFailure}`" if job.role == "Master" else "remove `restarts.policy`",
        )
