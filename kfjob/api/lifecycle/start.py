"""Start a prepared job on its backend, or compare its live job with it and change that in place."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import partial

from msgspec.structs import replace

from kfjob.api.lifecycle.recorded_job import parse_recorded_spec
from kfjob.api.lifecycle.spec_change import continue_run, find_changes
from kfjob.api.prepared import JobSource, PreparedJob
from kfjob.api.reader import LiveReader, open_snapshot
from kfjob.api.recorded_config import read_observe_config
from kfjob.api.spec_source import SpecSource
from kfjob.api.target import Target
from kfjob.backends.base import FieldChange
from kfjob.backends.resources import outlives_job
from kfjob.base.common_types import JsonObject, Notify, ignore_notice
from kfjob.base.errors import BackendError, Refused, UsageError
from kfjob.base.text import join_names
from kfjob.joblog.events import JobSnapshot
from kfjob.kinds.launch_record import add_submit_record
from kfjob.kinds.registry import is_job
from kfjob.objects.api_objects import describe_object
from kfjob.objects.reading import get_launch
from kfjob.redaction import Redactor

_VARIABLE = re.compile(r"\[([^\[\]]*)\]\.value\Z")
"""The end of the path of a variable: `env[DB_PASSWORD].value`."""
_UNSEEN = re.compile(r"(?:watchdog|recovery|progress|run\.after_failure)\b")
"""Fields of a spec that no object of the cluster shows."""


def start(job: PreparedJob, *, notify: Notify = ignore_notice) -> LiveReader:
    """Submit the job to its backend, with a record of who submits it and of the file of its spec.

    Raises:
        AlreadyExists: a job with this name exists; nothing was changed.
    """
    target = job.target
    if target.capabilities.runs_on_this_machine:
        user = target.settings.submitter
        plan = replace(job.plan, submitted_by=user, spec_file=job.file_record, relaunches=job.relaunches)
        ref = target.machine.submit(plan)
        snapshot = target.backend.get(ref.name, namespace=ref.namespace)  # also has the command that installs packages
        return open_snapshot(target, snapshot)
    objects = list_objects(job)
    ref, existing = target.cluster.submit(objects)
    for item in existing:
        notify(f"{describe_object(item)} exists already; it was not changed and stays when the job is removed")
    for notice in describe_others([item for item in objects if item not in existing], "created with the job"):
        notify(notice)
    return LiveReader(target, ref, job.observe_config, secrets=job.secrets)


def list_objects(job: PreparedJob) -> tuple[JsonObject, ...]:
    """Return the objects to create, with the record of who creates them."""
    return add_submit_record(
        job.objects, submitter=job.target.settings.submitter, spec_file=job.file_record, relaunches=job.relaunches
    )


def apply(source: JobSource, target: Target, *, notify: Notify = ignore_notice) -> LiveReader:
    """Change the live job to what the source says, where that is possible in place. The launch stays the same.

    Raises:
        SpecError: every problem of the job.
        NotFound: the job does not exist.
        Refused: the change needs a relaunch, or kfjob did not submit the job.
    """
    job, _ = prepare_for_live_job(source, target, notify=notify)
    target = job.target
    if target.capabilities.runs_on_this_machine:
        return LiveReader(target, target.machine.apply(job.plan), job.observe_config, secrets=job.secrets)
    objects = add_submit_record(job.objects, submitter="", spec_file=job.file_record)
    ref, unchanged = target.cluster.apply(objects)
    for item in unchanged:
        reason = "keeps its data" if outlives_job(item) else "does not belong to the job"
        notify(f"{describe_object(item)} {reason}; it was not changed")
    return LiveReader(target, ref, job.observe_config, secrets=job.secrets)


def diff(source: JobSource, target: Target, *, notify: Notify) -> tuple[str, list[FieldChange]]:
    """Return the job's name and every change, with whether it works in place, after the API server has processed them.

    The values have no secrets, neither the live one's nor the new one's.

    Raises:
        SpecError: every problem of the job.
        NotFound: the job does not exist.
        UsageError: the target is this machine.
        Refused: kfjob did not submit the job, or the API server would not accept the change.
    """
    if not target.capabilities.has_api_server:
        name = source.prepare(target, notify=notify).name
        raise UsageError(
            f"a job on this machine cannot be compared with a {source.noun}",
            hint=f"`kfjob stop {name}`, then `kfjob submit`, starts it with the changed {source.noun}; "
            "`--backend kubernetes` compares with the job of a cluster",
        )
    job, live = prepare_for_live_job(source, target, notify=notify, shows_findings=False)
    changes = [_hide_secrets(change) for change in job.target.cluster.diff(job.objects)]
    return job.name, [*changes, *_find_unseen_changes(job, live)]


def _find_unseen_changes(job: PreparedJob, live: JobSnapshot) -> list[FieldChange]:
    """Return the changed fields that only kfjob reads: no object of the cluster shows them."""
    if live.spec is None or not job.records_spec or read_observe_config(live) == job.observe_config:
        return []
    with suppress(BackendError):  # of a damaged record
        changes = find_changes(parse_recorded_spec(live, live.spec), job.spec)
        unseen = ((path, *sides) for path, *sides in changes if _UNSEEN.match(path))
        return [FieldChange(path=path, live=old, desired=new, in_place=True) for path, old, new in unseen]
    return []


def _hide_secrets(change: FieldChange) -> FieldChange:
    """Return a change with neither its old nor its new secret; the path ends with the name of the variable or field."""
    variable = _VARIABLE.search(change.path)
    name = variable[1] if variable else change.path.rpartition(".")[2]
    hide = partial(Redactor().value, name=name, is_environment=variable is not None)
    return replace(change, live=hide(change.live), desired=hide(change.desired))


def prepare_for_live_job(
    source: JobSource, target: Target, *, notify: Notify, shows_findings: bool = True
) -> tuple[PreparedJob, JobSnapshot]:
    """Return the job of a source with the launch id of the live job that has its name, and that live job.

    `notify` receives the notices of the source, and with `shows_findings` what lint found.

    Raises:
        SpecError: every problem of the job.
        NotFound: the job does not exist.
    """
    job = source.prepare(target, notify=notify)
    job.check_findings(notify if shows_findings else ignore_notice)
    live = job.target.get_job(job.name)
    wanted = job.target.settings.job_kind
    if wanted and live.job_kind and wanted != live.job_kind:
        hint = f"`kfjob stop {job.name}`, then `kfjob submit`, starts it as a {wanted}"
        raise Refused(f"job `{job.name}` is a {live.job_kind}, and the {source.noun} asks for a {wanted}", hint=hint)
    target = job.target.change(job_kind=live.job_kind or None)
    if isinstance(source, SpecSource) and live.spec is not None:
        with suppress(BackendError):  # of a damaged record; the comparison shows what differs
            spec = continue_run(parse_recorded_spec(live, live.spec), source.loaded.spec)
            source = replace(source, loaded=replace(source.loaded, spec=spec))
    return source.prepare(target, launch=live.launch or None, notify=ignore_notice), live


def describe_others(objects: Iterable[JsonObject], state: str) -> list[str]:
    """Return a notice of the user's objects beside the job, and one of those that stay when it is removed."""
    others: Sequence[JsonObject] = [item for item in objects if not is_job(item) and not get_launch(item)]
    owned = [describe_object(item) for item in others if not outlives_job(item)]
    lasting = [describe_object(item) for item in others if outlives_job(item)]
    notices = [f"{state}: {join_names(owned)}; `kfjob stop` removes them too"] if owned else []
    if lasting:
        notices.append(f"{state}: {join_names(lasting)}; `kfjob stop` leaves volume claims, with their data")
    return notices
