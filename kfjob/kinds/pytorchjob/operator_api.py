"""Names and defaults of PyTorchJobs (training operator v1.9.3, pkg/apis/kubeflow.org/v1)."""

from __future__ import annotations

from kfjob.base.common_types import JsonMapping, JsonObject
from kfjob.joblog.events import TRAINING_CONTAINER

GROUP = "kubeflow.org"
API_VERSION = f"{GROUP}/v1"
KIND = "PyTorchJob"
RESOURCE = "pytorchjobs"

LABEL_JOB_NAME = "training.kubeflow.org/job-name"
LABEL_REPLICA_TYPE = "training.kubeflow.org/replica-type"
LABEL_REPLICA_INDEX = "training.kubeflow.org/replica-index"

DEFAULT_PROCESSES = "auto"
DEFAULT_CLEAN_PODS = "None"
DEFAULT_RESTART_POLICY = "OnFailure"
DEFAULT_REPLICAS = 1
"""This and the three before it are what the operator takes for a field that a job lacks (v1.9.3, pytorch_defaults.go)."""

RUN_POLICY_FIELDS = ("cleanPodPolicy", "ttlSecondsAfterFinished", "activeDeadlineSeconds", "backoffLimit", "schedulingPolicy")
"""Fields of `runPolicy`. Before v1 they stood beside the replicas, where KubeDL still has them."""


def find_training_container(pod_spec: JsonMapping) -> JsonObject:
    """Return the container that the operator and kfjob treat as the training container; {} if the pod has none."""
    return next((item for item in pod_spec.get("containers") or () if item.get("name") == TRAINING_CONTAINER), {})


def count_replicas(replica: JsonMapping | None) -> int:
    """Return the number of pods of one role. A missing number and null are the operator's default."""
    count: int | None = (replica or {}).get("replicas")
    return DEFAULT_REPLICAS if count is None else count
