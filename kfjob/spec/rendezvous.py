"""The rendezvous of a job's agents, the limits of an elastic job, and torchrun's other options."""

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, ValidationInfo, field_validator

from kfjob.objects.crd_schema import load_pod_schema
from kfjob.spec.fields import EnvValue, ObjectName, SecretRef
from kfjob.validation.spec_model import SpecModel, field_error

RendezvousBackend = Literal["c10d", "etcd", "etcd-v2", "static"]
LAST_PORT = 65535


class EtcdTls(SpecModel):
    """TLS for a shared etcd. A secret holds the files under the keys that cert-manager uses."""

    secret: ObjectName = Field(description="Secret with `ca.crt`, and with `tls.crt` and `tls.key` for client certificates")
    client_certificate: bool = Field(default=False, description="Present `tls.crt` to the server")


class Rendezvous(SpecModel):
    """The rendezvous of the agents."""

    backend: RendezvousBackend = Field(default="c10d", description="Rendezvous backend of torch")
    endpoint: str | None = Field(
        default=None, description="`host:port` of a shared etcd; default: the job creates its own etcd (c10d uses worker 0)"
    )
    port: int | None = Field(
        default=None, ge=1, le=LAST_PORT, description="Port of the store on the first pod (c10d, static); default: 23456"
    )
    id: str | None = Field(default=None, min_length=1, description="Rendezvous id; default: unique for each launch")
    conf: dict[str, EnvValue] = Field(default_factory=dict, description="torch's rdzv_conf, for example `join_timeout: 600`")
    local_addr: str | None = Field(
        default=None,
        description="Address that an agent announces: `pod-ip`, `pod-name` or a text; the agent of the first address gets "
        "rank 0",
    )
    user: SecretRef | None = Field(default=None, description="User name for a shared etcd: `SECRET/KEY`")
    password: SecretRef | None = Field(default=None, description="Password for a shared etcd: `SECRET/KEY`")
    tls: EtcdTls | None = Field(default=None, description="TLS for a shared etcd")

    @property
    def is_etcd(self) -> bool:
        """Whether the agents use an etcd for the rendezvous."""
        return self.backend in ("etcd", "etcd-v2")

    @property
    def has_own_etcd(self) -> bool:
        """Whether the job creates its own etcd."""
        return self.is_etcd and self.endpoint is None

    @field_validator("endpoint")
    @classmethod
    def _check_endpoint(cls, value: str | None, info: ValidationInfo) -> str | None:
        if value is None:
            return None
        host, colon, port = value.rpartition(":")
        if not colon or not host or not port.isdecimal() or not 0 < int(port) <= LAST_PORT:
            raise field_error("endpoint", f"`{value}` is not `host:port`", hint="for example `etcd.default:2379`")
        if (backend := info.data.get("backend")) in ("c10d", "static"):
            pod = "worker 0" if backend == "c10d" else "the Master"
            raise field_error(
                f"endpoint_{backend}",
                f"a {backend} rendezvous has no `endpoint`: its store is on {pod}",
                hint="remove `endpoint`, or set `backend: etcd`",
            )
        return value

    @field_validator("port")
    @classmethod
    def _check_port(cls, value: int | None, info: ValidationInfo) -> int | None:
        if value is not None and info.data.get("backend") in ("etcd", "etcd-v2"):
            raise field_error("port_etcd", "an etcd rendezvous has no `port`", hint="set the port in `endpoint`")
        return value

    @field_validator("conf")
    @classmethod
    def _check_conf(cls, value: dict[str, str]) -> dict[str, str]:
        for key, text in value.items():
            if not key or set(",=") & set(key) or "," in text:  # torch parses key=value,key=value
                raise field_error(
                    "rdzv_conf", f"torch cannot parse `{key}={text}` as `key=value,…`", path=f"rendezvous.conf.{key}"
                )
        return value

    @field_validator("user", "password", "tls")
    @classmethod
    def _check_shared_etcd(cls, value: Any, info: ValidationInfo) -> Any:
        if value is not None and info.field_name != "password" and "backend" in info.data and not info.data.get("endpoint"):
            raise field_error("etcd_access", f"`{info.field_name}` needs a shared etcd, but the rendezvous has no `endpoint`")
        if info.field_name == "password" and "user" in info.data and (value is None) != (info.data.get("user") is None):
            raise field_error("etcd_login", "`user` and `password` need each other")
        return value


def _convert_rendezvous(value: object) -> object:
    return {"backend": value} if isinstance(value, str) else value


RendezvousField = Annotated[
    Rendezvous, BeforeValidator(_convert_rendezvous, json_schema_input_type=RendezvousBackend | Rendezvous)
]
"""A rendezvous, or the name of its backend."""


class Elastic(SpecModel):
    """Limits of an elastic job, which continues with fewer agents and admits new ones."""

    min: int = Field(ge=1, le=4096, description="Fewest agents; the job waits until this many have joined")
    max: int = Field(ge=1, le=4096, description="Most agents")
    max_restarts: int | None = Field(
        default=None, ge=0, description="Most restarts, instead of `restarts.max`; every change of membership is a restart"
    )
    metrics: tuple[dict[str, Any], ...] = Field(
        default=(), description="Metrics of a HorizontalPodAutoscaler (autoscaling/v2) that sets the number of Workers"
    )

    @field_validator("metrics")
    @classmethod
    def _check_metrics(cls, value: tuple[dict[str, Any], ...]) -> tuple[dict[str, Any], ...]:
        metrics = load_pod_schema().quote_fractions(list(value), "Metrics")
        load_pod_schema().check_value(metrics, "Metrics", "elastic.metrics")
        return tuple(metrics)


class TorchrunOptions(SpecModel):
    """Options of torchrun besides the rendezvous (torch 2.15, torch/distributed/run.py). The defaults are torch's."""

    monitor_interval: float | None = Field(default=None, gt=0, description="Seconds between checks of the training processes")
    start_method: Literal["spawn", "fork", "forkserver"] | None = Field(
        default=None, description="Start method of the training processes"
    )
    role: str | None = Field(default=None, description="Role of the training processes, which log prefixes show")
    log_dir: str | None = Field(default=None, description="Folder for the output of the processes, one file each")
    redirects: EnvValue | None = Field(
        default=None, description="Output to write to `log_dir` only: `1` stdout, `2` stderr, `3` both"
    )
    tee: EnvValue | None = Field(
        default=None, description="Output to write to `log_dir` and to the pod's log, as in `redirects`"
    )
    log_line_prefix_template: str | None = Field(default=None, description="Template of the prefix of log lines")
    local_ranks_filter: str | None = Field(default=None, description="Local ranks whose output is shown, for example `0`")
    duplicate_stdout_filters: str | None = Field(
        default=None, description="Texts that select the stdout lines for a second, filtered file"
    )
    duplicate_stderr_filters: str | None = Field(
        default=None, description="Texts that select the stderr lines for a second, filtered file"
    )
    event_log_handler: str | None = Field(
        default=None, description="Handler of the agents' events; `console` prints them as JSON"
    )
    signals_to_handle: str | None = Field(default=None, description="Signals that the agent handles, separated by commas")
    shutdown_timeout: int | None = Field(default=None, ge=0, description="Seconds between SIGTERM and SIGKILL of a process")
