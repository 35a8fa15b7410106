"""What kfjob adds to every job, in words: an import says it once, and apart from what changes the job. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from kfjob.convert.conversion import Note
from kfjob.joblog.events import TRAINING_CONTAINER
from kfjob.objects import api_objects, names
from kfjob.objects.differences import MISSING, Difference, ItemName, Path, format_path
from kfjob.objects.merge import items_by_name

Pattern = tuple["str | ItemName", ...]
"""The first steps of a path in a PyTorchJob; `*` stands for any replica."""
_REPLICA: Pattern = ("spec", "pytorchReplicaSpecs", "*")
_POD: Pattern = (*_REPLICA, "template", "spec")
_CONTAINER: Pattern = (*_POD, "containers", ItemName(TRAINING_CONTAINER))
_RESOURCES: Pattern = (*_CONTAINER, "resources")
_POLICY: Pattern = ("spec", "elasticPolicy")


@dataclass(frozen=True)
class Addition:
    """A part that kfjob adds to every job that does not have it."""

    name: str
    reason: str
    patterns: tuple[Pattern, ...]

    def has(self, path: Path) -> bool:
        """Return whether a path is that of the part, or inside it."""
        return any(_begins_with(path, pattern) for pattern in self.patterns)


def _begins_with(path: Path, pattern: Pattern) -> bool:
    steps = zip(path, pattern, strict=False)
    return len(path) >= len(pattern) and all(part in ("*", step) for step, part in steps)


ADDITIONS = (
    Addition(
        "LOGLEVEL=INFO",
        "the agents' log says which pod prints the progress, and why a job failed",
        ((*_CONTAINER, "env", ItemName("LOGLEVEL")),),
    ),
    Addition(
        "the agents' own store",
        "a job survives a change of rank 0 only with it",
        ((*_CONTAINER, "env", ItemName("TORCH_DISABLE_SHARE_RDZV_TCP_STORE")),),
    ),
    Addition(
        "time to end after SIGTERM", "torchrun alone gives its processes 30 s", ((*_POD, "terminationGracePeriodSeconds"),)
    ),
    Addition(
        "shared memory",
        "NCCL and data loaders need more than the usual 64 MiB",
        (
            (*_POD, "volumes", ItemName(names.SHARED_MEMORY_VOLUME)),
            (*_CONTAINER, "volumeMounts", ItemName(names.SHARED_MEMORY_VOLUME)),
        ),
    ),
    Addition(
        "no Istio proxy",
        "it would keep the pods from ending",
        ((*_REPLICA, "template", "metadata", "labels", api_objects.LABEL_ISTIO_INJECT),),
    ),
    Addition(
        "kept pods",
        "pods that have ended and their logs stay, which is the operator's default too",
        (("spec", "runPolicy", "cleanPodPolicy"),),
    ),
    Addition("restart policy", "the operator's own default", ((*_REPLICA, "restartPolicy"),)),
    Addition("one replica", "the operator's own default", ((*_REPLICA, "replicas"),)),
    Addition("processes per node", "the operator's own default, or one for each GPU", (("spec", "nprocPerNode"),)),
    Addition(
        "the Master's port",
        "the operator reads it from a container port",
        ((*_CONTAINER, "ports", ItemName(names.RENDEZVOUS_PORT_NAME)),),
    ),
    Addition("namespace", "the one of the target", (("metadata", "namespace"),)),
    Addition("requests", "as large as the limits, which is Kubernetes' default", ((*_RESOURCES, "requests"),)),
    Addition(
        "limits of devices",
        "Kubernetes wants them as large as the requests",
        tuple((*_RESOURCES, "limits", resource) for resource in api_objects.DEVICE_RESOURCES),
    ),
    Addition(
        "bounds",
        "the number of Workers, which is the operator's default",
        ((*_POLICY, "minReplicas"), (*_POLICY, "maxReplicas")),
    ),
    Addition("timeouts of the rendezvous", "torch's own are shorter than the pull of an image", ((*_POLICY, "rdzvConf"),)),
    Addition(
        "rendezvous",
        "where the agents meet; a new id for each launch",
        tuple((*_POLICY, key) for key in ("rdzvBackend", "rdzvHost", "rdzvPort", "rdzvId")),
    ),
)
"""Every part that is added to all jobs, with the reason."""


def find_addition(path: Path) -> Addition | None:
    """Return what kfjob adds to every job at a path of a PyTorchJob."""
    return next((addition for addition in ADDITIONS if addition.has(path)), None)


def split_additions(differences: Iterable[Difference]) -> tuple[list[Note], list[Note]]:
    """Return notes for what kfjob adds to every job, and for the other differences; each once for a Master and its Workers."""
    added: dict[str, Note] = {}
    changed: dict[tuple[str, str], Note] = {}
    for difference in (part for whole in differences for part in _split(whole)):
        path = format_path(difference.path)
        if difference.new is MISSING and (addition := find_addition(difference.path)):
            value = json.dumps(difference.old)
            added.setdefault(addition.name, Note(item=addition.name, reason=f"{addition.reason} (`{path}`: {value})"))
            continue
        note = _make_note(difference, path)
        key = (re.sub(r"^spec\.pytorchReplicaSpecs\.\w+\.", "", note.item), note.reason)
        if key in changed and "pytorchReplicaSpecs.Worker" in path and "(in Master" not in changed[key].reason:
            changed[key] = replace(changed[key], reason=f"{note.reason} (in Master and Worker)")
        else:
            changed[key] = note
    return list(added.values()), list(changed.values())


def _split(difference: Difference) -> Iterator[Difference]:
    """Yield a difference for each part of what one side lacks."""
    value: Any = difference.old
    items = items_by_name(value)
    if difference.new is not MISSING or not (isinstance(value, dict) or items) or _is_item(difference):
        yield difference
        return
    parts = {ItemName(name): item for name, item in items.items()} if items else value
    for step, part in parts.items():
        yield from _split(Difference(path=(*difference.path, step), old=part, new=MISSING))


def _is_item(difference: Difference) -> bool:
    return isinstance(difference.path[-1], ItemName)


def _make_note(difference: Difference, path: str) -> Note:
    step = difference.path[-1]
    if difference.new is MISSING and isinstance(step, ItemName) and difference.path[-2] == "initContainers":
        does = "it waits until the job's etcd answers" if step.name == names.ETCD_WAIT else "the job has none of this name"
        return Note(item=f"init container {step.name}", reason=f"added by kfjob: {does}")
    if difference.new is MISSING:
        return Note(item=path, reason=f"added by kfjob: {json.dumps(difference.old)}")
    return Note(item=f"{path}: {json.dumps(difference.new)}", reason="left out: a spec cannot express it")
