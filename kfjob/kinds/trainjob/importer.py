"""Make PyTorchJobs of the TrainJobs in a manifest, so that they can be imported in the same way. Pure.

A TrainJob says little itself: its pods are those of a TrainingRuntime or a ClusterTrainingRuntime, which is read if the
manifest has it.

Sources: Kubeflow Trainer v2.3 (pkg/apis/trainer/v1alpha1, pkg/runtime/framework/plugins/torch) and its KEP 2170.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from copy import deepcopy
from typing import Any

from kfjob.base.common_types import JsonMapping, JsonObject
from kfjob.base.errors import Problem, SpecError
from kfjob.base.text import is_whole, plural
from kfjob.convert.conversion import Note
from kfjob.joblog.events import TRAINING_CONTAINER
from kfjob.kinds.trainjob.manifest import MAX_BACKOFF
from kfjob.kinds.trainjob.trainer_api import (
    ANCESTOR,
    ANNOTATION_VOLCANO_QUEUE,
    CLUSTER_RUNTIME_KIND,
    GANG_SCHEDULERS,
    KIND,
    LABEL_ANCESTOR,
    NODE,
    PATCH_MANAGER,
    RUNTIME_KIND,
    TRAINER_FIELDS,
)

_RUNTIMES = (RUNTIME_KIND, CLUSTER_RUNTIME_KIND)
_CONTAINER_FIELDS = {field: own for field, own in TRAINER_FIELDS.items() if field != "env"}
"""Fields of `trainer`, and those of the container that they replace."""
_RUN_POLICY = ("suspend", "activeDeadlineSeconds", "ttlSecondsAfterFinished")
_AGENT_VARIABLES = (
    *("PET_NNODES", "PET_NPROC_PER_NODE", "PET_NODE_RANK", "PET_MAX_RESTARTS", "PET_MASTER_ADDR", "PET_MASTER_PORT"),
    *("PET_RDZV_BACKEND", "PET_RDZV_ENDPOINT", "PET_RDZV_ID", "PET_RDZV_CONF"),
    *("MASTER_ADDR", "MASTER_PORT", "RANK", "WORLD_SIZE", "PYTHONUNBUFFERED"),
)
"""Variables that kfjob sets for each launch, or in every job."""
_REASONS = {
    "initializer": "left out: a spec has no step that fetches data and models; let the program or an init container do it",
    "managedBy": "left out: the controller that starts a job is that of its queue",
    "podTemplateOverrides": "left out: use the fields of the spec for pods and scheduling",
    "runtimePatches": "left out: use the fields of the spec for pods and scheduling",
    "labels": "left out: `job_labels` and `labels` of a spec label the job and its pods",
    "annotations": "left out: `job_annotations` and `annotations` of a spec annotate the job and its pods",
}
_JOB_FIELDS = frozenset({"template", "backoffLimit", "parallelism", "completions", "completionMode"})
"""Fields of the Job in a runtime that a spec has, or that follow from its nodes."""
_UNKNOWN = "left out: kfjob does not know what it means"


def convert_trainjobs(
    objects: Sequence[JsonObject], name: str | None = None
) -> tuple[list[JsonObject], JsonObject, list[Note]]:
    """Return the objects with a PyTorchJob in place of the TrainJob, what only a TrainJob's spec has, and notes about the rest.

    Of several TrainJobs the one of this name is converted; the others are left out, and so are the runtimes.

    Raises:
        SpecError: there is not exactly one such TrainJob, or it is not valid.
    """
    jobs = [item for item in objects if item.get("kind") == KIND]
    chosen = [job for job in jobs if name in (None, _name(job))]
    if not jobs:
        kinds = ", ".join(dict.fromkeys(str(item.get("kind")) for item in objects))
        raise SpecError([Problem(title=f"this file has no {KIND}", detail=f"it has: {kinds}" if kinds else None)])
    if len(chosen) != 1:
        names = ", ".join(f"`{_name(job)}`" for job in jobs)
        hint = "`--name NAME` chooses one"
        raise SpecError([Problem(title=f"this file has {plural(len(jobs), KIND)}: {names}", hint=hint)])
    notes: list[Note] = []
    others = [item for item in objects if item.get("kind") not in (KIND, *_RUNTIMES)]
    spec = _read_mapping(chosen[0], "spec")
    reference = _read_mapping(spec, "runtimeRef")
    if reference.get("kind") not in (None, *_RUNTIMES):
        title = f"kfjob cannot read a runtime of the kind `{reference['kind']}`"
        raise SpecError([Problem(title=title, path="spec.runtimeRef.kind", hint=f"it reads {' and '.join(_RUNTIMES)}")])
    patch, runtime = _take_own_patch(spec), _find_runtime(objects, reference)
    fields: JsonObject = {"target": KIND.lower()}
    if (patch or runtime is None) and reference.get("name"):
        prefix = f"{RUNTIME_KIND.lower()}/" if reference.get("kind") == RUNTIME_KIND else ""
        fields["runtime"] = f"{prefix}{reference['name']}"
        reason = f"stays the job's runtime; `kubectl get {_name_resource(reference)} -o yaml` has what it adds to the pods"
        notes.append(Note(item=f"spec.runtimeRef.name: {reference['name']}", reason=reason))
    return [_convert(chosen[0], patch or runtime, notes), *others], fields, notes


def _convert(job: JsonObject, runtime: JsonObject | None, notes: list[Note]) -> JsonObject:
    """Return the PyTorchJob of a TrainJob with the pods of a runtime, or of the patch of one."""
    spec = _read_mapping(job, "spec")
    trainer, reference = _read_mapping(spec, "trainer"), _read_mapping(spec, "runtimeRef")
    template, job_spec = _read_template(runtime, notes)
    container = _find_container(template)
    container |= {own: deepcopy(trainer[field]) for field, own in _CONTAINER_FIELDS.items() if trainer.get(field) is not None}
    _merge_env(container, trainer.get("env"))
    agent = _take_agent_variables(container)
    if not container.get("image"):
        hint = f"add the runtime to the file: `kubectl get {_name_resource(reference)} -o yaml`"
        title = f"{KIND} `{_name(job)}` names no image: its runtime `{reference.get('name')}` does"
        raise SpecError([Problem(title=title, path="spec.trainer.image", hint=hint)])
    policy = _read_mapping(_read_mapping(runtime or {}, "spec"), "mlPolicy")
    notes += _list_lost(spec, policy)
    nodes = trainer.get("numNodes") or policy.get("numNodes") or 1
    processes = trainer.get("numProcPerNode") or _read_mapping(policy, "torch").get("numProcPerNode") or "auto"
    worker = {"replicas": nodes, "restartPolicy": template["spec"].pop("restartPolicy", "Never"), "template": template}
    processes = agent.get("PET_NPROC_PER_NODE") or processes
    pytorchjob: JsonObject = {"nprocPerNode": str(processes), "pytorchReplicaSpecs": {"Worker": worker}}
    pytorchjob["elasticPolicy"] = _make_policy(_name(job), nodes, agent)
    run_policy = {field: spec[field] for field in _RUN_POLICY if spec.get(field) is not None}
    limit = job_spec.get("backoffLimit")
    if worker["restartPolicy"] != "Never" and limit not in (None, MAX_BACKOFF):
        run_policy["backoffLimit"] = limit
    pytorchjob["runPolicy"] = {"cleanPodPolicy": "None"} | run_policy | _take_gang(runtime or {}, template["spec"], nodes)
    return {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": job.get("metadata"), "spec": pytorchjob}


def _find_runtime(objects: Sequence[JsonObject], reference: JsonMapping) -> JsonObject | None:
    kind = reference.get("kind") or CLUSTER_RUNTIME_KIND
    return next((item for item in objects if item.get("kind") == kind and _name(item) == reference.get("name")), None)


def _take_own_patch(spec: JsonObject) -> JsonObject | None:
    """Remove kfjob's patch of a runtime from a job, and return it in the form of a runtime."""
    patches = spec.get("runtimePatches")
    own = (
        [item for item in patches if isinstance(item, dict) and item.get("manager") == PATCH_MANAGER]
        if isinstance(patches, list)
        else []
    )
    if not own:
        return None
    spec["runtimePatches"] = [item for item in patches or () if item not in own]
    return {"spec": _read_mapping(own[0], "trainingRuntimeSpec")}


def _take_gang(runtime: JsonMapping, pod: JsonObject, nodes: Any) -> JsonObject:
    """Return the scheduling policy of a PyTorchJob whose pods start together, as the runtime says.

    The pods then need no scheduler of their own: on a PyTorchJob the operator adds it.
    """
    spec = _read_mapping(runtime, "spec")
    policy = _read_mapping(spec, "podGroupPolicy")
    if not policy:
        return {}
    gang: JsonObject = {"minAvailable": nodes}
    if (timeout := _read_mapping(policy, "coscheduling").get("scheduleTimeoutSeconds")) is not None:
        gang["scheduleTimeoutSeconds"] = timeout
    metadata = _read_mapping(_read_mapping(spec, "template"), "metadata")
    if queue := _read_mapping(metadata, "annotations").get(ANNOTATION_VOLCANO_QUEUE):
        gang["queue"] = queue
    scheduler = "scheduler-plugins" if "coscheduling" in policy else "volcano" if queue else ""
    if scheduler and pod.get("schedulerName") == GANG_SCHEDULERS[scheduler]:
        del pod["schedulerName"]
    return {"schedulingPolicy": gang}


def _read_template(runtime: JsonObject | None, notes: list[Note]) -> tuple[JsonObject, JsonObject]:
    """Return the pod template of the runtime's nodes, with a training container, and the spec of the Job around it."""
    outer = _read_mapping(runtime or {}, "spec")
    spec = _read_mapping(_read_mapping(outer, "template"), "spec")
    listed = spec.get("replicatedJobs")
    jobs = [item for item in listed if isinstance(item, dict)] if isinstance(listed, list) else []
    nodes = [item for item in jobs if item.get("name") == NODE or _has_ancestor(item)]
    for other in jobs:
        if other not in nodes[:1]:
            reason = "left out: a spec has one kind of pods"
            notes.append(Note(item=f"{_name(runtime or {})}: replicatedJobs[{other.get('name')}]", reason=reason))
    node = _read_mapping(_read_mapping(nodes[0], "template"), "spec") if nodes else {}
    volcano = _read_mapping(_read_mapping(outer, "podGroupPolicy"), "volcano")
    lost = {"template.spec": spec.keys() - {"replicatedJobs"}, f"{NODE}.template.spec": node.keys() - _JOB_FIELDS}
    for place, keys in (lost | {"podGroupPolicy.volcano": volcano.keys()}).items():
        notes += [
            Note(item=f"{_name(runtime or {})}: {place}.{key}", reason="left out: no field of a spec has it")
            for key in sorted(keys)
        ]
    template = deepcopy(_read_mapping(node, "template"))
    pod = template["spec"] = _read_mapping(template, "spec")
    pod["containers"] = pod.get("containers") or [{"name": NODE}]
    if not isinstance(pod["containers"], list) or not all(isinstance(item, dict) for item in pod["containers"]):
        raise SpecError([Problem(title="`containers` of a runtime must be a list of mappings", path="containers")])
    _find_container(template)["name"] = TRAINING_CONTAINER
    return template, node


def _has_ancestor(job: JsonMapping) -> bool:
    labels = _read_mapping(_read_mapping(_read_mapping(job, "template"), "metadata"), "labels")
    return bool(labels.get(LABEL_ANCESTOR) == ANCESTOR)


def _find_container(template: JsonObject) -> JsonObject:
    """Return the container that trains: the one of this name, else the first."""
    containers: list[JsonObject] = template["spec"]["containers"]
    named = (item for item in containers if item.get("name") in (NODE, TRAINING_CONTAINER))
    return next(named, containers[0])


def _merge_env(container: JsonObject, env: Any) -> None:
    """Add the variables of `trainer`, which replace those of the same name."""
    if isinstance(env, list) and env:
        names = [item.get("name") for item in env if isinstance(item, dict)]
        own = container.get("env") if isinstance(container.get("env"), list) else []
        container["env"] = [item for item in own or () if not isinstance(item, dict) or item.get("name") not in names]
        container["env"] += deepcopy(env)


def _take_agent_variables(container: JsonObject) -> dict[str, str]:
    """Remove the variables with which a job starts torchrun's agents, and return their values."""
    env = container.get("env")
    own = (
        [item for item in env if isinstance(item, dict) and item.get("name") in _AGENT_VARIABLES]
        if isinstance(env, list)
        else []
    )
    if own:
        container["env"] = [item for item in container["env"] if item not in own]
    return {str(item["name"]): str(item.get("value", "")) for item in own}


def _make_policy(job: str, nodes: Any, agent: JsonMapping) -> JsonObject:
    """Return the elastic policy of a PyTorchJob whose agents get these variables."""
    least, _, most = agent.get("PET_NNODES", "").partition(":")
    policy: JsonObject = {
        "minReplicas": int(least) if is_whole(least) else nodes,
        "maxReplicas": int(most) if is_whole(most) else nodes,
        "rdzvBackend": agent.get("PET_RDZV_BACKEND") or "c10d",
    }
    if restarts := agent.get("PET_MAX_RESTARTS"):
        policy["maxRestarts"] = int(restarts) if is_whole(restarts) else restarts
    if identifier := agent.get("PET_RDZV_ID"):
        policy["rdzvId"] = identifier
    if conf := agent.get("PET_RDZV_CONF"):
        pairs = (pair.partition("=") for pair in conf.split(","))
        policy["rdzvConf"] = [{"key": key, "value": value} for key, _, value in pairs]
    host, _, port = agent.get("PET_RDZV_ENDPOINT", "").rpartition(":")
    if host and is_whole(port):
        is_own = host.partition(".")[0] == f"{job}-{NODE}-0-0"
        policy |= {"rdzvHost": f"{job}-worker-0" if is_own else host, "rdzvPort": int(port)}
    return policy


def _list_lost(spec: JsonMapping, policy: JsonMapping) -> Iterator[Note]:
    for field, value in spec.items():
        if field not in ("trainer", "runtimeRef", *_RUN_POLICY) and value not in (None, {}, []):
            yield Note(item=f"spec.{field}", reason=_REASONS.get(field, _UNKNOWN))
    for field, value in _read_mapping(spec, "trainer").items():
        if field not in (*_CONTAINER_FIELDS, "env", "numNodes", "numProcPerNode"):
            yield Note(item=f"spec.trainer.{field}: {json.dumps(value)}", reason=_UNKNOWN)
    for field in policy:
        if field not in ("numNodes", "torch"):
            yield Note(item=f"mlPolicy.{field}", reason="left out: kfjob starts torchrun, and no other launcher of a runtime")


def _name(item: JsonMapping) -> str:
    return str(_read_mapping(item, "metadata").get("name") or "")


def _name_resource(reference: JsonMapping) -> str:
    return f"{str(reference.get('kind') or CLUSTER_RUNTIME_KIND).lower()} {reference.get('name')}"


def _read_mapping(value: JsonMapping, field: str) -> JsonObject:
    """Return a field that must be a mapping; {} without one."""
    content = value.get(field)
    if content is not None and not isinstance(content, dict):
        raise SpecError([Problem(title=f"`{field}` of a {KIND} or its runtime must be a mapping", path=field)])
    return content or {}
