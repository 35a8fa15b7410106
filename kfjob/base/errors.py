"""All errors that kfjob reports, in its own words.

    KfjobError                          exit code
    ├── SpecError                       2    the spec or an option is invalid; holds every problem
    ├── UsageError                      2    the command cannot run with these arguments
    ├── NotFound                        3    the job, pod or file does not exist
    │   └── NodeUnreachable             3    a pod has no log to read, because its node does not answer
    ├── AlreadyExists                   1    the name is taken
    ├── Forbidden                       4    the cluster rejects the credentials or denies access
    ├── Unreachable                     5    the cluster does not answer in time, or none is configured
    ├── Refused                         1    the API server, a webhook or the operator rejects the request
    │   └── NotInstalled                1    the cluster does not have the kind of job
    ├── BackendError                    1    a backend fails for a reason that has no class of its own
    ├── NoEvidence                      1    the evidence for an answer does not exist (yet)
    ├── JobFailed                       100  the job ran and failed
    ├── JobUnfinished                   101  the job has not ended
    ├── JobStopped                      103  the job was stopped before it ended
    └── WaitTimeout                     124  the deadline of a wait passed

An error holds what is wrong (`title`), where (`location`), why (`cause`) and the next action (`hint`). Code that calls another
library converts its exceptions into these, `raise … from`.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal


class KfjobError(Exception):
    """Base class of the errors that a user can cause or needs to know about."""

    exit_code = 1

    def __init__(self, title: str, *, location: str | None = None, cause: str | None = None, hint: str | None = None) -> None:
        """Set the four parts; `title` is lower case, without a final period, with names in backticks."""
        super().__init__(title)
        self.title = title
        self.location = location
        self.cause = cause
        self.hint = hint

    def lines(self) -> list[str]:
        """Return the lines of the message for users."""
        lines = [f"error: {self.title}"]
        if self.location:
            lines.append(f"  --> {self.location}")
        if self.cause:
            lines += [f"  cause: {line}" if i == 0 else f"         {line}" for i, line in enumerate(self.cause.splitlines())]
        if self.hint:
            lines.append(f"hint: {self.hint}")
        return lines

    def __str__(self) -> str:
        """Return the message for users."""
        return "\n".join(self.lines())


@dataclass(frozen=True, kw_only=True)
class Problem:
    """A problem of a spec or of a command line, with its field and its position in the file."""

    title: str
    path: str = ""
    file: str | None = None
    line: int | None = None
    column: int | None = None
    detail: str | None = None
    hint: str | None = None
    severity: Literal["error", "warning", "note"] = "error"
    rule: str = ""
    """The id of the lint rule that reports the problem."""

    def location(self) -> str | None:
        """Return `file:line:column (path)`, without the parts that are unknown; None if all are."""
        position = ":".join(str(part) for part in (self.file, self.line, self.column) if part is not None)
        if position and self.path:
            return f"{position} ({self.path})"
        return position or (self.path or None)

    def lines(self) -> list[str]:
        """Return the lines of the message for users."""
        lines = [f"{self.severity}: {self.title}{f' [{self.rule}]' if self.rule else ''}"]
        if location := self.location():
            lines.append(f"  --> {location}")
        if self.detail:
            lines += [f"  {line}" for line in self.detail.splitlines()]
        if self.hint:
            lines.append(f"hint: {self.hint}")
        return lines


class SpecError(KfjobError):
    """A spec or an option is invalid. The error holds all problems."""

    exit_code = 2

    def __init__(self, problems: Sequence[Problem]) -> None:
        """Set the problems; there is at least one."""
        first = problems[0]
        title = first.title if len(problems) == 1 else f"{len(problems)} problems in the spec, the first: {first.title}"
        super().__init__(title, location=first.location(), hint=first.hint)
        self.problems = tuple(problems)

    def __reduce__(self) -> tuple[type[SpecError], tuple[tuple[Problem, ...]]]:
        """Pickle and copy the problems, which the other attributes follow from."""
        return type(self), (self.problems,)

    def lines(self) -> list[str]:
        """Return the lines of all problems, with an empty line between two problems."""
        lines: list[str] = []
        for problem in self.problems:
            lines += ([""] if lines else []) + problem.lines()
        return lines


class UsageError(KfjobError):
    """The command cannot run with these arguments."""

    exit_code = 2


class NotFound(KfjobError):
    """The job, pod or file does not exist."""

    exit_code = 3


class NodeUnreachable(NotFound):
    """The node of a pod does not answer, so there is no log of the pod to read."""


class AlreadyExists(KfjobError):
    """A job of this name exists."""


class Forbidden(KfjobError):
    """The cluster does not accept the credentials, or they lack a permission."""

    exit_code = 4


class Unreachable(KfjobError):
    """The cluster does not answer in time, or none is configured."""

    exit_code = 5


class Refused(KfjobError):
    """The API server, a webhook or the operator rejects the request."""


class NotInstalled(Refused):
    """The cluster does not have the kind of job."""


class BackendError(KfjobError):
    """A backend fails for a reason that has no class of its own."""


class NoEvidence(KfjobError):
    """The question is valid, but the evidence for an answer does not exist (yet)."""


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


_SPACE_ERRORS = (errno.ENOSPC, errno.EDQUOT)
_WRITE_ERRORS = (*_SPACE_ERRORS, errno.EFBIG, errno.EROFS)


def explain_os_error(err: OSError, file: os.PathLike[str] | None = None) -> BackendError:
    """Return the error for an OSError, of `file` if it names none: the operation, the file and the cause."""
    cause = err.strerror or str(err) or type(err).__name__
    name = file if err.filename is None else err.filename
    if name is None:
        return BackendError("the operating system refused an operation", cause=cause, hint="`--debug` shows which one")
    operation = "written" if err.errno in _WRITE_ERRORS else "used"
    hint = "make space there" if err.errno in _SPACE_ERRORS else None
    return BackendError(f"`{name}` cannot be {operation}", cause=cause, hint=hint)
