"""Read the spec that a job carries since it was submitted."""

from __future__ import annotations

from collections.abc import Sequence

from kfjob.base.errors import BackendError, Problem, SpecError
from kfjob.joblog.events import JobSnapshot
from kfjob.kinds.registry import find_kind
from kfjob.spec.job import JobSpec

_SHOWN_PROBLEMS, _SHOWN_CHARACTERS = 5, 1000
"""Length of the part of a damaged record that an error quotes."""


def parse_recorded_spec(record: JobSnapshot, text: str) -> JobSpec:
    """Return the recorded spec. Everyone with access to the job may have edited the record.

    Raises:
        BackendError: it is not a spec of this version, or the spec of another job.
    """
    try:
        spec = JobSpec.model_validate_json(text)
    except SpecError as err:
        raise make_unusable(record, _list_problems(err.problems)) from err
    if problems := list(find_kind(record.job_kind).find_override_problems(spec.overrides)):
        raise make_unusable(record, _list_problems(problems))
    if spec.name != record.name:
        raise make_unusable(record, f"it is the spec of `{spec.name}`")
    return spec


def _list_problems(problems: Sequence[Problem]) -> str:
    lines = [f"`{problem.path}`: {problem.title}" if problem.path else problem.title for problem in problems]
    return "\n".join(lines[:_SHOWN_PROBLEMS])


def make_unusable(record: JobSnapshot, cause: str) -> BackendError:
    """Return the error for a record that cannot be used."""
    return BackendError(
        f"the recorded spec of job `{record.name}` cannot be used",
        cause=cause[:_SHOWN_CHARACTERS],
        hint="the job was not changed; run `kfjob stop` and submit the job again from its file",
    )
