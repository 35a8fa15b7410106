"""Make PyTorchJobs of HyperPodPyTorchJobs. Pure.

Source: the samples of aws/sagemaker-hyperpod-checkpointless-training.
"""

from __future__ import annotations

import json
from typing import Any

from kfjob.base.common_types import JsonObject
from kfjob.convert.conversion import Note
from kfjob.joblog.events import TRAINING_CONTAINER
from kfjob.kinds.pytorchjob import operator_api
from kfjob.objects import api_objects
from kfjob.validation.field_paths import Path

HYPERPOD_JOB = "HyperPodPyTorchJob"
_REPLICA_FIELDS = ("replicas", "template")
"""What a group of replicas has in common with the replicas of a PyTorchJob."""


def convert_hyperpod(job: JsonObject) -> tuple[list[Note], dict[str, Path]]:
    """Make a PyTorchJob of a HyperPodPyTorchJob: the first group of replicas becomes the Workers.

    Returns:
        Notes about the differences, and where the Workers were.
    """
    reason = "read as a PyTorchJob, which Kubeflow's operator runs; `kfjob render --template` keeps the kind"
    notes = [Note(item=f"kind: {HYPERPOD_JOB}", reason=reason)]
    job |= {"apiVersion": operator_api.API_VERSION, "kind": operator_api.KIND}
    spec = job["spec"]
    replicas = spec.pop("replicaSpecs", None)
    groups = {
        index: group for index, group in enumerate(replicas if isinstance(replicas, list) else ()) if isinstance(group, dict)
    }
    if not groups:
        return notes, {}
    (index, first), *others = groups.items()
    reason = "left out: a PyTorchJob has one kind of Workers"
    notes += [Note(item=_name_group(group, number), reason=reason) for number, group in others]
    worker = {key: first[key] for key in _REPLICA_FIELDS if key in first}
    spec["pytorchReplicaSpecs"] = {"Worker": worker | {"restartPolicy": operator_api.DEFAULT_RESTART_POLICY}}
    notes += [*_list_lost_fields(first, index), *_rename_container(worker.get("template"), _name_group(first, index))]
    notes += _convert_policy(job, spec)
    if "hyperpodrun" in str(worker):
        reason = "HyperPod's own launcher, which needs its operator; with a PyTorchJob, `torchrun` reads where to meet"
        notes.append(Note(item="hyperpodrun", reason=reason))
    return notes, {"Worker": ("spec", "replicaSpecs", index)}


def _name_group(group: JsonObject, index: int) -> str:
    return f"spec.replicaSpecs[{group['name']}]" if group.get("name") else f"spec.replicaSpecs.{index}"


def _list_lost_fields(group: JsonObject, index: int) -> list[Note]:
    reasons = {
        "name": "left out: a PyTorchJob calls them Workers",
        "spares": "left out: a PyTorchJob has no spare pods",
        "maxReplicas": "left out: set `elastic.max` to the largest number of nodes",
    }
    return [
        Note(
            item=f"{_name_group(group, index)}.{key}: {json.dumps(value)}",
            reason=reasons.get(key, "left out: the replicas of a PyTorchJob have no such field"),
        )
        for key, value in group.items()
        if key not in _REPLICA_FIELDS and value is not None
    ]


def _rename_container(template: Any, group: str) -> list[Note]:
    """Give the training container, which is the first one here, the name that Kubeflow's operator needs."""
    pod = template.get("spec") if isinstance(template, dict) else None
    containers = pod.get("containers") if isinstance(pod, dict) else None
    if not isinstance(containers, list) or not containers or not isinstance(containers[0], dict):
        return []
    name, containers[0]["name"] = containers[0].get("name"), TRAINING_CONTAINER
    if name == TRAINING_CONTAINER:
        return []
    item = f"{group}.template.spec.containers[{name}].name: {name}"
    return [Note(item=item, reason=f"`{TRAINING_CONTAINER}` in a PyTorchJob, whose operator needs this name")]


def _convert_policy(job: JsonObject, spec: JsonObject) -> list[Note]:
    policy = spec.get("runPolicy") or {}
    if not isinstance(policy, dict):  # the check of the job reports it
        return []
    spec.pop("runPolicy", None)
    metadata = job["metadata"]
    if "jobMaxRetryCount" in policy and isinstance(metadata, dict) and isinstance(metadata.get("annotations"), dict | None):
        metadata["annotations"] = (metadata.get("annotations") or {}) | {
            api_objects.ANNOTATION_HYPERPOD_AUTO_RESUME: "true",
            api_objects.ANNOTATION_HYPERPOD_RETRIES: str(policy.pop("jobMaxRetryCount")),
        }
    fields = {key: policy.pop(key) for key in operator_api.RUN_POLICY_FIELDS if key in policy}
    if fields:
        spec["runPolicy"] = fields
    reason = f"left out: only the operator of a {HYPERPOD_JOB} reads it"
    return [Note(item=f"spec.runPolicy.{key}", reason=reason) for key in policy]
