"""JobPlan -> the pod template of its replicas."""

from __future__ import annotations

from kfjob.common_types import JsonObject
from kfjob.compile import etcd
from kfjob.events import TRAINING_CONTAINER
from kfjob.plan import JobPlan
from kfjob.spec import api_objects, names
from kfjob.spec.pod import EnvFrom
from kfjob.spec.volumes import Volume


def own_labels(plan: JobPlan) -> dict[str, str]:
    """Return the labels of every object of one launch."""
    return {api_objects.LABEL_MANAGED_BY: api_objects.FIELD_MANAGER, api_objects.LABEL_LAUNCH: plan.launch}


def compile_pod_template(plan: JobPlan) -> JsonObject:
    """Return the pod template of every replica."""
    metadata: JsonObject = {"labels": {**dict(plan.labels), **own_labels(plan)}}
    annotations = dict(plan.annotations)
    if not plan.scheduling.istio_sidecar:
        metadata["labels"][api_objects.LABEL_ISTIO_INJECT] = "false"
    if annotations:
        metadata["annotations"] = annotations
    return {"metadata": metadata, "spec": _spec(plan)}


def _spec(plan: JobPlan) -> JsonObject:
    spec: JsonObject = {}
    if plan.service_account:
        spec["serviceAccountName"] = plan.service_account
    if plan.image_pull_secrets:
        spec["imagePullSecrets"] = [{"name": secret} for secret in plan.image_pull_secrets]
    spec |= _placement(plan)
    if plan.pod.host_network:
        spec |= {"hostNetwork": True, "dnsPolicy": "ClusterFirstWithHostNet"}
    if plan.pod.host_ipc:
        spec["hostIPC"] = True
    if plan.pod.security_context:
        spec["securityContext"] = dict(plan.pod.security_context)
    spec["terminationGracePeriodSeconds"] = plan.grace_seconds
    init_containers = [etcd.compile_wait_container(plan)] if plan.own_etcd_image else []
    init_containers += [dict(container) for container in plan.pod.init_containers]
    init_containers += [dict(container) | {"restartPolicy": "Always"} for container in plan.pod.sidecars]
    if init_containers:
        spec["initContainers"] = init_containers
    spec["containers"] = [_make_training_container(plan)]
    if template := plan.resources.efa_claim:
        spec["resourceClaims"] = [{"name": names.EFA_CLAIM, "resourceClaimTemplateName": template}]
    if volumes := [*_shared_memory(plan), *map(_volume, plan.volumes)]:
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
    healthy = {api_objects.LABEL_HYPERPOD_HEALTH: "Schedulable"} if plan.scheduling.hyperpod else {}
    return healthy | plan.scheduling.node_selector


def _make_training_container(plan: JobPlan) -> JsonObject:
    container: JsonObject = {"name": TRAINING_CONTAINER, "image": plan.image}
    if plan.image_pull_policy:
        container["imagePullPolicy"] = plan.image_pull_policy
    if plan.command:
        container["command"] = list(plan.command)
    if plan.args:
        container["args"] = list(plan.args)
    if plan.pod.working_dir:
        container["workingDir"] = plan.pod.working_dir
    if ports := _ports(plan):
        container["ports"] = ports
    if env := [_variable(name, value) for name, value in plan.env]:
        container["env"] = env
    if resources := _resources(plan):
        container["resources"] = resources
    if plan.pod.container_security_context:
        container["securityContext"] = dict(plan.pod.container_security_context)
    if mounts := [*_shared_memory_mount(plan), *map(_mount, plan.volumes)]:
        container["volumeMounts"] = mounts
    return container


def _ports(plan: JobPlan) -> list[JsonObject]:
    ports: list[JsonObject] = []
    if plan.has_master and plan.rendezvous.port != names.RENDEZVOUS_PORT and plan.rendezvous.backend in ("static", "c10d"):
        ports.append({"name": names.RENDEZVOUS_PORT_NAME, "containerPort": plan.rendezvous.port})
    ports += [{**({"name": port.name} if port.name else {}), "containerPort": port.port} for port in plan.pod.ports]
    return ports


def _variable(name: str, value: str | EnvFrom) -> JsonObject:
    return {"name": name, "value": value} if isinstance(value, str) else {"name": name, "valueFrom": _source(value)}


def _source(source: EnvFrom) -> JsonObject:
    if source.field is not None:
        return {"fieldRef": {"fieldPath": source.field}}
    kind = "secretKeyRef" if source.secret else "configMapKeyRef"
    reference: JsonObject = {"name": source.secret or source.config_map, "key": source.key}
    return {kind: reference | ({"optional": True} if source.optional else {})}


def _resources(plan: JobPlan) -> JsonObject:
    amounts = _amounts(plan)
    requests, limits = amounts | plan.resources.requests, amounts | plan.resources.limits
    claims = [{"name": names.EFA_CLAIM}] if plan.resources.efa_claim else []
    return {name: value for name, value in {"requests": requests, "limits": limits, "claims": claims}.items() if value}


def _amounts(plan: JobPlan) -> dict[str, str]:
    resources = plan.resources
    amounts = {
        "cpu": resources.cpu,
        "memory": resources.memory,
        "nvidia.com/gpu": str(resources.gpus) if resources.gpus else None,
        "aws.amazon.com/neuron": str(resources.neuron) if resources.neuron else None,
        "vpc.amazonaws.com/efa": str(resources.efa) if resources.efa else None,
    }
    amounts |= {f"hugepages-{size}": amount for size, amount in resources.huge_pages.items()}
    return {name: amount for name, amount in amounts.items() if amount}


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
        source = {"persistentVolumeClaim": {"claimName": volume.claim, **({"readOnly": True} if volume.read_only else {})}}
    elif volume.host_path:
        source = {"hostPath": {"path": volume.host_path}}
    elif volume.config_map:
        source = {"configMap": {"name": volume.config_map}}
    elif volume.secret:
        source = {"secret": {"secretName": volume.secret}}
    else:
        size = {"sizeLimit": volume.size} if volume.size else {}
        source = {"emptyDir": ({"medium": "Memory"} if volume.in_memory else {}) | size}
    return {"name": volume.name, **source}
