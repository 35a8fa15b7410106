"""What the guard writes into the cluster: Events about its decisions, and the record of a relaunch that is in progress."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import zlib
from contextlib import suppress

from kfjob.api.target import Target
from kfjob.backends.base import JobRef
from kfjob.base.common_types import JsonObject
from kfjob.base.errors import AlreadyExists, NotFound
from kfjob.base.parsing import ParseError, parse_json
from kfjob.base.units import MIB
from kfjob.guard.decision import Action, Decision
from kfjob.kinds.registry import find_kind, is_job, is_prerequisite
from kfjob.objects import api_objects
from kfjob.objects.reading import format_time

COMPONENT = "kfjob-guard"
LEASES = "coordination.k8s.io/v1"
MAX_MESSAGE = 1000
"""Bytes of the message of an Event; the API server allows 1024."""
_REASONS = {Action.RELAUNCH: "Relaunching", Action.STOP: "RelaunchStopped"}
_ANNOTATION_OBJECTS = "kfjob.dev/next-launch"
"""The objects of the next launch: JSON, gzip, base64. A long spec and its record exceed 256 KiB without that."""
_ANNOTATION_REPLACED = "kfjob.dev/replaced-uid"
_PREFIX = "kfjob-relaunch-"
_ETCD_KINDS = frozenset({"Pod", "Service"})
"""Kinds of a job's own etcd: a spec becomes no other objects beside the job and its prerequisites."""
MAX_OBJECTS = 2 * MIB
_GZIP = 16 + zlib.MAX_WBITS
_LABELS = {api_objects.LABEL_MANAGED_BY: api_objects.FIELD_MANAGER, "kfjob.dev/record": "relaunch"}


def write_event(target: Target, ref: JobRef, decision: Decision, *, now: float) -> None:
    """Record a decision as an Event of the job, once: a guard that starts again finds the Event of its name."""
    kind = find_kind(ref.job_kind)
    text = ". ".join([decision.reason, *decision.evidence])
    digest = hashlib.sha256(f"{ref.uid} {decision.action} {decision.reason}".encode()).hexdigest()[:10]
    time = format_time(now)
    event = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"{ref.name}.{digest}", "namespace": ref.namespace},
        "involvedObject": {
            "apiVersion": kind.api_version, "kind": kind.name, "name": ref.name, "namespace": ref.namespace, "uid": ref.uid,
        },
        "type": "Normal" if decision.action is Action.RELAUNCH else "Warning",
        "reason": _REASONS[decision.action],
        "message": text.encode()[:MAX_MESSAGE].decode(errors="ignore"),
        "source": {"component": COMPONENT},
        "firstTimestamp": time,
        "lastTimestamp": time,
        "count": 1,
    }  # fmt: skip
    with suppress(AlreadyExists):
        target.cluster.create_object(event)


def make_relaunch_record(ref: JobRef, objects: tuple[JsonObject, ...]) -> JsonObject:
    """Return the record of a relaunch: what replaces which launch. The job itself is gone for a moment in between."""
    data = base64.b64encode(gzip.compress(json.dumps(objects).encode(), mtime=0)).decode()
    annotations = {_ANNOTATION_OBJECTS: data, _ANNOTATION_REPLACED: ref.uid}
    metadata = {"name": f"{_PREFIX}{ref.name}", "namespace": ref.namespace, "labels": _LABELS, "annotations": annotations}
    return {"apiVersion": LEASES, "kind": "Lease", "metadata": metadata, "spec": {"holderIdentity": COMPONENT}}


def list_relaunch_records(target: Target, namespace: str) -> list[JsonObject]:
    """Return the records of relaunches that a guard has begun and not completed."""
    selector = ",".join(f"{key}={value}" for key, value in _LABELS.items())
    items = target.cluster.inventory(namespace).list_objects(LEASES, "leases", labels=selector)
    return [{"apiVersion": LEASES, "kind": "Lease", **item} for item in items]


def read_relaunch_record(record: JsonObject) -> tuple[str, list[JsonObject]]:
    """Return the uid of the launch to replace, and the objects to create; ("", []) for a record that somebody has damaged.

    Whoever may write Leases may have written it. So it can create no more than the job of its name, in its namespace, with the
    objects that a spec gives it.
    """
    metadata = record["metadata"]
    annotations = metadata.get("annotations") or {}
    try:
        data = base64.b64decode(annotations[_ANNOTATION_OBJECTS])
        text = zlib.decompressobj(_GZIP).decompress(data, MAX_OBJECTS).decode()
        objects: list[JsonObject] = parse_json(text)
        uid: str = annotations[_ANNOTATION_REPLACED]
        jobs = [item for item in objects if is_job(item)]
        are_own = all(
            item["metadata"]["namespace"] == metadata["namespace"]
            and (is_job(item) or is_prerequisite(item) or item["kind"] in _ETCD_KINDS)
            for item in objects
        )
        names = [_PREFIX + job["metadata"]["name"] for job in jobs]
    except (KeyError, TypeError, AttributeError, ValueError, zlib.error, ParseError):
        return "", []
    return (uid, objects) if are_own and names == [metadata["name"]] else ("", [])


def delete_record(target: Target, record: JsonObject) -> None:
    """Delete the record of a relaunch, if it still exists."""
    with suppress(NotFound):
        target.cluster.delete_object(record)
