"""Check a PyTorchJob that a user wrote, as the API server and the operator's webhook do. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from types import MappingProxyType
from typing import Any

from kfjob.base.common_types import JsonMapping, JsonObject
from kfjob.joblog.events import TRAINING_CONTAINER
from kfjob.kinds.manifests import ManifestChange, ManifestProblem
from kfjob.kinds.pytorchjob import operator_api
from kfjob.kinds.pytorchjob.operator_api import count_replicas, find_training_container
from kfjob.kinds.pytorchjob.schema import find_problems
from kfjob.objects import names
from kfjob.objects.api_objects import without_nulls
from kfjob.objects.containers import show_path
from kfjob.objects.crd_schema import NOT_INT_OR_STRING, UNKNOWN_FIELD
from kfjob.validation.field_paths import Path, join_path

_REPLICAS: Path = ("spec", "pytorchReplicaSpecs")
_MANAGERS = ("kubeflow.org/training-operator", "kueue.x-k8s.io/multikueue")
"""The values of `managedBy` that the operator's webhook accepts."""
_CHOICES = MappingProxyType(
    {
        ("runPolicy", "cleanPodPolicy"): ("None", "Running", "All"),
        ("elasticPolicy", "rdzvBackend"): ("c10d", "etcd", "etcd-v2", "static"),
    }
)
"""The values of fields of the job's spec that the operator or torchrun knows."""
_RESTART_POLICIES = ("Always", "OnFailure", "Never", "ExitCode")
_PROCESSES = re.compile(r"[1-9][0-9]*|auto|gpu|cpu|xpu")
"""What torchrun takes for `--nproc-per-node` (torch 2.15, distributed/run.py `determine_local_world_size`)."""


EMPTY_WORKER = ManifestChange((*_REPLICAS, "Worker"), "a Worker without replicas is left out: operator 1.9 refuses it")


def remove_empty_worker(job: JsonObject) -> tuple[JsonObject, ManifestChange | None]:
    """Return the job without its Worker, if that has no replicas and there is a Master; else the job itself.

    Operator 1.7 runs such a job as one pod, and the webhook of 1.9 refuses it.
    """
    spec: Any = job.get("spec")
    replicas: Any = spec.get("pytorchReplicaSpecs") if isinstance(spec, dict) else None
    worker: Any = replicas.get("Worker") if isinstance(replicas, dict) else None
    if not isinstance(worker, dict) or worker.get("replicas") is False or worker.get("replicas") != 0:
        return job, None
    if "Master" not in replicas or spec.get("elasticPolicy"):
        return job, None
    others = {kind: replica for kind, replica in replicas.items() if kind != "Worker"}
    return job | {"spec": spec | {"pytorchReplicaSpecs": others}}, EMPTY_WORKER


def find_job_problems(job: JsonObject) -> list[ManifestProblem]:
    """Return what is wrong with the fields of a PyTorchJob."""
    job = without_nulls(job)
    if "name" not in job["metadata"]:
        hint = "write `name: …`; `${KFJOB_LAUNCH}` in it is a new id for each launch"
        return [
            ManifestProblem(
                ("metadata", "generateName"), "a PyTorchJob needs a `name`: other objects and its pods refer to it", hint
            )
        ]
    if (version := job["apiVersion"]) != operator_api.API_VERSION:
        title = f"today's operator does not serve a PyTorchJob of `{version}`"
        hint = f"write `{operator_api.API_VERSION}`; `kfjob import pytorchjob` reads older versions"
        return [ManifestProblem(("apiVersion",), title, hint)]
    problems = [*_find_schema_problems(job), *_find_metadata_problems(job["metadata"])]
    if not problems:
        problems += _find_template_problems(job["spec"])
    if all(problem.path[:1] == ("metadata",) or problem.is_unknown_field for problem in problems):
        problems += _find_webhook_problems(job)
    return problems


def _find_schema_problems(job: JsonObject) -> Iterator[ManifestProblem]:
    for problem in find_problems(job.get("spec", {})):
        path: Path = ("spec", *problem.path)
        is_unknown = problem.message.startswith(UNKNOWN_FIELD)
        title = f"`{show_path(job, path)}` {problem.message}"
        hint = "put the number in quotes" if problem.message == NOT_INT_OR_STRING else None
        yield ManifestProblem(path, title, hint, is_at_key=is_unknown, is_unknown_field=is_unknown)


def _find_metadata_problems(metadata: JsonMapping) -> Iterator[ManifestProblem]:
    name = metadata["name"]
    if reason := names.find_dns_1035_problem(name):
        yield ManifestProblem(("metadata", "name"), f"`{name}` cannot be the name of a PyTorchJob: {reason}")
    namespace = metadata.get("namespace")
    if namespace and not names.is_dns_label(namespace):
        reason = f"it may have at most {names.MAX_LABEL} lower-case letters, digits and `-`"
        title = f"`{namespace}` cannot be the name of a namespace: {reason}"
        yield ManifestProblem(("metadata", "namespace"), title)
    yield from _find_text_problems(metadata, ("metadata",))


def _find_template_problems(spec: JsonMapping) -> Iterator[ManifestProblem]:
    """Yield the problems of the metadata of the pod templates, of which the operator's schema says nothing."""
    for kind, replica in spec.get("pytorchReplicaSpecs", {}).items():
        path: Path = (*_REPLICAS, kind, "template", "metadata")
        metadata = replica.get("template", {}).get("metadata", {})
        if isinstance(metadata, dict):
            yield from _find_text_problems(metadata, path)
        else:
            yield ManifestProblem(path, f"`{join_path(path)}` must be a mapping")


def _find_text_problems(metadata: JsonMapping, parent: Path) -> Iterator[ManifestProblem]:
    for field in ("labels", "annotations"):
        path = (*parent, field)
        if not isinstance(metadata.get(field, {}), dict):
            yield ManifestProblem(path, f"`{join_path(path)}` must map names to text")
        for key, value in _list_items(metadata.get(field)):
            if not isinstance(value, str):
                yield ManifestProblem((*path, key), f"`{join_path((*path, key))}` must be text", "put it in quotes")
            elif not names.is_qualified(key.lower() if field == "annotations" else key):
                yield ManifestProblem((*path, key), f"`{key}` is not a valid key of a label or an annotation", is_at_key=True)
            elif field == "labels" and not names.is_label_value(value):
                title = f"`{value}` is not a valid label value (at most 63 letters, digits, `-`, `_` and `.`)"
                yield ManifestProblem((*path, key), title)


def _list_items(value: Any) -> list[tuple[str, Any]]:
    return list(value.items()) if isinstance(value, dict) else []


def _find_webhook_problems(job: JsonMapping) -> Iterator[ManifestProblem]:
    """Yield what the operator's webhook refuses (v1.9.3, pytorchjob_webhook.go), and names of pods that are too long."""
    replicas, name = job["spec"]["pytorchReplicaSpecs"], job["metadata"]["name"]
    for kind in replicas:
        if kind not in ("Master", "Worker"):
            yield ManifestProblem(
                (*_REPLICAS, kind), f"there is no replica type `{kind}`", "use `Master` and `Worker`", is_at_key=True
            )
    if not replicas.keys() & {"Master", "Worker"}:
        yield ManifestProblem(_REPLICAS, "the job has neither a `Worker` nor a `Master`")
    if "elasticPolicy" in job["spec"] and "Worker" not in replicas:
        yield ManifestProblem(("spec", "elasticPolicy"), "a job with `elasticPolicy` needs a `Worker`", is_at_key=True)
    yield from _find_policy_problems(job["spec"])
    pods = [names.pod_name(name, kind, max(count_replicas(replica) - 1, 0)) for kind, replica in replicas.items()]
    longest = max(pods, key=len, default="")
    if len(longest) > names.MAX_LABEL >= len(name):
        title = f"service `{longest}` would have {len(longest)} characters, the limit is {names.MAX_LABEL}"
        hint = f"use at most {len(name) - len(longest) + names.MAX_LABEL} characters for the job's name"
        yield ManifestProblem(("metadata", "name"), title, hint)
    for kind in replicas.keys() & {"Master", "Worker"}:
        path: Path = (*_REPLICAS, kind)
        count = count_replicas(replicas[kind])
        if kind == "Master" and count != 1:
            hint = "set `replicas: 1`, and add the others to the `Worker`"
            yield ManifestProblem((*path, "replicas"), f"a job has one Master, this has {count}", hint)
        if kind == "Worker" and count < 1:
            advice = "remove the `Worker`: a Master alone is a job" if "Master" in replicas else None
            yield ManifestProblem((*path, "replicas"), f"a `Worker` needs at least 1 replica, this has {count}", advice)
        pod = replicas[kind].get("template", {}).get("spec", {})
        yield from _find_container_problems(pod, kind, path)
        yield from _check_choice((*path, "restartPolicy"), replicas[kind].get("restartPolicy", ""), _RESTART_POLICIES)


def _find_policy_problems(spec: JsonMapping) -> Iterator[ManifestProblem]:
    if "nprocPerNode" in spec and "nProcPerNode" in spec.get("elasticPolicy", {}):
        title = "the operator refuses `elasticPolicy.nProcPerNode` together with `nprocPerNode`"
        yield ManifestProblem(("spec", "elasticPolicy", "nProcPerNode"), title, "remove it, the older name", is_at_key=True)
    for index, pair in enumerate(spec.get("elasticPolicy", {}).get("rdzvConf", ())):
        pair_path: Path = ("spec", "elasticPolicy", "rdzvConf", index)
        for key in ("key", "value"):
            if key not in pair:
                yield ManifestProblem(pair_path, f"`{show_path({'spec': spec}, pair_path)}` lacks `{key}`")
    for path, choices in _CHOICES.items():
        yield from _check_choice(("spec", *path), spec.get(path[0], {}).get(path[1], ""), choices)
    if not _PROCESSES.fullmatch(processes := str(spec.get("nprocPerNode") or "auto")):
        title = f"`nprocPerNode` must be a number, `auto`, `gpu` or `cpu`, not `{processes}`"
        yield ManifestProblem(("spec", "nprocPerNode"), title)
    manager = spec.get("runPolicy", {}).get("managedBy")
    if manager is not None and manager not in _MANAGERS:
        title = f"`managedBy` cannot be `{manager}`"
        yield ManifestProblem(("spec", "runPolicy", "managedBy"), title, f"write one of: {', '.join(_MANAGERS)}")


def _check_choice(path: Path, value: object, choices: Sequence[str]) -> Iterator[ManifestProblem]:
    if value not in (*choices, ""):
        yield ManifestProblem(path, f"`{value}` is not a value of `{path[-1]}`", f"write one of: {', '.join(choices)}")


def _find_container_problems(pod: JsonMapping, kind: str, path: Path) -> Iterator[ManifestProblem]:
    containers = pod.get("containers") or ()
    containers_path: Path = (*path, "template", "spec", "containers")
    if not find_training_container(pod):
        title = f"the {kind} has no container named `{TRAINING_CONTAINER}`, which the operator requires"
        given = [str(container.get("name")) for container in containers]
        hint = (
            f"rename `{given[0]}` to `{TRAINING_CONTAINER}`" if len(given) == 1 else f"name one of them `{TRAINING_CONTAINER}`"
        )
        yield ManifestProblem((*containers_path, 0, "name") if given else containers_path, title, hint if given else None)
    for field in ("containers", "initContainers"):
        for index, container in enumerate(pod.get(field) or ()):
            if not container.get("image"):
                title = f"the container `{container.get('name')}` of the {kind} has no image"
                yield ManifestProblem((*path, "template", "spec", field, index, "image"), title)
