"""Convert a PyTorchJob to a spec. Pure.

This module skips everything that a spec has no field for. `import_job` compiles the spec, compares the result with the
original, and puts the differences into `overrides`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from copy import deepcopy
from types import MappingProxyType
from typing import Any

from kfjob.base.common_types import JsonMapping, JsonObject
from kfjob.base.text import is_whole
from kfjob.convert.conversion import NEW_ID_REASON, Conversion, Note
from kfjob.kinds.pytorchjob import operator_api
from kfjob.kinds.pytorchjob.importer.pod_to_spec import convert_pod_template, convert_trainer_command, find_pull_policy
from kfjob.objects import api_objects, names
from kfjob.spec.master import MasterPod

_ETCD_BACKENDS = ("etcd", "etcd-v2")


def from_pytorchjob(job: JsonMapping, *, own_etcd: bool = False, exact: bool = False) -> Conversion:
    """Return the spec of a PyTorchJob, as far as a spec has fields for it.

    `own_etcd` means that the job's etcd belongs to the job. `exact` means that kfjob rendered the job, so the spec must not add
    any defaults.
    """
    metadata, spec = job["metadata"], job["spec"]
    replicas = {kind: dict(replica or {}) for kind, replica in spec["pytorchReplicaSpecs"].items()}
    templates = {kind: replica.get("template") or {} for kind, replica in replicas.items()}
    elastic_policy, has_master = spec.get("elasticPolicy"), "Master" in replicas
    fields = _convert_job(metadata, spec, replicas, own_etcd=own_etcd)
    first_pod = (templates.get("Worker") or templates.get("Master") or {}).get("spec") or {}
    scheduling = _convert_scheduling(metadata, spec.get("runPolicy") or {}, first_pod)
    pods = {
        kind: convert_pod_template(template, hyperpod="hyperpod" in scheduling, exact=exact, own_etcd=own_etcd and exact)
        | {"restart_policy": replicas[kind].get("restartPolicy") or operator_api.DEFAULT_RESTART_POLICY}
        for kind, template in templates.items()
    }
    _add_metadata(fields, pods, metadata, templates, has_queue="queue" in scheduling)
    if has_master:
        _move_master_port(fields, pods)
    if elastic_policy is None and has_master:
        _move_max_restarts(fields, pods)
    _add_pods(fields, pods, scheduling)
    notes = [*_list_notes(elastic_policy, scheduling, has_master=has_master), *_explain_restart_policies(replicas)]
    return Conversion(spec=fields, notes=tuple(notes))


def _convert_job(metadata: JsonMapping, spec: JsonMapping, replicas: JsonMapping, *, own_etcd: bool) -> JsonObject:
    """Return the fields of the job itself: name, size, limits and rendezvous."""
    elastic_policy, has_master = spec.get("elasticPolicy"), "Master" in replicas
    first_replica = replicas.get("Worker") or replicas["Master"]
    processes = spec.get("nprocPerNode") or (elastic_policy or {}).get("nProcPerNode") or operator_api.DEFAULT_PROCESSES
    fields: JsonObject = {
        "name": metadata["name"],
        "nodes": sum(map(operator_api.count_replicas, replicas.values())),
        "processes_per_node": _convert_number(processes),
        "network_profile": "none",
    }
    if metadata.get("namespace"):
        fields["namespace"] = metadata["namespace"]
    fields["restarts"] = {"policy": first_replica.get("restartPolicy") or operator_api.DEFAULT_RESTART_POLICY, "max": 0}
    fields |= _convert_run_policy(spec.get("runPolicy") or {})
    if elastic_policy is not None:
        fields |= _convert_elastic_policy(elastic_policy, fields, has_master=has_master, own_etcd=own_etcd)
    elif has_master:
        fields["rendezvous"] = {"backend": "static"}
    return fields


def _add_pods(fields: JsonObject, pods: Mapping[str, JsonObject], scheduling: JsonObject) -> None:
    """Add the fields of the Workers' pods (the Master's, without Workers), and what the Master has instead of them."""
    own, *others = (pods[kind] for kind in ("Worker", "Master") if kind in pods)
    if others and (section := _find_differences(others[0], own)):
        fields["master"] = section
    else:
        own = convert_trainer_command(own)
    placement = scheduling | own.pop("scheduling", {})
    del own["restart_policy"]
    fields |= own
    if placement:
        fields["scheduling"] = placement


_NOTHING: JsonMapping = MappingProxyType(
    {
        **{name: {} for name in ("env", "resources", "scheduling", "pod")},
        **{name: [] for name in ("env_from", "volumes", "image_pull_secrets", "command", "args")},
        "shared_memory": 0,
        "service_account": "default",
    }
)
"""How the Master's section says that the Master has nothing of what the Workers have."""


def _find_differences(master: JsonMapping, worker: JsonMapping) -> JsonObject:
    """Return what the Master has instead of the Workers, by the fields of the spec."""
    nothing = {**_NOTHING, "image_pull_policy": find_pull_policy(str(master.get("image", "")))}
    fields = [field for field in MasterPod.model_fields if master.get(field) != worker.get(field)]
    return {field: deepcopy(master.get(field, nothing.get(field))) for field in fields}


def _list_notes(elastic_policy: JsonMapping | None, scheduling: JsonMapping, *, has_master: bool) -> tuple[Note, ...]:
    notes = []
    if elastic_policy is None and not has_master:
        reason = "without it and without a Master the operator sets no rendezvous; the spec uses c10d on worker 0"
        notes.append(Note(item="spec.elasticPolicy is missing", reason=reason))
    if elastic_policy and elastic_policy.get("rdzvId"):
        notes.append(Note(item=f"spec.elasticPolicy.rdzvId: {elastic_policy['rdzvId']}", reason=NEW_ID_REASON))
    if "gang" in scheduling and "scheduler" not in scheduling:
        reason = f"read as {scheduling['gang']['scheduler']}; the operator's own options decide which scheduler it is"
        notes.append(Note(item="spec.runPolicy.schedulingPolicy", reason=reason))
    return tuple(notes)


def _explain_restart_policies(replicas: JsonMapping) -> Iterator[Note]:
    for kind, replica in replicas.items():
        if policy := ((replica.get("template") or {}).get("spec") or {}).get("restartPolicy"):
            item = f"spec.pytorchReplicaSpecs.{kind}.template.spec.restartPolicy: {policy}"
            reason = "left out: the operator replaces it by the restart policy of the replica"
            yield Note(item=item, reason=reason)


def _move_master_port(fields: JsonObject, pods: Mapping[str, JsonObject]) -> None:
    """Move the Master's port, a container port with a fixed name, to the field `rendezvous`, unless it is the default."""
    if fields["rendezvous"]["backend"] in _ETCD_BACKENDS:  # its agents meet elsewhere
        return
    for pod in (pods[kind] for kind in ("Worker", "Master") if kind in pods):
        ports = pod.get("pod", {}).get("ports", [])
        own = [p for p in ports if p.get("name") == names.RENDEZVOUS_PORT_NAME and p["port"] != names.RENDEZVOUS_PORT]
        if own:
            fields["rendezvous"]["port"] = own[-1]["port"]
            pod["pod"]["ports"] = [port for port in ports if port not in own]


def _move_max_restarts(fields: JsonObject, pods: Mapping[str, JsonObject]) -> None:
    """Move torchrun's variable for the restarts of a static job to the field `restarts.max`.

    It stays in `env` if the value of another variable names it, because its place in the list has a meaning then.
    """
    environments = [pod.get("env", {}) for pod in pods.values()]
    first, *others = (env.get("PET_MAX_RESTARTS") for env in environments)
    is_named = any("$(PET_MAX_RESTARTS)" in str(value) for env in environments for value in env.values())
    if not is_named and isinstance(first, str) and first.isdecimal() and all(value == first for value in others):
        fields["restarts"]["max"] = int(first)
        for pod in pods.values():
            del pod["env"]["PET_MAX_RESTARTS"]


def _convert_number(text: Any) -> Any:
    return int(text) if is_whole(str(text)) else text


_IN_FIELDS = frozenset(
    {
        api_objects.ANNOTATION_HYPERPOD_AUTO_RESUME,
        api_objects.ANNOTATION_HYPERPOD_RETRIES,
        api_objects.ANNOTATION_LAST_APPLIED,
        *api_objects.KEYS_OF_KFJOB,
    }
)
"""Labels and annotations of a job that fields of the spec hold, or that belong to a launch."""


def _add_metadata(
    fields: JsonObject,
    pods: Mapping[str, JsonObject],
    job: JsonMapping,
    templates: Mapping[str, JsonMapping],
    *,
    has_queue: bool,
) -> None:
    """Add the labels and annotations of the job and all of its pods, of the job alone, and of the pods of a role alone."""
    in_fields = _IN_FIELDS | ({api_objects.LABEL_KUEUE_QUEUE, api_objects.LABEL_KUEUE_PRIORITY} if has_queue else set())
    for part in ("labels", "annotations"):
        job_values = job.get(part) or {}
        pod_values = {kind: (template.get("metadata") or {}).get(part) or {} for kind, template in templates.items()}
        shared = {key for key in job_values if all(values.get(key) == job_values[key] for values in pod_values.values())}
        parts = {
            part: {key: job_values[key] for key in job_values if key in shared - api_objects.KEYS_OF_KFJOB},
            f"job_{part}": {key: job_values[key] for key in job_values if key not in shared | in_fields},
        }
        fields |= {name: values for name, values in parts.items() if values}
        for kind, values in pod_values.items():
            if own := {key: values[key] for key in values if key not in shared | api_objects.KEYS_OF_KFJOB}:
                pods[kind]["pod"] = pods[kind].get("pod", {}) | {part: own}


def _convert_run_policy(policy: JsonMapping) -> JsonObject:
    values = {
        "clean_pods": policy.get("cleanPodPolicy"),
        "deadline": policy.get("activeDeadlineSeconds"),
        "backoff_limit": policy.get("backoffLimit"),
        "ttl": policy.get("ttlSecondsAfterFinished"),
        "suspend": policy.get("suspend"),
    }
    fields = {key: value for key, value in values.items() if value is not None}
    return {"run": fields} if fields else {}


def _convert_elastic_policy(policy: JsonMapping, job: JsonMapping, *, has_master: bool, own_etcd: bool) -> JsonObject:
    nodes = job["nodes"]
    min_nodes, max_nodes = policy.get("minReplicas", nodes), policy.get("maxReplicas", nodes)
    fields: JsonObject = {"restarts": job["restarts"] | {"max": policy.get("maxRestarts", 0)}}
    if (min_nodes, max_nodes) != (nodes, nodes) or policy.get("metrics"):
        fields["elastic"] = {"min": min_nodes, "max": max_nodes}
        if policy.get("metrics"):
            fields["elastic"]["metrics"] = policy["metrics"]
    if has_master:
        fields["master"] = True
    backend = policy.get("rdzvBackend") or "c10d"
    rendezvous: JsonObject = {"backend": backend}
    port = policy.get("rdzvPort", names.RENDEZVOUS_PORT)
    if backend in _ETCD_BACKENDS:
        if not own_etcd and policy.get("rdzvHost"):
            rendezvous["endpoint"] = f"{policy['rdzvHost']}:{port}"
    elif port != names.RENDEZVOUS_PORT:
        rendezvous["port"] = port
    if conf := {pair["key"]: pair["value"] for pair in policy.get("rdzvConf") or ()}:
        rendezvous["conf"] = conf
    return fields | {"rendezvous": rendezvous}


def _convert_scheduling(metadata: JsonMapping, policy: JsonMapping, pod: JsonMapping) -> JsonObject:
    """Return the scheduling fields of the job itself: Kueue, HyperPod, the gang."""
    labels, annotations = metadata.get("labels") or {}, metadata.get("annotations") or {}
    fields: JsonObject = {}
    if api_objects.LABEL_KUEUE_QUEUE in labels:
        fields["queue"] = labels[api_objects.LABEL_KUEUE_QUEUE]
        if api_objects.LABEL_KUEUE_PRIORITY in labels:
            fields["queue_priority"] = labels[api_objects.LABEL_KUEUE_PRIORITY]
    if api_objects.ANNOTATION_HYPERPOD_AUTO_RESUME in annotations:
        fields["hyperpod"] = {"auto_resume": annotations[api_objects.ANNOTATION_HYPERPOD_AUTO_RESUME] == "true"}
        if api_objects.ANNOTATION_HYPERPOD_RETRIES in annotations:
            fields["hyperpod"]["max_retries"] = _convert_number(annotations[api_objects.ANNOTATION_HYPERPOD_RETRIES])
        if api_objects.LABEL_HYPERPOD_HEALTH not in (pod.get("nodeSelector") or {}):
            fields["hyperpod"]["healthy_nodes"] = False
    if gang := policy.get("schedulingPolicy"):
        values = {
            "scheduler": _find_gang_scheduler(gang, pod),
            "min_available": gang.get("minAvailable"),
            "queue": gang.get("queue"),
            "priority_class": gang.get("priorityClass"),
            "timeout": gang.get("scheduleTimeoutSeconds"),
        }
        fields["gang"] = {key: value for key, value in values.items() if value is not None}
    return fields


def _find_gang_scheduler(gang: JsonMapping, pod: JsonMapping) -> str:
    """Return the gang scheduler: the one that the pods name; else only Volcano has queues."""
    if scheduler := pod.get("schedulerName"):
        return "volcano" if scheduler == "volcano" else "scheduler-plugins"
    return "volcano" if gang.get("queue") else "scheduler-plugins"
