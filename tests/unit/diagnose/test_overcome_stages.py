"""A problem of a pod's start is no cause once the pod has come further."""

from __future__ import annotations

import pytest

from kfjob.base.units import SECOND
from kfjob.joblog.events import Event, KubernetesEvent, PodChanged, PodPhase
from tests.unit.diagnose.cases import START, examine

POD = "a-worker-0"
IMAGE = 'Back-off pulling image "nowhere/x": ErrImagePull: rpc error: code = NotFound desc = nowhere/x: not found'


def event(reason: str, message: str, second: int, *, last: int | None = None, warning: bool = True) -> KubernetesEvent:
    first, time = START + second * SECOND, START + (second if last is None else last) * SECOND
    return KubernetesEvent(
        kind="Pod", name=POD, reason=reason, message=message, warning=warning, first=first, time=time, uid=f"{reason}{second}"
    )


def pod(reason: str, message: str = "", *, node: str = "n", second: int = 60) -> PodChanged:
    created, time = START, START + second * SECOND
    return PodChanged(pod=POD, phase=PodPhase.PENDING, reason=reason, message=message, node=node, created=created, time=time)


MOUNT = event("FailedMount", "failed to sync configmap cache: timed out waiting for the condition", 1)
REPORTED_LATE = event("FailedMount", "failed to sync configmap cache: timed out waiting for the condition", 1, last=9)
SANDBOX = event("FailedCreatePodSandBox", "plugin type=cni failed", 2)
SCHEDULING = event("FailedScheduling", "0/1 nodes are available: 1 Insufficient nvidia.com/gpu.", 0)
SCHEDULED = event("Scheduled", "assigned", 1, warning=False)
PULLING = event("Pulling", "Pulling image", 3, warning=False)
CREATING = pod("ContainerCreating")
UNSCHEDULABLE = pod("Unschedulable", "0/1 nodes are available: 1 Insufficient nvidia.com/gpu.", node="", second=0)


def find_cause(*events: Event) -> str:
    cause = examine(list(events))[0].first_cause
    return cause.rule if cause else ""


@pytest.mark.parametrize("events", [
    (CREATING, MOUNT, PULLING),
    (CREATING, PULLING, MOUNT),
    (CREATING, REPORTED_LATE, PULLING),
    (CREATING, SANDBOX, PULLING),
    (UNSCHEDULABLE, SCHEDULING, SCHEDULED),
    (SCHEDULED, SCHEDULING),
    (UNSCHEDULABLE, CREATING),
    (SCHEDULING, CREATING),
])  # fmt: skip
def test_overcome_problem_is_no_cause(events: tuple[Event, ...]):
    assert find_cause(*events) == ""


@pytest.mark.parametrize("problem", [MOUNT, REPORTED_LATE, SANDBOX, SCHEDULING])
@pytest.mark.parametrize("is_first", [True, False])
def test_image_that_is_missing_is_the_cause(problem: KubernetesEvent, *, is_first: bool):
    waits = pod("ImagePullBackOff", IMAGE)
    assert find_cause(*((problem, waits) if is_first else (waits, problem))) == "image-not-found"


@pytest.mark.parametrize(("events", "rule"), [
    ((SCHEDULED, CREATING, MOUNT), "mount-failed"),
    ((SCHEDULED, MOUNT, pod("PodInitializing")), "mount-failed"),
    ((SCHEDULED, CREATING, SANDBOX), "sandbox-failed"),
    ((PULLING, CREATING, event("FailedMount", "timed out", 30)), "mount-failed"),  # of a new pod with the same name
    ((UNSCHEDULABLE, SCHEDULING), "no-capacity"),
])  # fmt: skip
def test_problem_that_lasts_is_the_cause(events: tuple[Event, ...], rule: str):
    assert find_cause(*events) == rule
