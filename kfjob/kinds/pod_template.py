"""JobPlan -> the pod template of its replicas."""

from __future__ import annotations

from collections.abc import Mapping

from kfjob.base.common_types import JsonObject
from kfjob.joblog.events import ETCD_WAIT, TRAINING_CONTAINER
from kfjob.kinds import etcd
from kfjob.objects import api_objects, names
from kfjob.plan import JobPlan
from kfjob.spec.pod import EnvFromSource, EnvVarSource, Port
from kfjob.spec.volumes import Volume


def own_labels(plan: JobPlan) -> dict[str, str]:
    """Return the labels of every object of one launch."""
    return {api_objects.LABEL_MANAGED_BY: api_objects.FIELD_MANAGER, api_objects.LABEL_LAUNCH: plan.launch}


def sort_keys(metadata: Mapping[str, str]) -> dict[str, str]:
    """Return labels or annotations in the order of their keys."""
    return dict(sorted(metadata.items()))


def compile_pod_template(plan: JobPlan) -> JsonObject:
    """Return the pod template of every replica."""
    spec = plan.spec
    metadata: JsonObject = {"labels": {**sort_keys(spec.labels), **spec.pod.labels, **own_labels(plan)}}
    own_annotations = {} if plan.scheduling.evictable else api_objects.NOT_EVICTABLE
    if topology := plan.scheduling.topology:
        name = api_objects.ANNOTATION_KUEUE_REQUIRED if topology.required else api_objects.ANNOTATION_KUEUE_PREFERRED
        own_annotations = {**own_annotations, name: topology.level}
    annotations = {**own_annotations, **sort_keys(spec.annotations), **spec.pod.annotations}
    if not plan.scheduling.istio_sidecar and api_objects.LABEL_ISTIO_INJECT not in {**metadata["labels"], **annotations}:
        metadata["labels"][api_objects.LABEL_ISTIO_INJECT] = "false"
    if annotations:
        metadata["annotations"] = annotations
    return {"metadata": metadata, "spec": _spec(plan)}


def _spec(plan: JobPlan) -> JsonObject:
    spec: JsonObject = {}
    pod = plan.spec.pod
    if plan.spec.service_account:
        spec["serviceAccountName"] = plan.spec.service_account
    if plan.image_pull_secrets:
        spec["imagePullSecrets"] = [{"name": secret} for secret in plan.image_pull_secrets]
    spec |= _placement(plan)
    if pod.host_network:
        spec |= {"hostNetwork": True, "dnsPolicy": "ClusterFirstWithHostNet"}
    if pod.host_ipc:
        spec["hostIPC"] = True
    if pod.security_context:
        spec["securityContext"] = dict(pod.security_context)
    spec["terminationGracePeriodSeconds"] = plan.grace_seconds
    own = {container.get("name") for container in (*pod.init_containers, *pod.sidecars)}
    needs_wait = plan.own_etcd_image and ETCD_WAIT not in own  # a container of this name in the spec takes its place
    init_containers = [etcd.compile_wait_container(plan)] if needs_wait else []
    init_containers += [dict(container) for container in pod.init_containers]
    init_containers += [dict(container) | {"restartPolicy": "Always"} for container in pod.sidecars]
    if init_containers:
        spec["initContainers"] = init_containers
    spec["containers"] = [_make_training_container(plan)]
    if template := plan.resources.efa_claim:
        spec["resourceClaims"] = [{"name": names.EFA_CLAIM, "resourceClaimTemplateName": template}]
    own_volumes = {volume.name: volume for volume in plan.volumes}  # one may be mounted at several paths
    if volumes := [*_shared_memory(plan), *map(_volume, own_volumes.values())]:
        spec["volumes"] = volumes
    return spec


def _placement(plan: JobPlan) -> JsonObject:
    scheduling = plan.scheduling
    spec: JsonObject = {
        "schedulerName": scheduling.scheduler,
        "priorityClassName": scheduling.priority_class,
        "nodeSelector": _node_selector(plan),
        "affinity": dict(scheduling.affinity),
        "tolerations": [etcd.compile_toleration(toleration) for toleration in scheduling.tolerations],
        "topologySpreadConstraints": [dict(constraint) for constraint in scheduling.spread],
    }
    return {key: value for key, value in spec.items() if value}


def _node_selector(plan: JobPlan) -> dict[str, str]:
    hyperpod = plan.scheduling.hyperpod
    healthy = {api_objects.LABEL_HYPERPOD_HEALTH: api_objects.HYPERPOD_HEALTHY} if hyperpod and hyperpod.healthy_nodes else {}
    return healthy | plan.scheduling.node_selector


def _make_training_container(plan: JobPlan) -> JsonObject:
    spec = plan.spec
    fields: JsonObject = {
        "imagePullPolicy": spec.image_pull_policy,
        "command": list(plan.command),
        "args": list(spec.args or ()),
        "workingDir": spec.pod.working_dir,
        "ports": _ports(plan),
        "envFrom": [_env_source(source) for source in spec.env_from],
        "env": [_variable(name, value) for name, value in plan.env],
        "resources": _resources(plan),
        "lifecycle": dict(spec.pod.lifecycle),
        "securityContext": dict(spec.pod.container_security_context),
        "volumeMounts": [*_shared_memory_mount(plan), *map(_mount, plan.volumes)],
    }
    return {"name": TRAINING_CONTAINER, "image": plan.image} | {key: value for key, value in fields.items() if value}


def _ports(plan: JobPlan) -> list[JsonObject]:
    ports: list[JsonObject] = []
    if plan.spec.has_master and plan.rendezvous.port != names.RENDEZVOUS_PORT and plan.rendezvous.backend in ("static", "c10d"):
        ports.append({"name": names.RENDEZVOUS_PORT_NAME, "containerPort": plan.rendezvous.port})
    return ports + [_port(port) for port in plan.spec.pod.ports]


def _port(port: Port) -> JsonObject:
    fields = {"name": port.name, "containerPort": port.port, "protocol": port.protocol}
    return {key: value for key, value in fields.items() if value is not None}


def _variable(name: str, value: str | EnvVarSource) -> JsonObject:
    return {"name": name, "value": value} if isinstance(value, str) else {"name": name, "valueFrom": _source(value)}


def _env_source(source: EnvFromSource) -> JsonObject:
    kind, name = ("secretRef", source.secret) if source.secret else ("configMapRef", source.config_map)
    prefix = {"prefix": source.prefix} if source.prefix else {}
    return prefix | {kind: {"name": name} | ({"optional": True} if source.optional else {})}


def _source(source: EnvVarSource) -> JsonObject:
    if source.field is not None:
        return {"fieldRef": {"fieldPath": source.field}}
    if source.resource is not None:
        fields = {"containerName": source.container, "resource": source.resource, "divisor": source.divisor}
        return {"resourceFieldRef": {key: value for key, value in fields.items() if value is not None}}
    kind = "secretKeyRef" if source.secret else "configMapKeyRef"
    reference: JsonObject = {"name": source.secret or source.config_map, "key": source.key}
    return {kind: reference | ({"optional": True} if source.optional else {})}


def _resources(plan: JobPlan) -> JsonObject:
    amounts = plan.resources.amounts
    requests, limits = amounts | plan.resources.requests, amounts | plan.resources.limits
    claims = [{"name": names.EFA_CLAIM}] if plan.resources.efa_claim else []
    return {name: value for name, value in {"requests": requests, "limits": limits, "claims": claims}.items() if value}


def _shared_memory(plan: JobPlan) -> list[JsonObject]:
    if plan.shared_memory is None:
        return []
    limit = {"sizeLimit": plan.shared_memory} if plan.shared_memory else {}
    return [{"name": names.SHARED_MEMORY_VOLUME, "emptyDir": {"medium": "Memory"} | limit}]


def _shared_memory_mount(plan: JobPlan) -> list[JsonObject]:
    return [] if plan.shared_memory is None else [{"name": names.SHARED_MEMORY_VOLUME, "mountPath": "/dev/shm"}]  # noqa: S108 - a path in the pod


def _mount(volume: Volume) -> JsonObject:
    mount: JsonObject = {"name": volume.name, "mountPath": volume.mount_path}
    if volume.sub_path:
        mount["subPath"] = volume.sub_path
    return mount | ({"readOnly": True} if volume.read_only else {})


def _volume(volume: Volume) -> JsonObject:
    source: JsonObject
    if volume.claim:
        source = {
            "persistentVolumeClaim": {"claimName": volume.claim, **({"readOnly": True} if volume.read_only_claim else {})}
        }
    elif volume.host_path:
        kind = {"type": volume.host_path_type} if volume.host_path_type else {}
        source = {"hostPath": {"path": volume.host_path, **kind}}
    elif volume.config_map:
        source = {"configMap": {"name": volume.config_map, **_files(volume)}}
    elif volume.secret:
        source = {"secret": {"secretName": volume.secret, **_files(volume)}}
    else:
        size = {"sizeLimit": volume.size} if volume.size else {}
        source = {"emptyDir": ({"medium": "Memory"} if volume.in_memory else {}) | size}
    return {"name": volume.name, **source}


def _files(volume: Volume) -> JsonObject:
    """Return the fields of a volume whose files are the keys of a ConfigMap or a secret."""
    items = [item.model_dump(exclude_none=True) for item in volume.items]
    fields = {"items": items, "defaultMode": volume.default_mode, "optional": volume.optional}
    return {key: value for key, value in fields.items() if value or (key == "defaultMode" and value is not None)}
