"""Findings about a PyTorchJob that a user wrote: the rules name fields of a spec, and these are the manifest's fields."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, NamedTuple

from kfjob.base.common_types import JsonMapping
from kfjob.base.errors import Problem
from kfjob.joblog.events import TRAINING_CONTAINER
from kfjob.objects import api_objects
from kfjob.validation.field_paths import Path, join_path, parse_path


class _Field(NamedTuple):
    part: str  # of the job: where the path begins
    path: Path = ()
    name: str = ""  # in texts; "": the last step of the path


_FIELDS: Mapping[str, _Field] = MappingProxyType(
    {
        "name": _Field("metadata", ("name",)),
        "namespace": _Field("metadata", ("namespace",)),
        "labels": _Field("metadata", ("labels",)),
        "annotations": _Field("metadata", ("annotations",)),
        "job_labels": _Field("metadata", ("labels",)),
        "job_annotations": _Field("metadata", ("annotations",)),
        "restart_policy": _Field("replica", ("restartPolicy",)),
        "nodes": _Field("replica", ("replicas",)),
        "processes_per_node": _Field("spec", ("nprocPerNode",)),
        "master": _Field("spec", ("pytorchReplicaSpecs", "Master")),
        "master.restart_policy": _Field("replica", ("restartPolicy",)),
        "image": _Field("container", ("image",)),
        "image_pull_policy": _Field("container", ("imagePullPolicy",)),
        "image_pull_secrets": _Field("pod", ("imagePullSecrets",)),
        "service_account": _Field("pod", ("serviceAccountName",)),
        "command": _Field("container", ("command",)),
        "args": _Field("container", ("args",)),
        "launcher": _Field("container", ("command",)),
        "torchrun": _Field("container", ("command",)),
        "train": _Field("container", ("command",)),
        "env": _Field("container", ("env",)),
        "env_from": _Field("container", ("envFrom",)),
        "network_profile": _Field("container", ("env",)),
        "instance": _Field("pod", ("nodeSelector",)),
        "resources": _Field("container", ("resources",)),
        "resources.gpus": _Field("container", ("resources", "limits", api_objects.GPU_RESOURCE)),
        "resources.efa": _Field("container", ("resources", "limits", api_objects.EFA_RESOURCE)),
        "resources.neuron": _Field("container", ("resources", "limits", api_objects.NEURON_RESOURCE)),
        "resources.cpu": _Field("container", ("resources", "limits", "cpu"), "resources.limits.cpu"),
        "resources.memory": _Field("container", ("resources", "limits", "memory"), "resources.limits.memory"),
        "resources.requests": _Field("container", ("resources", "requests"), "resources.requests"),
        "resources.limits": _Field("container", ("resources", "limits"), "resources.limits"),
        "volumes": _Field("pod", ("volumes",)),
        "shared_memory": _Field("pod", ("volumes",)),
        "restarts": _Field("replica", ("restartPolicy",)),
        "restarts.policy": _Field("replica", ("restartPolicy",)),
        "restarts.max": _Field("elastic", ("maxRestarts",)),
        "elastic": _Field("elastic", (), "elasticPolicy"),
        "elastic.min": _Field("elastic", ("minReplicas",)),
        "elastic.max": _Field("elastic", ("maxReplicas",)),
        "elastic.metrics": _Field("elastic", ("metrics",)),
        "rendezvous": _Field("elastic", (), "elasticPolicy"),
        "rendezvous.id": _Field("elastic", ("rdzvId",)),
        "rendezvous.backend": _Field("elastic", ("rdzvBackend",)),
        "rendezvous.endpoint": _Field("elastic", ("rdzvHost",)),
        "rendezvous.port": _Field("elastic", ("rdzvPort",)),
        "rendezvous.conf": _Field("elastic", ("rdzvConf",)),
        "rendezvous.local_addr": _Field("container", ("env",), "env.PET_LOCAL_ADDR"),
        "run": _Field("run", (), "runPolicy"),
        "run.clean_pods": _Field("run", ("cleanPodPolicy",)),
        "run.deadline": _Field("run", ("activeDeadlineSeconds",)),
        "run.backoff_limit": _Field("run", ("backoffLimit",)),
        "run.ttl": _Field("run", ("ttlSecondsAfterFinished",)),
        "run.suspend": _Field("run", ("suspend",)),
        "scheduling": _Field("pod"),
        "scheduling.gang": _Field("run", ("schedulingPolicy",)),
        "scheduling.gang.min_available": _Field("run", ("schedulingPolicy", "minAvailable")),
        "scheduling.queue": _Field("metadata", ("labels", api_objects.LABEL_KUEUE_QUEUE)),
        "scheduling.topology": _Field("template", ("metadata", "annotations")),
        "scheduling.hyperpod": _Field("metadata", ("annotations",)),
        "scheduling.scheduler": _Field("pod", ("schedulerName",)),
        "scheduling.node_selector": _Field("pod", ("nodeSelector",)),
        "scheduling.affinity": _Field("pod", ("affinity",)),
        "scheduling.tolerations": _Field("pod", ("tolerations",)),
        "scheduling.spread": _Field("pod", ("topologySpreadConstraints",)),
        "scheduling.priority_class": _Field("pod", ("priorityClassName",)),
        "scheduling.evictable": _Field("template", ("metadata", "annotations")),
        "scheduling.istio_sidecar": _Field("template", ("metadata", "labels", api_objects.LABEL_ISTIO_INJECT)),
        "pod": _Field("pod"),
        "pod.labels": _Field("template", ("metadata", "labels")),
        "pod.annotations": _Field("template", ("metadata", "annotations")),
        "pod.lifecycle": _Field("container", ("lifecycle",)),
        "pod.grace": _Field("pod", ("terminationGracePeriodSeconds",)),
        "pod.host_network": _Field("pod", ("hostNetwork",)),
        "pod.host_ipc": _Field("pod", ("hostIPC",)),
        "pod.working_dir": _Field("container", ("workingDir",)),
        "pod.ports": _Field("container", ("ports",)),
        "pod.init_containers": _Field("pod", ("initContainers",)),
        "overrides": _Field("template"),
    }
)
"""The manifest's counterpart of each field of a spec; a field that is not here has its parent's."""

_SAME_FORM = frozenset(
    (
        *("labels", "annotations", "pod.labels", "pod.annotations", "pod.lifecycle", "pod.init_containers", "elastic.metrics"),
        *(f"scheduling.{field}" for field in ("affinity", "node_selector", "spread", "tolerations")),
    )
)
"""Fields whose parts are those of the manifest's field."""
_WITHOUT_COUNTERPART = frozenset(("runtime", "target", "code", "lint", "progress", "version", "watchdog", "webhooks"))
_NAME = re.compile(r"`(?P<path>[a-z][a-z_]*(?:\.[a-zA-Z_][a-zA-Z0-9_]*)*)(?P<value>: [^`]*)?`")
_NESTED = re.compile(r": \{(?P<field>[a-z_]+): (?P<value>[^`]*)\}")
_IGNORE = re.compile(r"`lint: \{ignore: \[([a-z0-9-]+)\]\}`")


def use_manifest_names(problem: Problem) -> Problem:
    """Return a lint finding whose texts name the manifest's fields.

    A hint that needs a field that only specs have is left out.
    """
    hint = _translate(problem.hint) if problem.hint else None
    return replace(problem, title=_translate(problem.title) or problem.title, hint=hint)


def find_manifest_path(path: str, job: JsonMapping) -> Path:
    """Return the path in a PyTorchJob that stands for the path of a spec; `()` if there is none."""
    steps, kind = parse_path(path), ""
    if steps[:1] == ("overrides",) and len(steps) > 1:
        return _nearest(job, (), steps[1:])
    if steps[:1] == ("master",) and len(steps) > 1:
        steps, kind = steps[1:], "Master"
    for end in range(len(steps), 0, -1):
        if field := _FIELDS.get(join_path(steps[:end])):
            start = _find_parts(job, kind)[field.part]
            found: Path = (*start, *field.path)
            container = _get(job, start) if field.part == "container" else None
            if field.path == ("command",) and isinstance(container, dict) and "command" not in container:
                return (*start, "args") if "args" in container else start
            if field.path == ("env",) and end < len(steps):
                return _find_variable(job, found, str(steps[end]))
            return _nearest(job, found, steps[end:] if join_path(steps[:end]) in _SAME_FORM else ())
    return ()


def _find_parts(job: JsonMapping, kind: str) -> dict[str, Path]:
    """Return the path of each part of the job. Of two replica types, it is the Worker's, as in the spec, or that of `kind`."""
    replicas = job["spec"].get("pytorchReplicaSpecs") or {}
    replica: Path = ("spec", "pytorchReplicaSpecs", kind or ("Worker" if "Worker" in replicas else "Master"))
    pod: Path = (*replica, "template", "spec")
    containers = _get(job, (*pod, "containers")) or ()
    names = [container.get("name") for container in containers]
    index = names.index(TRAINING_CONTAINER) if TRAINING_CONTAINER in names else 0
    return {
        "metadata": ("metadata",),
        "spec": ("spec",),
        "run": ("spec", "runPolicy"),
        "elastic": ("spec", "elasticPolicy"),
        "replica": replica,
        "template": (*replica, "template"),
        "pod": pod,
        "container": (*pod, "containers", index),
    }


def _find_variable(job: JsonMapping, path: Path, name: str) -> Path:
    for index, variable in enumerate(_get(job, path) or ()):
        if variable.get("name") == name:
            return (*path, index, "value") if "value" in variable else (*path, index)
    return _nearest(job, path)


def _nearest(job: JsonMapping, path: Path, rest: Path = ()) -> Path:
    """Return the path, with the rest as far as the job has it; a path that the job has not is that of its nearest parent."""
    while path and _get(job, path) is None:
        path, rest = path[:-1], ()
    for step in rest:
        if _get(job, (*path, step)) is None:
            break
        path = (*path, step)
    return path


def _get(value: Any, path: Path) -> Any:
    for step in path:
        if isinstance(value, dict):
            value = value.get(step)
        elif isinstance(value, list) and isinstance(step, int) and step < len(value):
            value = value[step]
        else:
            return None
    return value


def _translate(text: str) -> str | None:
    """Return the text with the manifest's names of fields; None if a manifest has no such field."""
    text = _IGNORE.sub(r"`--ignore \1`", text)
    if any(match["path"].partition(".")[0] in _WITHOUT_COUNTERPART for match in _NAME.finditer(text)):
        return None
    return _NAME.sub(_translate_name, text)


def _translate_name(match: re.Match[str]) -> str:
    path, value = match["path"], match["value"] or ""
    if (nested := _NESTED.fullmatch(value)) and f"{path}.{nested['field']}" in _FIELDS:
        path, value = f"{path}.{nested['field']}", f": {nested['value']}"
    field = _FIELDS.get(path)
    if field is None or not (name := field.name or (str(field.path[-1]) if field.path else "")):
        return match[0]
    return f"`{name}{value}`"
