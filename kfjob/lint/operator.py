"""Rules about images and about what the training operator really does with a policy."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from kfjob.errors import UsageError
from kfjob.events import TRAINING_CONTAINER
from kfjob.image.references import parse_reference
from kfjob.lint.job import Job
from kfjob.lint.rules import Violation, rule
from kfjob.spec.api_objects import find_training_container

_TORCHRUN_SHUTDOWN = 30
"""Seconds that torchrun gives its processes after SIGTERM (torch `--shutdown-timeout`)."""


@rule("latest-image", "warning")
def latest_image(job: Job) -> Iterator[Violation]:
    """Images have a version.

    `latest`, which no tag means too, is another image tomorrow: a pod that is replaced in the middle of a run may differ from
    its neighbours, and a relaunch from what was tested.
    """
    for path, image in _images(job):
        with suppress(UsageError):
            if (ref := parse_reference(image)).is_latest:
                shown = "is `latest`" if ref.tag else "has no tag, which means `latest`"
                hint = "name a version or a digest; `kfjob push-image` prints one"
                yield Violation(path=path, message=f"image `{image}` {shown}", hint=hint)


@rule("image-name", "error")
def image_name(job: Job) -> Iterator[Violation]:
    """Names of images can be read.

    The kubelet leaves a pod in InvalidImageName for as long as it lives, and the job shows as Created.
    """
    for path, image in _images(job):
        try:
            parse_reference(image)
        except UsageError as err:
            yield Violation(path=path, message=err.title, detail=err.cause, hint=err.hint)


def _images(job: Job) -> Iterator[tuple[str, str]]:
    containers = [c for pod in job.pods for key in ("initContainers", "containers") for c in pod.get(key) or ()]
    for image in dict.fromkeys(container["image"] for container in containers if container.get("image")):
        yield "image" if image == job.plan.image else "pod" if job.spec.pod.init_containers else "overrides", image


@rule("readiness-gates-rendezvous", "warning")
def readiness_gates_rendezvous(job: Job) -> Iterator[Violation]:
    """No readinessProbe on the training container.

    Each pod's name is a headless Service without `publishNotReadyAddresses`: until the probe succeeds, the others cannot
    resolve the name of worker 0, and if the probe waits for training, none of them ever will.
    """
    if any("readinessProbe" in container for container in job.training):
        hint = "remove it, or use a startupProbe that does not wait for the other pods"
        yield Violation(path="overrides", message="the readinessProbe keeps the pod's name from being resolved", hint=hint)


@rule("unreliable-policy", "warning")
def unreliable_policy(job: Job) -> Iterator[Violation]:
    """The operator's deadline and back-off limit.

    `activeDeadlineSeconds` is looked at only when another event of the job happens to arrive, `backoffLimit` counts the
    restarts of running pods only. When either acts it deletes all pods whatever `cleanPodPolicy` says, and their logs with
    them. A limit of `watchdog` is enforced by whoever follows the job or waits for it, who archives the logs first.
    """
    watchdog = job.spec.watchdog
    policy = job.manifest["spec"].get("runPolicy") or {}
    for key, field, guarded, better in (
        (
            "activeDeadlineSeconds",
            "run.deadline",
            watchdog.deadline,
            "say `watchdog: {deadline: …}`, a little less, and let `kfjob wait` wait for the job",
        ),
        ("backoffLimit", "run.backoff_limit", watchdog.crashes, "say `watchdog: {crashes: …}`, and let `kfjob wait` wait"),
    ):
        if policy.get(key) is not None and guarded is None:
            yield Violation(path=field, message=f"the operator's `{key}` acts late or never, and deletes the logs", hint=better)


@rule("exit-code-policy", "warning")
def exit_code_policy(job: Job) -> Iterator[Violation]:
    """Policy `ExitCode` does not restart what torchrun runs.

    The operator takes exit codes below 128 for permanent, and torchrun returns 1 whatever its processes returned.
    """
    if job.plan.restarts.policy == "ExitCode" and job.plan.launcher in ("torchrun", "launch"):
        yield Violation(
            path="restarts.policy",
            message="torchrun always returns 1, which `ExitCode` takes for permanent",
            hint="use `restarts.max` for the processes, and `OnFailure` for agents that are lost",
        )


@rule("short-grace", "warning")
def short_grace(job: Job) -> Iterator[Violation]:
    """More time to end than torchrun takes.

    torchrun passes SIGTERM on and kills its processes after 30 seconds. If the pod is killed in the same moment, a checkpoint
    that is being written is lost and the agent cannot say why it ended.
    """
    wanted = _TORCHRUN_SHUTDOWN if job.spec.torchrun.shutdown_timeout is None else job.spec.torchrun.shutdown_timeout
    for pod in job.pods:
        grace = pod.get("terminationGracePeriodSeconds", 30)
        if job.plan.launcher == "torchrun" and grace <= wanted:
            message = f"pods have {grace} s to end, and torchrun gives its processes {wanted} s"
            yield Violation(path="pod.grace", message=message, hint=f"set `pod.grace: {wanted + 30}`")
            return


@rule("istio-sidecar", "warning")
def istio_sidecar(job: Job) -> Iterator[Violation]:
    """No proxy beside a job that should end.

    The proxy does not end with the training container, so that the pod is never Succeeded, and it takes the ports that NCCL and
    gloo open among themselves through its rules.
    """
    if job.plan.scheduling.istio_sidecar:
        yield Violation(path="scheduling.istio_sidecar", message="the pods will not end by themselves", hint="remove it")


@rule("gang-size", "error")
def gang_size(job: Job) -> Iterator[Violation]:
    """A gang is at most as many pods as the job has.

    The scheduler waits for `min_available` pods before it starts the first.
    """
    gang = job.plan.scheduling.gang
    if gang and gang.min_available and gang.min_available > job.plan.nodes:
        message = f"the gang waits for {gang.min_available} pods, and the job has {job.plan.nodes}"
        yield Violation(path="scheduling.gang.min_available", message=message, hint="leave it out: all pods of the job")


@rule("container-name", "error")
def container_name(job: Job) -> Iterator[Violation]:
    """The training container keeps its name.

    The operator's webhook refuses a job without a container named `pytorch`, and gives its variables to that one.
    """
    if not all(map(find_training_container, job.pods)):
        message = f"after `overrides` a pod has no container named `{TRAINING_CONTAINER}`"
        yield Violation(path="overrides", message=message, hint="containers are merged by their name")
