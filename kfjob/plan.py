"""resolve(JobSpec, Context) -> JobPlan: every default decided once, with the reason and where it came from.

Pure. All that comes from outside (who submits, the launch id, facts of the cluster or of this machine) enters by `Context`: the
same spec and the same Context give the same plan, byte for byte.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from typing import Literal

from kfjob.errors import Problem, SpecError
from kfjob.spec import names
from kfjob.spec.job import SPEC_VERSION, JobSpec, Resources, Restarts, Volume
from kfjob.spec.train import to_argv

BackendName = Literal["kubernetes", "local"]
Origin = Literal["spec", "default", "context"]

DEFAULT_ETCD_IMAGE = "quay.io/coreos/etcd:v3.4.37"
"""3.4 is the last minor version that refreshes the lease of a directory, which torch's `etcd` backend lives on."""

GRACE_SECONDS = 60
"""torchrun gives its workers 30 s after SIGTERM; Kubernetes' default of 30 s would end the agent in the same moment."""


@dataclass(frozen=True, kw_only=True)
class Context:
    """What a plan needs to know and a spec cannot say."""

    backend: BackendName
    launch: str  # unique for each launch; the rendezvous id is made of it
    namespace: str = "default"
    etcd_image: str = DEFAULT_ETCD_IMAGE


@dataclass(frozen=True, kw_only=True)
class Decision:
    """One decided value: which, where it came from, and why."""

    path: str
    value: str
    origin: Origin
    reason: str = ""


@dataclass(frozen=True, kw_only=True)
class RendezvousPlan:
    """The rendezvous as every agent is told of it."""

    backend: str
    host: str
    port: int
    id: str
    conf: tuple[tuple[str, str], ...]


@dataclass(frozen=True, kw_only=True)
class JobPlan:
    """A job with nothing left to decide. `None` never means "default" here."""

    name: str
    namespace: str
    launch: str
    backend: BackendName
    image: str  # "" on this machine
    image_pull_policy: str
    image_pull_secrets: tuple[str, ...]
    service_account: str
    nodes: int
    processes_per_node: str  # torch's own notation: a number, auto, gpu, cpu
    command: tuple[str, ...]
    env: tuple[tuple[str, str], ...]
    resources: Resources
    volumes: tuple[Volume, ...]
    rendezvous: RendezvousPlan
    own_etcd_image: str  # "" where the job has no etcd of its own
    restarts: Restarts
    grace_seconds: int  # between SIGTERM and SIGKILL
    labels: tuple[tuple[str, str], ...]
    annotations: tuple[tuple[str, str], ...]
    spec_json: str  # what is recorded with the job
    spec_hash: str
    decisions: tuple[Decision, ...] = field(default=(), compare=False)

    @property
    def workers(self) -> tuple[str, ...]:
        """The pods, in the order of their index."""
        return names.worker_names(self.name, self.nodes)


def resolve(spec: JobSpec, context: Context) -> JobPlan:
    """Decide everything.

    Raises:
        SpecError: with every problem that only shows once the backend is known.
    """
    if problems := list(_problems(spec, context)):
        raise SpecError(problems)
    decisions = _Decisions()
    namespace = decisions.take("namespace", spec.namespace, context.namespace, "context", "the current context's namespace")
    recorded = spec.model_dump_json(exclude_defaults=True)
    return JobPlan(
        name=spec.name,
        namespace=namespace,
        launch=context.launch,
        backend=context.backend,
        image=(spec.image or "") if context.backend == "kubernetes" else "",
        image_pull_policy=spec.image_pull_policy or "",
        image_pull_secrets=spec.image_pull_secrets,
        service_account=spec.service_account or "",
        nodes=spec.nodes,
        processes_per_node=_processes(spec, decisions),
        command=_command(spec),
        env=_environment(spec, decisions),
        resources=spec.resources,
        volumes=spec.volumes,
        rendezvous=_rendezvous(spec, context, decisions),
        own_etcd_image=context.etcd_image if has_own_etcd(spec) else "",
        restarts=spec.restarts,
        grace_seconds=GRACE_SECONDS,
        labels=tuple(sorted(spec.labels.items())),
        annotations=tuple(sorted(spec.annotations.items())),
        spec_json=recorded,
        spec_hash=spec_hash(spec),
        decisions=tuple(decisions.made),
    )


def has_own_etcd(spec: JobSpec) -> bool:
    """Whether the job brings an etcd with it."""
    return spec.rendezvous.backend != "c10d" and spec.rendezvous.endpoint is None


def spec_hash(spec: JobSpec) -> str:
    """Twelve hexadecimal digits: equal for specs that say the same, however they were written."""
    said = json.dumps(spec.model_dump(mode="json", exclude_defaults=True), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(f"{SPEC_VERSION}:{said}".encode()).hexdigest()[:12]


class _Decisions:
    def __init__(self) -> None:
        self.made: list[Decision] = []

    def take(self, path: str, said: str | None, otherwise: str, origin: Origin, reason: str) -> str:
        """What the spec said, else `otherwise`; written down either way."""
        value = otherwise if said is None else said
        self.made.append(
            Decision(path=path, value=value, origin=origin if said is None else "spec", reason=reason if said is None else "")
        )
        return value


def _problems(spec: JobSpec, context: Context) -> list[Problem]:
    problems = []
    if context.backend == "kubernetes" and not spec.image:
        problems.append(
            Problem(
                title="`image` is missing: pods need one",
                path="image",
                hint="`kfjob push-image` builds one, or run with `--backend local`",
            )
        )
    if context.backend == "local":
        problems += [
            Problem(
                title=f"volume `{volume.name}` is a {kind}, which this machine does not have",
                path=f"volumes.{index}",
                hint="run with `--backend kubernetes`, or use `pvc`, `host_path` or `empty_dir`",
            )
            for index, volume in enumerate(spec.volumes)
            for kind in (["config map"] if volume.config_map else ["secret"] if volume.secret else [])
        ]
    return problems


def _processes(spec: JobSpec, decisions: _Decisions) -> str:
    said = None if spec.processes_per_node is None else str(spec.processes_per_node)
    gpus = spec.resources.gpus
    return decisions.take(
        "processes_per_node", said, str(gpus or 1), "default", "one process for each GPU" if gpus else "no GPU was asked for"
    )


def _command(spec: JobSpec) -> tuple[str, ...]:
    if spec.command:
        return spec.command
    assert spec.train is not None  # JobSpec has either  # noqa: S101
    return ("torchrun", "-m", "kfjob.trainer", *to_argv(spec.train))


def _environment(spec: JobSpec, decisions: _Decisions) -> tuple[tuple[str, str], ...]:
    """The spec's own variables, after those without which the agents cannot be understood or do not survive."""
    defaults = {
        "LOGLEVEL": ("INFO", "torch hides the agents' lines without it, and `kfjob master` reads them"),
        "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": (
            "1",
            "with a shared store a job does not survive a change of rank 0 (torch 2.6 and up)",
        ),
    }
    env = {}
    for name, (value, reason) in defaults.items():
        env[name] = decisions.take(f"env.{name}", spec.env.get(name), value, "default", reason)
    return tuple((env | spec.env).items())


def _rendezvous(spec: JobSpec, context: Context, decisions: _Decisions) -> RendezvousPlan:
    wanted = spec.rendezvous
    conf = dict(wanted.conf)
    for key, value, reason in _TIMEOUTS[wanted.backend]:
        conf[key] = decisions.take(f"rendezvous.conf.{key}", conf.get(key), value, "default", reason)
    if wanted.endpoint:
        host, _, port = wanted.endpoint.rpartition(":")
    elif wanted.backend == "c10d":
        host, port = names.pod_name(spec.name, "worker", 0), str(names.RENDEZVOUS_PORT)
        decisions.take(
            "rendezvous.endpoint", None, f"{host}:{port}", "default", "the pod that sorts first hosts the store and is rank 0"
        )
    else:
        host, port = names.etcd_name(spec.name), str(names.ETCD_PORT)
        decisions.take("rendezvous.endpoint", None, f"{host}:{port}", "default", "the job's own etcd")
    rendezvous_id = f"{spec.name}-{context.launch}"
    decisions.take(
        "rendezvous.id", None, rendezvous_id, "context", "unique, so that a relaunch never meets the state of the launch before"
    )
    return RendezvousPlan(backend=wanted.backend, host=host, port=int(port), id=rendezvous_id, conf=tuple(sorted(conf.items())))


_LAST_CALL = ("last_call_timeout", "5", "how long an elastic job with enough agents waits for more (torch: 30 s)")
_TIMEOUTS: dict[str, tuple[tuple[str, str, str], ...]] = {
    "c10d": (
        ("read_timeout", "300", "seconds an agent tries to reach the store of worker 0 (torch: 60; a pull takes longer)"),
        ("join_timeout", "900", "seconds to wait for all agents (torch: 600)"),
        _LAST_CALL,
    ),
    "etcd-v2": (
        ("read_timeout", "300", "seconds an agent tries to reach etcd (torch: 60)"),
        ("join_timeout", "900", "seconds to wait for all agents (torch: 600)"),
        _LAST_CALL,
    ),
    "etcd": (("timeout", "900", "seconds to wait for all agents (torch: 600)"), _LAST_CALL),
}
