"""The result of a diagnosis: the first cause of a failure, its consequences, warnings and harmless messages."""

from __future__ import annotations

from msgspec import Struct, field

from kfjob.common_types import Identifier
from kfjob.observe.diagnose.rule import Role, Severity
from kfjob.observe.diagnose.rules import BY_ID
from kfjob.observe.silence import Silence


class Issue(Struct, frozen=True, kw_only=True):
    """One error, warning or harmless message, with all pods in which it occurred."""

    rule: Identifier
    severity: Severity
    role: Role
    title: str
    cause: str
    remedy: str
    link: str = ""
    pod: Identifier = ""  # pod of the first occurrence
    line: int | None = None  # line number of the first occurrence in the container's log, from 1; None if no line shows it
    time: int | None = None
    rank: int | None = None
    place: str = ""  # `file:line` of the program's innermost frame in the traceback; "" without one
    previous: bool = False  # in the log of an earlier container of the pod
    evidence: tuple[str, ...] = ()
    context: tuple[str, ...] = ()  # the lines before the evidence
    count: int = 1
    pods: tuple[Identifier, ...] = ()
    recovered: bool = False  # training went on after it


class Diagnosis(Struct, frozen=True, kw_only=True):
    """All issues of a job by time, grouped by their meaning."""

    headline: str  # state of the job in one sentence
    failed: bool  # the job has failed, or cannot go on as it is
    lines: int = 0
    pods: int = 0
    first_cause: Issue | None = field(default=None, name="first")  # `name` is the key in JSON output
    other_causes: tuple[Issue, ...] = field(default=(), name="others")  # independent errors
    consequences: tuple[Issue, ...] = field(default=(), name="followed")  # effects of the first cause
    warnings: tuple[Issue, ...] = ()
    recovered: tuple[Issue, ...] = ()  # errors after which training went on
    harmless: tuple[Issue, ...] = ()
    succeeded: bool = False  # the job, its agents or its containers reported success, or it trained
    reports: tuple[tuple[Identifier, str], ...] = ()  # of pods, the program's own report of success at the end of the log
    last_lines: tuple[tuple[Identifier, tuple[str, ...]], ...] = ()  # of pods, where no error explains the end
    silence: Silence | None = None  # of a running job that prints nothing for longer than before

    def __repr__(self) -> str:
        """Return one line: the state of the job, and the first cause."""
        cause = f"; first cause: {self.first_cause.title} [{self.first_cause.rule}]" if self.first_cause else ""
        return f"<Diagnosis {self.headline}{cause}>"

    @property
    def harmless_rules(self) -> frozenset[str]:
        """The rules whose messages are all harmless in this job."""
        firsts = (self.first_cause,) if self.first_cause else ()
        serious = {issue.rule for issue in (*firsts, *self.other_causes, *self.consequences, *self.warnings, *self.recovered)}
        return frozenset(issue.rule for issue in self.harmless) - serious

    @property
    def explained(self) -> bool:
        """Whether an error says why the job failed, not only that something ended."""
        return self.first_cause is not None and BY_ID[self.first_cause.rule].role is not Role.SYMPTOM

    @property
    def healthy(self) -> bool:
        """Whether no error was found."""
        return self.first_cause is None
