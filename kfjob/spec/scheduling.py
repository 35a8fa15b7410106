"""Where and when pods are placed, and what the operator does with the job over its life."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, field_validator

from kfjob.spec import pytorchjob_schema
from kfjob.spec.base import SpecModel
from kfjob.spec.durations import parse_duration
from kfjob.spec.fields import LabelValue, MetadataKey, ObjectName, field_error


def _seconds(value: object) -> object:
    if not isinstance(value, str):
        return value
    if (span := parse_duration(value)) is None:
        raise field_error("duration", f"`{value}` is not a duration", hint="write seconds, or for example `90m`, `1d12h`")
    return span


Seconds = Annotated[int, BeforeValidator(_seconds, json_schema_input_type=int | str)]
"""Whole seconds, or a text such as `1d12h`."""
_INT32 = 2**31 - 1
_INT64 = 2**63 - 1


class Restarts(SpecModel):
    """What happens when something dies."""

    max: int = Field(
        default=3, ge=0, le=_INT32, description="how often torchrun restarts the training processes before the agent gives up"
    )
    policy: Literal["Never", "OnFailure", "Always", "ExitCode"] = Field(
        default="Never",
        description="what happens when an agent itself exits: with `Never` the job has failed and pods and logs stay",
    )


class RunPolicy(SpecModel):
    """The operator's run policy. Its deadline and back-off are unreliable: they come late or never, and delete the logs."""

    clean_pods: Literal["None", "Running", "All"] = Field(default="None", description="which pods go when the job has ended")
    deadline: Seconds | None = Field(default=None, ge=1, le=_INT64, description="seconds after which the job is failed")
    backoff_limit: int | None = Field(
        default=None, ge=0, le=_INT32, description="restarts of running pods before the job is failed"
    )
    ttl: Seconds | None = Field(
        default=None, ge=0, le=_INT32, description="seconds after which a job that has ended is deleted"
    )
    suspend: bool = Field(default=False, description="created without pods, until somebody resumes it")


class Gang(SpecModel):
    """All pods at once or none. The operator must have been started with the same gang scheduler."""

    scheduler: Literal["volcano", "scheduler-plugins"]
    min_available: int | None = Field(default=None, ge=1, le=4096, description="left out: all pods of the job")
    queue: str | None = Field(default=None, description="of Volcano")
    priority_class: ObjectName | None = None
    timeout: Seconds | None = Field(default=None, ge=0, le=_INT32, description="seconds to wait for the gang")


class HyperPod(SpecModel):
    """Amazon SageMaker HyperPod: the job comes back after a faulty node was replaced (operator 1.7.0, 1.8.0 or 1.8.1)."""

    auto_resume: bool = True
    max_retries: int = Field(default=1, ge=0, le=100)


class Toleration(SpecModel):
    """A taint that pods put up with."""

    key: MetadataKey | None = None
    operator: Literal["Exists", "Equal"] = "Exists"
    value: LabelValue | None = None
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = None
    seconds: int | None = Field(default=None, ge=0, description="with NoExecute, for so long")


class Scheduling(SpecModel):
    """Where and when pods are placed."""

    queue: ObjectName | None = Field(default=None, description="the local queue of Kueue")
    queue_priority: ObjectName | None = Field(default=None, description="a WorkloadPriorityClass of Kueue")
    gang: Gang | None = None
    priority_class: ObjectName | None = Field(default=None, description="of the pods")
    scheduler: str | None = Field(default=None, description="the name of the scheduler")
    node_selector: dict[MetadataKey, LabelValue] = Field(default_factory=dict)
    tolerations: tuple[Toleration, ...] = ()
    affinity: dict[str, Any] = Field(default_factory=dict, description="as in a pod")
    spread: tuple[dict[str, Any], ...] = Field(default=(), description="topologySpreadConstraints, as in a pod")
    hyperpod: HyperPod | None = None
    istio_sidecar: bool = Field(default=False, description="let Istio put its proxy into the pods: it keeps them from ending")

    @field_validator("affinity")
    @classmethod
    def _is_affinity(cls, value: dict[str, Any]) -> dict[str, Any]:
        pytorchjob_schema.check_value(f"{pytorchjob_schema.POD_PATH}.affinity", value, "scheduling.affinity")
        return value

    @field_validator("spread")
    @classmethod
    def _is_spread(cls, value: tuple[dict[str, Any], ...]) -> tuple[dict[str, Any], ...]:
        pytorchjob_schema.check_value(
            f"{pytorchjob_schema.POD_PATH}.topologySpreadConstraints", list(value), "scheduling.spread"
        )
        return value

    @field_validator("queue_priority")
    @classmethod
    def _of_a_queue(cls, value: str | None, info: Any) -> str | None:
        if value is not None and info.data.get("queue") is None:
            raise field_error("queue_priority", "`queue_priority` needs a `queue`", path="scheduling.queue_priority")
        return value
