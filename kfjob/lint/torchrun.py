"""Rules about what the agents are told: flags in the command, and the variables that torch reads."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping

from kfjob.errors import UsageError
from kfjob.image.references import parse_reference
from kfjob.lint.job import Job
from kfjob.lint.rules import Violation, rule

_SWITCHES = {"standalone", "no-python", "run-path", "use-env", "h", "help", "version"}
_LAUNCHERS = ("torchrun", "torch.distributed.run", "torch.distributed.launch")
_SAID_BY = {
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
"""torchrun's options that the operator (or the local backend) gives by variable, and the field that says them."""


def own_flags(job: Job) -> Mapping[str, str | None]:
    """The options between torchrun and its program that the user wrote, in the spelling with dashes; None without a value."""
    words = list(job.words) if job.spec.command else []
    start = next((i for i, word in enumerate(words) if word.rpartition("/")[2] in _LAUNCHERS), None)
    if start is None or job.plan.launcher not in ("torchrun", "launch"):
        return {}
    found: dict[str, str | None] = {}
    rest = words[start + 1 :]
    while rest and rest[0].startswith("-"):
        name, equals, value = rest.pop(0).lstrip("-").partition("=")
        name = name.replace("_", "-")
        if name in ("m", "module"):
            break
        if not equals and name not in _SWITCHES:
            value = rest.pop(0) if rest else ""
        found[name] = value if equals or name not in _SWITCHES else None
    return found


@rule("torchrun-flags", "warning", local=True)
def torchrun_flags(job: Job) -> Iterator[Violation]:
    """Torchrun's options belong into the spec.

    A flag on the command line beats the variable that the operator sets, silently: the job then meets elsewhere, or with
    other numbers, than `kfjob status` and the operator believe.
    """
    plan, elastic = job.plan, job.plan.min_nodes != job.plan.max_nodes
    same = {
        "nnodes": {str(plan.nodes), f"{plan.nodes}:{plan.nodes}"},
        "nproc-per-node": {plan.processes_per_node},
        "rdzv-backend": {plan.rendezvous.backend},
        "rdzv-endpoint": {f"{plan.rendezvous.host}:{plan.rendezvous.port}"},
        "max-restarts": {str(plan.restarts.max)},
    }
    for flag, value in own_flags(job).items():
        if flag not in _SAID_BY or (value or "") in same.get(flag, set()) or (elastic and flag in ("nnodes", "standalone")):
            continue
        shown = flag if value is None else f"{flag}={value}"
        yield Violation(
            path="command",
            message=f"`--{shown}` in the command beats `{_SAID_BY[flag]}`",
            hint=f"remove it and say it with `{_SAID_BY[flag]}`",
        )


@rule("loglevel-unknown", "error", local=True)
def loglevel_unknown(job: Job) -> Iterator[Violation]:
    """`LOGLEVEL` is one of Python's level names, in capitals.

    torch hands it to the logging module as it is: `info` ends every agent with `ValueError: Unknown level`, in every
    version.
    """
    level = _loglevel(job)
    if level not in logging.getLevelNamesMapping():
        hint = f"write `{level.upper()}`" if level.upper() in logging.getLevelNamesMapping() else "write `INFO`"
        yield Violation(path="env.LOGLEVEL", message=f"torchrun ends at once with `LOGLEVEL` `{level}`", hint=hint)


@rule("loglevel-hides-agent", "warning", local=True)
def loglevel_hides_agent(job: Job) -> Iterator[Violation]:
    """`LOGLEVEL` above INFO hides the agents' lines.

    `kfjob master` reads in them which pod has rank 0. Without them it must wait for a progress line.
    """
    said = _loglevel(job)
    if logging.getLevelNamesMapping().get(said, logging.INFO) > logging.INFO:
        hint = "remove it: kfjob sets INFO" if job.user_manifest is None else "set it to INFO"
        yield Violation(path="env.LOGLEVEL", message=f"with `LOGLEVEL` `{said}` the agents do not say who they are", hint=hint)


def _loglevel(job: Job) -> str:
    return job.variable("LOGLEVEL", unset="WARNING", elsewhere="INFO")


@rule("shared-store", "warning", local=True)
def shared_store(job: Job) -> Iterator[Violation]:
    """`TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1` stays set where agents may restart.

    From torch 2.6 the workers share the agents' store. A job does not survive a change of rank 0 then: AssertionError,
    RendezvousClosedError, or restarts until the budget is spent.
    """
    name = "TORCH_DISABLE_SHARE_RDZV_TCP_STORE"
    if job.plan.is_dynamic and job.plan.restarts.max and job.variable(name, unset="0", elsewhere="1") != "1":
        yield Violation(path=f"env.{name}", message="a restart will not survive the store that is shared with the workers")


@rule("etcd-version", "warning")
def etcd_version(job: Job) -> Iterator[Violation]:
    """Backend `etcd` needs an etcd 3.4.

    torch keeps all state of a run in a v2 directory with a lease of two hours and refreshes it. etcd 3.4 does; 3.5
    answers `Not a file`, the thread that refreshes dies, and the first restart after two hours finds no rendezvous. 3.6
    has no v2 API at all.
    """
    backend = job.plan.rendezvous.backend
    if backend not in ("etcd", "etcd-v2"):
        return
    if not job.plan.own_etcd_image:
        if backend == "etcd":
            yield Violation(
                path="rendezvous.endpoint",
                message=f"is the etcd at `{job.plan.rendezvous.host}` a 3.4? `etcd` loses its state after two hours on 3.5",
                hint="`curl http://HOST:PORT/version` tells; `backend: etcd-v2` does not need the lease",
            )
        return
    version = _minor(job.plan.own_etcd_image)
    if version and (version >= (3, 6) or (version >= (3, 5) and backend == "etcd")):
        yield Violation(
            path="rendezvous",
            message=f"the job's own etcd is `{job.plan.own_etcd_image}`, and torch's `{backend}` needs an older one",
            hint="leave `etcd_image` out of the settings, or name a 3.4",
        )


def _minor(image: str) -> tuple[int, int] | None:
    try:
        parts = parse_reference(image).tag.removeprefix("v").split(".")
    except UsageError:  # `image-name` says so
        return None
    return (int(parts[0]), int(parts[1])) if len(parts) > 1 and parts[0].isdecimal() and parts[1].isdecimal() else None


@rule("rendezvous-id-reused", "warning", local=True)
def rendezvous_id_reused(job: Job) -> Iterator[Violation]:
    """A rendezvous id of one's own, on an etcd that outlives the job.

    etcd keeps what the launch before left under that id: agents of the next one end with RendezvousClosedError, or meet
    agents of a neighbour. Left out, the id is new for each launch.
    """
    if job.spec.rendezvous.id and job.plan.rendezvous.backend in ("etcd", "etcd-v2") and not job.plan.own_etcd_image:
        yield Violation(
            path="rendezvous.id",
            message=f"a relaunch will meet what this launch leaves under `{job.spec.rendezvous.id}`",
            hint="remove `id`: each launch then has its own",
        )


@rule("host-network", "warning")
def host_network(job: Job) -> Iterator[Violation]:
    """Pods on the node's network share its names and ports.

    An agent then calls itself by the node's name: `master_addr` in the logs names a node, two pods of a job on one node
    collide at the rendezvous port, and without `dnsPolicy: ClusterFirstWithHostNet` the name of worker 0 cannot be
    resolved.
    """
    for pod in job.pods:
        if not pod.get("hostNetwork"):
            continue
        path = "pod.host_network" if job.spec.pod.host_network else "overrides"
        if pod.get("dnsPolicy") != "ClusterFirstWithHostNet":
            hint = "use `pod.host_network`, which sets `dnsPolicy: ClusterFirstWithHostNet`"
            yield Violation(path=path, message="pods on the node's network cannot resolve the job's own names", hint=hint)
        if job.plan.is_dynamic and job.plan.nodes > 1 and not job.spec.rendezvous.local_addr:
            hint = "say `rendezvous: {local_addr: pod-name}`"
            yield Violation(
                path=path, message="the agents call themselves by their nodes' names, which decide on rank 0", hint=hint
            )
        if not (pod.get("affinity") or {}).get("podAntiAffinity") and job.plan.nodes > 1 and not job.plan.resources.gpus:
            yield Violation(
                path=path,
                message=f"two pods on one node collide at port {job.plan.rendezvous.port}",
                hint="keep them apart with `scheduling.affinity`, or ask for whole nodes",
            )
        return
