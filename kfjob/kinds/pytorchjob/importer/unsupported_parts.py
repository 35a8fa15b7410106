"""What a PyTorchJob has and no spec can express: references without values, unknown fields, metadata, and values that run.

Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from kfjob.base.common_types import JsonMapping, JsonObject
from kfjob.base.errors import Problem, SpecError
from kfjob.convert.conversion import Note
from kfjob.kinds.manifests import ManifestChange
from kfjob.kinds.pytorchjob.admission import find_job_problems, remove_empty_worker
from kfjob.kinds.pytorchjob.importer.job_search import FoundJob
from kfjob.kinds.pytorchjob.schema import quote_fractions
from kfjob.objects import api_objects
from kfjob.source.foreign_formats import UNFILLED, describe_filling
from kfjob.source.manifest import ManifestObject, find_unfilled
from kfjob.source.template.fill import find_object_problem
from kfjob.spec.fields import ENV_NAME_PATTERN
from kfjob.validation.field_paths import Path, join_path

_LOST_METADATA = {
    "ownerReferences": "the owner is another object, and a new job has none",
    "finalizers": "they keep a job from being removed until a controller allows it",
}
"""Fields that a job can have and a spec cannot, by the reason."""
_MAX_REPLICAS = 4096
"""Replicas for which a template is linted; a spec has at most as many nodes."""


def prepare_job(entry: FoundJob, outer: ManifestObject) -> tuple[JsonObject, list[Note]]:
    """Return the job as the API server stores it, and a note for each unknown field, which the API server drops."""
    if unusable := find_object_problem(entry.job):
        raise SpecError([outer.locate(Problem(title=unusable.title), entry.find_path(unusable.path))])
    job, change = remove_empty_worker(api_objects.without_nulls(entry.job))
    notes = [Note(item=f"{join_path(change.path)}.replicas: 0", reason=change.reason)] if change else []
    if isinstance(job.get("spec"), dict):
        job["spec"] = quote_fractions(job["spec"])
    if unfilled := next(find_unfilled(job.get("spec"), ("spec",)), None):
        path, reference = unfilled
        example = Problem(title=UNFILLED, detail=f"for example `{reference}`")
        problem_at_line = outer.locate(example, entry.find_path(path))
        raise SpecError([replace(problem_at_line, hint=describe_filling(problem_at_line.file))])
    problems: list[Problem] = []
    for problem in find_job_problems(job):
        if problem.is_unknown_field:
            notes.append(Note(item=join_path(problem.path), reason=f"{problem.title.partition('` ')[2]}; left out"))
            _delete(job, problem.path)
            continue
        unlocated = Problem(title=problem.title, hint=problem.hint)
        problems.append(outer.locate(unlocated, entry.find_path(problem.path), at_key=problem.is_at_key))
    if problems:
        raise SpecError(problems)
    return job, [*notes, *_list_lost_metadata(job), *_list_lost_pod_metadata(job), *_list_empty_pull_secrets(job)]


def _list_lost_metadata(job: JsonMapping) -> Iterator[Note]:
    for field, reason in _LOST_METADATA.items():
        if job["metadata"].get(field):
            yield Note(item=f"metadata.{field}", reason=f"left out: {reason}")
    templates = {
        f"spec.pytorchReplicaSpecs.{kind}.template.metadata": (replica.get("template") or {}).get("metadata") or {}
        for kind, replica in job["spec"]["pytorchReplicaSpecs"].items()
    }
    for path, metadata in {"metadata": job["metadata"], **templates}.items():
        manager = (metadata.get("labels") or {}).get(api_objects.LABEL_MANAGED_BY)
        if manager not in (None, api_objects.FIELD_MANAGER):
            item = f"{path}.labels.{api_objects.LABEL_MANAGED_BY}: {manager}"
            yield Note(item=item, reason=f"left out: the spec's job has `{api_objects.FIELD_MANAGER}`")


def _list_lost_pod_metadata(job: JsonMapping) -> Iterator[Note]:
    for kind, replica in job["spec"]["pytorchReplicaSpecs"].items():
        for field, value in replica.get("template", {}).get("metadata", {}).items():
            if value and field not in ("labels", "annotations", "creationTimestamp"):
                item = f"spec.pytorchReplicaSpecs.{kind}.template.metadata.{field}"
                yield Note(item=item, reason="left out: of a pod's metadata, a spec has the labels and annotations")


def _list_empty_pull_secrets(job: JsonMapping) -> Iterator[Note]:
    for kind, replica in job["spec"]["pytorchReplicaSpecs"].items():
        secrets = replica.get("template", {}).get("spec", {}).get("imagePullSecrets") or ()
        if not all(secret.get("name") for secret in secrets):
            item = f"spec.pytorchReplicaSpecs.{kind}.template.spec.imagePullSecrets"
            yield Note(item=item, reason="an item without a name is left out: it names no secret")


def _delete(value: Any, path: Sequence[str | int]) -> None:
    for part in path[:-1]:
        value = value[part]
    del value[path[-1]]


def fit_to_spec(job: JsonObject) -> tuple[JsonObject, list[ManifestChange]]:
    """Return a copy of a job with values that a spec can have, and what was changed."""
    fitted: JsonObject = api_objects.without_nulls(job)
    return fitted, list(_fit_job(fitted["spec"]))


def _fit_job(spec: JsonObject) -> Iterator[ManifestChange]:
    if spec.get("nprocPerNode") == "xpu":
        spec["nprocPerNode"] = "auto"
        yield ManifestChange(("spec", "nprocPerNode"), "`nprocPerNode: xpu` is linted as `auto`")
    policy = spec.get("runPolicy") or {}
    if policy.get("cleanPodPolicy") == "":
        del policy["cleanPodPolicy"]
    for kind, replica in spec["pytorchReplicaSpecs"].items():
        path: Path = ("spec", "pytorchReplicaSpecs", kind)
        if (replica.get("replicas") or 0) > _MAX_REPLICAS:
            yield ManifestChange((*path, "replicas"), f"{replica['replicas']} replicas are linted as {_MAX_REPLICAS}")
            replica["replicas"] = _MAX_REPLICAS
        yield from _fit_pod(replica["template"]["spec"], (*path, "template", "spec"))


def _fit_pod(pod: JsonObject, path: Path) -> Iterator[ManifestChange]:
    if (pod.get("terminationGracePeriodSeconds") or 0) < 0:
        pod["terminationGracePeriodSeconds"] = 1
        title = "a negative `terminationGracePeriodSeconds` is linted as 1, which the API server takes for it"
        yield ManifestChange((*path, "terminationGracePeriodSeconds"), title)
    tolerations = pod.get("tolerations") or []
    kept = []
    for index, toleration in enumerate(tolerations):
        if toleration.get("operator") in ("Lt", "Gt"):
            title = f"the toleration with `operator: {toleration['operator']}` is left out of the lint"
            yield ManifestChange((*path, "tolerations", index), title)
        else:
            kept.append(toleration)
    tolerations[:] = kept
    for field in ("initContainers", "containers"):
        for index, container in enumerate(pod.get(field) or ()):
            yield from _fit_container(container, (*path, field, index))


def _fit_container(container: JsonObject, path: Path) -> Iterator[ManifestChange]:
    for mount in container.get("volumeMounts") or ():
        mount["mountPath"] = f"/{mount['mountPath'].lstrip('/')}"  # as the kubelet does
    variables, kept = container.get("env") or [], []
    for index, variable in enumerate(variables):
        if ENV_NAME_PATTERN.fullmatch(variable["name"]):
            kept.append(variable)
        else:
            title = f"the variable `{variable['name']}` is left out of the lint"
            yield ManifestChange((*path, "env", index, "name"), title)
    variables[:] = kept
