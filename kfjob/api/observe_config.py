"""What observation needs of a job's spec, read from the recorded text without the models: they take longer than the question.

tests/unit/api/test_expectations.py holds this equal to what the models say.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from kfjob.events import JobSnapshot
from kfjob.observe.config import Limits, ObserveConfig
from kfjob.spec import api_objects, names

if TYPE_CHECKING:
    from kfjob.plan import JobPlan

VERSION = 1
"""Of the recorded texts that are understood here; one of another version goes through the models, which know how to migrate."""


def of_plan(plan: JobPlan) -> ObserveConfig:
    """What is expected of a job that is being submitted."""
    return of_spec(plan.spec_json)


def of_snapshot(snapshot: JobSnapshot) -> ObserveConfig:
    """What is expected of a job that is there; of one that kfjob did not submit, its pods are all that is known."""
    if snapshot.spec:
        return of_spec(snapshot.spec)
    if snapshot.manifest:
        return of_job(next(one for one in json.loads(snapshot.manifest) if one["kind"] == api_objects.PYTORCHJOB))
    pods = sorted(snapshot.pods, key=lambda pod: (pod.replica_type != "Master", pod.replica_index))
    return ObserveConfig(workers=tuple(pod.pod for pod in pods))


def of_job(job: Mapping[str, Any]) -> ObserveConfig:
    """What is expected of a PyTorchJob that was never a spec."""
    spec = job.get("spec") or {}
    replicas = spec.get("pytorchReplicaSpecs") or {}
    pods = [
        names.pod_name(job["metadata"]["name"], kind, index)
        for kind in ("Master", "Worker")
        if kind in replicas
        for index in range((replicas[kind] or {}).get("replicas", 1))
    ]
    return ObserveConfig(workers=tuple(pods), rendezvous=(spec.get("elasticPolicy") or {}).get("rdzvBackend") or "")


def of_spec(recorded: str) -> ObserveConfig:
    """What is expected of a job with this recorded spec."""
    said: dict[str, Any] = json.loads(recorded)
    if said.get("version", VERSION) != VERSION:
        said = _migrated(recorded)
    processes, train = said.get("processes_per_node"), said.get("train")
    backend = (said.get("rendezvous") or {}).get("backend", "c10d")
    dynamic = said.get("launcher") in (None, "torchrun") and backend != "static"
    master = said.get("master")
    loglevel = (said.get("env") or {}).get("LOGLEVEL", "INFO")
    return ObserveConfig(
        workers=names.pod_names(said["name"], said.get("nodes", 1), master=not dynamic if master is None else master),
        rendezvous=backend,
        processes_per_node=processes if isinstance(processes, int) else None,
        expected_steps=train.get("max_steps") if train else None,
        progress_pattern=said.get("progress"),
        trainer="kfjob" if train else "",
        limits=Limits(**said.get("watchdog", {})),
        loglevel=loglevel if isinstance(loglevel, str) else "INFO",
    )


def _migrated(recorded: str) -> dict[str, Any]:
    from kfjob.spec.source import load_spec

    return load_spec(recorded).spec.model_dump(mode="json", exclude_defaults=True)
