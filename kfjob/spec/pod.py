"""What is in a pod besides the training command: what it asks for, its environment, its neighbours."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import Discriminator, Field, Tag, ValidationInfo, field_validator, model_validator

from kfjob.events import TRAINING_CONTAINER
from kfjob.spec import names, pytorchjob_schema
from kfjob.spec.base import SpecModel
from kfjob.spec.fields import AbsolutePath, DnsLabel, EnvValue, ObjectName, Quantity, field_error, find_duplicate


class Resources(SpecModel):
    """What one pod asks for. Requests equal limits, so that the pod is not the first to be evicted."""

    cpu: Quantity | None = Field(default=None, description="CPU cores, for example `8` or `500m`")
    memory: Quantity | None = Field(default=None, description="memory, for example `64Gi`")
    gpus: int = Field(default=0, ge=0, le=64, description="GPUs (nvidia.com/gpu)")
    gpu_memory: Quantity | None = Field(
        default=None, description="of each GPU, for example `80Gi`, where no `instance` says it: is the model to fit?"
    )
    efa: int = Field(default=0, ge=0, le=64, description="Elastic Fabric Adapters (vpc.amazonaws.com/efa)")
    neuron: int = Field(default=0, ge=0, le=64, description="Neuron devices (aws.amazon.com/neuron)")
    huge_pages: dict[Literal["2Mi", "1Gi"], Quantity] = Field(default_factory=dict, description="for example `2Mi: 5Gi`")
    requests: dict[str, Quantity] = Field(default_factory=dict, description="put over the requests, by Kubernetes' names")
    limits: dict[str, Quantity] = Field(default_factory=dict, description="put over the limits, by Kubernetes' names")


class EnvFrom(SpecModel):
    """A variable whose value stands elsewhere. Exactly one source."""

    secret: ObjectName | None = None
    config_map: ObjectName | None = None
    key: str | None = Field(default=None, description="in the secret or config map")
    field: str | None = Field(default=None, description="of the pod, for example `status.podIP`")
    optional: bool = Field(default=False, description="start without it if it is not there")

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if sum(source is not None for source in (self.secret, self.config_map, self.field)) != 1:
            raise field_error("env_source", "a variable comes from exactly one of `secret`, `config_map`, `field`")
        if (self.key is None) != (self.field is not None):
            raise field_error("env_key", "`key` names the entry of a secret or config map, and there only")
        return self


EnvEntry = Annotated[
    Annotated[EnvValue, Tag("env:text")] | Annotated[EnvFrom, Tag("env:source")],
    Discriminator(lambda value: "env:source" if isinstance(value, dict | EnvFrom) else "env:text"),
]
"""The value of a variable, or where it stands."""


class Port(SpecModel):
    """A port that the training container listens on."""

    name: DnsLabel | None = Field(default=None, max_length=15)
    port: int = Field(ge=1, le=65535)


class Pod(SpecModel):
    """The rest of a pod, in Kubernetes' own terms where there is nothing to simplify."""

    working_dir: AbsolutePath | None = None
    ports: tuple[Port, ...] = ()
    security_context: dict[str, Any] = Field(default_factory=dict, description="of the pod")
    container_security_context: dict[str, Any] = Field(default_factory=dict, description="of the training container")
    host_network: bool = Field(default=False, description="the node's network: pods then share its ports and names")
    host_ipc: bool = False
    init_containers: tuple[dict[str, Any], ...] = Field(default=(), description="run before the training container")
    sidecars: tuple[dict[str, Any], ...] = Field(
        default=(), description="containers that run beside it, as init containers that always restart: they end with the pod"
    )
    grace: int | None = Field(default=None, ge=0, le=86400, description="seconds between SIGTERM and SIGKILL")

    @field_validator("ports")
    @classmethod
    def _ports_once(cls, value: tuple[Port, ...]) -> tuple[Port, ...]:
        if (index := find_duplicate(port.port for port in value)) is not None:
            raise field_error("port_twice", f"port {value[index].port} stands twice", path=f"pod.ports.{index}")
        return value

    @field_validator("sidecars")
    @classmethod
    def _containers_once(cls, value: tuple[dict[str, Any], ...], info: ValidationInfo) -> tuple[dict[str, Any], ...]:
        before = info.data.get("init_containers", ())
        taken = [names.ETCD_WAIT, TRAINING_CONTAINER, *(container.get("name") for container in (*before, *value))]
        if (index := find_duplicate(taken)) is not None:
            raise field_error("container_twice", f"two containers are named `{taken[index]}`", path="pod")
        return value

    @field_validator("security_context", "container_security_context", "init_containers", "sidecars")
    @classmethod
    def _as_in_a_pod(cls, value: Any, info: Any) -> Any:
        where = {
            "security_context": "securityContext",
            "container_security_context": "containers.0.securityContext",
            "init_containers": "initContainers",
            "sidecars": "initContainers",
        }[info.field_name]
        plain = list(value) if isinstance(value, tuple) else value
        pytorchjob_schema.check_value(f"{pytorchjob_schema.POD_PATH}.{where}", plain, f"pod.{info.field_name}")
        return value
