"""Kubernetes objects that kfjob writes and reads: API groups, kinds, resources, and the keys of labels and annotations.

Sources: Kueue v0.14 (pkg/controller/constants, apis/kueue/v1beta1).
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

from kfjob.base.common_types import JsonMapping

GPU_RESOURCE = "nvidia.com/gpu"
"""The name under which the device plugin offers GPUs, and the taint that their nodes often have."""
NEURON_RESOURCE = "aws.amazon.com/neuron"
EFA_RESOURCE = "vpc.amazonaws.com/efa"
DEVICE_RESOURCES = (GPU_RESOURCE, NEURON_RESOURCE, EFA_RESOURCE)

FIELD_MANAGER = "kfjob"
LABEL_APP_NAME = "app.kubernetes.io/name"
LABEL_MANAGED_BY = "app.kubernetes.io/managed-by"
LABEL_LAUNCH = "kfjob.dev/launch"
LABEL_SPEC_HASH = "kfjob.dev/spec-hash"
ANNOTATION_SPEC = "kfjob.dev/spec"
ANNOTATION_SPEC_VERSION = "kfjob.dev/spec-version"
ANNOTATION_OBSERVE_CONFIG = "kfjob.dev/observe-config"
"""What observation needs of the spec, as JSON."""
ANNOTATION_MANIFEST = "kfjob.dev/manifest"
ANNOTATION_SUBMITTED_BY = "kfjob.dev/submitted-by"
"""Who submitted the launch: `USER@HOST`, or the setting `user`."""
ANNOTATION_SPEC_FILE = "kfjob.dev/spec-file"
"""The digest and the path of the file of the submitted spec."""
ANNOTATION_RELAUNCHES = "kfjob.dev/relaunches"
"""The relaunches by the guard that led to this launch, as JSON."""
ANNOTATION_DECISION = "kfjob.dev/guard-decision"
"""Why the guard does not relaunch this launch any more."""
ANNOTATION_ACCELERATE = "kfjob.dev/accelerate"
"""The keys of an Accelerate config that no field of a spec holds, as JSON."""
ANNOTATION_SECRET_TIME = "kfjob.dev/made"  # noqa: S105 - a key
"""When kfjob wrote the login into a pull secret."""
KEYS_OF_KFJOB = frozenset(
    {
        LABEL_MANAGED_BY,
        LABEL_LAUNCH,
        LABEL_SPEC_HASH,
        ANNOTATION_SPEC,
        ANNOTATION_OBSERVE_CONFIG,
        ANNOTATION_SPEC_VERSION,
        ANNOTATION_MANIFEST,
        ANNOTATION_SUBMITTED_BY,
        ANNOTATION_SPEC_FILE,
        ANNOTATION_RELAUNCHES,
        ANNOTATION_DECISION,
    }
)
"""The labels and annotations that kfjob adds to every job."""

POD_GROUPS = "podgroups"
POD_GROUP_VERSIONS = MappingProxyType(
    {"scheduler-plugins": "scheduling.x-k8s.io/v1alpha1", "volcano": "scheduling.volcano.sh/v1beta1"}
)
"""The APIs of the pod groups of each gang scheduler."""
KUEUE_API_VERSIONS = ("kueue.x-k8s.io/v1beta2", "kueue.x-k8s.io/v1beta1")
"""The versions that kfjob can read, the newest first: Kueue 0.15 to 0.19 serve both, 0.20 does not serve v1beta1."""
KUEUE_VISIBILITY_VERSIONS = ("visibility.kueue.x-k8s.io/v1beta2", "visibility.kueue.x-k8s.io/v1beta1")
KUEUE_WORKLOADS = "workloads"
"""The resource that holds the state of one queued job."""
KUEUE_LOCAL_QUEUES = "localqueues"
KUEUE_TOPOLOGIES = "topologies"
ANNOTATION_KUEUE_REQUIRED = "kueue.x-k8s.io/podset-required-topology"
ANNOTATION_KUEUE_PREFERRED = "kueue.x-k8s.io/podset-preferred-topology"
LABEL_KUEUE_QUEUE = "kueue.x-k8s.io/queue-name"
LABEL_KUEUE_PRIORITY = "kueue.x-k8s.io/priority-class"
LABEL_KUEUE_JOB_UID = "kueue.x-k8s.io/job-uid"
"""Kueue writes this label on the Workload of a job."""

SCHEDULING_API_VERSION = "scheduling.k8s.io/v1"
"""The API version of PriorityClass."""

ANNOTATION_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
ANNOTATION_HYPERPOD_AUTO_RESUME = "sagemaker.amazonaws.com/enable-job-auto-resume"
ANNOTATION_HYPERPOD_RETRIES = "sagemaker.amazonaws.com/job-max-retry-count"
LABEL_HYPERPOD_HEALTH = "sagemaker.amazonaws.com/node-health-status"
HYPERPOD_HEALTHY = "Schedulable"
LABEL_ISTIO_INJECT = "sidecar.istio.io/inject"
NOT_EVICTABLE = {"karpenter.sh/do-not-disrupt": "true", "cluster-autoscaler.kubernetes.io/safe-to-evict": "false"}
"""Annotations of pods that autoscalers leave alone. Sources: Karpenter's documentation (Disruption, Pod-Level Controls) and the
Cluster Autoscaler's FAQ."""


def is_list(item: JsonMapping) -> bool:
    """Return whether an object is a List, which stands for its items: of any kind that ends with `List`."""
    return str(item.get("kind", "")).endswith("List") and isinstance(item.get("items"), list)


def describe_name(item: JsonMapping) -> str:
    """Return the name of an object for messages; the API server completes a `generateName`, which is shown as `NAME…`."""
    metadata = item["metadata"]
    return str(metadata["name"] if "name" in metadata else f"{metadata.get('generateName', '')}…")


def describe_object(item: JsonMapping) -> str:
    """Return the kind and name of an object for messages."""
    return f"{item['kind']} `{describe_name(item)}`"


def without_nulls(value: Any) -> Any:
    """Return a manifest without keys that are null, at every depth: Kubernetes takes them as unset."""
    if isinstance(value, dict):
        return {key: without_nulls(inner) for key, inner in value.items() if inner is not None}
    return [without_nulls(item) for item in value] if isinstance(value, list) else value
