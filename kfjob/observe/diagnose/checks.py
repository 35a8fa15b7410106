"""Symptoms that no single line shows: each function here belongs to the rule of its name (`loss_constant`: `loss-constant`)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

from msgspec import Struct

from kfjob.events import JobPhase, PodPhase
from kfjob.observe.diagnose.occurrences import Occurrence, PodHistory
from kfjob.observe.diagnose.rule import Subject
from kfjob.observe.diagnose.rules import BY_ID
from kfjob.observe.diagnose.symptoms import SymptomCollector
from kfjob.observe.timestamps import Timestamp
from kfjob.observe.view import JobView
from kfjob.units import SECOND

CONSTANT = 20
"""Readings after which a loss that never changed is said to be constant."""
UNANSWERED = 30 * SECOND
"""After so long an operator that lives has written a status and made pods."""
QUIET = 120 * SECOND
"""An agent that finds its rendezvous has joined or complained after so long, if the store can be reached at all."""

Found = Iterator[Occurrence]


class Case(Struct, frozen=True):
    """All that a condition may look at."""

    view: JobView
    symptoms: SymptomCollector
    lost: tuple[Occurrence, ...] = ()  # where agents and processes that had met the others lost them, and nothing was mended

    def occurrence(
        self, rule: str, *, pod: str = "", moment: Timestamp | None = None, evidence: str = "", **values: object
    ) -> Occurrence:
        """One symptom."""
        told = {name: str(value) for name, value in values.items()}
        trace = self.symptoms.pods.get(pod)
        return Occurrence(
            rule=BY_ID[rule],
            pod=pod,
            values={"pod": pod, **told},
            order=10**12,
            moment=moment or Timestamp(time=self.view.now),
            line=trace.lines if trace and evidence else None,
            evidence=(evidence,) if evidence else (),
        )

    @property
    def age(self) -> int:
        """Nanoseconds since the job was made."""
        job = self.view.job
        return (self.view.now or 0) - job.created if job and job.created and self.view.now else 0


def loss_not_finite(case: Case) -> Found:
    """The newest loss is no number."""
    training = case.view.training
    if training.loss is not None and not math.isfinite(training.loss):
        moment = Timestamp(time=training.last_time)
        yield case.occurrence("loss-not-finite", pod=training.pod, moment=moment, loss=training.loss)


def loss_constant(case: Case) -> Found:
    """Every point of the curve is the same."""
    training = case.view.training
    losses = {point.loss for point in training.curve}
    if len(training.curve) >= CONSTANT and len(losses) == 1 and training.loss in losses:
        yield case.occurrence("loss-constant", pod=training.pod, loss=training.loss, count=training.lines)


def stalled(case: Case) -> Found:
    """The job runs and is silent."""
    if case.view.stalled:
        yield case.occurrence("stalled", seconds=round(case.view.seconds_since_progress or 0))


def operator_absent(case: Case) -> Found:
    """Nobody has written a status."""
    job = case.view.job
    silent = job and job.phase is JobPhase.PENDING and not job.reason and not case.view.pods
    if silent and case.age > UNANSWERED and not any(one.kind == "PyTorchJob" for one in case.view.cluster_events):
        yield case.occurrence("operator-absent", seconds=case.age // SECOND)


def no_pods(case: Case) -> Found:
    """The operator has seen the job, and there are no pods."""
    job = case.view.job
    told = any(symptom.rule.subject is Subject.EVENT for symptom in case.symptoms.job.values())
    waits = job and job.phase is JobPhase.PENDING and job.reason and not case.view.pods
    if waits and not told and case.age > UNANSWERED:
        yield case.occurrence("no-pods", seconds=case.age // SECOND)


def rendezvous_silent(case: Case) -> Found:
    """An agent was started, has not met anybody, and says nothing."""
    for name, pod in case.symptoms.pods.items():
        at, now = pod.recent.timestamp().resolve(case.view.reference_time), case.view.now
        alive = case.view.running and name in case.view.pods and case.view.pods[name].live
        waits = pod.launch is not None and not pod.joined and not pod.symptoms
        if alive and waits and at and now and now - at > QUIET:
            yield case.occurrence("rendezvous-silent", pod=name, evidence=pod.recent.last_text)


def stale_store(case: Case) -> Found:
    """A pod was given the address of the store that it cannot reach in two rounds or more."""
    rounds = case.view.rounds
    for name, pod in case.symptoms.pods.items():
        results = [member.result for one in rounds for member in one.members if member.pod == name]
        addresses = {(result.master_addr, result.master_port) for result in results}
        missed = [
            occurrence
            for rule in ("rendezvous-refused", "rendezvous-unresolvable", "rendezvous-no-route", "store-wait-timeout")
            for symptom in pod.symptoms.values()
            if symptom.rule.id == rule
            for occurrence in symptom.occurrences
            if occurrence.joined and (occurrence.values.get("host"), occurrence.values.get("port")) in _as_text(addresses)
        ]
        if len(results) > 1 and len(addresses) == 1 and missed:
            first = missed[0]
            yield Occurrence(
                rule=BY_ID["stale-store"], pod=name, values={"pod": name}, order=first.order, moment=first.moment,
                line=first.line, rank=first.rank, evidence=first.evidence, joined=True,
            )  # fmt: skip


def _as_text(addresses: set[tuple[str | None, int | None]]) -> set[tuple[str | None, str]]:
    return {(host, str(port)) for host, port in addresses}


def import_shortfall(case: Case) -> Found:
    """Fewer processes than there should be have printed the import line."""
    for name, pod in case.symptoms.pods.items():
        symptom = pod.symptoms.get(("shard-checkpoint-import", ""))
        if symptom is None:
            continue
        seen = case.view.pods.get(name)
        rounds = max(len(pod.begins), 1)
        processes = case.view.config.processes_per_node or (len(seen.global_ranks) if seen else 0)
        if processes and symptom.count < processes and rounds == 1:
            ranks = {occurrence.rank for occurrence in symptom.occurrences}
            missing = sorted(set(seen.global_ranks if seen else ()) - ranks) if None not in ranks and len(ranks) > 1 else []
            who = f"rank {', '.join(map(str, missing))}" if missing else f"{processes - symptom.count} of them"
            yield case.occurrence("import-shortfall", pod=name, count=symptom.count, processes=processes, missing=who)


def rank0_left_early(case: Case) -> Found:
    """The pod of rank 0 ended well, and others lost their connection."""
    for name, pod in case.symptoms.pods.items():
        seen = case.view.pods.get(name)
        well = pod.finished is not None or (pod.state and pod.state.phase is PodPhase.SUCCEEDED)
        if seen and seen.group_rank == 0 and well and any(occurrence.pod != name for occurrence in case.lost):
            yield case.occurrence("rank0-left-early", pod=name, moment=pod.recent.timestamp(), evidence=pod.recent.last_text)


def peer_lost(case: Case) -> Found:
    """A pod's log ends, without a fault, when others lose their connection."""
    near = case.view.reference_time
    times = [(not one.moment.exact, time) for one in case.lost if (time := one.moment.resolve(near)) is not None]
    if not times:
        return
    _, first = min(times)  # an inexact time is that of a line before
    hosts = {pod.launch.rdzv_endpoint.rpartition(":")[0] for pod in case.symptoms.pods.values() if pod.launch}
    for name, pod in case.symptoms.pods.items():
        end = pod.recent.timestamp().resolve(near)
        if (
            end is not None
            and end <= first + SECOND
            and _silent(pod)
            and all(occurrence.pod != name for occurrence in case.lost)
        ):
            rule = "store-host-lost" if name in {host.partition(".")[0] for host in hosts} else "peer-lost"
            yield case.occurrence(rule, pod=name, moment=Timestamp(time=end), evidence=pod.recent.last_text)


def _silent(pod: PodHistory) -> bool:
    """Whether the log of a pod that had joined just stops."""
    ended = pod.finished is not None or (pod.state is not None and pod.state.phase is PodPhase.SUCCEEDED)
    faults = any(symptom.rule.severity != "harmless" for symptom in pod.symptoms.values())
    return pod.joined and not ended and not faults


CONDITIONS: tuple[Callable[[Case], Found], ...] = (
    loss_not_finite, loss_constant, stalled, operator_absent, no_pods, rendezvous_silent, stale_store, import_shortfall,
    rank0_left_early, peer_lost,
)  # fmt: skip
