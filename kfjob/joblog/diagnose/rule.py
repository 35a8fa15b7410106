"""The definition of a rule: a symptom, its cause and its remedy. Rules are data; `rules/` holds them.

The texts of a rule may contain groups of its pattern in braces: `module {name} is not installed`.
"""

from __future__ import annotations

from enum import Enum, StrEnum, auto
from functools import cached_property

from msgspec import Struct

from kfjob.base.common_types import TextEnum
from kfjob.base.patterns import Match, Pattern
from kfjob.joblog.diagnose.literals import find_literals

UNKNOWN_VALUE = "(unknown)"
"""Stands for a value that this form of the symptom does not contain."""


class Severity(TextEnum):
    """How severe a symptom is."""

    ERROR = "error"  # the job fails, cannot start, or computes wrong results
    WARNING = "warning"  # the job continues, but not as it should
    HARMLESS = "harmless"  # healthy jobs print it too


class Role(TextEnum):
    """How well a symptom explains a failure, the best first."""

    CAUSE = "cause"  # explains the failure by itself
    SUSPECT = "suspect"  # explains the failure if there is no cause, such as a killed process
    CONSEQUENCE = "consequence"  # the effect of another process's failure
    SYMPTOM = "symptom"  # shows that something ended, but not why

    @property
    def rank(self) -> int:
        """The role's place in this order, 0 for the best."""
        return list(Role).index(self)


class Subject(StrEnum):
    """The input that a rule is matched against."""

    LOG = "log"  # the message of an incident, without colours and prefixes
    EXCEPTION = "exception"  # an exception or a crash that no LOG rule matches
    POD = "pod"  # `<phase> <reason> exit=<code> restarts=<n>: <message>`, see `engine.states.format_pod`
    JOB = "job"  # `<phase> <reason>: <message>`
    EVENT = "event"  # `<kind> <reason>: <message>` of a Kubernetes event
    QUEUE = "queue"  # `<reason>: <message>` of a job that its queue has not admitted
    VIEW = "view"  # the whole job view: a check of the engine finds it


class IncidentKind(StrEnum):
    """How an incident was reported."""

    EXCEPTION = "exception"  # a Python traceback, or the line that ends one
    NATIVE = "native"  # C++ or the interpreter ended the process
    MESSAGE = "message"  # a line of a library, a launcher, a compiler or the kernel
    WARNING = "warning"  # a line that its program calls a warning, or that says how the program goes on


class LogSource(Enum):
    """Where the logs come from: it decides which commands a remedy can name."""

    JOB = auto()  # a job of a backend, or of the archive
    SAVED = auto()  # a file or a folder
    STANDARD_INPUT = auto()  # which can be read once


class RuleMatch(Struct, frozen=True):
    """A rule that matches a text."""

    rule: Rule
    values: dict[str, str]
    first_line: int = 0  # of the match within the text
    last_line: int = 0
    start: int = 0  # position of the match within the text


class Rule(Struct, frozen=True, kw_only=True, dict=True):
    """One known failure, or one known harmless message."""

    id: str
    title: str
    """The failure as an error message."""

    cause: str
    """Why it happens."""

    remedy: str
    """What to do next; "" if nothing has to be done."""

    local_title: str = ""
    """The title for a job of the local backend, whose pods are processes; "" if `title` fits too."""

    local_remedy: str = ""
    """What to do next for a job of the local backend, whose pods are processes; "" if `remedy` fits too."""

    recovered_title: str = ""
    """The title where the job has recovered from it; "" if `title` fits too."""

    unless: tuple[str, ...] = ()
    """Literals that no matching text contains: they show another symptom."""

    pattern: str = ""
    subject: Subject = Subject.LOG
    severity: Severity = Severity.ERROR
    role: Role = Role.CAUSE

    role_after_join: Role | None = None
    """Role of an occurrence after the agent has joined a round; None: `role`."""

    harmless_before_join: bool = False
    """Whether it is harmless if the agent joins a round after it."""

    permanent: bool = False
    """Whether it remains an error even if training continues."""

    futile_after: int | None = None
    """Rounds that end with this failure after which a restart is futile; None: a restart may help."""

    stack: tuple[str, ...] = ()
    """Literals of which one stands in the innermost frames of the traceback; () if the frames do not matter."""

    in_warnings: bool = False
    """Whether a line that its program calls a warning shows the failure too; else it is a warning here."""

    wraps: bool = False
    """Whether it only repeats another failure: a rule that knows that one explains more."""

    in_script: bool = False
    """Whether a script may go on after it: later steps or success show recovery, and it is a warning while the job runs."""

    probed: bool = False
    """Whether programs also probe for it: it is a warning unless an exception, a failed build or the end of the process shows
    that the program needs it."""

    @cached_property
    def regex(self) -> Pattern:
        """The pattern, which is compiled at its first search; in a log, `^` and `$` are the ends of a line."""
        return Pattern(f"(?m){self.pattern}" if self.subject is Subject.LOG else self.pattern)

    @cached_property
    def literals(self) -> tuple[str, ...]:
        """Literals of which every matching text contains at least one."""
        return find_literals(self.pattern)

    @property
    def explains_end(self) -> bool:
        """Whether it says why a process, a pod or the job ended, not only that it did."""
        return self.severity is Severity.ERROR and self.role is not Role.SYMPTOM

    def match(self, text: str) -> RuleMatch | None:
        """Return the match of the pattern, None if the text does not show this symptom."""
        if any(literal in text for literal in self.unless) or not (match := self.regex.search(text)):
            return None
        values = _name_values(match)
        if UNKNOWN_VALUE in values.values() and "\n" in text:  # a later line may have the name
            for other in self.regex.find_all(text):
                later = _name_values(other)
                values = {name: later[name] if value == UNKNOWN_VALUE else value for name, value in values.items()}
        return RuleMatch(self, values, *match.lines, start=match.start)


def _name_values(match: Match) -> dict[str, str]:
    """Return the groups by name; `host2` is the host in another branch of the pattern."""
    values: dict[str, str] = {}
    for group, value in match.groupdict().items():
        name = group.rstrip("0123456789")
        values[name] = value or values.get(name, "")
    return {name: value or UNKNOWN_VALUE for name, value in values.items()}
