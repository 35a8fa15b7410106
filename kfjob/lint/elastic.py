"""Rules about jobs whose number of agents may change."""

from __future__ import annotations

from collections.abc import Iterator

from kfjob.lint.job import Job
from kfjob.lint.rules import Violation, rule
from kfjob.lint.torchrun import own_flags

TEN = 10


@rule("elastic-bounds", "error", local=True)
def elastic_bounds(job: Job) -> Iterator[Violation]:
    """`elastic.min` is at most `elastic.max`, and `nodes` lies between them.

    The operator's webhook lets both through. With fewer agents than `min` torch waits until `join_timeout` and gives up;
    agents above `max` wait for a place that never comes free, and hold their GPUs while they do.
    """
    policy = job.manifest["spec"].get("elasticPolicy") or {}
    least, most = policy.get("minReplicas", job.plan.nodes), policy.get("maxReplicas", job.plan.nodes)
    replicas = sum((replica or {}).get("replicas", 1) for replica in job.manifest["spec"]["pytorchReplicaSpecs"].values())
    if not policy:
        return
    if least > most:
        hint = "the first number is the fewest agents to go on with, the second the most to use"
        yield Violation(path="elastic.min", message=f"an elastic job of at least {least} and at most {most} nodes", hint=hint)
    elif not least <= replicas <= most:
        said = f"{replicas} nodes, and the job may have {least} to {most}" if least < most else f"{replicas} nodes, not {most}"
        yield Violation(path="nodes", message=said, hint=f"set `nodes` to a number from {least} to {most}")


@rule("elastic-cancelled", "warning", local=True)
def elastic_cancelled(job: Job) -> Iterator[Violation]:
    """No `--nnodes` or `--standalone` in the command of an elastic job.

    The operator tells torchrun its bounds by `PET_NNODES`, and a flag on the command line beats a variable: the job is
    then not elastic any more, and a lost pod stops it for good.
    """
    if job.plan.min_nodes == job.plan.max_nodes:
        return
    for flag, value in own_flags(job).items():
        if flag in ("nnodes", "standalone") and value != f"{job.plan.min_nodes}:{job.plan.max_nodes}":
            shown = flag if value is None else f"{flag}={value}"
            yield Violation(
                path="command", message=f"`--{shown}` cancels `elastic`", hint="remove it: torchrun is told by the job"
            )


@rule("cpu-metric", "warning")
def cpu_metric(job: Job) -> Iterator[Violation]:
    """An autoscaler on CPU use needs a CPU request.

    Kubernetes computes the use as a share of the request. Without one the autoscaler says `missing request for cpu` and
    never acts (the same for memory).
    """
    requests = [(c.get("resources") or {}).get("requests") or {} for c in job.training]
    for index, metric in enumerate((job.manifest["spec"].get("elasticPolicy") or {}).get("metrics") or ()):
        resource = metric.get("resource") or {}
        name = resource.get("name")
        if (resource.get("target") or {}).get("type") == "Utilization" and not all(name in request for request in requests):
            yield Violation(
                path=f"elastic.metrics.{index}",
                message=f"the autoscaler looks at the use of {name}, and the pods request none",
                hint=f"set `resources.{name}`" if name in ("cpu", "memory") else f"set `resources.requests.{name}`",
            )


_ORDER = ("HOSTNAME##", "HOSTNAME%%", "hostname -s", "HOSTNAME/", "${HOSTNAME:", "JOB_COMPLETION_INDEX", "POD_INDEX")


@rule("worker-order", "warning", local=True)
def worker_order(job: Job) -> Iterator[Violation]:
    """Code that reads a rank from a pod's name, with more than ten pods.

    c10d and etcd-v2 rank agents by their address as text, so `worker-10` comes before `worker-2`; etcd ranks them as they
    come. Up to ten pods the order may look right by chance.
    """
    if job.plan.max_nodes <= TEN or not job.plan.is_dynamic:
        return
    for word in job.plan.command:
        if mark := next((mark for mark in _ORDER if mark in word), None):
            yield Violation(
                path="command",
                message=f"`{mark}` reads a number from the pod's name, and with {job.plan.max_nodes} pods it is not the rank",
                hint="use `GROUP_RANK`, which torchrun sets in every process",
            )
            return
