"""Which changes a live job accepts without a relaunch. Pure.

The operator gives a changed pod template, environment or restart policy to new pods only (v1.9.3), so one job would run two
versions of itself. In place, kfjob changes the number of workers of an elastic job, within its limits, the run policy, and
labels and annotations of the job itself: its queue, for example.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from kfjob.backends.base import FieldChange
from kfjob.base.common_types import JsonObject
from kfjob.base.errors import Refused
from kfjob.cluster.objects import launch_of, spec_file_of, submitter_of
from kfjob.cluster.ownership import owned_keys
from kfjob.kinds.pytorchjob.manifest import compile_pytorchjob
from kfjob.objects import api_objects, names
from kfjob.objects.differences import MISSING, differences, format_path
from kfjob.plan import JobPlan

IN_PLACE = ("metadata", "spec.pytorchReplicaSpecs.Worker.replicas", "spec.runPolicy")
"""Paths that change in place. Limits of an elastic job do not: running agents keep those they started with (PET_NNODES)."""
_SHOWN_PATHS = 10
_CHANGES_WITH_EACH_SUBMIT = frozenset(
    {
        api_objects.LABEL_LAUNCH,
        api_objects.LABEL_SPEC_HASH,
        api_objects.ANNOTATION_SPEC,
        api_objects.ANNOTATION_SPEC_VERSION,
        api_objects.ANNOTATION_OBSERVE_CONFIG,
        api_objects.ANNOTATION_MANIFEST,
    }
)


def manifest_to_apply(plan: JobPlan, live: JsonObject) -> JsonObject:
    """Return the manifest that makes the live job what the plan describes.

    Raises:
        Refused: the change needs a relaunch, or kfjob did not submit the job.
    """
    manifest = manifest_for_live_job(plan, live)
    refuse_changes(plan.name, job_changes(live, manifest))
    # with the uid in it, an apply cannot create a new job if this one is deleted in the meantime
    return {**manifest, "metadata": {**manifest["metadata"], "uid": live["metadata"]["uid"]}}


def refuse_changes(job: str, changes: Iterable[FieldChange]) -> None:
    """Check that every change is possible in place.

    Raises:
        Refused: a change needs a relaunch.
    """
    paths = [change.path for change in changes if not change.in_place]
    if paths:
        more = f"\nand {len(paths) - _SHOWN_PATHS} more" if len(paths) > _SHOWN_PATHS else ""
        hint = f"`kfjob stop {job}`, then `kfjob submit` with the changes; `kfjob relaunch` submits what is recorded"
        title = f"these fields of job `{job}` cannot change while it exists"
        raise Refused(title, cause="\n".join(paths[:_SHOWN_PATHS]) + more, hint=hint)


def manifest_for_live_job(plan: JobPlan, live: JsonObject) -> JsonObject:
    """Return the manifest of the plan with the live job's launch id and rendezvous id, which its pods know.

    Raises:
        Refused: kfjob did not submit the live job.
    """
    if not (launch := launch_of(live)):
        raise Refused(f"job `{plan.name}` was not submitted by kfjob", hint="change it with the tool that made it")
    elastic = live["spec"].get("elasticPolicy") or {}
    rendezvous = replace(plan.rendezvous, id=elastic.get("rdzvId", plan.rendezvous.id))
    plan = replace(plan, submitted_by=submitter_of(live), spec_file=plan.spec_file or spec_file_of(live))
    return compile_pytorchjob(replace(plan, launch=launch, rendezvous=rendezvous))


def job_changes(live: JsonObject, manifest: JsonObject) -> list[FieldChange]:
    """Return the changes from a live job to a manifest: of the spec, and of the labels and annotations that kfjob sets."""
    return [*_metadata_changes(live, manifest), *_spec_changes(live, manifest)]


def etcd_change(plan: JobPlan, pod: JsonObject | None) -> FieldChange | None:
    """Return the change of the job's own etcd, which lives as long as the launch; None if its image stays. `pod` is its pod."""
    if not plan.own_etcd_image:
        return None
    image = pod["spec"]["containers"][0]["image"] if pod else None
    if image == plan.own_etcd_image:
        return None
    return FieldChange(path=f"{names.etcd_name(plan.name)}.image", live=image, desired=plan.own_etcd_image, in_place=False)


def _metadata_changes(live: JsonObject, manifest: JsonObject) -> Iterator[FieldChange]:
    for part in ("labels", "annotations"):
        old, new = live["metadata"].get(part) or {}, manifest["metadata"].get(part) or {}
        for key in sorted((owned_keys(live, part) | set(new)) - _CHANGES_WITH_EACH_SUBMIT):
            if old.get(key) != new.get(key):
                yield FieldChange(path=f"metadata.{part}.{key}", live=old.get(key), desired=new.get(key), in_place=True)


def _spec_changes(live: JsonObject, manifest: JsonObject) -> Iterator[FieldChange]:
    for difference in differences({"spec": live["spec"]}, {"spec": manifest["spec"]}):
        old, new = (None if value is MISSING else value for value in (difference.old, difference.new))
        if old != new:
            path = format_path(difference.path)
            yield FieldChange(path=path, live=old, desired=new, in_place=path.startswith(IN_PLACE))
