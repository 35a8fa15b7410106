"""What a lint rule is: an id, how grave a finding is, why it matters, and a function of a job that yields findings."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

from kfjob.errors import Problem
from kfjob.lint.job import Job

Severity = Literal["error", "warning"]


@dataclass(frozen=True, kw_only=True)
class Violation:
    """One thing that a rule has to say, at one field of the spec."""

    path: str
    message: str
    hint: str | None = None
    detail: str | None = None


Check = Callable[[Job], Iterator[Violation]]


@dataclass(frozen=True, kw_only=True)
class Rule:
    """One rule. An `error` is sure to fail or to do another thing than was asked for; a `warning` may be meant."""

    id: str
    severity: Severity
    title: str
    why: str
    local: bool
    """Whether it holds for jobs on this machine too."""
    check: Check

    @property
    def docs(self) -> str:
        """Where the rule is described."""
        return f"docs/reference/lint.md#{self.id}"

    def problems(self, job: Job) -> Iterator[Problem]:
        """The findings in `job`, as problems that know their field but not its place in a file."""
        for found in self.check(job):
            yield Problem(
                title=found.message,
                path=found.path,
                detail=found.detail,
                hint=found.hint,
                severity=self.severity,
                rule=self.id,
            )


def rule(id_: str, severity: Severity, *, local: bool = False) -> Callable[[Check], Rule]:
    """Make a rule of a function, whose docstring is the rule's title and, after an empty line, why it matters."""

    def make(check: Check) -> Rule:
        title, _, why = inspect.cleandoc(check.__doc__ or "").partition("\n\n")
        return Rule(id=id_, severity=severity, title=title.rstrip("."), why=" ".join(why.split()), local=local, check=check)

    return make
