"""The kinds of jobs that kfjob knows. A new kind is a folder in this room, and a row here."""

from __future__ import annotations

from collections.abc import Iterable

from kfjob.base.common_types import JsonMapping, JsonObject
from kfjob.kinds.base import JobKind, PodTemplate
from kfjob.kinds.pytorchjob.kind import PyTorchJob

KINDS: dict[str, JobKind] = {kind.name: kind for kind in (PyTorchJob(),)}
"""The kinds by name, in the order in which a job of unknown kind is looked for."""
DEFAULT_KIND = PyTorchJob.name
"""The kind of a job that a spec describes, unless the setting `job_kind` names another."""


def find_kind(name: str) -> JobKind:
    """Return the kind of this name, or the default for a job whose kind is not recorded."""
    return KINDS.get(name) or KINDS[DEFAULT_KIND]


def is_job(item: JsonMapping) -> bool:
    """Return whether an object is a job of a known kind, and not one of another API group with the same name."""
    kind = KINDS.get(item["kind"])
    return kind is not None and item["apiVersion"].rpartition("/")[0] == kind.group


def get_kind(job: JsonMapping) -> JobKind:
    """Return the kind of a job."""
    return KINDS[job["kind"]]


def get_job(objects: Iterable[JsonObject]) -> JsonObject:
    """Return the one job among the objects.

    Raises:
        ValueError: there is none, or more than one.
    """
    (job,) = (item for item in objects if is_job(item))
    return job


def read_pod_templates(objects: Iterable[JsonMapping]) -> list[PodTemplate]:
    """Return the templates of the pods that controllers create for jobs, and of the pods among the objects."""
    templates = []
    for item in objects:
        if item["kind"] == "Pod":
            metadata = item["metadata"]
            templates.append(PodTemplate(names=(metadata["name"],), metadata=metadata, spec=item["spec"], path=("spec",)))
        elif is_job(item):
            templates += get_kind(item).read_pod_templates(item)
    return templates
