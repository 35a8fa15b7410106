"""What a spec can say and a TrainJob cannot do, each with the field of the spec and what to do instead. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from kfjob.base.errors import Problem
from kfjob.kinds.trainjob import trainer_api
from kfjob.kinds.trainjob.shared_runtime import find_unpatchable_fields, parse_runtime
from kfjob.objects.names import MAX_LABEL
from kfjob.plan import JobPlan
from kfjob.spec.scheduling import Gang

_RANDOM_END = 6
"""Characters that a Job adds to the names of its pods."""


def find_plan_problems(plan: JobPlan) -> Iterator[Problem]:
    """Yield what a TrainJob cannot express of a plan."""
    spec = plan.spec
    longest = len(trainer_api.name_pod(plan.name, spec.nodes - 1)) + _RANDOM_END
    if longest > MAX_LABEL:
        yield Problem(
            title="job name is too long for the names of a TrainJob's pods",
            path="name",
            detail=f"pod `{trainer_api.name_pod(plan.name, spec.nodes - 1)}-xxxxx` would have {longest} characters, "
            f"the limit is {MAX_LABEL}",
            hint=f"use at most {len(plan.name) - longest + MAX_LABEL} characters",
        )
    if plan.master:
        yield Problem(
            title="a TrainJob has one pod template for all nodes, so its master cannot differ from the others",
            path="master",
            hint="remove the fields of `master`, or set `target: pytorchjob`",
        )
    yield from _find_policy_problems(plan)
    yield from _find_scheduling_problems(plan)
    if spec.runtime:
        yield from find_unpatchable_fields(plan, parse_runtime(spec.runtime))


def _find_policy_problems(plan: JobPlan) -> Iterator[Problem]:
    run, policy = plan.spec.run, plan.restarts.policy
    if policy not in ("Never", "OnFailure"):
        yield Problem(
            title=f"the pods of a TrainJob cannot have the restart policy `{policy}`",
            path="restarts.policy",
            hint="use `Never` or `OnFailure`: the Jobs of Kubernetes have no others",
        )
    if run.clean_pods == "All":
        yield Problem(
            title="a TrainJob does not delete its pods when it ends",
            path="run.clean_pods",
            hint="remove it; `kfjob stop` deletes the job with its pods",
        )
    if run.ttl is not None:
        yield Problem(
            title="a TrainJob cannot be deleted some time after its end: it has no TTL",
            path="run.ttl",
            hint="remove it; `kfjob stop` deletes the job and archives its logs",
        )
    if run.backoff_limit and policy == "Never" and not plan.spec.runtime:
        yield Problem(
            title="a pod of a TrainJob that is not restarted cannot have a back-off limit",
            path="run.backoff_limit",
            hint="set `restarts: {policy: OnFailure}`, or remove the limit",
        )
    if plan.spec.elastic and plan.spec.elastic.metrics:
        yield Problem(
            title="a TrainJob has no autoscaler: JobSet cannot change the number of its pods",
            path="elastic.metrics",
            hint="remove `metrics`, or set `target: pytorchjob`",
        )


def _find_scheduling_problems(plan: JobPlan) -> Iterator[Problem]:
    scheduling = plan.scheduling
    if scheduling.gang:
        yield from _find_gang_problems(scheduling.gang, plan)
    if scheduling.hyperpod and scheduling.hyperpod.auto_resume:
        yield Problem(
            title="HyperPod resumes PyTorchJobs only",
            path="scheduling.hyperpod",
            hint="set `scheduling: {hyperpod: {auto_resume: false}}`, or `target: pytorchjob`",
        )


def _find_gang_problems(gang: Gang, plan: JobPlan) -> Iterator[Problem]:
    if gang.min_available not in (None, plan.spec.nodes):
        yield Problem(
            title="a TrainJob starts with all of its pods or with none",
            path="scheduling.gang.min_available",
            hint="remove it",
        )
    if gang.priority_class not in (None, plan.scheduling.priority_class):
        yield Problem(
            title="the pod group of a TrainJob has the priority of its pods",
            path="scheduling.gang.priority_class",
            hint=f"write `scheduling: {{priority_class: {gang.priority_class}}}`",
        )
    if gang.scheduler == "volcano" and gang.timeout is not None:
        yield Problem(
            title="Trainer has no timeout for gangs of Volcano",
            path="scheduling.gang.timeout",
            hint="remove it",
        )
    if gang.scheduler == "scheduler-plugins" and gang.queue:
        yield Problem(
            title="only Volcano has queues",
            path="scheduling.gang.queue",
            hint="remove it; `scheduling: {queue: NAME}` is a queue of Kueue",
        )
