"""Placement of pods, and the operator's policies for restarts and for the end of a job."""

from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, ValidationInfo, field_validator, model_validator

from kfjob.base.units import parse_duration
from kfjob.objects.crd_schema import load_pod_schema
from kfjob.spec.fields import LabelValue, MetadataKey, ObjectName
from kfjob.validation.spec_model import SpecModel, field_error

_INT32 = 2**31 - 1
_INT64 = 2**63 - 1


def _convert_duration(value: object) -> object:
    if not isinstance(value, str) or value.isdecimal():
        return value
    if (seconds := parse_duration(value)) is None:
        hint = "write seconds, or for example `90m` or `1d12h`"
        raise field_error("duration", f"`{value}` is not a duration", hint=hint)
    return seconds


Seconds = Annotated[int, BeforeValidator(_convert_duration, json_schema_input_type=int | str)]
"""Whole seconds, or a text such as `1d12h`."""


class Restarts(SpecModel):
    """Restarts of training processes by torchrun, and of pods by the operator."""

    max: int = Field(
        default=3, ge=0, le=_INT32, description="Most restarts of the training processes by torchrun before the agent gives up"
    )
    policy: Literal["Never", "OnFailure", "Always", "ExitCode"] = Field(
        default="Never",
        description="Restart policy for the exit of an agent; with `Never` the job fails, and its pods and logs remain. The "
        "default is `OnFailure` for elastic jobs and HyperPod's auto-resume",
    )
    always: bool = Field(
        default=False,
        description="Restart also after a failure that a restart cannot cure, such as a missing module; `restarts: always` "
        "sets it. By default the local backend ends such a job",
    )


def _convert_restarts(value: object) -> object:
    if value == "always":
        return {"always": True}
    if value is False or isinstance(value, str):
        title = f"`restarts` must be `always` or a mapping, not `{value}`"
        raise field_error("restarts", title, hint="write `restarts: {max: 0}` for no restarts")
    return value


RestartsField = Annotated[Restarts, BeforeValidator(_convert_restarts, json_schema_input_type=Literal["always"] | Restarts)]
"""The policy of restarts, or `always`."""


class RunPolicy(SpecModel):
    """The operator's run policy, whose deadline and back-off limit act late or never, and what kfjob does after a failure."""

    clean_pods: Literal["None", "Running", "All"] = Field(
        default="None",
        description="Pods that the operator deletes when the job ends; up to v1.9.3 it deletes all pods after a limit",
    )
    deadline: Seconds | None = Field(default=None, ge=1, le=_INT64, description="Time after which the operator fails the job")
    backoff_limit: int | None = Field(
        default=None, ge=0, le=_INT32, description="Most restarts of running pods before the operator fails the job"
    )
    ttl: Seconds | None = Field(
        default=None, ge=0, le=_INT32, description="Time after its end at which the operator deletes the job"
    )
    after_failure: Literal["stop", "keep"] = Field(
        default="stop",
        description="Pods that still run after a failure of the job: with `stop`, the guard or the command that follows the "
        "job archives their logs and deletes them",
    )
    suspend: bool = Field(default=False, description="Create the job without pods; it starts when you resume it")


class Gang(SpecModel):
    """Gang scheduling: all pods start together or none. The operator must run with the same gang scheduler."""

    scheduler: Literal["volcano", "scheduler-plugins"] = Field(description="Gang scheduler of the operator")
    min_available: int | None = Field(
        default=None, ge=1, le=4096, description="Number of pods that must start together; default: all pods of the job"
    )
    queue: str | None = Field(default=None, description="Queue of Volcano")
    priority_class: ObjectName | None = Field(default=None, description="PriorityClass of the pod group")
    timeout: Seconds | None = Field(default=None, ge=0, le=_INT32, description="Longest time to wait for the gang")


class HyperPod(SpecModel):
    """Auto-resume of Amazon SageMaker HyperPod after it replaces a faulty node (operator 1.7.0, 1.8.0 or 1.8.1)."""

    auto_resume: bool = Field(default=True, description="Restart the job when a faulty node was replaced")
    max_retries: int = Field(default=1, ge=0, le=100, description="Most restarts after node failures")
    healthy_nodes: bool = Field(default=True, description="Select nodes that HyperPod has found healthy")


class Toleration(SpecModel):
    """A taint that the pods tolerate."""

    key: MetadataKey | None = Field(default=None, description="Key of the taint; default: every taint")
    operator: Literal["Exists", "Equal"] = Field(default="Exists", description="Whether `value` must be equal to the taint's")
    value: LabelValue | None = Field(default=None, description="Value of the taint, for `operator: Equal`")
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = Field(
        default=None, description="Effect of the taint; default: every effect"
    )
    seconds: int | None = Field(default=None, ge=0, description="Seconds until a `NoExecute` taint evicts the pod")


class Placement(SpecModel):
    """Placement of the pods on nodes."""

    priority_class: ObjectName | None = Field(default=None, description="PriorityClass of the pods")
    scheduler: str | None = Field(default=None, description="Name of the scheduler")
    node_selector: dict[MetadataKey, LabelValue] = Field(default_factory=dict, description="Labels that a node must have")
    tolerations: tuple[Toleration, ...] = Field(default=(), description="Taints that the pods tolerate")
    affinity: dict[str, Any] = Field(default_factory=dict, description="Affinity, as in a pod spec")
    spread: tuple[dict[str, Any], ...] = Field(default=(), description="topologySpreadConstraints, as in a pod spec")
    istio_sidecar: bool = Field(default=False, description="Allow Istio's sidecar, which prevents the pods from completing")

    @field_validator("affinity")
    @classmethod
    def _check_affinity(cls, value: dict[str, Any]) -> dict[str, Any]:
        if value:
            load_pod_schema().check_value(value, "PodTemplate.spec.affinity", "scheduling.affinity")
        return value

    @field_validator("spread")
    @classmethod
    def _check_spread(cls, value: tuple[dict[str, Any], ...]) -> tuple[dict[str, Any], ...]:
        if value:
            load_pod_schema().check_value(list(value), "PodTemplate.spec.topologySpreadConstraints", "scheduling.spread")
        return value


class Topology(SpecModel):
    """How close to each other Kueue places the pods. It is exactly one of `required` and `preferred`."""

    required: MetadataKey | None = Field(
        default=None, description="Label of nodes that all nodes of the job must share, for example a rack or a block"
    )
    preferred: MetadataKey | None = Field(default=None, description="The same, if there is room; else the next wider level")

    @model_validator(mode="after")
    def _check_level(self) -> Self:
        if (self.required is None) == (self.preferred is None):
            raise field_error("topology", "`topology` needs exactly one of `required` and `preferred`")
        return self

    @property
    def level(self) -> str:
        """The label."""
        return self.required or self.preferred or ""


class Scheduling(Placement):
    """Placement of the pods, and the queue and the priority of the job."""

    queue: ObjectName | None = Field(default=None, description="LocalQueue of Kueue")
    queue_priority: ObjectName | None = Field(default=None, description="WorkloadPriorityClass of Kueue")
    topology: Topology | None = None
    gang: Gang | None = None
    hyperpod: HyperPod | None = None
    evictable: bool | None = Field(
        default=None,
        description="Allow Karpenter and the Cluster Autoscaler to evict the pods to save nodes; default: only those of an "
        "elastic job",
    )

    @field_validator("queue_priority", "topology")
    @classmethod
    def _check_queue(cls, value: Any, info: ValidationInfo) -> Any:
        name = info.field_name or ""
        if value is not None and info.data.get("queue") is None:
            raise field_error(name, f"`{name}` needs `queue`", path=f"scheduling.{name}")
        return value
