"""Convert the pod template of a PyTorchJob to fields of a spec. Pure. The caller puts everything else into `overrides`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import takewhile
from typing import Any

from kfjob.base.common_types import JsonMapping, JsonObject
from kfjob.base.errors import SpecError
from kfjob.joblog.events import ETCD_WAIT
from kfjob.kinds.pytorchjob.operator_api import find_training_container
from kfjob.objects import api_objects, names
from kfjob.plan.resolve import SHARED_MEMORY_PATH
from kfjob.spec.fields import UNLIMITED
from kfjob.spec.pod import RESOURCE_NAMES
from kfjob.trainspec import OWN_TRAINER
from kfjob.trainspec.command_line import from_argv

_RESOURCE_FIELDS = {resource: field for field, resource in RESOURCE_NAMES.items()}
_WHOLE_NUMBERS = tuple(_RESOURCE_FIELDS[resource] for resource in api_objects.DEVICE_RESOURCES)
_WHOLE_NUMBER = re.compile(r"[0-9]{1,9}")
"""Kubernetes also takes other forms of a number, such as `1.0` and `1k`, which stay in `limits`."""


def convert_pod_template(template: JsonMapping, *, hyperpod: bool, exact: bool, own_etcd: bool) -> JsonObject:
    """Return the fields that describe the pods.

    `own_etcd` means that the init container that waits for the job's etcd is kfjob's own.

    `exact` disables the parts that kfjob adds by default and the template does not have.
    """
    spec = template.get("spec") or {}
    container = find_training_container(spec)
    container_fields = {
        "service_account": spec.get("serviceAccountName") or spec.get("serviceAccount"),
        "image_pull_secrets": [secret["name"] for secret in spec.get("imagePullSecrets") or () if secret.get("name")],
        "image": container.get("image"),
        "image_pull_policy": container.get("imagePullPolicy"),
        "env_from": [_convert_env_source(source) for source in container.get("envFrom") or ()],
        "env": dict(_convert_env(container.get("env") or ())),
        "resources": _convert_resources(container.get("resources") or {}) | _convert_claim(spec, container),
    }
    pod_fields = {
        "pod": _convert_pod(spec, container, own_etcd=own_etcd),
        "scheduling": _convert_placement(template, hyperpod=hyperpod, exact=exact),
    }
    return (
        _drop_empty(container_fields)
        | ({"shared_memory": 0} if exact else {})
        | _convert_storage(spec, container)
        | _drop_empty({"command": list(container.get("command") or ()), "args": list(container.get("args") or ())})
        | _drop_empty(pod_fields)
    )


def is_shared_memory(spec: JsonMapping, volume: JsonMapping, mount: JsonMapping) -> bool:
    """Return whether a volume is what kfjob creates for /dev/shm.

    Its name does not matter, unless another container of the pod mounts the volume under this name.
    """
    if (volume.get("emptyDir") or {}).get("medium") != "Memory" or mount["mountPath"] != SHARED_MEMORY_PATH:
        return False
    containers = [*(spec.get("initContainers") or ()), *(spec.get("containers") or ())]
    mounts = [other for container in containers for other in container.get("volumeMounts") or ()]
    uses = sum(other["name"] == volume["name"] for other in mounts)
    return bool(uses == 1 or volume["name"] == names.SHARED_MEMORY_VOLUME)


def _drop_empty(fields: JsonMapping) -> JsonObject:
    return {name: value for name, value in fields.items() if value not in (None, "", [], {})}


def _convert_env_source(source: JsonMapping) -> JsonObject:
    kind = "secret" if "secretRef" in source else "config_map"
    reference = source.get("secretRef") or source.get("configMapRef") or {}
    return _drop_empty({kind: reference.get("name"), "prefix": source.get("prefix"), "optional": reference.get("optional")})


def _convert_env(env: Sequence[JsonMapping]) -> Iterator[tuple[str, Any]]:
    for variable in env:
        source = variable.get("valueFrom")
        if source is None:
            yield variable["name"], str(variable.get("value", ""))
        elif reference := source.get("secretKeyRef") or source.get("configMapKeyRef"):
            kind = "secret" if "secretKeyRef" in source else "config_map"
            optional = {"optional": True} if reference.get("optional") else {}
            yield variable["name"], {kind: reference.get("name"), "key": reference.get("key"), **optional}
        elif set(source) == {"fieldRef"}:
            yield variable["name"], {"field": source["fieldRef"]["fieldPath"]}
        elif resource := source.get("resourceFieldRef"):
            divisor = str(resource.get("divisor", "0"))
            fields = {"resource": resource.get("resource"), "container": resource.get("containerName")}
            yield variable["name"], _drop_empty(fields | {"divisor": divisor if divisor != "0" else None})


def _convert_resources(resources: JsonMapping) -> JsonObject:
    """Return the field `resources`. Kubernetes uses a limit as the request if there is no request."""
    limits = {key: str(value) for key, value in (resources.get("limits") or {}).items()}
    requests = {key: str(value) for key, value in (resources.get("requests") or {}).items()}
    fields: JsonObject = {}
    converted = set()
    for key, limit in limits.items():
        field = _RESOURCE_FIELDS.get(key)
        is_odd = field in _WHOLE_NUMBERS and not _WHOLE_NUMBER.fullmatch(limit)
        if is_odd or requests.get(key, limit) != limit or (field is None and not key.startswith("hugepages-")):
            fields.setdefault("limits", {})[key] = limit
        elif field is None:
            fields.setdefault("huge_pages", {})[key.removeprefix("hugepages-")] = limit
            converted.add(key)
        else:
            fields[field] = int(limit) if field in _WHOLE_NUMBERS else limit
            converted.add(key)
    other_requests = {key: value for key, value in requests.items() if key not in converted}
    return fields | ({"requests": other_requests} if other_requests else {})


def _convert_claim(spec: JsonMapping, container: JsonMapping) -> JsonObject:
    """Return the field `efa_claim` if the pod has the claim that kfjob renders for it."""
    used = {claim["name"] for claim in (container.get("resources") or {}).get("claims") or ()}
    templates = {claim["name"]: claim.get("resourceClaimTemplateName") for claim in spec.get("resourceClaims") or ()}
    return _drop_empty({"efa_claim": templates.get(names.EFA_CLAIM) if names.EFA_CLAIM in used else None})


def _convert_storage(spec: JsonMapping, container: JsonMapping) -> JsonObject:
    """Return the fields `volumes` and `shared_memory`."""
    sources = {volume["name"]: volume for volume in spec.get("volumes") or ()}
    fields: JsonObject = {}
    volumes = []
    for mount in container.get("volumeMounts") or ():
        source = sources.get(mount["name"], {})
        if is_shared_memory(spec, source, mount):
            fields["shared_memory"] = source["emptyDir"].get("sizeLimit", UNLIMITED)
        elif kind := _convert_volume_source(source):
            options = _drop_empty({"sub_path": mount.get("subPath"), "read_only": mount.get("readOnly")})
            volumes.append({"name": mount["name"], "mount_path": mount["mountPath"], **kind, **options})
        if mount["mountPath"] == SHARED_MEMORY_PATH and not is_shared_memory(spec, source, mount):
            fields["shared_memory"] = 0
    return fields | ({"volumes": volumes} if volumes else {})


def _convert_volume_source(source: JsonMapping) -> JsonObject | None:
    """Return the fields for the kind of a volume; None if a spec has no such kind."""
    if claim := source.get("persistentVolumeClaim"):
        return _drop_empty({"pvc": claim["claimName"], "read_only_claim": claim.get("readOnly")})
    if path := source.get("hostPath"):
        return _drop_empty({"host_path": path["path"], "host_path_type": path.get("type")})
    if config_map := source.get("configMap"):
        return {"config_map": config_map.get("name"), **_convert_files(config_map)}
    if secret := source.get("secret"):
        return {"secret": secret.get("secretName"), **_convert_files(secret)}
    if "emptyDir" in source:
        empty_dir = source["emptyDir"] or {}
        in_memory = empty_dir.get("medium") == "Memory" or None
        return {"empty_dir": True, **_drop_empty({"size": empty_dir.get("sizeLimit"), "in_memory": in_memory})}
    return None


def _convert_files(source: JsonMapping) -> JsonObject:
    fields = {"items": source.get("items"), "default_mode": source.get("defaultMode"), "optional": source.get("optional")}
    return _drop_empty(fields)


def convert_trainer_command(fields: JsonMapping) -> JsonObject:
    """Return the fields with `train` instead of `command`, if the command starts kfjob's trainer."""
    command = fields.get("command") or []
    if command[:3] == ["torchrun", "-m", OWN_TRAINER] and "args" not in fields:
        with suppress(SpecError):
            train = from_argv(command[3:]).model_dump(mode="json", exclude_defaults=True)
            return {"train": train} | {name: value for name, value in fields.items() if name != "command"}
    return dict(fields)


def find_pull_policy(image: str) -> str:
    """Return the pull policy that Kubernetes uses for an image without one."""
    name, digest, _ = image.rpartition("/")[2].partition("@")
    return "Always" if not digest and name.partition(":")[2] in ("", "latest") else "IfNotPresent"


def _convert_pod(spec: JsonMapping, container: JsonMapping, *, own_etcd: bool) -> JsonObject:
    omitted = ETCD_WAIT if own_etcd else None
    init_containers = [dict(c) for c in spec.get("initContainers") or () if c.get("name") != omitted]
    # A sidecar starts before the init containers that follow it, so that only the last ones may move behind them.
    sidecars = list(takewhile(lambda c: c.get("restartPolicy") == "Always", reversed(init_containers)))[::-1]
    ports = [
        _drop_empty({"name": port.get("name"), "port": port["containerPort"], "protocol": port.get("protocol")})
        for port in container.get("ports") or ()
    ]
    return _drop_empty(
        {
            "grace": spec.get("terminationGracePeriodSeconds"),
            "working_dir": container.get("workingDir"),
            "ports": ports,
            "lifecycle": container.get("lifecycle"),
            "security_context": spec.get("securityContext"),
            "container_security_context": container.get("securityContext"),
            "host_network": spec.get("hostNetwork"),
            "host_ipc": spec.get("hostIPC"),
            "init_containers": init_containers[: len(init_containers) - len(sidecars)],
            "sidecars": [{key: value for key, value in c.items() if key != "restartPolicy"} for c in sidecars],
        }
    )


def _convert_placement(template: JsonMapping, *, hyperpod: bool, exact: bool) -> JsonObject:
    spec = template.get("spec") or {}
    selector = dict(spec.get("nodeSelector") or {})
    if hyperpod and selector.get(api_objects.LABEL_HYPERPOD_HEALTH) == api_objects.HYPERPOD_HEALTHY:
        del selector[api_objects.LABEL_HYPERPOD_HEALTH]
    annotations = (template.get("metadata") or {}).get("annotations") or {}
    is_evictable = exact and not annotations.keys() & api_objects.NOT_EVICTABLE.keys()
    has_istio = exact and api_objects.LABEL_ISTIO_INJECT not in _get_metadata(template)
    return _drop_empty(
        {
            "scheduler": spec.get("schedulerName"),
            "priority_class": spec.get("priorityClassName"),
            "node_selector": selector,
            "affinity": spec.get("affinity"),
            "tolerations": [_convert_toleration(toleration) for toleration in spec.get("tolerations") or ()],
            "spread": spec.get("topologySpreadConstraints"),
            "istio_sidecar": True if has_istio else None,
            "evictable": True if is_evictable else None,
        }
    )


def _get_metadata(template: JsonMapping) -> JsonObject:
    """Return the labels and annotations of a pod."""
    metadata = template.get("metadata") or {}
    return {**(metadata.get("labels") or {}), **(metadata.get("annotations") or {})}


def _convert_toleration(toleration: JsonMapping) -> JsonObject:
    fields = {key: toleration[key] for key in ("key", "value", "effect") if toleration.get(key) is not None}
    fields["operator"] = toleration.get("operator", "Equal")
    return fields | ({"seconds": toleration["tolerationSeconds"]} if "tolerationSeconds" in toleration else {})
