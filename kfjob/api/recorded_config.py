"""The ObserveConfig of a job that exists: as recorded at submit, else from its manifest or its pods."""

from __future__ import annotations

from contextlib import suppress
from functools import partial

from kfjob.base.common_types import JsonMapping
from kfjob.base.errors import KfjobError
from kfjob.base.parsing import parse_json
from kfjob.joblog.events import JobSnapshot
from kfjob.joblog.observe_config import ObserveConfig, decode
from kfjob.kinds.registry import find_kind, get_job, get_kind
from kfjob.objects import api_objects
from kfjob.objects.reading import get_annotation


def read_observe_config(snapshot: JobSnapshot) -> ObserveConfig:
    """Return what observation needs of the job's spec. A job that others submitted shows only its pods."""
    name_pods = partial(find_kind(snapshot.job_kind).name_hosts, snapshot.name)
    if snapshot.observe_config and (config := decode(snapshot.observe_config, name_pods=name_pods)):
        return config
    with suppress(KfjobError, ValueError, LookupError, TypeError, AttributeError, RecursionError):  # a changed record
        if snapshot.manifest:
            return from_manifest(get_job(parse_json(snapshot.manifest)))
    pods = sorted(snapshot.pods, key=lambda pod: (pod.replica_type != "Master", pod.replica_index))
    return ObserveConfig(workers=tuple(pod.pod for pod in pods))


def from_manifest(job: JsonMapping) -> ObserveConfig:
    """Return what kfjob recorded in the manifest of a job, else what the manifest shows."""
    kind = get_kind(job)
    record = get_annotation(job, api_objects.ANNOTATION_OBSERVE_CONFIG)
    name_pods = partial(kind.name_hosts, job["metadata"]["name"])
    return (decode(record, name_pods=name_pods) if record else None) or kind.read_observe_config(job)
