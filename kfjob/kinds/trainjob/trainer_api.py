"""Names of Kubeflow Trainer (v2.3, pkg/apis/trainer/v1alpha1 and pkg/constants) and of JobSet (v0.12)."""

from __future__ import annotations

from types import MappingProxyType

GROUP = "trainer.kubeflow.org"
API_VERSION = f"{GROUP}/v1alpha1"
KIND = "TrainJob"
RESOURCE = "trainjobs"
RUNTIME_KIND = "TrainingRuntime"
RUNTIME_RESOURCE = "trainingruntimes"
CLUSTER_RUNTIME_KIND = "ClusterTrainingRuntime"

NODE = "node"
"""Name of the replicated job that trains, and of its container."""
TRAINER_FIELDS = {"image": "image", "command": "command", "args": "args", "env": "env", "resourcesPerNode": "resources"}
"""Fields of a TrainJob's `trainer`, and those of the container that they replace."""
LABEL_ANCESTOR = "trainer.kubeflow.org/trainjob-ancestor-step"
ANCESTOR = "trainer"
"""The replicated job with this label gets what a TrainJob's `trainer` says."""
PATCH_MANAGER = "kfjob.dev/submit"
"""The owner of kfjob's patch; Kueue and others have patches of their own in the same list."""
RESERVED_VARIABLES = ("PET_NNODES", "PET_NPROC_PER_NODE", "PET_NODE_RANK", "PET_MASTER_ADDR", "PET_MASTER_PORT")
"""Variables that a runtime with Trainer's policy for torch sets, and refuses from a job (pkg/constants/constants.go)."""
MASTER_PORT = 29500
"""Port of the static rendezvous of that policy."""
LABEL_FRAMEWORK = "trainer.kubeflow.org/framework"
"""The label by which the Kubeflow SDK lists runtimes; it refuses a runtime without it."""

GANG_SCHEDULERS = MappingProxyType({"scheduler-plugins": "scheduler-plugins-scheduler", "volcano": "volcano"})
"""Names of the gang schedulers after an installation with their own charts."""
ANNOTATION_VOLCANO_QUEUE = "scheduling.volcano.sh/queue-name"

LABEL_JOBSET = "jobset.sigs.k8s.io/jobset-name"
LABEL_REPLICATED_JOB = "jobset.sigs.k8s.io/replicatedjob-name"
INDEX = "batch.kubernetes.io/job-completion-index"
"""A label and an annotation of every pod of an Indexed Job."""

IMMUTABLE = ("field is immutable", "can only be modified when the TrainJob is suspended")
"""What the API server and the webhook say of changes that need a new job (pkg/apis, pkg/runtime/framework/plugins/jobset)."""
RUNTIME_MISSING = "specified trainingRuntime must be created before the TrainJob is created"
"""What the webhook says of a TrainJob whose runtime does not exist (pkg/runtime/core/trainingruntime.go)."""


def name_host(job: str, index: int) -> str:
    """Return the name under which other pods reach the pod of a node rank: its host name in JobSet's headless service."""
    return f"{name_pod(job, index)}.{job}"


def name_pod(job: str, index: int) -> str:
    """Return the name of a pod without its random end, which is its host name."""
    return f"{job}-{NODE}-0-{index}"


def pod_template_path(index: int) -> tuple[str | int, ...]:
    """Return where the pod template of a replicated job stands in the `spec` of a runtime, or in a TrainJob's patch of it."""
    return ("template", "spec", "replicatedJobs", index, "template", "spec", "template")
