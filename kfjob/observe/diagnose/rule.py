"""What a rule is: a symptom, what causes it, and what to do about it. Rules are data; `rules/` holds them.

The texts of a rule may name groups of its pattern in braces: `module {name} is not installed`.
"""

from __future__ import annotations

import re
from enum import StrEnum
from functools import cached_property

from msgspec import Struct

UNKNOWN_VALUE = "(not said)"
"""What stands for a value that this form of the symptom does not tell."""


class Severity(StrEnum):
    """How bad it is."""

    ERROR = "error"  # the job fails, cannot start, or computes something wrong
    WARNING = "warning"  # it goes on, but not as it should
    HARMLESS = "harmless"  # noise of healthy runs, known as such


class Role(StrEnum):
    """What a symptom says about the cause of a failure; the earlier in this list, the more."""

    CAUSE = "cause"  # explains a failure by itself
    SUSPECT = "suspect"  # explains it if nothing better is known: somebody was killed, and not even the kernel says why
    CONSEQUENCE = "consequence"  # what the failure of another process looks like from here
    SYMPTOM = "symptom"  # says that something ended, not why


class Subject(StrEnum):
    """What a rule looks at."""

    LOG = "log"  # a line of a log, without colours and times of log tools
    EXCEPTION = "exception"  # the end of a traceback that no rule about lines knows
    POD = "pod"  # `<phase> <reason> exit=<code> restarts=<n>: <message>`, see `pod_text`
    JOB = "job"  # `<phase> <reason>: <message>`
    EVENT = "event"  # `<kind> <reason>: <message>` of what the cluster's controllers wrote down
    QUEUE = "queue"  # `<reason>: <message>` of a job that a queue has not admitted
    VIEW = "view"  # the whole picture: `conditions.py` has a function of the rule's id


class Rule(Struct, frozen=True, kw_only=True, dict=True):
    """One known failure, or one known noise."""

    id: str
    title: str
    """What is wrong, in the words of an error message."""

    cause: str
    """Why it happens."""

    remedy: str
    """What to do next; "" where nothing has to be done."""

    markers: tuple[str, ...] = ()
    """Literals of which one is in every text that the pattern matches: no other text is searched."""

    pattern: str = ""
    subject: Subject = Subject.LOG
    severity: Severity = Severity.ERROR
    role: Role = Role.CAUSE

    once_joined: Role | None = None
    """The role, if the agent had met the others before."""

    until_joined: bool = False
    """Nothing but noise if the agent meets the others after it."""

    lasting: bool = False
    """It stays true however well training goes on."""

    link: str = ""
    """A document outside of kfjob that says more."""

    @cached_property
    def regex(self) -> re.Pattern[str]:
        """The pattern."""
        return re.compile(self.pattern)

    def search(self, text: str) -> dict[str, str] | None:
        """The groups of the pattern, if the text shows this symptom."""
        if self.markers and not any(marker in text for marker in self.markers):
            return None
        if not (found := self.regex.search(text)):
            return None
        values: dict[str, str] = {}
        for name, value in found.groupdict().items():  # `host2` is the host of another branch of the pattern
            plain = name.rstrip("0123456789")
            values[plain] = value or values.get(plain, "")
        return {name: value or UNKNOWN_VALUE for name, value in values.items()}
