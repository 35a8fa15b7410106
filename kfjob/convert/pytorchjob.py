"""A PyTorchJob -> a spec. Pure.

What a spec has no field for is not looked at here: `api.convert` compiles what came out, compares it with the original, and
puts the rest into `overrides`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kfjob.convert import launchers
from kfjob.convert.conversion import Conversion, Note
from kfjob.convert.pod import convert_pod_template
from kfjob.spec import api_objects, names

Object = dict[str, Any]

OPERATORS_RESTART_POLICY = "OnFailure"
OPERATORS_PROCESSES = "auto"
"""What the operator takes where nothing is said (v1.9.3, pytorch_defaults.go)."""


def from_pytorchjob(job: Mapping[str, Any], *, own_etcd: bool = False, exact: bool = False) -> Conversion:
    """The spec of a PyTorchJob, as far as a spec has fields for it.

    `own_etcd`: the etcd that it meets in belongs to it. `exact`: kfjob rendered it, and what it left out was meant.
    """
    metadata, spec = job["metadata"], job["spec"]
    replicas = {kind: dict(one or {}) for kind, one in spec["pytorchReplicaSpecs"].items()}
    first = replicas.get("Worker") or replicas["Master"]
    has_master, elastic = "Master" in replicas, spec.get("elasticPolicy")
    nodes = sum(one.get("replicas", 1) for one in replicas.values())
    notes: list[Note] = []
    template = first.get("template") or {}
    made: Object = {"name": metadata["name"], "nodes": nodes}
    made["processes_per_node"] = _number(spec.get("nprocPerNode", OPERATORS_PROCESSES))
    if metadata.get("namespace"):
        made["namespace"] = metadata["namespace"]
    made |= _metadata(metadata, template.get("metadata") or {})
    made["restarts"] = {"policy": first.get("restartPolicy", OPERATORS_RESTART_POLICY)}
    made |= _run(spec.get("runPolicy") or {})
    if elastic is not None:
        made |= _elastic(elastic, made, notes, has_master=has_master, own_etcd=own_etcd)
    elif has_master:
        made["rendezvous"] = {"backend": "static"}
    else:
        why = "without it and without a Master the operator tells no pod where to meet; the spec meets at worker 0 (c10d)"
        notes.append(Note(what="spec.elasticPolicy is missing", why=why))
    scheduling = _scheduling(metadata, spec.get("runPolicy") or {}, notes)
    pod = convert_pod_template(template, job=metadata["name"], hyperpod="hyperpod" in scheduling, exact=exact)
    scheduling |= pod.pop("scheduling", {})
    made |= pod
    if has_master:
        _take_port(made)
    if elastic is None and has_master and (found := launchers.split_launcher(made.get("command", ()))):
        made["launcher"], made["command"] = found
        made["rendezvous"].pop("backend")
    return Conversion(spec=made | ({"scheduling": scheduling} if scheduling else {}), notes=tuple(notes))


def _take_port(made: Object) -> None:
    """The Master's port stands at its container, under a name that the operator looks for."""
    ports = made.get("pod", {}).get("ports", [])
    for port in [port for port in ports if port.get("name") == names.RENDEZVOUS_PORT_NAME]:
        ports.remove(port)
        made["rendezvous"] = made["rendezvous"] | {"port": port["port"]}


def _number(text: Any) -> Any:
    return int(text) if str(text).isdecimal() else text


def _metadata(job: Mapping[str, Any], pod: Mapping[str, Any]) -> Object:
    """Labels and annotations that the job and its pods have alike."""
    made = {}
    for part in ("labels", "annotations"):
        on_job, on_pod = job.get(part) or {}, pod.get(part) or {}
        alike = {key: value for key, value in on_job.items() if on_pod.get(key) == value and key not in _OURS}
        if alike:
            made[part] = alike
    return made


_OURS = frozenset(
    {
        api_objects.LABEL_MANAGED_BY,
        api_objects.LABEL_LAUNCH,
        api_objects.LABEL_SPEC_HASH,
        api_objects.ANNOTATION_SPEC,
        api_objects.ANNOTATION_OBSERVE_CONFIG,
        api_objects.ANNOTATION_SPEC_VERSION,
    }
)


def _run(policy: Mapping[str, Any]) -> Object:
    said = {
        "clean_pods": policy.get("cleanPodPolicy"),
        "deadline": policy.get("activeDeadlineSeconds"),
        "backoff_limit": policy.get("backoffLimit"),
        "ttl": policy.get("ttlSecondsAfterFinished"),
        "suspend": policy.get("suspend"),
    }
    found = {key: value for key, value in said.items() if value is not None}
    return {"run": found} if found else {}


def _elastic(
    policy: Mapping[str, Any], made: Mapping[str, Any], notes: list[Note], *, has_master: bool, own_etcd: bool
) -> Object:
    nodes = made["nodes"]
    least, most = policy.get("minReplicas", nodes), policy.get("maxReplicas", nodes)
    found: Object = {"restarts": made["restarts"] | {"max": policy.get("maxRestarts", 0)}}
    if (least, most) != (nodes, nodes) or policy.get("metrics"):
        found["elastic"] = {"min": least, "max": most}
        if policy.get("metrics"):
            found["elastic"]["metrics"] = policy["metrics"]
    if has_master:
        found["master"] = True
    backend = policy.get("rdzvBackend") or "c10d"
    meeting: Object = {"backend": backend}
    port = policy.get("rdzvPort", names.RENDEZVOUS_PORT)
    if backend in ("etcd", "etcd-v2"):
        if not own_etcd and policy.get("rdzvHost"):
            meeting["endpoint"] = f"{policy['rdzvHost']}:{port}"
    elif port != names.RENDEZVOUS_PORT:
        meeting["port"] = port
    if conf := {pair["key"]: pair["value"] for pair in policy.get("rdzvConf") or ()}:
        meeting["conf"] = conf
    if policy.get("rdzvId"):
        why = "left out: kfjob makes one for each launch, so that a relaunch never meets the state of the launch before"
        notes.append(Note(what=f"spec.elasticPolicy.rdzvId: {policy['rdzvId']}", why=why))
    return found | {"rendezvous": meeting}


def _scheduling(metadata: Mapping[str, Any], policy: Mapping[str, Any], notes: list[Note]) -> Object:
    """What stands at the job itself: Kueue, HyperPod, the gang."""
    labels, annotations = metadata.get("labels") or {}, metadata.get("annotations") or {}
    found: Object = {}
    if api_objects.LABEL_KUEUE_QUEUE in labels:
        found["queue"] = labels[api_objects.LABEL_KUEUE_QUEUE]
        if api_objects.LABEL_KUEUE_PRIORITY in labels:
            found["queue_priority"] = labels[api_objects.LABEL_KUEUE_PRIORITY]
    if api_objects.ANNOTATION_HYPERPOD_AUTO_RESUME in annotations:
        found["hyperpod"] = {"auto_resume": annotations[api_objects.ANNOTATION_HYPERPOD_AUTO_RESUME] == "true"}
        if api_objects.ANNOTATION_HYPERPOD_RETRIES in annotations:
            found["hyperpod"]["max_retries"] = _number(annotations[api_objects.ANNOTATION_HYPERPOD_RETRIES])
    if gang := policy.get("schedulingPolicy"):
        said = {
            "scheduler": "volcano" if gang.get("queue") else "scheduler-plugins",
            "min_available": gang.get("minAvailable"),
            "queue": gang.get("queue"),
            "priority_class": gang.get("priorityClass"),
            "timeout": gang.get("scheduleTimeoutSeconds"),
        }
        found["gang"] = {key: value for key, value in said.items() if value is not None}
        why = f"taken for {said['scheduler']}; which it is the operator was told when it was started"
        notes.append(Note(what="spec.runPolicy.schedulingPolicy", why=why))
    return found
