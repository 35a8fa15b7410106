"""Whether a live job can become what a plan says, without a relaunch. Pure.

The operator hands a changed pod template, environment or restart policy to new pods only (v1.9.3), so that one job would run
two versions of itself. What can be changed in place is the number of workers of an elastic job, within its limits, the run
policy, and what stands on the job alone: its queue, for example.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from msgspec import Struct

from kfjob.backends.kubernetes.objects import Object, launch_of
from kfjob.backends.kubernetes.ownership import owned
from kfjob.compile.merge import items_by_name
from kfjob.compile.pytorchjob import pytorchjob
from kfjob.errors import Refused
from kfjob.plan import JobPlan
from kfjob.spec import api_objects, names

IN_PLACE = ("metadata", "spec.pytorchReplicaSpecs.Worker.replicas", "spec.runPolicy")
"""The limits of an elastic job are not among them: running agents keep the ones they were started with (PET_NNODES)."""


class Change(Struct, frozen=True, kw_only=True):
    """One path of a job's spec at which the live value is not the wanted one. None: it is not there."""

    path: str
    live: Any
    wanted: Any
    in_place: bool  # else it takes a relaunch


def in_place(plan: JobPlan, live: Object) -> Object:
    """The manifest to apply to `live`. It keeps the live launch: its id, and the rendezvous that the pods know.

    Raises:
        Refused: the change needs a relaunch; or the job is not kfjob's.
    """
    wanted = for_live(plan, live)
    paths = [change.path for change in differences(live, wanted) if not change.in_place]
    if paths:
        shown = "\n".join(paths[:10]) + (f"\nand {len(paths) - 10} more" if len(paths) > 10 else "")  # noqa: PLR2004
        hint = (
            f"`kfjob stop {plan.name}`, then `kfjob submit` with the new spec; `kfjob relaunch` would submit the recorded one"
        )
        raise Refused(f"these fields of job `{plan.name}` cannot change while it exists", cause=shown, hint=hint)
    # with the uid in it, an apply cannot create a job where this one has gone meanwhile
    return {**wanted, "metadata": {**wanted["metadata"], "uid": live["metadata"]["uid"]}}


def for_live(plan: JobPlan, live: Object) -> Object:
    """The manifest of the plan as one of the live launch.

    Raises:
        Refused: the live job is not kfjob's.
    """
    if not (launch := launch_of(live)):
        hint = "change it with the tool that made it"
        raise Refused(f"job `{plan.name}` was not submitted by kfjob", hint=hint)
    elastic = live["spec"].get("elasticPolicy") or {}
    rendezvous = replace(plan.rendezvous, id=elastic.get("rdzvId", plan.rendezvous.id))
    return pytorchjob(replace(plan, launch=launch, rendezvous=rendezvous))


def differences(live: Object, wanted: Object) -> list[Change]:
    """What makes a live job another one: its spec, and of its labels and annotations what kfjob has set or would set."""
    return [*_metadata(live, wanted), *_changes(live["spec"], wanted["spec"], "spec")]


def etcd_change(plan: JobPlan, pod: Object | None) -> Change | None:
    """What would have to change at the job's own etcd, whose pod this is; None: nothing. It lives as long as the launch."""
    if not plan.own_etcd_image:
        return None
    image = pod["spec"]["containers"][0]["image"] if pod else None
    if image == plan.own_etcd_image:
        return None
    return Change(path=f"{names.etcd_name(plan.name)}.image", live=image, wanted=plan.own_etcd_image, in_place=False)


_EACH_SUBMIT = frozenset(
    {api_objects.LABEL_LAUNCH, api_objects.LABEL_SPEC_HASH, api_objects.ANNOTATION_SPEC, api_objects.ANNOTATION_SPEC_VERSION}
)


def _metadata(live: Object, wanted: Object) -> Iterator[Change]:
    for part in ("labels", "annotations"):
        old, new = live["metadata"].get(part) or {}, wanted["metadata"].get(part) or {}
        for key in sorted((owned(live, part) | set(new)) - _EACH_SUBMIT):
            if old.get(key) != new.get(key):
                yield Change(path=f"metadata.{part}.{key}", live=old.get(key), wanted=new.get(key), in_place=True)


def _changes(live: Any, wanted: Any, path: str) -> Iterator[Change]:
    """Every path at which two values differ; lists of named things are compared by name."""
    if isinstance(live, dict) and isinstance(wanted, dict):
        for key in dict.fromkeys([*wanted, *live]):
            yield from _changes(live.get(key), wanted.get(key), f"{path}.{key}")
    elif (old := items_by_name(live)) is not None and (new := items_by_name(wanted)) is not None:
        for name in dict.fromkeys([*new, *old]):
            yield from _changes(old.get(name), new.get(name), f"{path}[{name}]")
    elif live != wanted:
        yield Change(path=path, live=live, wanted=wanted, in_place=path.startswith(IN_PLACE))
