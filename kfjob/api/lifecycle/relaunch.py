"""Stop a job and submit its recorded spec again, as it is or changed, with a new launch id."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from contextlib import suppress

from msgspec.structs import replace

from kfjob.api.images.code_layer import CodeLayer
from kfjob.api.lifecycle.preparation import check_job, prepare_launch
from kfjob.api.lifecycle.recorded_job import RecordedObjects, parse_recorded_spec
from kfjob.api.lifecycle.replace import find_live, replace_launch
from kfjob.api.lifecycle.spec_change import SpecChange, continue_run, describe_change
from kfjob.api.prepared import PreparedJob
from kfjob.api.reader import LiveReader, check_uid
from kfjob.api.settings import STOP_TIMEOUT
from kfjob.api.spec_source import SpecSource
from kfjob.api.target import Target
from kfjob.api.user_files import find_changed_file
from kfjob.backends.archived_job import ArchivedJob, find_newest_launch
from kfjob.backends.resources import CORE
from kfjob.base.common_types import Notify, ignore_notice
from kfjob.base.errors import Forbidden, NotFound, UsageError
from kfjob.joblog.events import JobSnapshot
from kfjob.kinds.pod_changes import avoid_nodes
from kfjob.plan.rendezvous import make_id
from kfjob.source.spec_text import LoadedSpec
from kfjob.spec.job import JobSpec
from kfjob.validation.field_paths import Positions


def relaunch(
    target: Target,
    job: str,
    *,
    timeout: float = STOP_TIMEOUT,
    code: CodeLayer | None = None,
    change: SpecChange | None = None,
    avoid: Sequence[str] = (),
    uid: str = "",
    notify: Notify = ignore_notice,
) -> LiveReader:
    """Start a new launch of a job from what was recorded when it was submitted, and return it.

    A live job carries the record; the record of a stopped job is in the archive. `change` is applied to the recorded spec, and
    `notify` receives the changed fields. The new spec is planned, its image checked and `code` added to the image before
    anything is stopped. Its pods are placed on none of the nodes `avoid`. With `uid`, a live job must have this uid.

    Raises:
        NotFound: neither the backend nor the archive has the job, or a later launch has its name.
        UsageError: kfjob did not submit the job, so nothing is recorded; or its template creates a Secret. The change is for
            another job or namespace, or the job has a template instead of a spec.
        SpecError: every problem of the changed spec; nothing was stopped.
        AlreadyExists: another command has started the job in the meantime.
        BackendError: the record is damaged; nothing was stopped.
    """
    live = find_live(target, job)
    if live:
        check_uid(live, uid)
    record = live or _read_archived(target, job)
    if avoid:
        _check_nodes(target, avoid, notify)
    prepared = prepare_relaunch(target, record, code=code, change=change, avoid=avoid, notify=notify)
    return replace_launch(prepared, live, timeout=timeout)


def _check_nodes(target: Target, nodes: Sequence[str], notify: Notify) -> None:
    """Check that the target has nodes; `notify` receives a warning for a name that no node has."""
    inventory = target.cluster.inventory(target.namespace)
    with suppress(Forbidden):  # only some users may read nodes
        for node in nodes:
            if inventory.get_object(CORE, "nodes", node, namespaced=False) is None:
                notify(f"warning: the cluster has no node `{node}` to avoid; `kubectl get nodes` lists them")


def prepare_relaunch(
    target: Target,
    record: JobSnapshot,
    *,
    code: CodeLayer | None = None,
    change: SpecChange | None = None,
    avoid: Sequence[str] = (),
    notify: Notify = ignore_notice,
) -> PreparedJob:
    """Return the next launch of a recorded job, checked; nothing is stopped. Raises what `relaunch` does."""
    prepared = _prepare(target, record, change, code=code, notify=notify)
    return replace(prepared, compiled=tuple(avoid_nodes(prepared.compiled, avoid))) if avoid else prepared


def _prepare(
    target: Target, record: JobSnapshot, change: SpecChange | None, *, code: CodeLayer | None, notify: Notify
) -> PreparedJob:
    if record.spec is not None:
        recorded = _without_suspension(parse_recorded_spec(record, record.spec))
        return _prepare_spec(target, record, recorded, change, code=code, notify=notify)
    if change and record.manifest is not None:
        hint = f"`kfjob stop {record.name}`, then `kfjob submit --template FILE`, starts a changed template"
        raise UsageError(f"job `{record.name}` was submitted from a template, so it has no spec to change", hint=hint)
    if record.manifest is not None:
        source = RecordedObjects(record, record.manifest)
        return prepare_launch(source.prepare(target, notify=notify), source, code=code, notify=notify)
    hint = "write a spec and submit it"
    raise UsageError(f"job `{record.name}` has no record of its spec, because kfjob did not submit it", hint=hint)


def _without_suspension(recorded: JobSpec) -> JobSpec:
    """Return the spec with pods: a relaunch starts a job that was suspended."""
    if not recorded.run.suspend:
        return recorded
    return recorded.model_copy(update={"run": recorded.run.model_copy(update={"suspend": False})})


def _note_changed_file(target: Target, record: JobSnapshot, notify: Notify) -> None:
    """Say that the file of the spec has changed since it was submitted from this machine."""
    is_here = target.capabilities.runs_on_this_machine or record.submitted_by == target.settings.submitter
    if is_here and (file := find_changed_file(record.spec_file)):
        command = f"kfjob relaunch {record.name} --spec {shlex.quote(str(file))}"
        notify(f"`{file}` has changed since it was submitted; the recorded spec is used, and `{command}` uses the file")


def _read_archived(target: Target, job: str) -> JobSnapshot:
    """Return the last launch in the archive, which must have run on this target unless the user has named the backend."""
    try:
        record = ArchivedJob(find_newest_launch(target.settings.archive_folder, target.namespace, job)).snapshot()
    except NotFound as err:
        raise target.suggest(job, err) from None
    if record.backend in {None, target.name} or target.settings.backend:
        return record
    places = {"local": "on this machine", "kubernetes": "on a cluster"}
    raise UsageError(
        f"the last launch of job `{job}` ran {places[record.backend]}, and this command would start it {places[target.name]}",
        hint=f"`--backend {record.backend}` starts it where it ran, `--backend {target.name}` starts it {places[target.name]}",
    )


def _prepare_spec(
    target: Target,
    record: JobSnapshot,
    recorded: JobSpec,
    change: SpecChange | None,
    *,
    code: CodeLayer | None,
    notify: Notify,
) -> PreparedJob:
    """Do everything that can fail before the old launch is stopped; return the job to start.

    A local job starts again where it was submitted, but a spec that replaces the recorded one starts in the current folder.
    """
    target = target.change(job_kind=record.job_kind or None)
    has_new_spec = change is not None and change.loaded is not None
    loaded = LoadedSpec(recorded, Positions())
    if change:
        loaded = change.apply(recorded)
    if not has_new_spec:
        loaded = replace(loaded, file_record=record.spec_file)
    if not (change and change.start):
        run = make_id(recorded, record.launch)
        loaded = replace(loaded, spec=continue_run(recorded, loaded.spec, rendezvous_id=run))
    source = SpecSource(loaded, start_folder="" if has_new_spec else record.start_folder)
    if change:
        job = check_job(source, target, notify=notify, code=code)
        _check_namespace(job, record)
        for notice in describe_change(recorded, loaded.spec):
            notify(notice)
    else:
        job = source.prepare(target)
    if not has_new_spec:
        _note_changed_file(target, record, notify)
    return prepare_launch(job, source, code=code, notify=notify)


def _check_namespace(job: PreparedJob, record: JobSnapshot) -> None:
    if job.namespace != record.namespace:
        title = f"job `{record.name}` is in namespace `{record.namespace}`, and the new spec in `{job.namespace}`"
        raise UsageError(title, hint="a job keeps its namespace; `kfjob submit` starts one in another")
