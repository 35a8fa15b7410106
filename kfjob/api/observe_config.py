"""The ObserveConfig of a job that exists: as recorded at submit, else from its spec, its manifest or its pods."""

from __future__ import annotations

from contextlib import suppress

from kfjob.common_types import JsonMapping
from kfjob.errors import KfjobError
from kfjob.events import JobSnapshot
from kfjob.parsing import parse_json
from kfjob.spec import api_objects, names
from kfjob.spec.observe_config import MAX_NODES, ObserveConfig, decode


def read_observe_config(snapshot: JobSnapshot) -> ObserveConfig:
    """Return what observation needs of the job's spec. A job that others submitted shows only its pods."""
    if snapshot.observe_config and (config := decode(snapshot.observe_config, job=snapshot.name)):
        return config
    with suppress(
        KfjobError, ValueError, LookupError, TypeError, AttributeError, RecursionError
    ):  # someone else changed the record
        if snapshot.spec:
            return _from_spec(snapshot.spec)
        if snapshot.manifest:
            (job,) = (item for item in parse_json(snapshot.manifest) if item["kind"] == api_objects.PYTORCHJOB)
            return from_pytorchjob(job)
    pods = sorted(snapshot.pods, key=lambda pod: (pod.replica_type != "Master", pod.replica_index))
    return ObserveConfig(workers=tuple(pod.pod for pod in pods))


def from_pytorchjob(job: JsonMapping) -> ObserveConfig:
    """Return what the manifest of a PyTorchJob shows."""
    spec = job.get("spec") or {}
    replicas = spec.get("pytorchReplicaSpecs") or {}
    pods = [
        names.pod_name(job["metadata"]["name"], kind, index)
        for kind in ("Master", "Worker")
        if kind in replicas
        for index in range(min((replicas[kind] or {}).get("replicas", 1), MAX_NODES))
    ]
    return ObserveConfig(workers=tuple(pods), rendezvous=(spec.get("elasticPolicy") or {}).get("rdzvBackend") or "")


def _from_spec(text: str) -> ObserveConfig:
    """Plan the recorded spec again: for jobs of a kfjob that did not record the configuration."""
    from kfjob.plan import Context, resolve
    from kfjob.spec.source import load_spec

    spec = load_spec(text).spec
    image = {} if spec.image else {"image": "unknown"}  # a plan for a cluster needs one
    return resolve(spec.model_copy(update=image), Context(backend="kubernetes", launch="recorded")).observe_config
