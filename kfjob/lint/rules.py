"""A lint rule: an id, a severity, a reason, and a function that yields the violations of a job."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Literal

from msgspec import Struct

from kfjob.base.errors import Problem
from kfjob.lint.job import Job

Severity = Literal["error", "warning", "note"]


class Violation(Struct, frozen=True, kw_only=True):
    """One violation of a rule at one field of the spec."""

    path: str
    message: str
    hint: str | None = None
    detail: str | None = None
    severity: Severity | None = None
    """Where it is not that of the rule."""


Check = Callable[[Job], Iterator[Violation]]


class LintRule(Struct, frozen=True, kw_only=True):
    """One rule. An `error` means that the job cannot work as written; a `warning` can be intended; a `note`
    only informs.
    """

    id: str
    severity: Severity
    title: str
    reason: str
    local: bool
    """Whether the rule applies to the local backend too."""
    kind: str
    """The kind of job that the rule is about; "": every kind."""
    check: Check

    def find_problems(self, job: Job) -> Iterator[Problem]:
        """Yield the violations as problems with a field, but without a position in a file."""
        if self.kind not in ("", job.manifest["kind"]):
            return
        for violation in self.check(job):
            yield Problem(
                title=violation.message,
                path=violation.path,
                detail=violation.detail,
                hint=violation.hint,
                severity=violation.severity or self.severity,
                rule=self.id,
            )


def rule(id_: str, severity: Severity, *, local: bool = False, kind: str = "") -> Callable[[Check], LintRule]:
    """Return a decorator that makes a rule. The function's docstring is the title and, after an empty line, the reason."""

    def make_rule(check: Check) -> LintRule:
        title, _, reason = inspect.cleandoc(check.__doc__ or "").partition("\n\n")
        reason = " ".join(reason.split())
        title = title.rstrip(".")
        return LintRule(id=id_, severity=severity, title=title, reason=reason, local=local, kind=kind, check=check)

    return make_rule
