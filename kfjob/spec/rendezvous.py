"""How the agents of a job find each other, how many they are, and what else torchrun can be told."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, ValidationInfo, field_validator

from kfjob.spec import pytorchjob_schema
from kfjob.spec.base import SpecModel
from kfjob.spec.fields import EnvValue, ObjectName, SecretRef, field_error

RendezvousBackend = Literal["c10d", "etcd", "etcd-v2", "static"]
Launcher = Literal["torchrun", "launch", "deepspeed", "accelerate", "python"]
LAST_PORT = 65535


class EtcdTls(SpecModel):
    """Encryption to a shared etcd; the files come from a secret, under the keys that cert-manager uses."""

    secret: ObjectName = Field(description="a secret with `ca.crt`, and for client certificates `tls.crt` and `tls.key`")
    client_certificate: bool = Field(default=False, description="show `tls.crt` to the server")


class Rendezvous(SpecModel):
    """How the agents find each other."""

    backend: RendezvousBackend = Field(default="c10d", description="torch's rendezvous backend")
    endpoint: str | None = Field(
        default=None, description="`host:port` of a shared etcd; left out, an etcd job gets its own (and c10d uses worker 0)"
    )
    port: int | None = Field(default=None, ge=1, le=LAST_PORT, description="of the store on the first pod (c10d, static)")
    id: str | None = Field(default=None, min_length=1, description="of the rendezvous; left out, unique for each launch")
    conf: dict[str, EnvValue] = Field(default_factory=dict, description="torch's rdzv_conf, for example `join_timeout: 600`")
    local_addr: str | None = Field(
        default=None, description="how an agent names itself to the others: `pod-ip`, `pod-name`, or a text; it decides rank 0"
    )
    user: SecretRef | None = Field(default=None, description="of a shared etcd")
    password: SecretRef | None = Field(default=None, description="of a shared etcd")
    tls: EtcdTls | None = Field(default=None, description="of a shared etcd")

    @property
    def is_etcd(self) -> bool:
        """Whether the agents meet in an etcd."""
        return self.backend in ("etcd", "etcd-v2")

    @property
    def has_own_etcd(self) -> bool:
        """Whether the job brings an etcd with it."""
        return self.is_etcd and self.endpoint is None

    @field_validator("endpoint")
    @classmethod
    def _host_and_port(cls, value: str | None, info: ValidationInfo) -> str | None:
        if value is None:
            return None
        host, colon, port = value.rpartition(":")
        if not colon or not host or not port.isdecimal() or not 0 < int(port) <= LAST_PORT:
            raise field_error("endpoint", f"`{value}` is not `host:port`", hint="for example `etcd.default:2379`")
        if (backend := info.data.get("backend")) in ("c10d", "static"):
            first = "worker 0" if backend == "c10d" else "the master"
            raise field_error(
                f"endpoint_{backend}",
                f"a {backend} rendezvous meets at {first}, it has no `endpoint` of its own",
                hint="remove `endpoint`, or set `backend: etcd`",
            )
        return value

    @field_validator("port")
    @classmethod
    def _of_a_store(cls, value: int | None, info: ValidationInfo) -> int | None:
        if value is not None and info.data.get("backend") in ("etcd", "etcd-v2"):
            raise field_error("port_etcd", "`port` is of the store on the first pod; that of an etcd stands in `endpoint`")
        return value

    @field_validator("conf")
    @classmethod
    def _pairs(cls, value: dict[str, str]) -> dict[str, str]:
        for key, text in value.items():
            if not key or set(",=") & set(key) or "," in text:  # torch writes it as key=value,key=value
                raise field_error(
                    "rdzv_conf", f"`{key}={text}` cannot be written as torch's `key=value,…`", path=f"rendezvous.conf.{key}"
                )
        return value

    @field_validator("user", "password", "tls")
    @classmethod
    def _of_a_shared_etcd(cls, value: Any, info: ValidationInfo) -> Any:
        if value is not None and info.field_name != "password" and "backend" in info.data and not info.data.get("endpoint"):
            raise field_error("etcd_access", f"`{info.field_name}` is of a shared etcd, and the rendezvous has no `endpoint`")
        if info.field_name == "password" and "user" in info.data and (value is None) != (info.data.get("user") is None):
            raise field_error("etcd_login", "`user` and `password` go together")
        return value


def _rendezvous(value: object) -> object:
    return {"backend": value} if isinstance(value, str) else value


RendezvousField = Annotated[Rendezvous, BeforeValidator(_rendezvous, json_schema_input_type=RendezvousBackend | Rendezvous)]


class Elastic(SpecModel):
    """A job that goes on with fewer agents than it would like, and takes more when they come."""

    min: int = Field(ge=1, le=4096, description="with fewer agents the job waits")
    max: int = Field(ge=1, le=4096, description="the job never has more agents than this")
    max_restarts: int | None = Field(default=None, ge=0, description="as `restarts.max`: every change of membership costs one")
    metrics: tuple[dict[str, Any], ...] = Field(
        default=(), description="of a HorizontalPodAutoscaler (autoscaling/v2) that sets the number of workers"
    )

    @field_validator("metrics")
    @classmethod
    def _are_metrics(cls, value: tuple[dict[str, Any], ...]) -> tuple[dict[str, Any], ...]:
        pytorchjob_schema.check_value("spec.elasticPolicy.metrics", list(value), "elastic.metrics")
        return value


class TorchrunOptions(SpecModel):
    """What torchrun can be told besides the rendezvous (torch 2.15, torch/distributed/run.py). Left out: torch's default."""

    monitor_interval: float | None = Field(default=None, gt=0, description="seconds between looks at the processes")
    start_method: Literal["spawn", "fork", "forkserver"] | None = None
    role: str | None = Field(default=None, description="the name of the agents' role in their logs")
    log_dir: str | None = Field(default=None, description="folder for the output of the processes, one file each")
    redirects: EnvValue | None = Field(
        default=None, description="what goes to `log_dir` only: `1` stdout, `2` stderr, `3` both"
    )
    tee: EnvValue | None = Field(default=None, description="what goes to `log_dir` and to the pod's log")
    log_line_prefix_template: str | None = None
    local_ranks_filter: str | None = Field(default=None, description="local ranks whose output is shown, for example `0`")
    duplicate_stdout_filters: str | None = None
    duplicate_stderr_filters: str | None = None
    event_log_handler: str | None = Field(default=None, description="`console` prints the agents' events as JSON")
    signals_to_handle: str | None = None
    shutdown_timeout: int | None = Field(default=None, ge=0, description="seconds between SIGTERM and SIGKILL of a process")
