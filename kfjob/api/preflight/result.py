"""The results of preflight checks."""

from __future__ import annotations

from typing import Any

from msgspec import Struct, field, to_builtins

from kfjob.base.capabilities import BackendName
from kfjob.base.errors import Problem


class CheckResults(Struct):
    """Collects the results of all checks. Each check receives the collector and adds to it; no check stops another."""

    problems: list[Problem] = field(default_factory=list)
    good: list[str] = field(default_factory=list)
    unchecked: list[str] = field(default_factory=list)

    def ok(self, message: str) -> None:
        """Add a check that passed."""
        self.good.append(message)

    def error(self, title: str, path: str = "", *, detail: str = "", hint: str = "") -> None:
        """Add a problem that keeps the job from running as its spec says."""
        self.problems.append(Problem(title=title, path=path, detail=detail or None, hint=hint or None))

    def warning(self, title: str, path: str = "", *, detail: str = "", hint: str = "") -> None:
        """Add a problem that may delay the job, or that may be intended."""
        self.problems.append(Problem(title=title, path=path, detail=detail or None, hint=hint or None, severity="warning"))

    def skip(self, subject: str, reason: str) -> None:
        """Add a check that did not run, once."""
        if (line := f"{subject}: {reason}") not in self.unchecked:
            self.unchecked.append(line)


class Preflight(Struct, frozen=True, kw_only=True):
    """The result of a preflight: problems (errors first, then by position in the spec), passed and skipped checks."""

    job: str
    namespace: str
    backend: BackendName
    problems: tuple[Problem, ...]
    good: tuple[str, ...]
    unchecked: tuple[str, ...]

    @property
    def passed(self) -> bool:
        """Whether no check found an error."""
        return not any(problem.severity == "error" for problem in self.problems)

    def describe(self) -> dict[str, Any]:
        """Return the result as data for JSON."""
        return {**to_builtins(self), "passed": self.passed}
