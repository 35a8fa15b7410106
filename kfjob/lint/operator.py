"""Rules about PyTorchJobs: what the training operator needs, and what it does not do as expected."""

from __future__ import annotations

from collections.abc import Iterator

from kfjob.base.text import plural
from kfjob.kinds.pytorchjob.operator_api import KIND
from kfjob.lint.job import Job
from kfjob.lint.rules import Violation, rule
from kfjob.lint.torchrun import LAUNCHERS, read_torchrun_flags


@rule("readiness-gates-rendezvous", "warning", kind=KIND)
def readiness_gates_rendezvous(job: Job) -> Iterator[Violation]:
    """The training container has no readinessProbe.

    Each pod's name is a headless Service without `publishNotReadyAddresses`. Until the probe succeeds, the other pods cannot
    resolve the name of worker 0. If the probe waits for training, they never can.
    """
    for container in job.training_containers:
        if "readinessProbe" in container:
            message = "the pod's name does not resolve until the readinessProbe succeeds"
            hint = "remove it, or use a startupProbe that does not wait for the other pods"
            yield Violation(path=job.find_container_path(container, "readinessProbe"), message=message, hint=hint)
            return


@rule("unreliable-policy", "warning", kind=KIND)
def unreliable_policy(job: Job) -> Iterator[Violation]:
    """A job does not depend on the operator's deadline and back-off limit.

    The operator checks `activeDeadlineSeconds` only when another event of the job arrives, and `backoffLimit` counts only
    restarts of running pods. Up to v1.9.3 both delete all pods and their logs, with every `cleanPodPolicy`. v1.9.4
    (kubeflow/trainer#3419) follows `cleanPodPolicy`: with `None`, the default, the running pods stay and hold their GPUs, and
    `Running` keeps only the pods that have ended, with their logs. `kfjob wait`, `watch` and `submit --follow` enforce the
    limits of `watchdog` and archive the logs first.
    """
    watchdog = job.spec.watchdog
    policy = job.manifest["spec"].get("runPolicy") or {}
    keeps_pods = (policy.get("cleanPodPolicy") or "None") == "None"
    for key, field, limit, setting in (
        ("activeDeadlineSeconds", "run.deadline", watchdog.deadline, "`watchdog: {deadline: …}` to a little less"),
        ("backoffLimit", "run.backoff_limit", watchdog.crashes, "`watchdog: {crashes: …}`"),
    ):
        if policy.get(key) is None or (limit is not None and not keeps_pods):
            continue
        effect = "leaves the running pods, which hold their GPUs" if keeps_pods else "can delete the logs"
        settings = ["`run.clean_pods: Running`"] * keeps_pods + [f"{setting}, and run `kfjob wait`"] * (limit is None)
        message = f"the operator's `{key}` acts late or never, and {effect}"
        yield Violation(path=field, message=message, hint=f"set {' and '.join(settings)}")


@rule("exit-code-policy", "warning", kind=KIND)
def exit_code_policy(job: Job) -> Iterator[Violation]:
    """A torchrun job does not use restart policy `ExitCode`.

    The operator treats exit codes below 128 as permanent, and torchrun returns 1 for every exit code of its processes.
    """
    if job.plan.restarts.policy == "ExitCode" and job.plan.launcher in ("torchrun", "launch"):
        yield Violation(
            path="restarts.policy",
            message="torchrun always returns 1, which `ExitCode` treats as permanent",
            hint="use `restarts.max` for failed processes, and `OnFailure` for lost agents",
        )


@rule("hyperpod-restarts", "warning", kind=KIND)
def hyperpod_restarts(job: Job) -> Iterator[Violation]:
    """A job with HyperPod's auto-resume has restart policy `OnFailure`.

    HyperPod replaces the node and expects the operator to start the pod again. With `Never` the job has failed by then.
    """
    hyperpod = job.plan.scheduling.hyperpod
    if hyperpod and hyperpod.auto_resume and job.plan.restarts.policy != "OnFailure":
        message = f"HyperPod's auto-resume needs restart policy `OnFailure`, and the job has `{job.plan.restarts.policy}`"
        yield Violation(path="restarts.policy", message=message, hint="remove `restarts.policy`, or set `auto_resume: false`")


@rule("elastic-bounds", "error", local=True, kind=KIND)
def elastic_bounds(job: Job) -> Iterator[Violation]:
    """`nodes` is between `elastic.min` and `elastic.max`.

    The operator's webhook accepts other values. With fewer agents than `min` torch waits until `join_timeout` and gives up.
    Agents above `max` wait until another agent leaves, and hold their GPUs in the meantime.
    """
    policy = job.manifest["spec"].get("elasticPolicy") or {}
    low, high = (policy.get(field) or job.spec.nodes for field in ("minReplicas", "maxReplicas"))
    nodes = sum(len(template.names) for template in job.pod_templates)
    if not policy:
        return
    if low > high:
        hint = "`elastic.min` is the smallest number of agents that can train, `elastic.max` the largest that is used"
        yield Violation(path="elastic.min", message=f"`elastic.min` {low} is greater than `elastic.max` {high}", hint=hint)
    elif not low <= nodes <= high:
        bounds = f"{low} to {plural(high, 'node')}" if low < high else plural(high, "node")
        hint = f"set `nodes` to a number from {low} to {high}" if low < high else f"set `nodes: {high}`"
        yield Violation(path="nodes", message=f"the job has {plural(nodes, 'node')}, but `elastic` allows {bounds}", hint=hint)


@rule("no-rendezvous", "error", kind=KIND)
def no_rendezvous(job: Job) -> Iterator[Violation]:
    """The pods of a job know where their agents meet.

    Without a Master and without `elasticPolicy` the operator sets the number of nodes and no address. Each agent then waits for
    the others at its own 127.0.0.1.
    """
    spec = job.manifest["spec"]
    if job.spec.nodes == 1 or "Master" in spec["pytorchReplicaSpecs"] or spec.get("elasticPolicy"):
        return
    flags = read_torchrun_flags(job)
    has_address = {
        "rdzv-endpoint",
        "master-addr",
        "standalone",
    } & flags.keys() or _ADDRESS_VARIABLES & job.list_variables().keys()
    has_more = any(container.get("envFrom") for container in job.training_containers)
    if any(word.rpartition("/")[2] in LAUNCHERS for word in job.words) and flags.get("nnodes") != "1" and not has_address:
        yield Violation(
            path="nodes",
            message=f"no pod has a rendezvous address: the {job.spec.nodes} agents wait for each other at their own 127.0.0.1",
            hint="add `elasticPolicy: {rdzvBackend: c10d}` to `spec`, or make one replica a Master",
            severity="warning" if has_more else None,
        )


_ADDRESS_VARIABLES = frozenset(("PET_RDZV_ENDPOINT", "PET_MASTER_ADDR", "PET_STANDALONE"))
"""Variables that tell an agent where to meet."""
