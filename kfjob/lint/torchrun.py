"""Rules for the agents: flags in the command, variables that torch reads, the rendezvous, and how their pods end."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from kfjob.base.errors import UsageError
from kfjob.image.references import parse_reference
from kfjob.lint.job import Job
from kfjob.lint.rules import Violation, rule

_SWITCHES = {"standalone", "no-python", "run-path", "use-env", "h", "help", "version"}
LAUNCHERS = ("torchrun", "torch.distributed.run", "torch.distributed.launch")
"""Programs and modules that start torch's elastic agent."""
_FIELDS = {
    "nnodes": "nodes",
    "nproc-per-node": "processes_per_node",
    "rdzv-backend": "rendezvous.backend",
    "rdzv-endpoint": "rendezvous",
    "rdzv-id": "rendezvous.id",
    "rdzv-conf": "rendezvous.conf",
    "max-restarts": "restarts.max",
    "standalone": "nodes",
    "node-rank": "rendezvous",
    "master-addr": "rendezvous",
    "master-port": "rendezvous.port",
}
"""torchrun's options that the operator or the local backend sets by variable, and their fields in the spec."""
_LEVELS = ("NOTSET", "DEBUG", "INFO")
_HIGHER_LEVELS = ("WARN", "WARNING", "ERROR", "FATAL", "CRITICAL")
"""Names of Python's logging, which takes a while to import."""
_SHUTDOWN_TIMEOUT = 30
"""Seconds that torchrun gives its processes after SIGTERM (torch `--shutdown-timeout`)."""


def read_torchrun_flags(job: Job) -> Mapping[str, str | None]:
    """Return the user's torchrun options with their values, spelled with dashes; None for an option without a value."""
    words = list(job.words) if job.spec.words else []
    start = next((i for i, word in enumerate(words) if word.rpartition("/")[2] in LAUNCHERS), None)
    if start is None or job.plan.launcher not in ("torchrun", "launch"):
        return {}
    flags: dict[str, str | None] = {}
    rest = words[start + 1 :]
    while rest and rest[0].startswith("-"):
        name, equals, value = rest.pop(0).lstrip("-").partition("=")
        name = name.replace("_", "-")
        if name in ("m", "module"):
            break
        if not equals and name not in _SWITCHES:
            value = rest.pop(0) if rest else ""
        flags[name] = value if equals or name not in _SWITCHES else None
    return flags


@rule("torchrun-flags", "warning", local=True)
def torchrun_flags(job: Job) -> Iterator[Violation]:
    """Options of torchrun are in the spec, not in the command.

    A flag on the command line overrides the variable that the operator or the local backend sets. The agents then use another
    rendezvous, or other numbers, than `kfjob status` and the operator show.
    """
    plan, elastic = job.plan, job.spec.min_nodes != job.spec.max_nodes
    plan_values = {
        "nnodes": {str(job.spec.nodes), f"{job.spec.nodes}:{job.spec.nodes}"},
        "nproc-per-node": {plan.processes_per_node},
        "rdzv-backend": {plan.rendezvous.backend},
        "rdzv-endpoint": {f"{plan.rendezvous.host}:{plan.rendezvous.port}"},
        "max-restarts": {str(plan.restarts.max)},
    }
    for flag, value in read_torchrun_flags(job).items():
        if (
            flag not in _FIELDS
            or (value or "") in plan_values.get(flag, set())
            or ((elastic or job.unconnected) and flag in ("nnodes", "standalone"))
        ):
            continue
        option = flag if value is None else f"{flag}={value}"
        yield Violation(
            path=job.program_field,
            message=f"`--{option}` in the command overrides `{_FIELDS[flag]}`",
            hint=f"remove it, and set `{_FIELDS[flag]}`",
        )


@rule("loglevel-unknown", "error", local=True)
def loglevel_unknown(job: Job) -> Iterator[Violation]:
    """`LOGLEVEL` is one of Python's level names in capitals.

    torch passes it to the logging module. In every version, `info` ends every agent with `ValueError: Unknown level`.
    """
    level = _loglevel(job)
    if level not in (*_LEVELS, *_HIGHER_LEVELS):
        hint = f"use `{level.upper()}`" if level.upper() in (*_LEVELS, *_HIGHER_LEVELS) else "use `INFO`"
        yield Violation(path="env.LOGLEVEL", message=f"`LOGLEVEL` `{level}` ends torchrun at once", hint=hint)


@rule("loglevel-hides-agent", "warning", local=True)
def loglevel_hides_agent(job: Job) -> Iterator[Violation]:
    """`LOGLEVEL` is INFO or lower.

    A higher level hides the agents' lines, in which `kfjob master` finds the pod with rank 0. Without them it must wait for a
    progress line.
    """
    level = _loglevel(job)
    if level not in _HIGHER_LEVELS:
        return
    message = f"`LOGLEVEL` `{level}` hides the ranks of the agents"
    if not job.read_variable("LOGLEVEL", unset="", referenced=level):
        if not _may_start_agent(job):
            return
        message = f"`LOGLEVEL` is not set, and torchrun's default `{level}` hides the ranks of the agents"
    hint = "remove it: kfjob sets INFO" if not job.is_user_manifest else "set `LOGLEVEL` to INFO"
    yield Violation(path="env.LOGLEVEL", message=message, hint=hint)


_AGENT_PROGRAMS = frozenset((*LAUNCHERS, "accelerate"))


def _may_start_agent(job: Job) -> bool:
    """Return whether the program is a launcher with torch's agent, or one that may start it: a script, the image's own.

    In a job with `elasticPolicy` it is, because only the agent reads its variables.
    """
    if job.manifest["spec"].get("elasticPolicy"):
        return True
    if job.shell_script is not None:
        return any(name in job.shell_script.text for name in _AGENT_PROGRAMS)
    names = [word.rpartition("/")[2] for word in job.words]
    return not names or any(name in _AGENT_PROGRAMS or name.endswith(".sh") for name in names)


def _loglevel(job: Job) -> str:
    return job.read_variable("LOGLEVEL", unset="WARNING", referenced="INFO")


@rule("shared-store", "warning", local=True)
def shared_store(job: Job) -> Iterator[Violation]:
    """`TORCH_DISABLE_SHARE_RDZV_TCP_STORE` is 1 if agents can restart.

    Since torch 2.6 the workers share the agents' store, and then a job does not survive a change of rank 0: it ends with
    AssertionError or RendezvousClosedError, or restarts until none is left.
    """
    name = "TORCH_DISABLE_SHARE_RDZV_TCP_STORE"
    if job.spec.is_dynamic and job.plan.restarts.max and job.read_variable(name, unset="0", referenced="1") != "1":
        yield Violation(
            path=f"env.{name}",
            message="a restart fails while the workers share the agents' store",
            hint=f"set `{name}` to 1",
        )


@rule("etcd-version", "warning")
def etcd_version(job: Job) -> Iterator[Violation]:
    """Backend `etcd` uses etcd 3.4.

    torch keeps the state of a run in a v2 directory with a lease of two hours, and refreshes the lease. etcd 3.4 accepts that.
    etcd 3.5 answers `Not a file`, the refreshing thread ends, and the first restart after two hours finds no rendezvous. etcd
    3.6 has no v2 API.
    """
    backend = job.plan.rendezvous.backend
    if backend not in ("etcd", "etcd-v2"):
        return
    image = job.etcd_image or job.plan.own_etcd_image
    version = _minor(image) if image else None
    if backend == "etcd" and version is None and (job.etcd_image or not job.plan.own_etcd_image):
        yield Violation(
            path="rendezvous.endpoint",
            message=f"is `{image or job.plan.rendezvous.host}` etcd 3.4? On 3.5, `etcd` loses its state after two hours",
            hint="`curl http://HOST:PORT/version` prints the version; `rendezvous.backend: etcd-v2` does not need the lease",
        )
    if version and (version >= (3, 6) or (version >= (3, 5) and backend == "etcd")):
        from_settings = "remove `etcd_image` from the settings, or set an image of etcd 3.4"
        yield Violation(
            path="rendezvous.endpoint" if job.etcd_image else "rendezvous",
            message=f"the job's own etcd is `{image}`, and torch's `{backend}` needs an older version",
            hint="use an image of etcd 3.4" if job.etcd_image else from_settings,
        )


def _minor(image: str) -> tuple[int, int] | None:
    try:
        parts = parse_reference(image).tag.removeprefix("v").split(".")
    except UsageError:  # rule `image-name` reports it
        return None
    return (int(parts[0]), int(parts[1])) if len(parts) > 1 and parts[0].isdecimal() and parts[1].isdecimal() else None


@rule("rendezvous-id-reused", "warning", local=True)
def rendezvous_id_reused(job: Job) -> Iterator[Violation]:
    """A job on a shared etcd has no fixed rendezvous id.

    etcd keeps the state of the launch before under that id. Agents of the next launch end with RendezvousClosedError, or join
    the agents of another job. Without `rendezvous.id`, each launch has its own id.
    """
    if job.spec.rendezvous.id and job.plan.rendezvous.backend in ("etcd", "etcd-v2") and not job.plan.own_etcd_image:
        yield Violation(
            path="rendezvous.id",
            message=f"a relaunch meets the state of this launch under `{job.spec.rendezvous.id}`",
            hint="remove `id`, and each launch has its own"
            if not job.is_user_manifest
            else "set `rdzvId: ${KFJOB_LAUNCH}`, and each launch has its own",
        )


@rule("host-network", "warning")
def host_network(job: Job) -> Iterator[Violation]:
    """Pods on the host network have a DNS policy, an address and a node of their own.

    On the host network an agent uses the node's name, so `master_addr` in the logs is the name of a node. Two pods of a job on
    one node collide at the rendezvous port. Without `dnsPolicy: ClusterFirstWithHostNet`, pods cannot resolve the name of
    worker 0.
    """
    for pod in job.pods:
        if not pod.get("hostNetwork"):
            continue
        path = "pod.host_network" if job.spec.pod.host_network else "overrides"
        if pod.get("dnsPolicy") != "ClusterFirstWithHostNet":
            hint = "use `pod.host_network`, which sets `dnsPolicy: ClusterFirstWithHostNet`"
            yield Violation(path=path, message="pods on the host network cannot resolve the names of the job's pods", hint=hint)
        if job.spec.is_dynamic and job.spec.nodes > 1 and not job.spec.rendezvous.local_addr:
            hint = "set `rendezvous: {local_addr: pod-name}`"
            yield Violation(path=path, message="the agents use the names of their nodes, which decide on rank 0", hint=hint)
        if not (pod.get("affinity") or {}).get("podAntiAffinity") and job.spec.nodes > 1 and not job.plan.resources.gpus:
            yield Violation(
                path=path,
                message=f"two pods on one node collide at port {job.plan.rendezvous.port}",
                hint="separate them with `scheduling.affinity`, or request whole nodes",
            )
        return


@rule("short-grace", "warning")
def short_grace(job: Job) -> Iterator[Violation]:
    """The grace period of a pod is longer than torchrun's shutdown timeout.

    torchrun passes SIGTERM on and kills its processes after 30 seconds. If the pod is killed at the same time, an unfinished
    checkpoint is lost, and the agent cannot print why it ended.
    """
    timeout = _SHUTDOWN_TIMEOUT if job.spec.torchrun.shutdown_timeout is None else job.spec.torchrun.shutdown_timeout
    for pod in job.pods:
        grace = pod.get("terminationGracePeriodSeconds", 30)
        if job.plan.launcher == "torchrun" and grace <= timeout:
            message = f"the grace period is {grace} s, and torchrun's shutdown timeout is {timeout} s"
            yield Violation(path="pod.grace", message=message, hint=f"set `pod.grace: {timeout + 30}`")
            return


@rule("istio-sidecar", "warning")
def istio_sidecar(job: Job) -> Iterator[Violation]:
    """The pods have no Istio proxy.

    The proxy does not end with the training container, so the pod never succeeds. It also applies its rules to the ports that
    NCCL and gloo open between the pods.
    """
    if job.plan.scheduling.istio_sidecar:
        yield Violation(path="scheduling.istio_sidecar", message="the Istio proxy keeps the pods from ending", hint="remove it")
