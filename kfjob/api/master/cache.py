"""The last confirmed master, cached on this machine: it is valid as long as the pods and their containers are the same.

    <state>/cache/master/<digest of context, namespace and job>.json

When a process is restarted within its container, the agents can hand over while pods and containers stay the same, so an entry
expires after a short time.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

from msgspec import MsgspecError, Struct, convert, to_builtins
from msgspec.structs import replace

from kfjob.api.master.discover import discover_master
from kfjob.api.reader import JobReader, LiveReader
from kfjob.api.target import Target
from kfjob.backends import folder
from kfjob.base.errors import KfjobError
from kfjob.base.parsing import parse_json, read_document
from kfjob.base.units import SECOND
from kfjob.joblog.events import JobSnapshot, PodChanged
from kfjob.joblog.master.evidence import Confidence, Master
from kfjob.joblog.observe_config import ObserveConfig
from kfjob.kinds.registry import identify

LIFETIME_NANOSECONDS = 300 * SECOND
"""Lifetime of the cached name of the pod that prints progress."""
LIFETIME_WITH_ETCD = 30 * SECOND
"""Lifetime of the cached answer with the legacy etcd rendezvous, where any restart of a process can move rank 0. An unknown
rendezvous may be that one."""
UNUSED = 24 * 3600 * SECOND
"""The age at which an entry is deleted."""


class CachedMaster(Struct, frozen=True):
    """A valid entry: the id of its job (`identify`), and the answer."""

    job_id: str
    master: Master


def find_master(reader: JobReader, *, timeout: float = 0.0, fresh: bool = False) -> Master:
    """Return the pod that prints progress: from the cache, or with `fresh` always from the logs.

    With a `timeout` (seconds), search again until the answer is more than a prediction.

    Raises:
        NoEvidence: nothing shows which pod prints progress.
        WaitTimeout: after `timeout` seconds there is still no evidence, or the job ended without any.
    """
    if not isinstance(reader, LiveReader):
        return discover_master(reader, timeout=timeout).master
    if not fresh and (entry := load_master(reader.target, reader.ref.name)) and entry.job_id == identify(reader.ref):
        return entry.master
    discovery = discover_master(reader, timeout=timeout)
    store_master(reader.target, discovery.snapshot, discovery.master, reader.config)
    return discovery.master


def load_master(target: Target, job: str) -> CachedMaster | None:
    """Return the cached answer if it is valid; this takes one request, or none where nothing is cached."""
    if not target.capabilities.has_api_server:
        return None
    try:
        folder.check_state_folder(target.settings.state, "cache")
        entry = parse_json(read_document(_file(target, job)))
        age = time.time_ns() - entry["learned"]
        if not 0 <= age < entry["lifetime"]:
            return None
        job_id, pods = target.cluster.pods(job, namespace=target.namespace)
        if job_id != entry["job_id"] or _fingerprint(pods) != entry["pods"]:
            return None
        master = convert(entry["master"], Master)
    except (OSError, ValueError, KeyError, TypeError, MsgspecError, KfjobError):
        return None  # the caller then reads the logs
    note = f"found {age // SECOND} s ago; the pods are the same since"
    return CachedMaster(job_id, replace(master, notes=(*master.notes, note)))


def recall_pod(target: Target, job: JobSnapshot) -> str:
    """Return the pod that printed the job's progress when it was searched for last, without a check; "" if that is unknown."""
    with suppress(OSError, ValueError, KeyError, TypeError, KfjobError):
        folder.check_state_folder(target.settings.state, "cache")
        entry = parse_json(read_document(_file(target, job.name)))
        if entry["job_id"] == identify(job):
            return str(entry["master"]["pod"])
    return ""


def store_master(target: Target, snapshot: JobSnapshot, master: Master, config: ObserveConfig) -> None:
    """Cache the confirmed answer for a running job; other answers are not cached."""
    if not target.capabilities.has_api_server or master.confidence is not Confidence.CONFIRMED or snapshot.job.phase.ended:
        return
    entry = {
        "job_id": identify(snapshot),
        "learned": time.time_ns(),
        "lifetime": LIFETIME_WITH_ETCD if config.rendezvous in {"etcd", ""} else LIFETIME_NANOSECONDS,
        "pods": _fingerprint(snapshot.pods),
        "master": to_builtins(master),
    }
    file = _file(target, snapshot.name)
    with suppress(OSError, KfjobError):  # the cache only saves time
        folder.check_state_folder(target.settings.state, "cache")
        folder.make_private(file.parent)
        _delete_unused(file.parent)
        folder.replace_file(file, json.dumps(entry))


def _file(target: Target, job: str) -> Path:
    key = "\n".join((target.settings.context or target.kube_context, target.namespace, job))
    return target.settings.state / "cache" / "master" / f"{sha256(key.encode()).hexdigest()[:32]}.json"


def _fingerprint(pods: Iterable[PodChanged]) -> dict[str, list[str]]:
    return {pod.pod: [pod.uid, pod.container_id, "ended" if pod.phase.ended else ""] for pod in pods}


def _delete_unused(cache: Path) -> None:
    oldest = (time.time_ns() - UNUSED) / SECOND
    for file in cache.glob("*.json"):
        with suppress(OSError):
            if file.stat().st_mtime < oldest:
                file.unlink()
