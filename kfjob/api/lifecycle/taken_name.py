"""The job that has the name of a job to submit. A user's own launch that has ended is replaced, no other job is touched."""

from __future__ import annotations

import time
from contextlib import suppress
from enum import StrEnum

from kfjob.api.lifecycle.recorded_job import parse_recorded_spec
from kfjob.api.lifecycle.replace import find_live
from kfjob.api.lifecycle.spec_change import have_same_fields, list_changes
from kfjob.api.prepared import PreparedJob
from kfjob.base.errors import AlreadyExists, BackendError, Forbidden
from kfjob.base.units import SECOND, check_time
from kfjob.joblog.events import JobSnapshot
from kfjob.spec.job import JobSpec

_MAX_CHANGES = 10
"""Changed fields that an error lists."""
_MAX_NAME = 200
"""Characters of the submitter's name in an error."""


def find_same_name(job: PreparedJob) -> JobSnapshot | None:
    """Return the job that has the name of a job to submit; None without one, or if the user may not read jobs."""
    with suppress(Forbidden):  # the API server says that the name is taken
        return find_live(job.target, job.name)
    return None


class NameState(StrEnum):
    """What a submit does with the name of its job."""

    FREE = "free"
    """No job has it."""
    REPLACE = "replace"
    """A launch of the user has it, which has ended: it goes to the archive."""
    SAME = "same"
    """A job runs that was submitted from the same spec, and on this machine in the same folder: nothing is started."""
    TAKEN = "taken"
    """Another job has it, which is not touched: `make_taken` says why."""


def decide_name(existing: JobSnapshot | None, job: PreparedJob) -> NameState:
    """Return what a submit of the plan does, if `existing` is the job that has its name now."""
    if existing is None:
        return NameState.FREE
    recorded = _parse_recorded(existing)
    if existing.job.phase.ended:
        has_record = recorded is not None or existing.manifest is not None
        return NameState.REPLACE if has_record and _is_own(existing, job) else NameState.TAKEN
    if recorded is None or not job.records_spec:
        return NameState.TAKEN
    is_same = have_same_fields(recorded, job.spec) and not _starts_elsewhere(existing, job)
    return NameState.SAME if is_same else NameState.TAKEN


def _is_own(existing: JobSnapshot, job: PreparedJob) -> bool:
    """Return whether the user submitted the job; all jobs in a state folder on this machine are its user's."""
    return job.target.capabilities.runs_on_this_machine or existing.submitted_by == job.target.settings.submitter


def _starts_elsewhere(existing: JobSnapshot, job: PreparedJob) -> bool:
    is_here = job.target.capabilities.runs_on_this_machine
    return is_here and existing.start_folder != job.plan.start_folder


def make_taken(existing: JobSnapshot, job: PreparedJob) -> AlreadyExists:
    """Return the error for a job that cannot give its name to the plan's; it lists what the new spec changes."""
    name = existing.name
    recorded = _parse_recorded(existing)
    if recorded is None or not job.records_spec or existing.job.phase.ended:
        return _make_kept(existing, job, has_record=recorded is not None or existing.manifest is not None)
    changes = list_changes(recorded, job.spec)
    if _starts_elsewhere(existing, job):
        changes += [f"the folder where it starts: {existing.start_folder}"]
    shown = [*changes[:_MAX_CHANGES], *([f"… and {len(changes) - _MAX_CHANGES} more"] if len(changes) > _MAX_CHANGES else [])]
    return AlreadyExists(
        f"job `{name}` runs already ({existing.job.phase})",
        cause="\n".join(["the new spec differs from the one that runs:", *(f"  {line}" for line in shown)]) if shown else None,
        hint=f"`kfjob relaunch {name} --spec FILE` stops it and starts the new spec; `kfjob stop {name}` only stops it; "
        "under another name (`kfjob run --name NAME`) the new one runs beside it",
    )


def _make_kept(existing: JobSnapshot, job: PreparedJob, *, has_record: bool) -> AlreadyExists:
    """Return the error for a job that is not replaced without being asked: why, whose it is, and when it ended."""
    submitter, phase = existing.submitted_by, existing.job.phase
    who = f"`{submitter[:_MAX_NAME]}` submitted it" if submitter else "it has no record of who submitted it"
    end = check_time(existing.job.ended)
    ended = "" if end is None else time.strftime(" at %Y-%m-%d %H:%M:%S UTC", time.gmtime(end // SECOND))
    causes = [f"{who}, and it ended{ended} ({phase})" if phase.ended else f"{who} ({phase})"]
    hint = f"`kfjob stop {existing.name}` archives its logs and removes it; or submit the job under another name"
    if not has_record:
        causes = ["it has no spec that kfjob can read", *causes]
    elif phase.ended and not _is_own(existing, job):
        causes += [f"you are `{job.target.settings.submitter[:_MAX_NAME]}`"]
        hint += "\n`KFJOB_USER`, or `user` in kfjob.toml, gives you one name on every machine that submits your jobs"
    return AlreadyExists(f"job `{existing.name}` exists already", cause="\n".join(causes), hint=hint)


def _parse_recorded(existing: JobSnapshot) -> JobSpec | None:
    """Return the recorded spec; None if there is none, none of this version of kfjob, or that of another job."""
    with suppress(BackendError):
        return None if existing.spec is None else parse_recorded_spec(existing, existing.spec)
    return None
