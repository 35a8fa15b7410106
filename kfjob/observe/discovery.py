"""Which pod prints progress, by ranked evidence, and how we know.

    1. a progress line of a live container, the newest                     confirmed
    2. a pod whose own newest rendezvous result says group_rank=0          likely
    3. `master_addr` of the newest result, mapped to a pod                 likely
    4. the rules of the rendezvous                                         predicted

Newest is by time, else by the order in which lines came in; never by restart_count, which every agent counts for itself.
Trainers in the manner of Megatron print from the last rank: where that was seen, 2 asks for the last rank instead of 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec import Struct

from kfjob.observe.addresses import find_address_owner
from kfjob.observe.agent_records import RendezvousResult
from kfjob.observe.config import ObserveConfig
from kfjob.observe.master import Confidence, Evidence, EvidenceKind, Master, NoMaster, Store
from kfjob.observe.pods import ContainerLog, EvidenceLine, PodView
from kfjob.units import SECOND

TOGETHER = 30 * SECOND
"""Pods whose newest progress lines are this close both print; then the one with the right rank is the answer."""

_SURE = {
    EvidenceKind.PROGRESS: Confidence.CONFIRMED,
    EvidenceKind.GROUP_RANK: Confidence.LIKELY,
    EvidenceKind.NODE_RANK: Confidence.LIKELY,
    EvidenceKind.MASTER_ADDR: Confidence.LIKELY,
    EvidenceKind.PREDICTION: Confidence.PREDICTED,
}

_Found = tuple[PodView, ContainerLog, EvidenceLine]


class _Asked(Struct, frozen=True):
    """One question: the pods with the log that counts of each, and what is known beside."""

    pods: Mapping[str, PodView]
    logs: tuple[tuple[PodView, ContainerLog], ...]
    config: ObserveConfig
    near: int | None
    running: bool

    @property
    def backend(self) -> str:
        """The rendezvous backend: what an agent says goes before what the spec says."""
        return next((log.launch.rdzv_backend for _, log in self.logs if log.launch), "") or self.config.rendezvous

    def newest(self, found: Iterable[_Found]) -> _Found | None:
        """By time where every one has a time, else by the order in which the lines came in."""
        all_found = list(found)
        timed = all(said.resolve_time(self.near) is not None for _, _, said in all_found)
        return max(
            all_found, key=lambda one: ((one[2].resolve_time(self.near) or 0) if timed else 0, one[2].order), default=None
        )


def find_master(pods: Mapping[str, PodView], config: ObserveConfig, *, running: bool, near: int | None) -> Master | NoMaster:
    """Who prints progress.

    `running`: the job is known to run, so only what lives can be the answer; else whoever printed last is. `near`: any time at
    which the job ran, to put times without a year into one.
    """
    current = tuple((pod, pod.log) for pod in pods.values() if pod.live or not running)
    earlier = tuple((pod, pod.past) for pod in pods.values() if pod.past)
    asked = _Asked(pods, current, config, near, running)
    if not running:
        asked = _Asked(pods, (*current, *earlier), config, near, running)
    for rule in (_by_progress, _by_rank, _by_address):
        if answer := rule(asked):
            return answer
    return _by_rule(asked) or _nobody(asked)


def _by_progress(asked: _Asked) -> Master | None:
    """The newest progress line, unless its printer has since been given another rank or another pod took its place."""
    printing = [
        (pod, log, log.reading_line)
        for pod, log in asked.logs
        if log.reading_line and not (asked.running and _moved_on(asked, log))
    ]
    printing = [one for one in printing if one[1].reading and one[1].reading.conclusive] or printing
    newest = asked.newest(printing)
    if newest is None or (asked.running and _overtaken(asked, newest)):
        return None
    beside = _beside(asked, newest, printing)
    pod, log, said = asked.newest(beside) or newest
    others = sorted({one[0].name for one in printing if beside and one[0].name != pod.name})
    notes = (f"also printed by {', '.join(f'`{name}`' for name in others)}",) if others else ()
    return _answer(asked, pod, log, said, EvidenceKind.PROGRESS, notes=notes)


def _beside(asked: _Asked, newest: _Found, printing: list[_Found]) -> list[_Found]:
    """Where every rank prints: those that print beside the newest and have the rank that it is known not to have."""
    last_rank = _last_rank_prints(asked)
    last = newest[2].resolve_time(asked.near)
    if last is None or newest[1].result is None or _has_rank(newest[1].result, last_rank=last_rank):
        return []
    ranked = [one for one in printing if _has_rank(one[1].result, last_rank=last_rank)]
    return [one for one in ranked if (moment := one[2].resolve_time(asked.near)) is not None and last - moment <= TOGETHER]


def _moved_on(asked: _Asked, log: ContainerLog) -> bool:
    """Whether this container has met anew since it printed, and was given a rank that does not print."""
    if not (log.result_line and log.reading_line) or log.result_line.line < log.reading_line.line:
        return False
    return not _has_rank(log.result, last_rank=_last_rank_prints(asked))


def _overtaken(asked: _Asked, printer: _Found) -> bool:
    """Whether another live pod was given the printing rank after this one printed last."""
    pod, log, said = printer
    printed = said.resolve_time(asked.near)
    own = log.result_line.resolve_time(asked.near) if log.result_line else None
    for other, other_log in asked.logs:
        if other is pod or not other_log.result_line or not _has_rank(other_log.result, last_rank=_last_rank_prints(asked)):
            continue
        given = other_log.result_line.resolve_time(asked.near)
        if given is not None and printed is not None and given > printed and (own is None or given > own):
            return True
    return False


def _has_rank(result: RendezvousResult | None, *, last_rank: bool) -> bool:
    """Whether the result gives the rank that prints."""
    if result is None or result.group_rank is None:
        return False
    if last_rank and result.group_world_size:
        return result.group_rank == result.group_world_size - 1
    return result.group_rank == 0


def _last_rank_prints(asked: _Asked) -> bool:
    """Whether progress was seen from the last rank of a round and never from the first."""
    printers = [
        log.result_at_reading for _, log in asked.logs if log.result_at_reading and log.reading and log.reading.conclusive
    ]
    if not printers or any(result.group_rank == 0 for result in printers):
        return False
    return all(_has_rank(result, last_rank=True) for result in printers)


def _by_rank(asked: _Asked) -> Master | None:
    """The pod whose own newest result has the rank that prints."""
    last_rank = _last_rank_prints(asked)
    ranked = [
        (pod, log, log.result_line) for pod, log in asked.logs if log.result_line and _has_rank(log.result, last_rank=last_rank)
    ]
    if newest := asked.newest(ranked):
        pod, log, said = newest
        return _answer(asked, pod, log, said, EvidenceKind.GROUP_RANK)
    for pod, log in asked.logs:
        if log.launch and log.launch.node_rank == 0:
            said = EvidenceLine(text="static rendezvous, started with node rank 0", line=log.launch.line, order=0)
            return _answer(asked, pod, log, said, EvidenceKind.NODE_RANK)
    return None


def _by_address(asked: _Asked) -> Master | None:
    """The pod that the newest `master_addr` names: a hint only, it can name a dead pod after a failed membership change."""
    naming = [
        (pod, log, log.result_line) for pod, log in asked.logs if log.result_line and log.result and log.result.master_addr
    ]
    newest = asked.newest(naming)
    if newest is None or newest[1].result is None or newest[1].result.master_addr is None:
        return None
    pod, _, said = newest
    address = newest[1].result.master_addr
    owner = find_address_owner(address, asked.pods, asked.config.workers, own=pod.name)
    if owner is None or (asked.running and owner in asked.pods and not asked.pods[owner].live):
        return None
    named = asked.pods.get(owner) or PodView(owner)
    quote = EvidenceLine(
        text=f"master_addr={address}", line=said.line, order=said.order, time=said.time, yearless=said.yearless
    )
    return _answer(asked, named, named.log, quote, EvidenceKind.MASTER_ADDR, source=pod.name)


def _by_rule(asked: _Asked) -> Master | None:
    """What the rendezvous does if each pod goes by its own name (torch dynamic_rendezvous.py `_mark_rendezvous_complete`)."""
    names = list(
        dict.fromkeys([pod.name for pod, _ in asked.logs] + [name for name in asked.config.workers if name not in asked.pods])
    )
    told = [log.launch.max_nodes or 1 for _, log in asked.logs if log.launch]
    nodes = max([1, *told, *(log.result.group_world_size or 1 for _, log in asked.logs if log.result)])
    if not names or (not asked.config.workers and nodes > len(names)):
        return None  # the pods that are not known may sort first
    if len(names) == 1:
        name, rule = names[0], "the only pod of the job"
    elif asked.backend in {"c10d", "etcd-v2"}:
        name, rule = min(names), f"{asked.backend} gives rank 0 to the address that sorts first as a string"
    elif asked.backend == "static" and asked.config.workers:
        name, rule = asked.config.workers[0], "static rendezvous: node rank 0 is rank 0"
    else:
        return None
    pod = asked.pods.get(name) or PodView(name)
    if pod.group_rank:
        return None  # it says itself that it is another
    return _answer(asked, pod, pod.log, EvidenceLine(text=rule, line=0, order=0), EvidenceKind.PREDICTION)


def _answer(
    asked: _Asked,
    pod: PodView,
    log: ContainerLog,
    said: EvidenceLine,
    kind: EvidenceKind,
    *,
    source: str | None = None,
    notes: tuple[str, ...] = (),
) -> Master:
    """The answer with what the pod's own newest result adds to it."""
    result = log.result or RendezvousResult()
    bar_only = kind is EvidenceKind.PROGRESS and log.reading is not None and not log.reading.conclusive
    store = None
    if result.master_addr:
        owner = find_address_owner(result.master_addr, asked.pods, asked.config.workers, own=pod.name)
        store = Store(address=result.master_addr, port=result.master_port, pod=owner)
    if log is pod.past:
        notes = (*notes, f"seen before the container of `{pod.name}` was restarted")
    if not pod.live and asked.running is False and pod.phase is not None:
        notes = (*notes, f"`{pod.name}` has ended ({pod.phase})")
    return Master(
        pod=pod.name,
        container=log.container,
        node=pod.node,
        evidence=Evidence(kind=kind, pod=source or pod.name, quote=said.text, time=said.resolve_time(asked.near)),
        confidence=Confidence.LIKELY if bar_only else _SURE[kind],
        group_rank=result.group_rank,
        global_ranks=result.global_ranks,
        world_size=result.global_world_sizes[0] if result.global_world_sizes else None,
        round_time=log.result_line.resolve_time(asked.near) if log.result_line else None,
        store=store,
        notes=notes,
    )


def _nobody(asked: _Asked) -> NoMaster:
    """Why there is no answer."""
    lines = sum(log.lines for _, log in asked.logs)
    results = [log.result for _, log in asked.logs if log.result]
    foreign = sorted({result.master_addr for result in results if result.master_addr})
    reasons, hint = [], None
    if foreign:
        reasons.append(f"the agents name `{foreign[0]}`, which belongs to no living pod of the job")
    elif not lines:
        reasons.append("no pod has printed anything yet")
    else:
        reasons.append("no progress line and no rendezvous result in any log")
    level = asked.config.loglevel
    if not results and lines and level not in {"INFO", "DEBUG", "NOTSET"}:
        reasons.append(f"`LOGLEVEL` is `{level}`" if level else "torch prints the result only where `LOGLEVEL` is `INFO`")
        hint = "set `LOGLEVEL` to `INFO` in the job's environment and relaunch"
    if asked.backend == "etcd":
        reasons.append("with etcd the first agent to join gets rank 0, so that it cannot be predicted")
    return NoMaster(pods=len(asked.pods) or len(asked.config.workers), lines=lines, reasons=tuple(reasons), hint=hint)
