"""What is done with the job of a template: create it, check it as a dry run, compare it with its live job, and change that."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from kfjob.api import observe_config
from kfjob.api.images.check import check_images
from kfjob.api.reader import LiveReader
from kfjob.api.settings import Settings
from kfjob.api.specs.dry_run import DryRun, Mode
from kfjob.api.specs.template import PlannedTemplate, plan_template
from kfjob.api.specs.template_files import Template
from kfjob.api.target import Target, find_target
from kfjob.backends.base import FieldChange
from kfjob.backends.resources import outlives_job
from kfjob.base.common_types import JsonObject, Notify, ignore_notice
from kfjob.base.errors import AlreadyExists, UsageError
from kfjob.base.text import join_names
from kfjob.objects.api_objects import PYTORCHJOB, describe_object


def check_template_target(settings: Settings) -> None:
    """Check that a template can be submitted to the target of the settings.

    Raises:
        UsageError: the target is this machine.
    """
    if not _find_target(settings).kind.has_api_server:
        raise UsageError("this needs a cluster, and jobs run on this machine", hint="use `--backend kubernetes`")


def submit_objects(objects: Sequence[JsonObject], *, settings: Settings, notify: Notify) -> LiveReader:
    """Create the objects. The PyTorchJob owns the others, so `kfjob stop` removes them with it, except for volume claims.

    Raises:
        AlreadyExists: a job with this name exists; nothing was changed.
        NotFound, Refused: an image does not exist, or not for the nodes' architecture.
    """
    target = _find_target(settings, notify=notify)
    check_images(target, objects, notify=notify)
    ref, existing = target.cluster.create(objects)
    for item in existing:
        notify(f"{describe_object(item)} exists already; it was not changed and stays when the job is removed")
    created = [item for item in objects if item["kind"] != PYTORCHJOB and item not in existing]
    for notice in _describe_others(created, "created with the job"):
        notify(notice)
    return LiveReader(replace(target, namespace=ref.namespace), ref, observe_config.from_pytorchjob(_find_job(objects)))


def dry_run_objects(objects: Sequence[JsonObject], mode: Mode, *, settings: Settings, notify: Notify) -> DryRun:
    """Check the objects of a template, and list those beside the job.

    Raises:
        AlreadyExists, Refused, Forbidden: the API server would not accept the job (mode `server`).
    """
    metadata = _find_job(objects)["metadata"]
    target = _find_target(settings)
    created = []
    for item in objects:
        if mode == "server":
            try:
                target.cluster.dry_run([item])
            except AlreadyExists:
                if item["kind"] == PYTORCHJOB:
                    raise
                notify(f"{describe_object(item)} exists already; it would not be changed")
                continue
        if item["kind"] != PYTORCHJOB:
            created.append(item)
    for notice in _describe_others(created, "would be created with the job"):
        notify(notice)
    return DryRun(name=metadata["name"], namespace=metadata["namespace"], mode=mode, objects=tuple(objects))


def diff_template(template: Template, settings: Settings, *, notify: Notify) -> tuple[str, list[FieldChange]]:
    """Return the job's name and every change that a template makes to its live objects; nothing is changed.

    Raises:
        SpecError: every problem of the template.
        NotFound: the job does not exist.
        Refused: kfjob did not submit the job, or the API server would not accept the change.
    """
    check_template_target(settings)
    live = _plan_for_live_job(template, settings, notify=notify)
    target = _find_target(settings, notify=notify)
    return live.job.value["metadata"]["name"], target.cluster.diff_objects(live.compile())


def apply_template(template: Template, settings: Settings, *, notify: Notify) -> LiveReader:
    """Change the live objects of a job to match a template, where that is possible in place. The launch stays the same.

    Raises:
        SpecError: every problem of the template.
        NotFound: the job does not exist.
        Refused: the change needs a relaunch, or kfjob did not submit the job.
    """
    check_template_target(settings)
    planned = _plan_for_live_job(template, settings, notify=notify)
    planned.check_findings(notify)
    target = _find_target(settings, notify=notify)
    objects = planned.compile()
    ref, unchanged = target.cluster.apply_objects(objects)
    for item in unchanged:
        reason = "keeps its data" if outlives_job(item) else "does not belong to the job"
        notify(f"{describe_object(item)} {reason}; it was not changed")
    return LiveReader(replace(target, namespace=ref.namespace), ref, observe_config.from_pytorchjob(_find_job(objects)))


def _plan_for_live_job(template: Template, settings: Settings, *, notify: Notify) -> PlannedTemplate:
    """Return the job of a template with the launch id of the live job that has its name."""
    planned = plan_template(template, settings, notify=notify)
    planned.check_findings(ignore_notice)
    name, namespace = planned.job.value["metadata"]["name"], planned.target.namespace
    live = _find_target(settings, notify=notify).cluster.get(name, namespace=namespace)
    return plan_template(template, settings, notify=ignore_notice, launch=live.launch or None)


def _describe_others(objects: Iterable[JsonObject], state: str) -> list[str]:
    """Return a notice of the objects beside the job, and one of those that stay when it is removed."""
    objects = list(objects)
    owned = [describe_object(item) for item in objects if not outlives_job(item)]
    lasting = [describe_object(item) for item in objects if outlives_job(item)]
    notices = [f"{state}: {join_names(owned)}; `kfjob stop` removes them too"] if owned else []
    if lasting:
        notices.append(f"{state}: {join_names(lasting)}; `kfjob stop` leaves volume claims, with their data")
    return notices


def _find_target(settings: Settings, *, notify: Notify = ignore_notice) -> Target:
    """Return the target that the settings select, for a job that needs a cluster."""
    return replace(find_target(settings, notify=notify), needs_cluster=True)


def _find_job(objects: Sequence[JsonObject]) -> JsonObject:
    return next(item for item in objects if item["kind"] == PYTORCHJOB)
