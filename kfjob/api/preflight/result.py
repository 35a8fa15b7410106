"""What a preflight comes to."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any

from kfjob.errors import Problem


@dataclass
class Checked:
    """Findings, as they are made."""

    problems: list[Problem] = field(default_factory=list)
    good: list[str] = field(default_factory=list)
    unchecked: list[str] = field(default_factory=list)  # what, and why not

    def error(self, title: str, path: str = "", *, detail: str = "", hint: str = "") -> None:
        """The job would not start, or not as it is meant."""
        self.problems.append(Problem(title=title, path=path, detail=detail or None, hint=hint or None))

    def warning(self, title: str, path: str = "", *, detail: str = "", hint: str = "") -> None:
        """The job may have to wait, or may not be what is meant."""
        self.problems.append(Problem(title=title, path=path, detail=detail or None, hint=hint or None, severity="warning"))

    def skip(self, what: str, why: str) -> None:
        """Said once, however often it is met."""
        if (line := f"{what}: {why}") not in self.unchecked:
            self.unchecked.append(line)


@dataclass(frozen=True, kw_only=True)
class Preflight:
    """All findings at once, errors first, then by their place in the spec."""

    job: str
    namespace: str
    backend: str
    problems: tuple[Problem, ...]
    good: tuple[str, ...]
    unchecked: tuple[str, ...]

    @property
    def passed(self) -> bool:
        """Whether nothing stands in the way, as far as was looked."""
        return not any(problem.severity == "error" for problem in self.problems)

    def describe(self) -> dict[str, Any]:
        """For machines."""
        return asdict(self) | {"passed": self.passed}


def ordered(problems: Iterable[Problem]) -> tuple[Problem, ...]:
    """Errors first, then by place."""
    return tuple(sorted(problems, key=lambda one: (one.severity != "error", one.line or 0, one.column or 0)))
