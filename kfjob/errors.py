"""Everything that can go wrong, in our own words.

    KfjobError                          exit code
    ├── SpecError                       2    the spec, or a flag, is wrong; holds every problem found
    ├── UsageError                      2    the command cannot be carried out as it was given
    ├── NotFound                        3    no such job, pod or file
    ├── AlreadyExists                   1    the name is taken
    ├── Forbidden                       4    authenticated or not, the cluster says no
    ├── Unreachable                     5    no answer from the cluster in time, or none configured
    ├── Refused                         1    the cluster (API server, webhook, operator) would not take it
    ├── BackendError                    1    a backend failed in a way no other class names
    ├── NoEvidence                      1    the question is valid, the evidence is not there
    ├── JobFailed                       100  the job ran and failed
    ├── JobUnfinished                   101  the job has not ended
    ├── JobStopped                      103  the job was stopped before it ended
    └── WaitTimeout                     124  the deadline of a wait passed

An error carries what is wrong (`title`), where (`location`), why (`cause`) and what to do next (`hint`). Foreign exceptions are
turned into these at the edge that meets them, `raise … from`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal


class KfjobError(Exception):
    """Base of every error that a user can cause or must know about."""

    exit_code = 1

    def __init__(self, title: str, *, location: str | None = None, cause: str | None = None, hint: str | None = None) -> None:
        """Keep the four parts; `title` is lower case, without a final period, with names in backticks."""
        super().__init__(title)
        self.title = title
        self.location = location
        self.cause = cause
        self.hint = hint

    def lines(self) -> list[str]:
        """The message as a user reads it, one part a line."""
        parts = [f"error: {self.title}"]
        if self.location:
            parts.append(f"  --> {self.location}")
        if self.cause:
            parts += [f"  cause: {line}" if i == 0 else f"         {line}" for i, line in enumerate(self.cause.splitlines())]
        if self.hint:
            parts.append(f"hint: {self.hint}")
        return parts

    def __str__(self) -> str:
        """The whole message."""
        return "\n".join(self.lines())


@dataclass(frozen=True, kw_only=True)
class Problem:
    """One fault of a spec: what, at which field, and where in the file that field stands."""

    title: str
    path: str = ""
    file: str | None = None
    line: int | None = None
    column: int | None = None
    detail: str | None = None
    hint: str | None = None
    severity: Literal["error", "warning"] = "error"
    rule: str = ""  # of lint, which found it

    def location(self) -> str | None:
        """`file:line:column (path)`, as far as known."""
        place = ":".join(str(part) for part in (self.file, self.line, self.column) if part is not None)
        if place and self.path:
            return f"{place} ({self.path})"
        return place or (self.path or None)

    def lines(self) -> list[str]:
        """The problem as a user reads it."""
        parts = [f"{self.severity}: {self.title}{f' [{self.rule}]' if self.rule else ''}"]
        if location := self.location():
            parts.append(f"  --> {location}")
        if self.detail:
            parts += [f"  {line}" for line in self.detail.splitlines()]
        if self.hint:
            parts.append(f"hint: {self.hint}")
        return parts


class SpecError(KfjobError):
    """A spec or a flag is wrong. All problems are found and reported at once."""

    exit_code = 2

    def __init__(self, problems: Sequence[Problem]) -> None:
        """Hold at least one problem."""
        first = problems[0]
        title = first.title if len(problems) == 1 else f"{len(problems)} problems in the spec, the first: {first.title}"
        super().__init__(title, location=first.location(), hint=first.hint)
        self.problems = tuple(problems)

    def lines(self) -> list[str]:
        """Every problem, with an empty line between two."""
        out: list[str] = []
        for problem in self.problems:
            out += ([""] if out else []) + problem.lines()
        return out


class UsageError(KfjobError):
    """The command cannot be carried out as it was given."""

    exit_code = 2


class NotFound(KfjobError):
    """There is no such job, pod or file."""

    exit_code = 3


class AlreadyExists(KfjobError):
    """A job of this name exists already."""


class Forbidden(KfjobError):
    """The cluster knows the request and does not allow it, or does not know who asks."""

    exit_code = 4


class Unreachable(KfjobError):
    """The cluster does not answer in time, or none is configured."""

    exit_code = 5


class Refused(KfjobError):
    """The API server, a webhook or the operator would not take what was sent."""


class BackendError(KfjobError):
    """A backend failed in a way that no other class names."""


class NoEvidence(KfjobError):
    """The question is valid, but the evidence for an answer is not there (yet)."""


class JobFailed(KfjobError):
    """The job ran and failed."""

    exit_code = 100


class JobUnfinished(KfjobError):
    """The job has not ended."""

    exit_code = 101


class JobStopped(KfjobError):
    """The job was stopped before it ended."""

    exit_code = 103


class WaitTimeout(KfjobError):
    """The deadline of a wait passed."""

    exit_code = 124
