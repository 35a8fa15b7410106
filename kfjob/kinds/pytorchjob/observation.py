"""What observation needs to know of a PyTorchJob: its pods, its rendezvous and the length of its run. Pure."""

from __future__ import annotations

from kfjob.base.common_types import JsonMapping
from kfjob.joblog.observe_config import MAX_NODES, ObserveConfig
from kfjob.kinds.pytorchjob.operator_api import count_replicas
from kfjob.objects import names
from kfjob.shell.run_length import find_run_length


def read_manifest(job: JsonMapping, *, progress: str | None = None) -> ObserveConfig:
    """Return what the manifest of a PyTorchJob shows, with the pattern of its progress lines."""
    spec = job.get("spec") or {}
    replicas = spec.get("pytorchReplicaSpecs") or {}
    pods = [
        names.pod_name(job["metadata"]["name"], kind, index)
        for kind in ("Master", "Worker")
        if kind in replicas
        for index in range(min(count_replicas(replicas[kind]), MAX_NODES))
    ]
    rendezvous = (spec.get("elasticPolicy") or {}).get("rdzvBackend") or ""
    length = find_run_length(_find_words(replicas))
    return ObserveConfig(
        workers=tuple(pods),
        master="Master" in replicas,
        rendezvous=rendezvous,
        expected_steps=length.steps,
        expected_epochs=length.epochs,
        progress_pattern=progress,
    )


def _find_words(replicas: JsonMapping) -> list[str]:
    """Return the words of the command of the first container."""
    template = (replicas.get("Worker") or replicas.get("Master") or {}).get("template") or {}
    containers = (template.get("spec") or {}).get("containers") or [{}]
    words = (*(containers[0].get("command") or ()), *(containers[0].get("args") or ()))
    return [word for word in words if isinstance(word, str)]
