"""Who prints progress, as it was found out a moment ago: told again for one question, as long as the pods are the same.

    <state>/cache/master/<digest of context, namespace and job>.json

The answer holds while every pod has the uid and the container that it had then. Agents can hand over without that when a
process is restarted within its container, so an answer is not remembered for long.
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

from kfjob.api.target import Target, cluster_of
from kfjob.backends import folder
from kfjob.errors import KfjobError
from kfjob.events import JobSnapshot, PodChanged
from kfjob.observe.config import ObserveConfig
from kfjob.observe.master import Confidence, Master

SECOND = 1_000_000_000
LASTS = 300 * SECOND
LASTS_WITH_ETCD = 30 * SECOND
"""With the legacy etcd rendezvous any restart of a process can move rank 0; it may be that where nobody told the rendezvous."""
FORGOTTEN = 24 * 3600 * SECOND


class Known(Struct, frozen=True):
    """An answer that still holds, and the job's uid."""

    uid: str
    master: Master


def recall(target: Target, job: str) -> Known | None:
    """The answer that was remembered, if it still holds; one question to the cluster, and none if nothing was remembered."""
    if target.name != "kubernetes":
        return None
    try:
        kept = json.loads(_file(target, job).read_text(encoding="utf-8"))
        age = time.time_ns() - kept["learned"]
        if not 0 <= age < kept["lasts"]:
            return None
        owner, pods = cluster_of(target).pods(job, namespace=target.namespace)
        if owner != kept["uid"] or _print(pods) != kept["pods"]:
            return None
        answer = convert(kept["answer"], Master)
    except (OSError, ValueError, KeyError, TypeError, MsgspecError, KfjobError):
        return None  # whatever it is, a fresh look will tell
    return Known(owner, replace(answer, notes=(*answer.notes, f"found out {age // SECOND} s ago; the pods are the same since")))


def remember(target: Target, snapshot: JobSnapshot, answer: Master, config: ObserveConfig) -> None:
    """Keep an answer that was confirmed, of a job that runs."""
    if target.name != "kubernetes" or answer.confidence is not Confidence.CONFIRMED or snapshot.job.phase.ended:
        return
    kept = {
        "uid": snapshot.uid,
        "learned": time.time_ns(),
        "lasts": LASTS_WITH_ETCD if config.rendezvous in {"etcd", ""} else LASTS,
        "pods": _print(snapshot.pods),
        "answer": to_builtins(answer),
    }
    file = _file(target, snapshot.name)
    with suppress(OSError):  # it only saves time
        folder.make_private(file.parent)
        _tidy(file.parent)
        folder.replace_file(file, json.dumps(kept))


def _file(target: Target, job: str) -> Path:
    key = "\n".join((target.settings.context or target.kubeconfig, target.namespace, job))
    return target.settings.state / "cache" / "master" / f"{sha256(key.encode()).hexdigest()[:32]}.json"


def _print(pods: Iterable[PodChanged]) -> dict[str, list[str]]:
    return {pod.pod: [pod.uid, pod.container_id, "ended" if pod.phase.ended else ""] for pod in pods}


def _tidy(cache: Path) -> None:
    oldest = (time.time_ns() - FORGOTTEN) / SECOND
    for file in cache.glob("*.json"):
        with suppress(OSError):
            if file.stat().st_mtime < oldest:
                file.unlink()
