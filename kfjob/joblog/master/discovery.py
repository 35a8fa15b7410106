"""Discovery of the pod that prints progress, by ranked evidence.

    1. the newest progress line of a live container                        confirmed
    2. lines like progress in the log of one pod alone                     likely
    3. a pod whose own newest rendezvous result has group_rank=0           likely
    4. `master_addr` of the newest result, mapped to a pod                 likely
    5. the rules of the rendezvous                                         predicted

The newest line has the latest time; without times it is the line read last. `restart_count` does not order lines, because
every agent counts for itself. Trainers like Megatron-LM print from the last rank: once a progress line of such a rank was seen,
step 3 looks for the last rank instead of 0. Step 2 needs a rendezvous result in any log, so that the job is known to train.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct

from kfjob.base.units import SECOND
from kfjob.joblog.agents.agent_records import RendezvousResult
from kfjob.joblog.master.evidence import Confidence, Evidence, EvidenceKind, Master, NoMaster, Store
from kfjob.joblog.observe_config import ObserveConfig
from kfjob.joblog.pods.pod_view import ContainerLog, EvidenceLine, PodView
from kfjob.joblog.progress.general.unread_lines import find_unread

SIMULTANEOUS = 60 * SECOND
"""Pods whose newest progress lines are less than this apart both print; the one whose curve is the job's is the master."""

_CONFIDENCE = {
    EvidenceKind.PROGRESS: Confidence.CONFIRMED,
    EvidenceKind.OUTPUT: Confidence.LIKELY,
    EvidenceKind.GROUP_RANK: Confidence.LIKELY,
    EvidenceKind.NODE_RANK: Confidence.LIKELY,
    EvidenceKind.MASTER_ADDR: Confidence.LIKELY,
    EvidenceKind.PREDICTION: Confidence.PREDICTED,
}

_Candidate = tuple[PodView, ContainerLog, EvidenceLine]


class _Search(Struct, frozen=True):
    """The input of one discovery: the pods and the logs to search."""

    pods: Mapping[str, PodView]
    logs: tuple[tuple[PodView, ContainerLog], ...]
    config: ObserveConfig
    near: int | None
    running: bool
    printer: str = ""  # the pod whose progress is the job's

    @property
    def rendezvous_backend(self) -> str:
        """The backend in an agent's launch message, else the one in the spec."""
        return next((log.launch.rdzv_backend for _, log in self.logs if log.launch), "") or self.config.rendezvous

    def newest(self, candidates: Iterable[_Candidate]) -> _Candidate | None:
        """Return the newest candidate: by time if all have one, else by the order in which the lines were read."""
        items = list(candidates)
        timed = all(line.resolve_time(self.near) is not None for _, _, line in items)
        return max(
            items, key=lambda item: ((item[2].resolve_time(self.near) or 0) if timed else 0, item[2].order), default=None
        )


def find_master(
    pods: Mapping[str, PodView], config: ObserveConfig, *, running: bool, near: int | None, printer: str = ""
) -> Master | NoMaster:
    """Return the pod that prints progress, or the reasons why it is unknown.

    With `running` only live pods count; otherwise the pod that printed last is the master. `near` is any time at which the job
    ran; it gives a year to times without one. Where several pods print at once, `printer` is the one whose curve is the job's.
    """
    current = tuple((pod, pod.log) for pod in pods.values() if pod.live or not running)
    previous = tuple((pod, pod.previous_log) for pod in pods.values() if pod.previous_log)
    search = _Search(pods, current, config, near, running, printer)
    if not running:
        search = _Search(pods, (*current, *previous), config, near, running, printer)
    for find in (_find_by_progress, _find_by_output, _find_by_rank, _find_by_address):
        if master := find(search):
            return master
    return _predict(search) or _explain_failure(search)


def _find_by_progress(search: _Search) -> Master | None:
    """Return the pod with the newest progress line, unless it has lost the printing rank since."""
    printers = [
        (pod, log, log.reading_line)
        for pod, log in search.logs
        if log.reading_line and not (search.running and _has_lost_rank(search, log))
    ]
    printers = [item for item in printers if item[1].reading and item[1].reading.conclusive] or printers
    newest = search.newest(printers)
    if newest is None or (search.running and _is_superseded(search, newest)):
        return None
    simultaneous = _simultaneous_printers(search, newest, printers)
    chosen = next((item for item in simultaneous if item[0].name == search.printer), newest)
    pod, log, line = chosen
    others = sorted({item[0].name for item in simultaneous if item[0].name != pod.name})
    notes = (f"also printed by {', '.join(f'`{name}`' for name in others)}",) if others else ()
    return _to_master(search, pod, log, line, EvidenceKind.PROGRESS, notes=notes)


def _simultaneous_printers(search: _Search, newest: _Candidate, printers: list[_Candidate]) -> list[_Candidate]:
    """Return the pods that print at the same time, because every rank prints; pods without times may do so."""
    last = newest[2].resolve_time(search.near)
    times = [(item, item[2].resolve_time(search.near)) for item in printers]
    near = [item for item, time in times if time is None or last is None or last - time <= SIMULTANEOUS]
    return near if len({item[0].name for item in near}) > 1 else []


def _has_lost_rank(search: _Search, log: ContainerLog) -> bool:
    """Return whether the container joined a later round after it printed, with a rank that does not print."""
    return log.has_rejoined and not _has_printing_rank(log.result, last_rank=_last_rank_prints(search))


def _is_superseded(search: _Search, printer: _Candidate) -> bool:
    """Return whether another live pod got the printing rank after this pod printed last."""
    pod, log, line = printer
    printed = line.resolve_time(search.near)
    joined = log.result_line.resolve_time(search.near) if log.result_line else None
    last_rank = _last_rank_prints(search)
    for other, other_log in search.logs:
        if other is pod or not other_log.result_line or not _has_printing_rank(other_log.result, last_rank=last_rank):
            continue
        time = other_log.result_line.resolve_time(search.near)
        if time is not None and printed is not None and time > printed and (joined is None or time > joined):
            return True
    return False


def _has_printing_rank(result: RendezvousResult | None, *, last_rank: bool) -> bool:
    """Return whether the result holds the rank that prints: 0, or with `last_rank` the last one."""
    if result is None or result.group_rank is None:
        return False
    if last_rank and result.group_world_size:
        return result.group_rank == result.group_world_size - 1
    return result.group_rank == 0


def _last_rank_prints(search: _Search) -> bool:
    """Return whether progress came from the last rank of a round and never from the first."""
    results = [
        log.result_at_reading for _, log in search.logs if log.result_at_reading and log.reading and log.reading.conclusive
    ]
    if not results or any(result.group_rank == 0 for result in results):
        return False
    return all(_has_printing_rank(result, last_rank=True) for result in results)


def _find_by_output(search: _Search) -> Master | None:
    """Return the only pod of a training whose lines look like progress, although none counts."""
    found = {pod.name: (pod, log, unread) for pod, log in search.logs if (unread := find_unread(log.general))}
    if len(found) != 1 or not any(log.result for _, log in search.logs):
        return None
    [(pod, log, unread)] = found.values()
    line = EvidenceLine(text=unread.example, number=0, order=0)
    return _to_master(search, pod, log, line, EvidenceKind.OUTPUT)


def _find_by_rank(search: _Search) -> Master | None:
    """Return the pod whose newest result holds the printing rank, or which started with node rank 0."""
    last_rank = _last_rank_prints(search)
    ranked = [
        (pod, log, log.result_line)
        for pod, log in search.logs
        if log.result_line and _has_printing_rank(log.result, last_rank=last_rank)
    ]
    if newest := search.newest(ranked):
        pod, log, line = newest
        return _to_master(search, pod, log, line, EvidenceKind.GROUP_RANK)
    for pod, log in search.logs:
        if log.launch and log.launch.node_rank == 0:
            line = EvidenceLine(text="static rendezvous, started with node rank 0", number=log.launch.line, order=0)
            return _to_master(search, pod, log, line, EvidenceKind.NODE_RANK)
    return None


def _find_by_address(search: _Search) -> Master | None:
    """Return the pod with the newest `master_addr`: weak evidence, the pod may be dead after a failed membership change."""
    candidates = [
        (pod, log, log.result_line) for pod, log in search.logs if log.result_line and log.result and log.result.master_addr
    ]
    newest = search.newest(candidates)
    if newest is None or newest[1].result is None or newest[1].result.master_addr is None:
        return None
    pod, _, line = newest
    address = newest[1].result.master_addr
    owner = find_address_owner(address, search.pods, search.config.workers, own=pod.name)
    if owner is None or (search.running and owner in search.pods and not search.pods[owner].live):
        return None
    master = search.pods.get(owner) or PodView(owner)
    text = f"master_addr={address}"
    quote = EvidenceLine(text=text, number=line.number, order=line.order, time=line.time, yearless=line.yearless)
    return _to_master(search, master, master.log, quote, EvidenceKind.MASTER_ADDR, source=pod.name)


def _predict(search: _Search) -> Master | None:
    """Return the pod that gets rank 0 if every agent uses its pod's name as its address.

    Source: torch dynamic_rendezvous.py `_mark_rendezvous_complete`.
    """
    workers, pods = search.config.workers, {pod.host: pod for pod in search.pods.values()}
    names = list(dict.fromkeys([pod.host for pod, _ in search.logs] + [name for name in workers if name not in pods]))
    launched = [log.launch.max_nodes or 1 for _, log in search.logs if log.launch]
    nodes = max([1, *launched, *(log.result.group_world_size or 1 for _, log in search.logs if log.result)])
    if not names or (not workers and nodes > len(names)):
        return None  # an unknown pod may sort first
    backend = search.rendezvous_backend
    if len(names) == 1:
        name, rule = names[0], "the only pod of the job"
    elif search.config.unconnected and not launched:
        name, rule = (workers or names)[0], f"each pod runs its own `{search.config.unconnected}`, and this is the first one"
    elif backend in {"c10d", "etcd-v2"}:
        name, rule = min(names), f"{backend} gives rank 0 to the address that sorts first as a string"
    elif backend == "static" and workers:
        name, rule = workers[0], "static rendezvous: node rank 0 is rank 0"
    else:
        return None
    pod = pods.get(name) or PodView(name)
    if pod.group_rank:
        return None  # its own log shows another rank
    return _to_master(search, pod, pod.log, EvidenceLine(text=rule, number=0, order=0), EvidenceKind.PREDICTION)


def _to_master(
    search: _Search,
    pod: PodView,
    log: ContainerLog,
    line: EvidenceLine,
    kind: EvidenceKind,
    *,
    source: str | None = None,
    notes: tuple[str, ...] = (),
) -> Master:
    """Return the master with the ranks and the store of its newest rendezvous result."""
    result = log.result or RendezvousResult()
    bar_only = kind is EvidenceKind.PROGRESS and log.reading is not None and not log.reading.conclusive
    store = None
    if result.master_addr:
        owner = find_address_owner(result.master_addr, search.pods, search.config.workers, own=pod.name)
        store = Store(address=result.master_addr, port=result.master_port, pod=owner)
    if log is pod.previous_log:
        notes = (*notes, f"from before the container of `{pod.name}` restarted")
    if not pod.live and search.running is False and pod.state:
        notes = (*notes, f"`{pod.name}` has ended ({pod.state.status})")
    return Master(
        pod=pod.name,
        container=log.container,
        node=pod.node,
        evidence=Evidence(kind=kind, pod=source or pod.name, quote=line.text, time=line.resolve_time(search.near)),
        confidence=Confidence.LIKELY if bar_only else _CONFIDENCE[kind],
        group_rank=result.group_rank,
        global_ranks=result.global_ranks,
        world_size=result.global_world_sizes[0] if result.global_world_sizes else None,
        round_time=log.result_line.resolve_time(search.near) if log.result_line else None,
        store=store,
        notes=notes,
    )


def _explain_failure(search: _Search) -> NoMaster:
    """Return the reasons why no pod is known to print progress."""
    lines = sum(log.lines for _, log in search.logs)
    results = [log.result for _, log in search.logs if log.result]
    addresses = sorted({result.master_addr for result in results if result.master_addr})
    reasons, hint = [], None
    if addresses:
        reasons.append(f"the agents report the master address `{addresses[0]}`, which belongs to no live pod of the job")
    elif not lines:
        reasons.append("no pod has printed anything yet")
    else:
        reasons.append("no progress line and no rendezvous result in any log")
        hint = "describe the job's progress line with `progress:` in its spec; `kfjob progress` tries a pattern on its log"
        unread = next((found for _, log in search.logs if (found := find_unread(log.general))), None)
        if unread:
            reasons.append(f"lines like `{unread.example}` look like progress")
            hint = f"add `progress: '{unread.pattern}'` to the spec: it reads {unread.values}" if unread.pattern else hint
    level = search.config.loglevel
    if not results and lines and level not in {"INFO", "DEBUG", "NOTSET"}:
        reasons.append(
            f"`LOGLEVEL` is `{level}`" if level else "torch prints the rendezvous result only if `LOGLEVEL` is `INFO`"
        )
        level_hint = "set `LOGLEVEL` to `INFO` in the job's environment and relaunch"
        hint = f"{hint}, or {level_hint}" if hint else level_hint
    if search.rendezvous_backend == "etcd":
        reasons.append("with etcd the first agent that joins gets rank 0, which cannot be predicted")
    return NoMaster(pods=len(search.pods) or len(search.config.workers), lines=lines, reasons=tuple(reasons), hint=hint)


IPV4_PARTS = 4
_LOOPBACK = {"localhost", "localhost.localdomain", "127.0.0.1", "::1", "0.0.0.0", "ip6-localhost"}  # noqa: S104 - only compared


def find_address_owner(
    address: str, pods: Mapping[str, PodView], expected: Sequence[str] = (), *, own: str | None = None
) -> str | None:
    """Return the name of the pod with this address, None if no pod of the job has it.

    `expected` adds the hosts of pods that have not been seen yet; `own` is the pod that printed the address.
    """
    address = address.strip("[]").rstrip(".").lower()
    names = {*pods, *expected}
    if address in _LOOPBACK:
        # a loopback address means the pod itself, unless a pod has it as its address (local pods do)
        return _find_by_state(address, pods) or own
    for pod in pods.values():  # of kinds whose pods have other names than their hosts
        if pod.host != pod.name and f"{address}.".startswith((f"{pod.host}.", f"{pod.host.partition('.')[0]}.")):
            return pod.name
    if address in names:
        return address
    labels = address.split(".")
    if not _is_ipv4(labels):
        # fsdp-worker-1.fsdp-worker-1.default.svc…, fsdp-worker-1.default.svc…; 10-0-0-7.fsdp-worker-1.default.svc…
        for label in labels[:2]:
            if label in names:
                return label
        dashed = labels[0].split("-")
        if len(labels) > 1 and _is_ipv4(dashed):
            return _find_by_state(".".join(dashed), pods)
    return _find_by_state(address, pods)


def _is_ipv4(parts: Sequence[str]) -> bool:
    return len(parts) == IPV4_PARTS and all(part.isdecimal() for part in parts)


def _find_by_state(address: str, pods: Mapping[str, PodView]) -> str | None:
    """Return the pod with this IP, else the pod on the node with this address if that node runs one pod of the job."""
    owners = [pod.name for pod in pods.values() if pod.state and pod.state.ip == address]
    if not owners:
        owners = [
            pod.name
            for pod in pods.values()
            if pod.state
            and (pod.state.host_ip == address or (pod.node and pod.node.lower() in {address, address.partition(".")[0]}))
        ] or [pod.name for pod in pods.values() if pod.node and pod.node.lower().partition(".")[0] == address]
    return owners[0] if len(owners) == 1 else None
