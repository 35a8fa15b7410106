"""What a check says, and what a check is: the seam at which further checks are added."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, TypeVar

from kfjob.errors import KfjobError

Verdict = Literal["ok", "warn", "fail"]
Here = TypeVar("Here")


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One thing that was looked at."""

    name: str
    verdict: Verdict
    said: str  # one line: what was found
    remedy: str = ""  # the command that mends it, or what to do


def ok(name: str, said: str) -> Finding:
    """All is well."""
    return Finding(name=name, verdict="ok", said=said)


def warn(name: str, said: str, remedy: str = "") -> Finding:
    """Something that some jobs need is not there, or cannot be seen."""
    return Finding(name=name, verdict="warn", said=said, remedy=remedy)


def fail(name: str, said: str, remedy: str = "") -> Finding:
    """Jobs cannot run like this."""
    return Finding(name=name, verdict="fail", said=said, remedy=remedy)


def of_error(name: str, err: KfjobError) -> Finding:
    """What went wrong while it was looked at."""
    return fail(name, f"{err.title}: {' '.join(err.cause.split())}" if err.cause else err.title, err.hint or "")


Check = Callable[[Here], Iterator[Finding]]
Checks = Mapping[str, Check[Here]]


def run(checks: Checks[Here], here: Here, *, only: frozenset[str] = frozenset()) -> Iterator[Finding]:
    """Every check by name, in its order; an error of ours is a finding like any other."""
    for name, check in checks.items():
        if only and name not in only:
            continue
        try:
            yield from check(here)
        except KfjobError as err:
            yield of_error(name, err)
