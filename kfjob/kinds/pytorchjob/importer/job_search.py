"""Find the PyTorchJobs of a manifest in whatever holds them, and bring other forms of them into today's form. Pure.

A job may stand inside another object: an AppWrapper, a Katib Experiment, a step of an Argo Workflow, or a text in a ConfigMap.
The older forms are v1alpha1 to v1beta2 of the PyTorch operator, KubeDL's PyTorchJob, and HyperPod's HyperPodPyTorchJob.

Sources: kubeflow/pytorch-operator v0.7 (pkg/apis/pytorch) and kubedl-io/kubedl v0.5 (apis/training/v1alpha1).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from copy import deepcopy
from typing import Any

from msgspec import Struct, field

from kfjob.base.common_types import JsonObject
from kfjob.base.errors import Problem, SpecError
from kfjob.base.parsing import MAX_TEXT, ParseError
from kfjob.base.text import plural
from kfjob.convert.conversion import Note, make_job_name
from kfjob.kinds.manifests import ANY_JOB, JobChoice
from kfjob.kinds.pytorchjob import operator_api
from kfjob.kinds.pytorchjob.importer.hyperpod import HYPERPOD_JOB, convert_hyperpod
from kfjob.objects import api_objects
from kfjob.source.manifest_yaml import read_documents
from kfjob.validation.field_paths import Path, join_path

_VERSIONS = {
    "kubeflow.org": ("v1", "v1beta2", "v1beta1", "v1alpha2", "v1alpha1"),
    "training.kubedl.io": ("v1alpha1",),
}
"""The versions that each group has had, the newest first."""
_JOB_IN_TEXT = re.compile(rf"[\"']?\bkind[\"']?\s*:\s*[\"']?\w*{operator_api.KIND}\b")
"""What a text has that may be a manifest with a job, as YAML or as JSON."""
_REPLICAS: Path = ("spec", "pytorchReplicaSpecs")
_MAX_LEVELS = 3
"""Texts inside texts: a manifest in a ConfigMap, which is itself in the text of another object."""
_MAX_UNREAD = 3
"""Texts that an error names because they cannot be read."""
_FILLED_LATER = re.compile(r"\$\{trialParameters\.[^}]*\}|\{\{[^{}]*\}\}")
"""Places that Katib and Argo fill when they start the job."""


class FoundJob(Struct, kw_only=True):
    """A PyTorchJob in today's form, and where it was."""

    job: JsonObject
    document_index: int  # of the document that holds it
    path: Path  # in that document; empty if the document is the job
    api_version: str = ""  # as written
    list_path: Path = ()  # of the document in the List that holds it
    outer: str = ""  # kind and name of the object that holds it
    notes: list[Note] = field(default_factory=list)
    replica_paths: dict[str, Path] = field(default_factory=dict)
    """Where the job had its replicas before, by their kind."""

    def find_path(self, path: Path) -> Path:
        """Return where the document has what is at a path of the job."""
        replica = self.replica_paths.get(str(path[2])) if path[:2] == _REPLICAS and len(path) > len(_REPLICAS) else None
        return (*self.path, *(path if replica is None else (*replica, *path[len(_REPLICAS) + 1 :])))

    @property
    def name(self) -> str:
        """The name of the job."""
        metadata = self.job.get("metadata")
        return str(metadata.get("name") or "") if isinstance(metadata, dict) else ""

    def describe(self) -> str:
        """Return the job's name and its place, as an error lists them."""
        place = f"`{self.name}` at `{self.place}`" if self.place else f"`{self.name}`"
        return f"{place} of {self.outer}" if self.outer else place

    def fits(self, choice: JobChoice) -> bool:
        """Return whether the choice means this job."""
        return choice.name in (None, self.name) and choice.path in (None, self.place, join_path(self.path))

    @property
    def place(self) -> str:
        """The path of the job, from the List that holds its document if there is one."""
        return join_path((*self.list_path, *self.path))


def choose_job(
    documents: Sequence[JsonObject], choice: JobChoice, file: str | None, *, list_paths: Sequence[Path] = ()
) -> FoundJob:
    """Return the only PyTorchJob in the documents that fits the choice. `list_paths` are the documents' paths in Lists.

    Raises:
        SpecError: there is none, or there are several.
    """
    search = _Search(documents)
    jobs = list(search.find())
    for job in jobs if list_paths else ():
        job.list_path = list_paths[job.document_index]
    if not jobs:
        kinds = ", ".join(dict.fromkeys(str(document.get("kind")) for document in documents))
        parts = [f"it has: {kinds}"] if kinds else []
        detail = "; ".join([*parts, *search.unread[:_MAX_UNREAD]]) or None
        title = f"this file has no {operator_api.KIND}"
        if any(document.get("kind") == operator_api.KIND for document in documents):
            title, detail = f"the {operator_api.KIND} has no `spec`", None
        raise SpecError([Problem(title=title, file=file, detail=detail)])
    matches = [job for job in jobs if job.fits(choice)]
    if len(matches) == 1:
        _check_version(matches[0], file)
        return matches[0]
    count = plural(len(jobs), operator_api.KIND)
    fits = f"{len(matches)} of them fit" if matches else "none of them fits"
    title = f"this file has {count}" if choice == ANY_JOB else f"this file has {count}, and {fits} the choice"
    hint = _suggest_choice(matches or jobs)
    raise SpecError([Problem(title=title, file=file, detail=", ".join(job.describe() for job in jobs), hint=hint)])


def _check_version(job: FoundJob, file: str | None) -> None:
    """Check that the job has a version whose fields are known.

    Raises:
        SpecError: it has another version of the same group.
    """
    group, _, version = job.api_version.partition("/")
    known = _VERSIONS.get(group, (version,))
    if version not in known:
        title = f"there is no {operator_api.KIND} of the version `{job.api_version}`"
        hint = f"write `apiVersion: {group}/{known[0]}` if it has the fields of that version"
        raise SpecError([Problem(title=title, path=join_path((*job.path, "apiVersion")), file=file, hint=hint)])


def _suggest_choice(jobs: Sequence[FoundJob]) -> str:
    """Return the option that chooses the first of several jobs."""
    if len({job.name for job in jobs}) == len(jobs):
        return f"choose one: `--name {jobs[0].name}`" + (f" or `--at {jobs[0].place}`" if jobs[0].place else "")
    return f"choose one: `--at {jobs[0].place}`" if len({job.place for job in jobs}) == len(jobs) else "remove all but one"


def find_jobs(documents: Sequence[JsonObject]) -> list[FoundJob]:
    """Return all PyTorchJobs in the documents of a manifest, in their order."""
    return list(_Search(documents).find())


class _Search:
    """Finds the jobs in documents, and keeps the texts that it cannot read."""

    def __init__(self, documents: Sequence[JsonObject]) -> None:
        self._documents = documents
        self._characters = 0
        self.unread: list[str] = []

    def find(self) -> Iterator[FoundJob]:
        for index in range(len(self._documents)):
            yield from self._find_in(self._documents[index], index, ())

    def _find_in(self, value: Any, index: int, path: Path, level: int = 0) -> Iterator[FoundJob]:
        if isinstance(value, dict):
            if _is_job(value):
                yield _read_job(value, self._documents[index], index, path)
                return
            for key, item in value.items():
                yield from self._find_in(item, index, (*path, key), level)
        elif isinstance(value, list):
            for number, item in enumerate(value):
                yield from self._find_in(item, index, (*path, number), level)
        elif isinstance(value, str) and _JOB_IN_TEXT.search(value):
            documents = [item for item in self._read_text(value, path, level) if isinstance(item, dict)]
            for number, item in enumerate(documents):
                inner = (*path, number) if len(documents) > 1 else path
                yield from self._find_in(item, index, inner, level + 1)

    def _read_text(self, text: str, path: Path, level: int) -> list[Any]:
        """Return the documents in a text; none if it is not a manifest, such as a script that writes one."""
        self._characters += len(text)
        if self._characters > MAX_TEXT or level == _MAX_LEVELS:
            self.unread.append(f"`{join_path(path)}` is not read: the texts in this file are too large or too deeply nested")
            return []
        try:
            return read_documents(text)
        except ParseError as error:
            self.unread.append(f"`{join_path(path)}` cannot be read: {str(error).splitlines()[0]}")
            return []


def _is_job(value: JsonObject) -> bool:
    is_named = value.get("kind") in (operator_api.KIND, HYPERPOD_JOB) and isinstance(value.get("apiVersion"), str)
    return is_named and isinstance(value.get("spec"), dict)


def _read_job(job: JsonObject, document: JsonObject, document_index: int, path: Path) -> FoundJob:
    """Return a job in today's form, with a note for everything that was changed for it."""
    outer = _describe(document) if path else ""
    entry = FoundJob(job=deepcopy(job), document_index=document_index, path=path, outer=outer, api_version=job["apiVersion"])
    if outer:
        reason = f"only the PyTorchJob in it is converted, which is at `{join_path(path)}`"
        entry.notes.append(Note(item=outer, reason=reason))
    _convert_name(entry, document)
    if outer:
        _keep_outer_fields(entry, document)
    if job["kind"] == HYPERPOD_JOB:
        notes, entry.replica_paths = convert_hyperpod(entry.job)
        entry.notes += notes
    elif job["apiVersion"] != operator_api.API_VERSION:
        _convert_version(entry)
    if references := dict.fromkeys(_FILLED_LATER.findall(str(job))):
        item = ", ".join(references)
        entry.notes.append(Note(item=item, reason="filled in by what holds the job, so the spec has it as text: write values"))
    return entry


def _describe(document: JsonObject) -> str:
    metadata = document.get("metadata")
    names = metadata if isinstance(metadata, dict) else {}
    return f"{document.get('kind', 'object')} {names.get('name') or names.get('generateName') or ''}".strip()


def _convert_name(entry: FoundJob, document: JsonObject) -> None:
    """Give the job a name, where it has none of its own."""
    if entry.job.get("metadata") is None:
        entry.job["metadata"] = {}
    metadata = entry.job["metadata"]
    if not isinstance(metadata, dict) or metadata.get("name") is not None:
        return
    prefix, outer = metadata.pop("generateName", None), document.get("metadata")
    outer_name = outer.get("name") if isinstance(outer, dict) else None
    metadata["name"] = make_job_name(str(prefix or outer_name or "job"))
    item, reason = "metadata.name", f"there is none, and the spec is called `{metadata['name']}`"
    if prefix:
        item, reason = f"metadata.generateName: {prefix}", f"a spec has one name: `{metadata['name']}`"
    entry.notes.append(Note(item=item, reason=reason))


def _keep_outer_fields(entry: FoundJob, document: JsonObject) -> None:
    """Give the job the namespace and the queue of the object that holds it, where it has none of its own."""
    metadata, outer = entry.job["metadata"], document.get("metadata")
    if not isinstance(metadata, dict) or not isinstance(outer, dict) or not isinstance(metadata.get("labels"), dict | None):
        return
    labels, outer_labels = metadata.get("labels") or {}, outer.get("labels")
    fields = {
        key: value
        for key in (api_objects.LABEL_KUEUE_QUEUE, api_objects.LABEL_KUEUE_PRIORITY)
        if isinstance(outer_labels, dict) and isinstance(value := outer_labels.get(key), str) and key not in labels
    }
    if fields:
        metadata["labels"] = labels | fields
    if isinstance(namespace := outer.get("namespace"), str) and namespace and not metadata.get("namespace"):
        metadata["namespace"] = fields["namespace"] = namespace
    for key, value in fields.items():
        entry.notes.append(Note(item=f"{key}: {value}", reason=f"taken from {entry.outer}, and the job itself names none"))


def _convert_version(entry: FoundJob) -> None:
    job, spec = entry.job, entry.job["spec"]
    reason = f"read as {operator_api.API_VERSION}, the only version that today's operator serves"
    entry.notes.append(Note(item=f"apiVersion: {job['apiVersion']}", reason=reason))
    job["apiVersion"] = operator_api.API_VERSION
    if isinstance(replicas := spec.pop("replicaSpecs", None), list):
        spec["pytorchReplicaSpecs"] = {}
        for index, item in enumerate(replicas):
            if isinstance(item, dict):
                kind = str(item.get("replicaType", "WORKER")).capitalize()
                spec["pytorchReplicaSpecs"][kind] = {key: value for key, value in item.items() if key != "replicaType"}
                entry.replica_paths[kind] = ("spec", "replicaSpecs", index)
    policy = spec.get("runPolicy") or {}
    if not isinstance(policy, dict):  # the check of the job reports it
        return
    fields = {key: spec.pop(key) for key in operator_api.RUN_POLICY_FIELDS if key in spec}
    if fields:
        spec["runPolicy"] = fields | policy
