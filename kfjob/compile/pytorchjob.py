"""JobPlan -> the objects that are submitted, exactly as `render` shows them.

Keys stand in the order in which people read them. Empty lists are never rendered: the operator panics on `rdzvConf: []`
(v1.9.3, elastic.go).
"""

from __future__ import annotations

from typing import Any

from kfjob.compile import etcd
from kfjob.events import TRAINING_CONTAINER
from kfjob.plan import JobPlan
from kfjob.spec import names
from kfjob.spec.job import SPEC_VERSION, Volume

Manifest = dict[str, Any]

SHARED_MEMORY = "kfjob-shared-memory"


def manifests(plan: JobPlan, *, owner_uid: str | None = None) -> list[Manifest]:
    """All objects of a job, the PyTorchJob first.

    `owner_uid`, the PyTorchJob's, makes it the owner of the others; it is known only after creation.
    """
    objects = [pytorchjob(plan)]
    if plan.own_etcd_image:
        objects += etcd.manifests(plan, owner_uid=owner_uid)
    return objects


def pytorchjob(plan: JobPlan) -> Manifest:
    """The PyTorchJob: workers only, each with an elastic agent, which the operator tells of the rendezvous."""
    return {
        "apiVersion": f"{names.API_GROUP}/{names.API_VERSION}",
        "kind": names.KIND,
        "metadata": {
            "name": plan.name,
            "namespace": plan.namespace,
            "labels": {**dict(plan.labels), **own_labels(plan), names.LABEL_SPEC_HASH: plan.spec_hash},
            "annotations": {
                **dict(plan.annotations),
                names.ANNOTATION_SPEC_VERSION: str(SPEC_VERSION),
                names.ANNOTATION_SPEC: plan.spec_json,
            },
        },
        "spec": {
            "nprocPerNode": plan.processes_per_node,
            "runPolicy": {"cleanPodPolicy": "None"},
            "elasticPolicy": _elastic_policy(plan),
            "pytorchReplicaSpecs": {
                "Worker": {"replicas": plan.nodes, "restartPolicy": plan.restarts.policy, "template": _pod_template(plan)}
            },
        },
    }


def own_labels(plan: JobPlan) -> dict[str, str]:
    """The labels that everything of one launch carries."""
    return {names.LABEL_MANAGED_BY: names.FIELD_MANAGER, names.LABEL_LAUNCH: plan.launch}


def _elastic_policy(plan: JobPlan) -> Manifest:
    rendezvous = plan.rendezvous
    policy: Manifest = {
        "minReplicas": plan.nodes,
        "maxReplicas": plan.nodes,
        "rdzvBackend": rendezvous.backend,
        "rdzvHost": rendezvous.host,
        "rdzvPort": rendezvous.port,
        "rdzvId": rendezvous.id,
        "maxRestarts": plan.restarts.max,
    }
    if rendezvous.conf:
        policy["rdzvConf"] = [{"key": key, "value": value} for key, value in rendezvous.conf]
    return policy


def _pod_template(plan: JobPlan) -> Manifest:
    spec: Manifest = {}
    if plan.service_account:
        spec["serviceAccountName"] = plan.service_account
    if plan.image_pull_secrets:
        spec["imagePullSecrets"] = [{"name": secret} for secret in plan.image_pull_secrets]
    spec["terminationGracePeriodSeconds"] = plan.grace_seconds
    if plan.own_etcd_image:
        spec["initContainers"] = [etcd.wait_container(plan)]
    spec["containers"] = [_training_container(plan)]
    spec["volumes"] = [{"name": SHARED_MEMORY, "emptyDir": {"medium": "Memory"}}, *map(_volume, plan.volumes)]
    metadata: Manifest = {"labels": {**dict(plan.labels), **own_labels(plan)}}
    if plan.annotations:
        metadata["annotations"] = dict(plan.annotations)
    return {"metadata": metadata, "spec": spec}


def _training_container(plan: JobPlan) -> Manifest:
    container: Manifest = {"name": TRAINING_CONTAINER, "image": plan.image}
    if plan.image_pull_policy:
        container["imagePullPolicy"] = plan.image_pull_policy
    container["command"] = list(plan.command)
    container["env"] = [{"name": name, "value": value} for name, value in plan.env]
    if amounts := _amounts(plan):
        container["resources"] = {"requests": amounts, "limits": dict(amounts)}
    mounts: list[Manifest] = [{"name": SHARED_MEMORY, "mountPath": "/dev/shm"}]  # noqa: S108 - the pod's shared memory, which NCCL and data loaders need
    mounts += [{"name": v.name, "mountPath": v.mount_path, **({"readOnly": True} if v.read_only else {})} for v in plan.volumes]
    container["volumeMounts"] = mounts
    return container


def _amounts(plan: JobPlan) -> dict[str, str]:
    wanted = plan.resources
    amounts = {
        "cpu": wanted.cpu,
        "memory": wanted.memory,
        "nvidia.com/gpu": str(wanted.gpus) if wanted.gpus else None,
        "vpc.amazonaws.com/efa": str(wanted.efa) if wanted.efa else None,
    }
    return {name: amount for name, amount in amounts.items() if amount}


def _volume(volume: Volume) -> Manifest:
    source: Manifest
    if volume.pvc:
        source = {"persistentVolumeClaim": {"claimName": volume.pvc, **({"readOnly": True} if volume.read_only else {})}}
    elif volume.host_path:
        source = {"hostPath": {"path": volume.host_path}}
    elif volume.config_map:
        source = {"configMap": {"name": volume.config_map}}
    elif volume.secret:
        source = {"secret": {"secretName": volume.secret}}
    else:
        source = {"emptyDir": {}}
    return {"name": volume.name, **source}
