"""JobSpec: what a user writes, checked field by field. Pure: nothing here knows a cluster, a clock or a file.

A field that is left out is None or empty here and is decided in `kfjob.plan`, where every decision says where it came from.
"""

from __future__ import annotations

import re
import shlex
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationInfo, field_validator, model_validator
from pydantic_core import PydanticCustomError

from kfjob.spec import names
from kfjob.spec.train import TrainSpec

SPEC_VERSION = 1

QUANTITY = re.compile(r"\d+(\.\d+)?(m|k|M|G|T|P|Ki|Mi|Gi|Ti|Pi)?")
ENV_NAME = re.compile(r"[-._a-zA-Z][-._a-zA-Z0-9]*")


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True)


def fault(kind: str, message: str, **context: Any) -> PydanticCustomError:
    """An error in our words; `path` in the context moves it to another field, `hint` says what to do."""
    return PydanticCustomError(kind, message.replace("{", "{{").replace("}", "}}"), context)


def _quantity(value: object) -> object:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return value
    text = str(value)
    if not QUANTITY.fullmatch(text):
        raise fault("quantity", f"`{text}` is not a Kubernetes quantity", hint="write for example `2`, `500m`, `16Gi`")
    return text


Quantity = Annotated[str, BeforeValidator(_quantity)]


def _env_value(value: object) -> object:
    if isinstance(value, bool):
        raise fault(
            "env_bool",
            f"an environment variable is text, and `{value}` could be meant in two ways",
            hint='put it in quotes: "true"',
        )
    return str(value) if isinstance(value, int | float) else value


EnvValue = Annotated[str, BeforeValidator(_env_value)]


def _words(value: object) -> object:
    if not isinstance(value, str):
        return value
    try:
        return shlex.split(value)
    except ValueError as err:
        raise fault("command_quotes", f"the command cannot be split into words: {str(err).lower()}") from err


Words = Annotated[tuple[str, ...], BeforeValidator(_words)]


def _processes(value: object) -> object:
    if (
        value is None
        or value in ("auto", "gpu", "cpu")
        or (isinstance(value, int) and not isinstance(value, bool) and value >= 1)
    ):
        return value
    raise fault("processes_per_node", f"`processes_per_node` is a number from 1 up, `auto`, `gpu` or `cpu`, not `{value}`")


class Resources(_Model):
    """What one pod asks for. Requests equal limits, so that the pod is not the first to be evicted."""

    cpu: Quantity | None = Field(default=None, description="CPU cores, for example `8` or `500m`")
    memory: Quantity | None = Field(default=None, description="memory, for example `64Gi`")
    gpus: int = Field(default=0, ge=0, le=64, description="GPUs (nvidia.com/gpu)")
    efa: int = Field(default=0, ge=0, le=64, description="Elastic Fabric Adapters (vpc.amazonaws.com/efa)")


class Rendezvous(_Model):
    """How the agents find each other."""

    backend: Literal["c10d", "etcd", "etcd-v2"] = Field(default="c10d", description="torch's rendezvous backend")
    endpoint: str | None = Field(
        default=None, description="`host:port` of a shared etcd; left out, an etcd job gets its own (and c10d uses worker 0)"
    )
    conf: dict[str, EnvValue] = Field(default_factory=dict, description="torch's rdzv_conf, for example `join_timeout: 600`")

    @field_validator("endpoint")
    @classmethod
    def _host_and_port(cls, value: str | None, info: ValidationInfo) -> str | None:
        if value is None:
            return None
        host, colon, port = value.rpartition(":")
        if not colon or not host or not port.isdecimal() or not 0 < int(port) < 65536:  # noqa: PLR2004 - the range of a port
            raise fault("endpoint", f"`{value}` is not `host:port`", hint="for example `etcd.default:2379`")
        if info.data.get("backend") == "c10d":
            raise fault(
                "endpoint_c10d",
                "a c10d rendezvous meets at worker 0, it has no `endpoint` of its own",
                hint="remove `endpoint`, or set `backend: etcd`",
            )
        return value


def _rendezvous(value: object) -> object:
    return {"backend": value} if isinstance(value, str) else value


class Restarts(_Model):
    """What happens when something dies."""

    max: int = Field(
        default=3, ge=0, description="how often torchrun restarts the training processes before the agent gives up"
    )
    policy: Literal["Never", "OnFailure", "Always"] = Field(
        default="Never",
        description="what the kubelet does when an agent itself exits: with `Never` the job has failed and pods and logs stay",
    )


class Volume(_Model):
    """Storage that every pod sees under the same path. Exactly one of the kinds."""

    name: str = Field(description="a DNS-1123 label")
    mount_path: str = Field(description="absolute path in the pod")
    read_only: bool = False
    pvc: str | None = Field(default=None, description="a PersistentVolumeClaim; on this machine a folder of that name")
    host_path: str | None = Field(default=None, description="a folder of the node; on this machine that very folder")
    empty_dir: bool = Field(default=False, description="an empty folder for each pod, gone with it")
    config_map: str | None = None
    secret: str | None = None

    @field_validator("name")
    @classmethod
    def _label(cls, value: str) -> str:
        if not names.DNS_1123.fullmatch(value) or len(value) > names.MAX_LABEL:
            raise fault("volume_name", f"volume name `{value}` is not a DNS-1123 label (lower-case letters, digits and `-`)")
        return value

    @field_validator("mount_path", "host_path")
    @classmethod
    def _absolute(cls, value: str | None) -> str | None:
        if value is not None and not value.startswith("/"):
            raise fault("absolute_path", f"`{value}` is not an absolute path")
        return value.rstrip("/") or "/" if value else value

    @model_validator(mode="after")
    def _one_kind(self) -> Self:
        kinds = [self.pvc, self.host_path, self.empty_dir or None, self.config_map, self.secret]
        if sum(kind is not None for kind in kinds) != 1:
            raise fault(
                "volume_kind",
                f"volume `{self.name}` needs exactly one of `pvc`, `host_path`, `empty_dir`, `config_map`, `secret`",
            )
        return self


class JobSpec(_Model):
    """One training job. Compiles to a PyTorchJob, or runs on this machine."""

    version: Literal[1] = Field(default=1, description="of this schema")
    name: str = Field(description="of the job, a DNS-1035 label; pods are named `<name>-worker-<i>`")
    namespace: str | None = Field(default=None, description="left out: the one of the kubeconfig's context")
    image: str | None = Field(default=None, description="of the pods; not used on this machine")
    image_pull_policy: Literal["Always", "IfNotPresent", "Never"] | None = None
    image_pull_secrets: tuple[str, ...] = ()
    nodes: int = Field(default=1, ge=1, le=4096, description="pods, each with one elastic agent")
    processes_per_node: Annotated[int | str | None, BeforeValidator(_processes)] = Field(
        default=None,
        description="training processes that each agent starts: a number, `auto`, `gpu` or `cpu`; unset: one a GPU, or one",
    )
    resources: Resources = Resources()
    rendezvous: Annotated[Rendezvous, BeforeValidator(_rendezvous)] = Rendezvous()
    env: dict[str, EnvValue] = Field(default_factory=dict, description="environment of the training container, plain values")
    volumes: tuple[Volume, ...] = ()
    restarts: Restarts = Restarts()
    service_account: str | None = None
    labels: dict[str, EnvValue] = Field(default_factory=dict, description="put on the job and its pods")
    annotations: dict[str, EnvValue] = Field(default_factory=dict, description="put on the job and its pods")
    command: Words | None = Field(
        default=None, description="what the container runs, words or one line, for example `torchrun train.py`"
    )
    train: TrainSpec | None = Field(default=None, description="arguments of kfjob's own trainer, instead of `command`")

    @field_validator("name")
    @classmethod
    def _dns_1035(cls, value: str) -> str:
        if why := names.dns_1035_fault(value):
            raise fault("job_name", f"job name `{value}` is not a DNS-1035 label: {why}", hint="for example `llama3-8b`")
        return value

    @field_validator("namespace")
    @classmethod
    def _dns_1123(cls, value: str | None) -> str | None:
        if value is not None and (not names.DNS_1123.fullmatch(value) or len(value) > names.MAX_LABEL):
            raise fault("namespace", f"namespace `{value}` is not a DNS-1123 label (lower-case letters, digits and `-`)")
        return value

    @field_validator("rendezvous")
    @classmethod
    def _derived_names_fit(cls, value: Rendezvous, info: ValidationInfo) -> Rendezvous:
        name, nodes = info.data.get("name"), info.data.get("nodes")
        if name is None or nodes is None:
            return value
        longest = names.longest_derived(name, nodes, own_etcd=value.backend != "c10d" and value.endpoint is None)
        if (over := len(longest) - names.MAX_LABEL) > 0:
            raise fault(
                "derived_name",
                "job name is too long for the names that Kubernetes will derive from it",
                path="name",
                detail=f"service `…{longest[len(name) :]}` would have {names.MAX_LABEL + over} characters, "
                f"the limit is {names.MAX_LABEL}",
                hint=f"use at most {len(name) - over} characters for {nodes} workers",
            )
        return value

    @field_validator("env")
    @classmethod
    def _env_names(cls, value: dict[str, str]) -> dict[str, str]:
        for name in value:
            if not ENV_NAME.fullmatch(name):
                raise fault("env_name", f"`{name}` is not the name of an environment variable", path=f"env.{name}")
        return value

    @field_validator("volumes")
    @classmethod
    def _distinct(cls, value: tuple[Volume, ...]) -> tuple[Volume, ...]:
        for index, volume in enumerate(value):
            for other in value[:index]:
                if volume.name == other.name:
                    raise fault("volume_twice", f"two volumes are named `{volume.name}`", path=f"volumes.{index}.name")
                if volume.mount_path == other.mount_path:
                    raise fault(
                        "mount_twice", f"two volumes are mounted at `{volume.mount_path}`", path=f"volumes.{index}.mount_path"
                    )
        return value

    @field_validator("train")
    @classmethod
    def _command_or_train(cls, value: TrainSpec | None, info: ValidationInfo) -> TrainSpec | None:
        if "command" not in info.data:
            return value
        command = info.data["command"]
        if command and value is not None:
            raise fault("command_and_train", "a job has either `command` or `train`, not both", path="train")
        if not command and value is None:
            raise fault(
                "nothing_to_run", "the job has nothing to run", path="", hint="add `train:` for kfjob's trainer, or `command:`"
            )
        return value
