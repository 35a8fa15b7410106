"""The stages of a pod's start: a problem of one stage is over as soon as the pod shows a later one."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum

from kfjob.joblog.events import PodChanged, PodPhase


class Stage(IntEnum):
    """What a pod goes through before its container runs, in this order."""

    SCHEDULING = 1
    VOLUMES = 2
    SANDBOX = 3
    IMAGE = 4
    CONTAINER = 5


_BY_REASON = {
    **dict.fromkeys(("FailedScheduling", "Unschedulable", "SchedulingGated"), Stage.SCHEDULING),
    **dict.fromkeys(("Scheduled", "SuccessfulAttachVolume"), Stage.VOLUMES),
    **dict.fromkeys(("FailedAttachVolume", "FailedMount", "FailedMapVolume"), Stage.VOLUMES),
    "NetworkNotReady": Stage.VOLUMES,  # the kubelet looks at the network before it mounts the volumes
    "FailedCreatePodSandBox": Stage.SANDBOX,
    **dict.fromkeys(("Pulling", "Pulled", "Failed", "BackOff", "InspectFailed"), Stage.IMAGE),
    **dict.fromkeys(("ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull"), Stage.IMAGE),
    **dict.fromkeys(("ImageInspectError", "RegistryUnavailable"), Stage.IMAGE),
    **dict.fromkeys(("Created", "Started", "CreateContainerConfigError", "CreateContainerError"), Stage.CONTAINER),
    **dict.fromkeys(("RunContainerError", "CrashLoopBackOff"), Stage.CONTAINER),
}
"""Reasons of events and of waiting containers (Kubernetes v1.34); `ContainerCreating` shows nothing."""


def find_stage(reason: str) -> Stage | None:
    """Return the stage in which a pod, or an event about it, has this reason; None if it shows none."""
    return _BY_REASON.get(reason)


def is_over(stage: Stage, since: int, *, events: Mapping[Stage, int], state: PodChanged | None) -> bool:
    """Return whether a problem of `stage` at `since` (ns) has ended: an event at that time or later, or the state, shows more.

    `events` has the newest time (ns) of the events that show each stage. A container may pull its image again, or be created
    again, so problems of these stages do not end.
    """
    if stage >= Stage.IMAGE:
        return False
    if any(shown > stage and time >= since for shown, time in events.items()):
        return True
    if state is None:
        return False
    if state.phase in {PodPhase.RUNNING, PodPhase.SUCCEEDED} or state.exit_code is not None:
        return state.started is None or state.started >= since
    return (find_stage(state.reason) or (Stage.VOLUMES if state.node else Stage.SCHEDULING)) > stage
