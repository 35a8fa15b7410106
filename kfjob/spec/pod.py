"""The pods of a job besides the training command: resources, environment, other containers, security."""

from typing import Annotated, Any, Literal, Self

from pydantic import Discriminator, Field, Tag, ValidationInfo, field_validator, model_validator

from kfjob.base.units import parse_quantity
from kfjob.joblog.events import TRAINING_CONTAINER
from kfjob.objects import api_objects
from kfjob.objects.crd_schema import load_pod_schema
from kfjob.spec.fields import (
    AbsolutePath,
    DnsLabel,
    EnvValue,
    LabelValue,
    MetadataKey,
    ObjectName,
    Quantity,
    Size,
    find_duplicate,
)
from kfjob.validation.spec_model import SpecModel, field_error

RESOURCE_NAMES = {
    "cpu": "cpu",
    "memory": "memory",
    "gpus": api_objects.GPU_RESOURCE,
    "neuron": api_objects.NEURON_RESOURCE,
    "efa": api_objects.EFA_RESOURCE,
}
"""Kubernetes' names of the resources that have a field."""


class Resources(SpecModel):
    """Resources of one pod. Requests equal limits, so that the pod is not the first one to be evicted."""

    cpu: Quantity | None = Field(default=None, description="CPU cores, for example `8` or `500m`")
    memory: Size | None = Field(default=None, description="Memory, for example `64Gi`")
    gpus: int = Field(default=0, ge=0, le=64, description=f"GPUs ({api_objects.GPU_RESOURCE})")
    gpu_memory: Size | None = Field(
        default=None,
        description="Memory of each GPU, for example `80Gi`, to check whether the model fits; default: that of `instance`",
    )
    efa: int = Field(default=0, ge=0, le=64, description=f"Elastic Fabric Adapters ({api_objects.EFA_RESOURCE})")
    efa_claim: ObjectName | None = Field(
        default=None,
        description="ResourceClaimTemplate that requests the adapters from the EFA driver for dynamic resource allocation "
        "(Kubernetes 1.34), instead of `efa`",
    )
    neuron: int = Field(default=0, ge=0, le=64, description=f"Neuron devices ({api_objects.NEURON_RESOURCE})")
    huge_pages: dict[Literal["2Mi", "1Gi"], Size] = Field(
        default_factory=dict, description="Huge pages by page size, for example `2Mi: 5Gi`"
    )
    requests: dict[str, Quantity] = Field(
        default_factory=dict, description="Requests by Kubernetes' resource names; they override the fields above"
    )
    limits: dict[str, Quantity] = Field(
        default_factory=dict, description="Limits by Kubernetes' resource names; they override the fields above"
    )

    @property
    def amounts(self) -> dict[str, str]:
        """The amounts of the fields by Kubernetes' resource names, without `requests` and `limits`."""
        amounts = {name: str(getattr(self, field) or "") for field, name in RESOURCE_NAMES.items()}
        amounts |= {f"hugepages-{size}": amount for size, amount in self.huge_pages.items()}
        return {name: amount for name, amount in amounts.items() if amount}

    @model_validator(mode="after")
    def _check_limits(self) -> Self:
        requests, limits = self.amounts | self.requests, self.amounts | self.limits
        for name in requests.keys() & limits.keys():
            if parse_quantity(requests[name]) > parse_quantity(limits[name]):
                title = f"the pod requests {requests[name]} of `{name}`, and its limit is {limits[name]}"
                part = "requests" if name in self.requests else "limits"
                hint = "Kubernetes refuses such a pod: lower the request, or raise the limit"
                raise field_error("request_above_limit", title, path=f"resources.{part}", hint=hint)
        return self

    @model_validator(mode="after")
    def _check_claim(self) -> Self:
        if self.efa_claim and self.efa:
            title = "`efa` and `efa_claim` both request the adapters"
            raise field_error("efa_twice", title, path="resources.efa_claim", hint="remove one of them")
        return self

    @model_validator(mode="after")
    def _check_huge_pages(self) -> Self:
        amounts = {**self.requests, **self.limits}
        has_huge_pages = self.huge_pages or any(name.startswith("hugepages-") for name in amounts)
        if has_huge_pages and not (self.cpu or self.memory or amounts.keys() & {"cpu", "memory"}):
            title = "Kubernetes refuses a pod that requests huge pages and neither CPU nor memory"
            hint = "set `resources.cpu` or `resources.memory`"
            raise field_error("huge_pages", title, path="resources.huge_pages", hint=hint)
        return self


class EnvVarSource(SpecModel):
    """The source of a variable's value. It is exactly one of `secret`, `config_map`, `field` and `resource`."""

    secret: ObjectName | None = Field(default=None, description="Secret that holds the value")
    config_map: ObjectName | None = Field(default=None, description="ConfigMap that holds the value")
    key: str | None = Field(default=None, description="Key in the secret or ConfigMap")
    field: str | None = Field(default=None, description="Field of the pod, for example `status.podIP`")
    resource: str | None = Field(default=None, description="Resource of a container, for example `limits.memory`")
    container: DnsLabel | None = Field(
        default=None, description="Container whose `resource` is the value; default: the training container"
    )
    divisor: Quantity | None = Field(default=None, description="Unit of `resource`, for example `1Mi`; default: 1")
    optional: bool = Field(default=False, description="Start the pod even if the secret, ConfigMap or key does not exist")

    @model_validator(mode="after")
    def _check_source(self) -> Self:
        if sum(source is not None for source in (self.secret, self.config_map, self.field, self.resource)) != 1:
            raise field_error("env_source", "a variable needs exactly one of `secret`, `config_map`, `field`, `resource`")
        if (self.key is None) != (self.secret is None and self.config_map is None):
            raise field_error("env_key", "`secret` and `config_map` need a `key`, and `field` and `resource` have none")
        if self.resource is None and (self.container is not None or self.divisor is not None):
            raise field_error("env_resource", "only `resource` has a `container` and a `divisor`")
        return self


EnvEntry = Annotated[
    Annotated[EnvValue, Tag("env:text")] | Annotated[EnvVarSource, Tag("env:source")],
    Discriminator(lambda value: "env:source" if isinstance(value, dict | EnvVarSource) else "env:text"),
]
"""The value of a variable, or the source of the value."""


class EnvFromSource(SpecModel):
    """A secret or a ConfigMap whose keys become variables. It is exactly one of `secret` and `config_map`."""

    secret: ObjectName | None = Field(default=None, description="Secret whose keys are names of variables")
    config_map: ObjectName | None = Field(default=None, description="ConfigMap whose keys are names of variables")
    prefix: str = Field(default="", description="Text before each name")
    optional: bool = Field(default=False, description="Start the pod even if the secret or ConfigMap does not exist")

    @model_validator(mode="after")
    def _check_source(self) -> Self:
        if bool(self.secret) == bool(self.config_map):
            raise field_error("env_from", "a source of variables needs either `secret` or `config_map`")
        return self


class Port(SpecModel):
    """A port that the training container listens on."""

    name: DnsLabel | None = Field(default=None, max_length=15, description="Name of the port")
    port: int = Field(ge=1, le=65535, description="Number of the port")
    protocol: Literal["TCP", "UDP", "SCTP"] | None = Field(default=None, description="Protocol; default: TCP")


class Pod(SpecModel):
    """Other settings of the pods, in Kubernetes' own terms."""

    labels: dict[MetadataKey, LabelValue] = Field(default_factory=dict, description="Labels of the pods, not of the job")
    annotations: dict[MetadataKey, EnvValue] = Field(
        default_factory=dict, description="Annotations of the pods, not of the job"
    )
    working_dir: AbsolutePath | None = Field(
        default=None, description="Working directory of the training container; with the local backend, of the processes"
    )
    ports: tuple[Port, ...] = Field(default=(), description="Ports of the training container")
    lifecycle: dict[str, Any] = Field(
        default_factory=dict, description="lifecycle of the training container: `preStop` and `postStart`, as in a pod spec"
    )
    security_context: dict[str, Any] = Field(default_factory=dict, description="securityContext of the pod")
    container_security_context: dict[str, Any] = Field(
        default_factory=dict, description="securityContext of the training container"
    )
    host_network: bool = Field(default=False, description="Use the node's network; its pods share ports and host names")
    host_ipc: bool = Field(default=False, description="Use the node's IPC namespace")
    init_containers: tuple[dict[str, Any], ...] = Field(
        default=(), description="Containers that run before the training container, as in a pod spec"
    )
    sidecars: tuple[dict[str, Any], ...] = Field(
        default=(),
        description="Containers that run beside the training container (init containers with restartPolicy Always), and end "
        "with the pod",
    )
    grace: int | None = Field(default=None, ge=0, le=86400, description="Seconds between SIGTERM and SIGKILL of the pod")

    @field_validator("ports")
    @classmethod
    def _check_ports(cls, value: tuple[Port, ...]) -> tuple[Port, ...]:
        if (index := find_duplicate((port.port, port.protocol or "TCP") for port in value)) is not None:
            raise field_error("port_twice", f"duplicate port `{value[index].port}`", path=f"pod.ports.{index}")
        return value

    @field_validator("sidecars")
    @classmethod
    def _check_container_names(cls, value: tuple[dict[str, Any], ...], info: ValidationInfo) -> tuple[dict[str, Any], ...]:
        containers = (*info.data.get("init_containers", ()), *value)
        container_names = [TRAINING_CONTAINER, *(container.get("name") for container in containers)]
        if (index := find_duplicate(container_names)) is not None:
            raise field_error("container_twice", f"two containers have the name `{container_names[index]}`", path="pod")
        return value

    @field_validator("lifecycle", "security_context", "container_security_context", "init_containers", "sidecars")
    @classmethod
    def _check_pod_spec(cls, value: Any, info: Any) -> Any:
        pod_field = {
            "lifecycle": "containers.0.lifecycle",
            "security_context": "securityContext",
            "container_security_context": "containers.0.securityContext",
            "init_containers": "initContainers",
            "sidecars": "initContainers",
        }[info.field_name]
        schema, schema_path = load_pod_schema(), f"PodTemplate.spec.{pod_field}"
        value = schema.quote_fractions(value, schema_path)
        plain = list(value) if isinstance(value, tuple) else value
        schema.check_value(plain, schema_path, f"pod.{info.field_name}")
        return value
