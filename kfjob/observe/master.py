"""The answer to "which pod prints progress": who, on what evidence, and how sure. `discovery` finds it."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

from msgspec import Struct

from kfjob.errors import NoEvidence
from kfjob.text import plural


class EvidenceKind(StrEnum):
    """What an answer rests on, the best first."""

    PROGRESS = "progress line"
    GROUP_RANK = "group rank"
    NODE_RANK = "node rank"
    MASTER_ADDR = "master address"
    PREDICTION = "prediction"


class Confidence(StrEnum):
    """How sure an answer is."""

    CONFIRMED = "confirmed"
    LIKELY = "likely"
    PREDICTED = "predicted"


class Evidence(Struct, frozen=True, kw_only=True):
    """The one line that an answer rests on; for a prediction the rule, in words."""

    kind: EvidenceKind
    pod: str
    quote: str
    time: int | None = None


class Store(Struct, frozen=True, kw_only=True):
    """The host that the processes of a round meet at; `pod` is None when it belongs to no pod of the job."""

    address: str
    port: int | None
    pod: str | None


class Master(Struct, frozen=True, kw_only=True):
    """The pod that prints progress."""

    pod: str
    container: str
    node: str
    evidence: Evidence
    confidence: Confidence
    group_rank: int | None = None
    global_ranks: tuple[int, ...] = ()
    world_size: int | None = None
    round_time: int | None = None  # when its newest rendezvous was complete
    store: Store | None = None
    notes: tuple[str, ...] = ()

    def explain(self) -> list[str]:
        """The answer in sentences."""
        ranks = f"global ranks {format_ranks(self.global_ranks)}" if self.global_ranks else "ranks not known"
        where = f" on node `{self.node}`" if self.node else ""
        source = "" if self.evidence.pod == self.pod else f" in the log of `{self.evidence.pod}`"
        said = f"{self.evidence.kind}{source}: {self.evidence.quote}"
        lines = [f"`{self.pod}`{where} ({ranks}) prints progress, {self.confidence}", said]
        if self.store and self.store.pod != self.pod:
            owner = f"which is pod `{self.store.pod}`" if self.store.pod else "which belongs to no pod of the job"
            lines.append(f"the store of its round is at `{self.store.address}`, {owner}")
        return lines + list(self.notes)


class NoMaster(Struct, frozen=True, kw_only=True):
    """There is no evidence. What was looked at, and why it did not do."""

    pods: int
    lines: int
    reasons: tuple[str, ...]
    hint: str | None = None

    def error(self, job: str) -> NoEvidence:
        """The answer for a person who asked."""
        title = f"no master found for `{job}` in {plural(self.pods, 'pod')}, {plural(self.lines, 'line')}"
        return NoEvidence(title, cause="\n".join(self.reasons), hint=self.hint)


def format_ranks(ranks: Iterable[int]) -> str:
    """Ranks as a person writes them: `0-7`, `3`, `0, 2-3`."""
    runs: list[list[int]] = []
    for rank in sorted(ranks):
        if runs and rank == runs[-1][-1] + 1:
            runs[-1][1:] = [rank]
        else:
            runs.append([rank])
    return ", ".join("-".join(map(str, run)) for run in runs)
