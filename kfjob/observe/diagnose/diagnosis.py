"""The answer: what went wrong first, what followed from it, and what means nothing."""

from __future__ import annotations

from msgspec import Struct, field

from kfjob.observe.diagnose.rule import Role, Severity


class Issue(Struct, frozen=True, kw_only=True):
    """One fault, wherever it was seen."""

    rule: str
    severity: Severity
    role: Role
    title: str
    cause: str
    remedy: str
    link: str = ""
    pod: str = ""  # where it was seen first
    line: int | None = None  # within the container's log, the first being 1; None: told by a state
    time: int | None = None
    rank: int | None = None
    previous: bool = False  # in the log of the container before
    evidence: tuple[str, ...] = ()
    count: int = 1
    pods: tuple[str, ...] = ()
    recovered: bool = False  # training went on after it


class Diagnosis(Struct, frozen=True, kw_only=True):
    """All findings, by time, told apart by what they mean."""

    headline: str  # the state of the job in one sentence
    failed: bool  # the job has failed, or cannot go on as it is
    lines: int = 0
    pods: int = 0
    first_cause: Issue | None = None  # the first cause
    other_causes: tuple[Issue, ...] = ()  # further faults that explain something by themselves
    consequences: tuple[Issue, ...] = ()  # what followed from the first
    warnings: tuple[Issue, ...] = ()
    recovered: tuple[Issue, ...] = ()  # faults that were overcome
    harmless: tuple[Issue, ...] = field(default=())

    @property
    def healthy(self) -> bool:
        """Whether no error was found."""
        return self.first_cause is None
