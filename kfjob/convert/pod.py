"""The template of a PyTorchJob's pods -> the fields of a spec. Pure. What no field is for is left to `overrides`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from kfjob.convert.conversion import job_name
from kfjob.convert.torchrun import OWN_TRAINER
from kfjob.errors import SpecError
from kfjob.spec import api_objects
from kfjob.spec.api_objects import find_training_container
from kfjob.spec.arguments import from_argv

Object = dict[str, Any]

SHARED_MEMORY_PATH = "/dev/shm"  # noqa: S108 - the path of it in every pod
WAIT_FOR_ETCD = "wait-for-etcd"
_AMOUNTS = {
    "cpu": "cpu",
    "memory": "memory",
    "nvidia.com/gpu": "gpus",
    "vpc.amazonaws.com/efa": "efa",
    "aws.amazon.com/neuron": "neuron",
}
_WHOLE = ("gpus", "efa", "neuron")


def convert_pod_template(template: Mapping[str, Any], *, job: str, hyperpod: bool, exact: bool) -> Object:
    """The fields that describe the pods. `exact`: what kfjob does by itself and the template does not is switched off."""
    spec = template.get("spec") or {}
    container = find_training_container(spec)
    made: Object = {}
    _put(made, "service_account", spec.get("serviceAccountName"))
    _put(made, "image_pull_secrets", [one["name"] for one in spec.get("imagePullSecrets") or ()])
    _put(made, "image", container.get("image"))
    _put(made, "image_pull_policy", container.get("imagePullPolicy"))
    _put(made, "env", dict(_environment(container.get("env") or ())))
    _put(made, "resources", _resources(container.get("resources") or {}))
    if exact:
        made["shared_memory"] = 0
    made |= _storage(spec, container)
    made |= _program(container, job)
    _put(made, "pod", _pod(spec, container))
    _put(made, "scheduling", _placement(template, hyperpod=hyperpod, exact=exact))
    return made


def _put(made: Object, field: str, value: Any) -> None:
    if value not in (None, "", [], {}):
        made[field] = value


def _environment(env: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, Any]]:
    for one in env:
        source = one.get("valueFrom")
        if source is None:
            yield one["name"], str(one.get("value", ""))
        elif reference := source.get("secretKeyRef") or source.get("configMapKeyRef"):
            kind = "secret" if "secretKeyRef" in source else "config_map"
            optional = {"optional": True} if reference.get("optional") else {}
            yield one["name"], {kind: reference.get("name"), "key": reference.get("key"), **optional}
        elif set(source) == {"fieldRef"}:
            yield one["name"], {"field": source["fieldRef"]["fieldPath"]}


def _resources(resources: Mapping[str, Any]) -> Object:
    """Kubernetes takes a limit for the request where there is no request."""
    limits = {key: str(value) for key, value in (resources.get("limits") or {}).items()}
    requests = {key: str(value) for key, value in (resources.get("requests") or {}).items()}
    made: Object = {}
    for key, limit in limits.items():
        field = _AMOUNTS.get(key)
        if requests.get(key, limit) != limit or (field is None and not key.startswith("hugepages-")):
            made.setdefault("limits", {})[key] = limit
        elif field is None:
            made.setdefault("huge_pages", {})[key.removeprefix("hugepages-")] = limit
        else:
            made[field] = int(limit) if field in _WHOLE else limit
    taken = {key for key, field in _AMOUNTS.items() if field in made} | {
        f"hugepages-{size}" for size in made.get("huge_pages", ())
    }
    _put(made, "requests", {key: value for key, value in requests.items() if key not in taken})
    return made


def _storage(spec: Mapping[str, Any], container: Mapping[str, Any]) -> Object:
    sources = {one["name"]: one for one in spec.get("volumes") or ()}
    made: Object = {}
    volumes = []
    for mount in container.get("volumeMounts") or ():
        source = sources.get(mount["name"], {})
        if is_shared_memory(source, mount):
            made["shared_memory"] = source["emptyDir"].get("sizeLimit")
        elif kind := _kind(source):
            volume = {"name": mount["name"], "mount_path": mount["mountPath"], **kind}
            _put(volume, "sub_path", mount.get("subPath"))
            _put(volume, "read_only", mount.get("readOnly"))
            volumes.append(volume)
        if mount["mountPath"] == SHARED_MEMORY_PATH and not is_shared_memory(source, mount):
            made["shared_memory"] = 0
    _put(made, "volumes", volumes)
    return made


def is_shared_memory(volume: Mapping[str, Any], mount: Mapping[str, Any]) -> bool:
    """Whether this is a pod's shared memory, whatever it is called."""
    in_memory = (volume.get("emptyDir") or {}).get("medium") == "Memory"
    return in_memory and mount["mountPath"] == SHARED_MEMORY_PATH


def _kind(source: Mapping[str, Any]) -> Object | None:
    """The kind of a volume in a spec's words; None if a spec has none for it."""
    if claim := source.get("persistentVolumeClaim"):
        return {"pvc": claim["claimName"]}
    if path := source.get("hostPath"):
        return {"host_path": path["path"]}
    if config_map := source.get("configMap"):
        return {"config_map": config_map.get("name")}
    if secret := source.get("secret"):
        return {"secret": secret.get("secretName")}
    if "emptyDir" in source:
        empty = source["emptyDir"] or {}
        made: Object = {"empty_dir": True}
        _put(made, "size", empty.get("sizeLimit"))
        return made | ({"in_memory": True} if empty.get("medium") == "Memory" else {})
    return None


def _program(container: Mapping[str, Any], job: str) -> Object:
    """The command with its arguments. An image's own entry point cannot be named in a spec; `overrides` brings it back."""
    words = [*(container.get("command") or ()), *(container.get("args") or ())]
    if words[:3] == ["torchrun", "-m", OWN_TRAINER]:
        with suppress(SpecError):
            return {"train": from_argv(words[3:]).model_dump(mode="json", exclude_defaults=True)}
    return {"command": words or [job_name(job)]}


def _pod(spec: Mapping[str, Any], container: Mapping[str, Any]) -> Object:
    before = [dict(one) for one in spec.get("initContainers") or () if one.get("name") != WAIT_FOR_ETCD]
    made: Object = {}
    _put(made, "grace", spec.get("terminationGracePeriodSeconds"))
    ports = [
        {"port": one["containerPort"], **({"name": one["name"]} if "name" in one else {})}
        for one in container.get("ports") or ()
    ]
    _put(made, "working_dir", container.get("workingDir"))
    _put(made, "ports", ports)
    _put(made, "security_context", spec.get("securityContext"))
    _put(made, "container_security_context", container.get("securityContext"))
    _put(made, "host_network", spec.get("hostNetwork"))
    _put(made, "host_ipc", spec.get("hostIPC"))
    _put(made, "init_containers", [one for one in before if one.get("restartPolicy") != "Always"])
    sidecars = [one for one in before if one.get("restartPolicy") == "Always"]
    _put(made, "sidecars", [{key: value for key, value in one.items() if key != "restartPolicy"} for one in sidecars])
    return made


def _placement(template: Mapping[str, Any], *, hyperpod: bool, exact: bool) -> Object:
    spec = template.get("spec") or {}
    selector = dict(spec.get("nodeSelector") or {})
    if hyperpod:
        selector.pop(api_objects.LABEL_HYPERPOD_HEALTH, None)
    made: Object = {}
    _put(made, "scheduler", spec.get("schedulerName"))
    _put(made, "priority_class", spec.get("priorityClassName"))
    _put(made, "node_selector", selector)
    _put(made, "affinity", spec.get("affinity"))
    _put(made, "tolerations", [_toleration(one) for one in spec.get("tolerations") or ()])
    _put(made, "spread", spec.get("topologySpreadConstraints"))
    labels = (template.get("metadata") or {}).get("labels") or {}
    if labels.get(api_objects.LABEL_ISTIO_INJECT, "true" if exact else "false") == "true":
        made["istio_sidecar"] = True
    return made


def _toleration(one: Mapping[str, Any]) -> Object:
    made = {key: one[key] for key in ("key", "value", "effect") if one.get(key) is not None}
    made["operator"] = one.get("operator", "Equal")
    return made | ({"seconds": one["tolerationSeconds"]} if "tolerationSeconds" in one else {})
