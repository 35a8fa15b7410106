"""The kinds of jobs that kfjob knows. A new kind is a folder in this room, and a row here."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Protocol

from kfjob.base.common_types import JsonMapping, JsonObject
from kfjob.kinds.base import JobKind, PodTemplate
from kfjob.kinds.pytorchjob.kind import PyTorchJob
from kfjob.kinds.trainjob.kind import TrainJob

if TYPE_CHECKING:
    from kfjob.kinds.manifests import ManifestReader
    from kfjob.source.manifest import ManifestObject

KINDS: dict[str, JobKind] = {kind.name: kind for kind in (PyTorchJob(), TrainJob())}
"""The kinds by name, in the order in which a job of unknown kind is looked for."""
DEFAULT_KIND = PyTorchJob.name
"""The kind of a job that a spec describes, unless the setting `job_kind` names another."""


def find_target_kind(target: str) -> str:
    """Return the kind of a target; "" for one that names no kind."""
    return next((name for name in KINDS if name.lower() == target), "")


def find_kind(name: str) -> JobKind:
    """Return the kind of this name, or the default for a job whose kind is not recorded."""
    return KINDS.get(name) or KINDS[DEFAULT_KIND]


class _Identified(Protocol):
    """A reference to a job, or its snapshot."""

    @property
    def name(self) -> str: ...
    @property
    def uid(self) -> str: ...
    @property
    def launch(self) -> str: ...
    @property
    def job_kind(self) -> str: ...


def identify(job: _Identified) -> str:
    """Return the id that the pods of a job carry; see `JobKind.identify`."""
    return find_kind(job.job_kind).identify(name=job.name, uid=job.uid, launch=job.launch)


def is_job(item: JsonMapping) -> bool:
    """Return whether an object is a job of a known kind, and not one of another API group with the same name."""
    kind = KINDS.get(item["kind"])
    return kind is not None and item["apiVersion"].rpartition("/")[0] == kind.group


def get_kind(job: JsonMapping) -> JobKind:
    """Return the kind of a job."""
    return KINDS[job["kind"]]


def select_user_jobs(objects: Iterable[ManifestObject]) -> list[tuple[ManifestObject, ManifestReader]]:
    """Return the jobs that users can write as manifests, also of an API version that the cluster does not serve."""
    return [(item, reader) for item in objects if item.kind in KINDS and (reader := KINDS[item.kind].manifests)]


def find_importable(objects: Iterable[ManifestObject]) -> tuple[ManifestObject, ManifestReader] | None:
    """Return the first object that is or holds a job that `kfjob import` can read, with its reader; None without one."""
    readers = [reader for kind in KINDS.values() if (reader := kind.manifests)]
    pairs = ((item, reader) for item in objects for reader in readers if reader.holds_job(item.value))
    return next(pairs, None)


def find_reader(import_format: str) -> ManifestReader:
    """Return the reader for a format of `kfjob import`."""
    return next(reader for kind in KINDS.values() if (reader := kind.manifests) and reader.import_format == import_format)


def list_user_kinds() -> list[str]:
    """Return the names of the kinds that users can write as manifests."""
    return [kind.name for kind in KINDS.values() if kind.manifests]


def get_job(objects: Iterable[JsonObject]) -> JsonObject:
    """Return the one job among the objects.

    Raises:
        ValueError: there is none, or more than one.
    """
    (job,) = (item for item in objects if is_job(item))
    return job


def is_prerequisite(item: JsonMapping) -> bool:
    """Return whether an object must exist before a job of a known kind."""
    return find_prerequisite_resource(item) is not None


def find_prerequisite_resource(item: JsonMapping) -> str | None:
    """Return the resource of an object that must exist before its job; None for every other object."""
    group = item["apiVersion"].rpartition("/")[0]
    return next((kind.prerequisites.get(item["kind"]) for kind in KINDS.values() if kind.group == group), None)


def read_pod_templates(objects: Iterable[JsonMapping]) -> list[PodTemplate]:
    """Return the templates of the pods that controllers create for jobs, and of the pods among the objects."""
    templates, objects = [], tuple(objects)
    for item in objects:
        if item["kind"] == "Pod":
            metadata = item["metadata"]
            templates.append(PodTemplate(names=(metadata["name"],), metadata=metadata, spec=item["spec"], path=("spec",)))
        elif is_job(item):
            templates += get_kind(item).read_pod_templates(item, objects)
    return templates
