"""Findings, and the checks that make them. A new check is a function in one of the `CHECKS`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Literal, TypeVar

from msgspec import Struct

from kfjob.base.errors import KfjobError

Verdict = Literal["ok", "warn", "fail"]
Subject = TypeVar("Subject")


class Finding(Struct, frozen=True, kw_only=True):
    """The result of a check."""

    name: str
    verdict: Verdict
    message: str  # one line
    remedy: str = ""  # a command or an instruction that fixes the problem


def ok(name: str, message: str) -> Finding:
    """Return a finding without a problem."""
    return Finding(name=name, verdict="ok", message=message)


def warn(name: str, message: str, remedy: str = "") -> Finding:
    """Return a finding about something that only some jobs need, or that the user may not read."""
    return Finding(name=name, verdict="warn", message=message, remedy=remedy)


def fail(name: str, message: str, remedy: str = "") -> Finding:
    """Return a finding about a problem that stops every job."""
    return Finding(name=name, verdict="fail", message=message, remedy=remedy)


def error_finding(name: str, err: KfjobError) -> Finding:
    """Return the finding for an error that a check raised."""
    return fail(name, f"{err.title}: {' '.join(err.cause.split())}" if err.cause else err.title, err.hint or "")


Check = Callable[[Subject], Iterator[Finding]]
Checks = Mapping[str, Check[Subject]]


def run_checks(checks: Checks[Subject], subject: Subject, *, only: frozenset[str] = frozenset()) -> Iterator[Finding]:
    """Yield the findings of all checks in order, or of those in `only`; an error of kfjob becomes a finding."""
    for name, check in checks.items():
        if only and name not in only:
            continue
        try:
            yield from check(subject)
        except KfjobError as err:
            yield error_finding(name, err)
