"""Kubernetes events and queue statuses, each with its source.

"seen: tests/cluster" means that a test on that cluster met it. Other texts are from memory of the named file.
"""

from __future__ import annotations

from kfjob.joblog.events import KubernetesEvent, WorkloadStatus

MAKING = "Error creating: "
START = 1_795_000_000_000_000_000


def _event(kind: str, reason: str, message: str, *, warning: bool = True) -> KubernetesEvent:
    name = "a-worker-0" if kind == "Pod" else "a" if kind == "PyTorchJob" else "ckpt"
    return KubernetesEvent(kind=kind, name=name, reason=reason, message=message, warning=warning, time=START, uid=reason)


def _queue(reason: str, message: str) -> WorkloadStatus:
    return WorkloadStatus(name="pytorchjob-a-1", queue="team", reason=reason, message=message, time=START)


EVENTS: list[tuple[str, KubernetesEvent, str]] = [
    (
        "quota-exceeded",
        _event(
            "PyTorchJob",
            "FailedCreatePod",
            MAKING + 'pods "a-worker-1" is forbidden: exceeded quota: small, requested: pods=1, used: pods=1, limited: pods=1',
        ),
        "seen: tests/cluster",
    ),
    (
        "quota-requires-resources",
        _event(
            "PyTorchJob",
            "FailedCreatePod",
            MAKING + 'pods "a-worker-0" is forbidden: failed quota: small: must specify cpu for: pytorch; memory for: pytorch',
        ),
        "apiserver plugin/pkg/admission/resourcequota",
    ),
    (
        "limit-range",
        _event(
            "PyTorchJob",
            "FailedCreatePod",
            MAKING + 'pods "a-worker-0" is forbidden: maximum memory usage per Container is 64Mi, but limit is 1Gi',
        ),
        "seen: tests/cluster",
    ),
    (
        "pod-security",
        _event(
            "PyTorchJob",
            "FailedCreatePod",
            MAKING
            + 'pods "a-worker-0" is forbidden: violates PodSecurity "baseline:latest": host namespaces (hostNetwork=true)',
        ),
        "seen: tests/cluster",
    ),
    (
        "webhook-down",
        _event(
            "PyTorchJob",
            "FailedCreatePod",
            MAKING + 'Internal error occurred: failed calling webhook "pods.test": failed to call webhook: Post '
            '"https://nobody.team.svc:443/?timeout=10s": service "nobody" not found',
        ),
        "seen: tests/cluster",
    ),
    (
        "webhook-denied",
        _event(
            "PyTorchJob",
            "FailedCreatePod",
            MAKING + 'admission webhook "validation.gatekeeper.sh" denied the request: [team-label] you must provide labels',
        ),
        "apiserver plugin/webhook/errors/statuserror.go",
    ),
    (
        "service-account-missing",
        _event(
            "PyTorchJob",
            "FailedCreatePod",
            MAKING + 'pods "a-worker-0" is forbidden: error looking up service account team/robot: serviceaccount "robot" '
            "not found",
        ),
        "seen: tests/cluster",
    ),
    (
        "gang-scheduler-missing",
        _event(
            "TrainJob",
            "TrainJobResourcesCreationFailed",
            'no matches for kind "PodGroup" in version "scheduling.x-k8s.io/v1alpha1"',
        ),
        "seen: Trainer v2.3 without scheduler-plugins on the test cluster",
    ),
    (
        "pods-refused",
        _event(
            "PyTorchJob",
            "FailedCreatePod",
            MAKING + 'pods "a-worker-0" is forbidden: unable to create new content in '
            "namespace team because it is being terminated",
        ),
        "apiserver plugin/namespace/lifecycle",
    ),
    (
        "operator-refuses-spec",
        _event("PyTorchJob", "PyTorchJobFailedValidation", "PyTorchJobSpec is not valid: There is no container named pytorch"),
        "training-operator v1.7.0 pytorchjob_controller.go",
    ),
    (
        "storage-class-missing",
        _event("PersistentVolumeClaim", "ProvisioningFailed", 'storageclass.storage.k8s.io "fast" not found'),
        "seen: tests/cluster",
    ),
    (
        "claim-not-provided",
        _event(
            "PersistentVolumeClaim",
            "FailedBinding",
            "no persistent volumes available for this claim and no storage class is set",
            warning=False,
        ),
        "seen: tests/cluster",
    ),
    (
        "secret-missing",
        _event("Pod", "FailedMount", 'MountVolume.SetUp failed for volume "hub" : secret "hub" not found'),
        "seen: tests/cluster",
    ),
    (
        "config-map-missing",
        _event("Pod", "FailedMount", 'MountVolume.SetUp failed for volume "conf" : configmap "settings" not found'),
        "seen: tests/cluster",
    ),
    (
        "volume-attached-elsewhere",
        _event(
            "Pod",
            "FailedAttachVolume",
            'Multi-Attach error for volume "pvc-1" Volume is already used by pod(s) b-worker-0',
        ),
        "kube-controller-manager attachdetach/reconciler/reconciler.go",
    ),
    (
        "mount-failed",
        _event(
            "Pod",
            "FailedMount",
            'MountVolume.SetUp failed for volume "data" : hostPath type check failed: /nowhere is not a directory',
        ),
        "seen: tests/cluster",
    ),
    (
        "no-pod-address",
        _event(
            "Pod",
            "FailedCreatePodSandBox",
            'Failed to create pod sandbox: rpc error: code = Unknown desc = failed to setup network for sandbox "1": plugin '
            'type="aws-cni" name="aws-cni" failed (add): add cmd: failed to assign an IP address to container',
        ),
        "amazon-vpc-cni-k8s cmd/routed-eni-cni-plugin/cni.go",
    ),
    (
        "sandbox-failed",
        _event("Pod", "FailedCreatePodSandBox", "Failed to create pod sandbox: plugin type=cilium failed (add): EOF"),
        "kubelet kuberuntime_sandbox.go",
    ),
    (
        "pod-preempted",
        _event("Pod", "Preempted", "Preempted by pod 1-2 on node n-1", warning=False),
        "kube-scheduler preemption/executor.go",
    ),
    (
        "pod-evicted-by-taint",
        _event("Pod", "TaintManagerEviction", "Marking for deletion Pod team/a-worker-0", warning=False),
        "kube-controller-manager tainteviction/taint_eviction.go:601",
    ),
    (
        "node-not-ready",
        _event("Pod", "NodeNotReady", "Node is not ready"),
        "kube-controller-manager util/node/controller_utils.go:155",
    ),
    # the pod's state has the same message, sometimes only a part of it
    (
        "image-not-found",
        _event("Pod", "Failed", 'Failed to pull image "r/a:1": rpc error: code = NotFound desc = r/a:1: not found'),
        "seen: tests/cluster",
    ),
    (
        "gpu-runtime-missing",
        _event(
            "Pod",
            "FailedCreatePodSandBox",
            "Failed to create pod sandbox: rpc error: code = Unknown desc = failed to get sandbox runtime: "
            'no runtime for "nvidia" is configured',
        ),
        "containerd internal/cri/config/config.go GetSandboxRuntime",
    ),
    ("no-capacity", _event("Pod", "FailedScheduling", "0/1 nodes are available: 1 Insufficient nvidia.com/gpu."), "scheduler"),
]

QUEUES: list[tuple[str, WorkloadStatus, str]] = [
    ("queue-missing", _queue("Inadmissible", "LocalQueue team doesn't exist"), "kueue workload_controller.go:442"),
    ("queue-inactive", _queue("Inadmissible", "ClusterQueue gpus is inactive"), "kueue workload_controller.go:463"),
    (
        "queue-too-small",
        _queue(
            "Pending",
            "couldn't assign flavors to pod set worker: insufficient quota for nvidia.com/gpu in flavor p5, request > maximum "
            "capacity (64 > 32)",
        ),
        "kueue flavorassigner.go:916",
    ),
    (
        "queue-waits",
        _queue(
            "Pending",
            "couldn't assign flavors to pod set worker: insufficient unused quota for cpu in flavor p5, 8 more needed",
        ),
        "kueue flavorassigner.go:928",
    ),
    (
        "queue-preempted",
        _queue(
            "Preempted", "Preempted to accommodate a workload (UID: 1, JobUID: 2) due to prioritization in the ClusterQueue"
        ),
        "kueue preemption.go:165",
    ),
]
