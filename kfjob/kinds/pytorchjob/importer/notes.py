"""Notes about what the job of an imported spec has, lacks, or has in another order than the original. Pure.

What kfjob adds to every job is reported once, and apart from what changes the job.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from kfjob.convert.conversion import Note
from kfjob.joblog.events import ETCD_WAIT, TRAINING_CONTAINER
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


class Addition(Struct, frozen=True):
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
        "no eviction to save nodes",
        "a job with a fixed number of nodes fails when one of its pods is evicted",
        tuple((*_REPLICA, "template", "metadata", "annotations", name) for name in api_objects.NOT_EVICTABLE),
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
        does = "it waits until the job's etcd answers" if step.name == ETCD_WAIT else "the job has none of this name"
        return Note(item=f"init container {step.name}", reason=f"added by kfjob: {does}")
    if difference.new is MISSING:
        return Note(item=path, reason=f"added by kfjob: {json.dumps(difference.old)}")
    return Note(item=f"{path}: {json.dumps(difference.new)}", reason="left out: a spec cannot express it")


_REFERENCE = re.compile(r"\$\$|\$\(([^()]*)\)")
"""A variable in a value, or an escaped dollar sign (Kubernetes v1.34, third_party/forked/golang/expansion/expand.go)."""


def find_moves(compiled: Any, original: Any, path: Path = ()) -> Iterator[Note]:
    """Yield a note for each list of containers and each variable whose place in the compiled job changes its meaning."""
    old, new = (_list_items(value) for value in (compiled, original))
    key = path[-1] if path else ""
    if key in ("containers", "initContainers"):
        yield from _compare_containers(old, new, path)
    elif key == "env":
        yield from _compare_variables(old, new, path)
        return
    for name in new:
        if name in old:
            step = ItemName(name) if isinstance(original, list) else name
            yield from find_moves(old[name], new[name], (*path, step))


def _list_items(value: Any) -> Mapping[str, Any]:
    """Return the values of a mapping, or the items of a list by name; nothing for another value."""
    return value if isinstance(value, dict) else items_by_name(value) or {}


def _compare_containers(old: Mapping[str, Any], new: Mapping[str, Any], path: Path) -> Iterator[Note]:
    compiled, original = [name for name in old if name in new], [name for name in new if name in old]
    if compiled != original:
        reason = f"they start in another order: {', '.join(compiled)} instead of {', '.join(original)}"
        yield Note(item=format_path(path), reason=reason)


def _compare_variables(old: Mapping[str, Any], new: Mapping[str, Any], path: Path) -> Iterator[Note]:
    compiled, original = _find_references(old), _find_references(new)
    for name in new:
        if name not in old:
            continue
        item = format_path((*path, ItemName(name)))
        for reference in original[name] - compiled[name]:
            yield Note(item=item, reason=f"`$({reference})` in it stays as text, because `{reference}` stands after it now")
        for reference in compiled[name] - original[name]:
            yield Note(item=item, reason=f"`$({reference})` in it is replaced, because `{reference}` stands before it now")


def _find_references(variables: Mapping[str, Any]) -> dict[str, set[str]]:
    """Return for each variable the names in its value that the kubelet replaces, because they stand before it."""
    before: set[str] = set()
    references = {}
    for name, variable in variables.items():
        value = variable.get("value")
        named = set(_REFERENCE.findall(value)) if isinstance(value, str) else set()
        references[name] = named & before
        before.add(name)
    return references
