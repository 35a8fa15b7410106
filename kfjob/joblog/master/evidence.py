"""The pod that prints progress, with the evidence for it. `discovery` finds it."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from msgspec import Struct

from kfjob.base.common_types import TextEnum
from kfjob.base.errors import NoEvidence
from kfjob.base.text import plural


class EvidenceKind(TextEnum):
    """Kinds of evidence, the strongest first."""

    PROGRESS = "progress line"
    OUTPUT = "line like progress"
    GROUP_RANK = "group rank"
    NODE_RANK = "node rank"
    MASTER_ADDR = "master address"
    PREDICTION = "prediction"


class Confidence(TextEnum):
    """How certain the result of a discovery is."""

    CONFIRMED = "confirmed"
    LIKELY = "likely"
    PREDICTED = "predicted"


class Evidence(Struct, frozen=True, kw_only=True):
    """The log line that identifies the master; for a prediction the rule in words."""

    kind: EvidenceKind  # what the line shows
    pod: str  # the pod that printed it
    quote: str  # the line
    time: int | None = None  # time of the line


class Store(Struct, frozen=True, kw_only=True):
    """The host of the process group's store; `pod` is None if it is no pod of the job."""

    address: str
    port: int | None
    pod: str | None


class Master(Struct, frozen=True, kw_only=True):
    """The pod that prints progress."""

    pod: str  # name of the pod that prints progress
    container: str  # name of its container
    node: str  # its node
    evidence: Evidence  # the log line that identifies it
    confidence: Confidence  # how certain this is
    group_rank: int | None = None  # rank of its agent
    global_ranks: tuple[int, ...] = ()  # ranks of its processes
    world_size: int | None = None  # processes of the whole job
    round_time: int | None = None  # time of its newest rendezvous result
    store: Store | None = None  # address of the rendezvous store
    notes: tuple[str, ...] = ()  # remarks in words

    def explain(self) -> list[str]:
        """Return the master, its evidence and its store in sentences."""
        ranks = describe_ranks(self.global_ranks) or "ranks unknown"
        node = f" on node `{self.node}`" if self.node else ""
        source = "" if self.evidence.pod == self.pod else f" in the log of `{self.evidence.pod}`"
        evidence = f"{self.evidence.kind}{source}: {self.evidence.quote}"
        verb = "would print" if self.confidence is Confidence.PREDICTED else "prints"
        lines = [f"`{self.pod}`{node} ({ranks}) {verb} progress, {self.confidence}", evidence]
        if self.store and self.store.pod != self.pod:
            owner = f"which is pod `{self.store.pod}`" if self.store.pod else "which belongs to no pod of the job"
            lines.append(f"the store of its round is at `{self.store.address}`, {owner}")
        return lines + list(self.notes)


class NoMaster(Struct, frozen=True, kw_only=True):
    """A discovery without a result: how much was searched, and why it was not enough."""

    pods: int
    lines: int
    reasons: tuple[str, ...]
    hint: str | None = None

    def to_error(self, job: str, missing_pods: str = "") -> NoEvidence:
        """Return the error for a command that needs the master, of a job that has no pods for the reason `missing_pods`."""
        if missing_pods:
            return NoEvidence(f"no master found for `{job}`: {missing_pods}")
        title = f"no master found for `{job}` in {plural(self.pods, 'pod')}, {plural(self.lines, 'line')}"
        return NoEvidence(title, cause="\n".join(self.reasons), hint=self.hint)


def describe_ranks(ranks: Collection[int]) -> str:
    """Return `global rank 3` or `global ranks 0-7`; "" for no ranks."""
    return f"global {'rank' if len(ranks) == 1 else 'ranks'} {format_ranks(ranks)}" if ranks else ""


def format_ranks(ranks: Iterable[int]) -> str:
    """Return ranks as ranges: `0-7`, `3`, `0, 2-3`."""
    ranges: list[list[int]] = []
    for rank in sorted(ranks):
        if ranges and rank == ranges[-1][-1] + 1:
            ranges[-1][1:] = [rank]
        else:
            ranges.append([rank])
    return ", ".join("-".join(map(str, bounds)) for bounds in ranges)
