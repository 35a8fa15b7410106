"""The result of a diagnosis: the first cause of a failure, its consequences, warnings and harmless messages."""

from __future__ import annotations

from msgspec import Struct, field

from kfjob.base.common_types import Identifier, TextEnum
from kfjob.joblog.diagnose.rule import Role, Severity
from kfjob.joblog.diagnose.rules import BY_ID
from kfjob.joblog.view.silence import Silence


class Verdict(TextEnum):
    """What is known of a job's end; text, JSON and exit code follow it."""

    FAILED = "failed"  # the job has failed, or an error was found that it has not recovered from
    SUCCEEDED = "succeeded"  # the job, or all its pods or agents, reported success
    RUNNING = "running"  # the job has not ended, and no error was found
    STOPPED = "stopped"  # the job was stopped before it ended
    REPORTED = "reported"  # only the program's own output reports success: its exit code is unknown
    UNKNOWN = "unknown"  # nothing shows how the job ended


class Issue(Struct, frozen=True, kw_only=True):
    """One error, warning or harmless message, with all pods in which it occurred."""

    rule: Identifier  # id of the rule
    severity: Severity  # `error`, `warning` or `harmless`
    role: Role  # part that such an issue plays in a failure
    title: str  # the issue in words
    cause: str  # why it happens
    remedy: str  # how to fix it
    pod: Identifier = ""  # pod of the first occurrence
    line: int | None = None  # line number of the first occurrence in the container's log, from 1; None if no line shows it
    time: int | None = None  # time of the first occurrence
    is_dated: bool = True  # internal: the line has this time; else an earlier line has it
    rank: int | None = None  # global rank of its process
    place: str = ""  # `file:line` of the program's innermost frame in the traceback; "" without one
    previous: bool = False  # whether it is in the log of an earlier container of the pod
    evidence: tuple[str, ...] = ()  # the log lines that show it
    context: tuple[str, ...] = ()  # the lines before the evidence
    count: int = 1  # number of occurrences
    pods: tuple[Identifier, ...] = ()  # all pods in which it occurred
    recovered: bool = False  # whether training went on after it


class Diagnosis(Struct, frozen=True, kw_only=True):
    """All issues of a job by time, grouped by their meaning."""

    headline: str  # state of the job in one sentence
    verdict: Verdict  # what is known of the job's end
    remark: str = ""  # what is remarkable about a success: no progress was printed, or none was read
    lines: int = 0  # log lines that were read
    pods: int = 0  # pods whose logs were read
    first_cause: Issue | None = field(default=None, name="cause")  # what failed first; None without an error; `cause` in JSON
    other_causes: tuple[Issue, ...] = ()  # independent errors
    consequences: tuple[Issue, ...] = ()  # effects of the first cause
    warnings: tuple[Issue, ...] = ()  # warnings that matter
    recovered: tuple[Issue, ...] = ()  # errors after which training went on
    harmless: tuple[Issue, ...] = ()  # messages that look like errors and are none
    reports: tuple[tuple[Identifier, str], ...] = ()  # pods with the program's own report of success at the end of the log
    last_lines: tuple[tuple[Identifier, tuple[str, ...]], ...] = ()  # last lines of pods whose end no error explains
    losses: tuple[tuple[Identifier, str], ...] = ()  # pods whose log could not be written completely, and why
    silence: Silence | None = None  # the silence of a running job that prints nothing for longer than before

    def __repr__(self) -> str:
        """Return one line: the state of the job, and the first cause."""
        cause = f"; first cause: {self.first_cause.title} [{self.first_cause.rule}]" if self.first_cause else ""
        return f"<Diagnosis {self.headline}{cause}>"

    @property
    def failed(self) -> bool:
        """Whether the job has failed, or has an error that it has not recovered from."""
        return self.verdict is Verdict.FAILED

    @property
    def succeeded(self) -> bool:
        """Whether success was seen: the program's own report is none."""
        return self.verdict is Verdict.SUCCEEDED

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
