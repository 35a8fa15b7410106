"""What kfjob adds to every job, in words: an import says it once, and apart from what changes the job. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from kfjob.compile.manifest_diff import MISSING, Difference, ItemName, format_path
from kfjob.compile.merge import items_by_name
from kfjob.convert.conversion import Note
from kfjob.spec import api_objects, names

_DEVICE_LIMITS = tuple(f".limits.{resource}" for resource in api_objects.DEVICE_RESOURCES)
_RESTART_POLICIES = ("Master.restartPolicy", "Worker.restartPolicy")
_ENDPOINT = ("rdzvBackend", "rdzvHost", "rdzvPort", "rdzvId")


@dataclass(frozen=True)
class Addition:
    """A part that kfjob adds to every job that does not have it."""

    name: str
    reason: str
    parts: tuple[str, ...]  # how its paths in the PyTorchJob are written; a path that holds one is of this part


ADDITIONS = (
    Addition("LOGLEVEL=INFO", "the agents' log says which pod prints the progress, and why a job failed", ("env[LOGLEVEL]",)),
    Addition(
        "the agents' own store", "a job survives a change of rank 0 only with it", ("env[TORCH_DISABLE_SHARE_RDZV_TCP_STORE]",)
    ),
    Addition("time to end after SIGTERM", "torchrun alone gives its processes 30 s", ("terminationGracePeriodSeconds",)),
    Addition("shared memory", "NCCL and data loaders need more than the usual 64 MiB", (f"[{names.SHARED_MEMORY_VOLUME}]",)),
    Addition("no Istio proxy", "it would keep the pods from ending", (api_objects.LABEL_ISTIO_INJECT,)),
    Addition("kept pods", "pods that have ended and their logs stay, which is the operator's default too", ("cleanPodPolicy",)),
    Addition("restart policy", "the operator's own default", _RESTART_POLICIES),
    Addition("one replica", "the operator's own default", ("Master.replicas", "Worker.replicas")),
    Addition("processes per node", "the operator's own default, or one for each GPU", ("spec.nprocPerNode",)),
    Addition("the Master's port", "the operator reads it from a container port", (f"ports[{names.RENDEZVOUS_PORT_NAME}]",)),
    Addition("namespace", "the one of the target", ("metadata.namespace",)),
    Addition("requests", "as large as the limits, which is Kubernetes' default", (".resources.requests",)),
    Addition("limits of devices", "Kubernetes wants them as large as the requests", _DEVICE_LIMITS),
    Addition(
        "bounds",
        "the number of Workers, which is the operator's default",
        ("elasticPolicy.minReplicas", "elasticPolicy.maxReplicas"),
    ),
    Addition("timeouts of the rendezvous", "torch's own are shorter than the pull of an image", ("elasticPolicy.rdzvConf",)),
    Addition(
        "rendezvous", "where the agents meet; a new id for each launch", tuple(f"elasticPolicy.{key}" for key in _ENDPOINT)
    ),
)
"""Every part that is added to all jobs, with the reason."""


def split_additions(differences: Iterable[Difference]) -> tuple[list[Note], list[Note]]:
    """Return notes for what kfjob adds to every job, and for the other differences; each once for a Master and its Workers."""
    added: dict[str, Note] = {}
    changed: dict[tuple[str, str], Note] = {}
    for difference in (part for whole in differences for part in _split(whole)):
        path = format_path(difference.path)
        if addition := _find_addition(difference, path):
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


def _find_addition(difference: Difference, path: str) -> Addition | None:
    if difference.new is not MISSING:
        return None
    return next((addition for addition in ADDITIONS if any(part in path for part in addition.parts)), None)


def _make_note(difference: Difference, path: str) -> Note:
    step = difference.path[-1]
    if difference.new is MISSING and isinstance(step, ItemName) and difference.path[-2] == "initContainers":
        does = "it waits until the job's etcd answers" if step.name == names.ETCD_WAIT else "the job has none of this name"
        return Note(item=f"init container {step.name}", reason=f"added by kfjob: {does}")
    if difference.new is MISSING:
        return Note(item=path, reason=f"added by kfjob: {json.dumps(difference.old)}")
    return Note(item=f"{path}: {json.dumps(difference.new)}", reason="left out: a spec cannot express it")
