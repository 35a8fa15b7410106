"""Compare the objects of a job with the live ones, and change these where that is possible in place.

The kind of the job decides which of its fields can change. Objects that are part of the launch, such as the job's own etcd,
live as long as the launch, so they change with a new one only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from kfjob.backends.base import FieldChange
from kfjob.base.common_types import JsonMapping, JsonObject
from kfjob.base.errors import NotFound, Refused
from kfjob.base.parsing import ParseError, parse_json
from kfjob.cluster import ownership, requests
from kfjob.cluster.client import Client
from kfjob.cluster.errors import Conflict
from kfjob.kinds.base import JobKind
from kfjob.kinds.registry import get_job, get_kind
from kfjob.objects import api_objects
from kfjob.objects.api_objects import describe_name
from kfjob.objects.differences import MISSING, Difference, differences, format_path, get_value
from kfjob.objects.reading import find_owner_uid, get_annotation, get_launch
from kfjob.objects.shapes.meta import read_version

_T = TypeVar("_T")
_ATTEMPTS = 5
_SHOWN_PATHS = 10
_SERVER_FIELDS = frozenset(("apiVersion", "kind", "metadata", "status"))
_WITHOUT_DEFAULTS = frozenset(("data", "binaryData", "metadata"))
_HIDDEN = "(hidden)"
"""Stands for a value of a Secret."""
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
_KEPT_RECORDS = (
    api_objects.ANNOTATION_SUBMITTED_BY,
    api_objects.ANNOTATION_SPEC_FILE,
    api_objects.ANNOTATION_RELAUNCHES,
    api_objects.ANNOTATION_DECISION,
)
"""Annotations of a live job that stay if the new manifest does not have them."""


class LiveObjects(Struct, frozen=True, kw_only=True):
    """The objects of a job as they should be, and the live ones."""

    client: Client
    kind: JobKind
    job: JsonObject
    live_job: JsonObject
    others: Sequence[tuple[JsonObject, JsonObject | None]]  # the other objects, and the live ones; None if there is none

    @property
    def uid(self) -> str:
        """The uid of the live job."""
        return str(self.live_job["metadata"]["uid"])

    @property
    def foreign(self) -> list[JsonObject]:
        """The objects whose live objects do not belong to the job."""
        return [item for item, live in self.others if live and not self._is_own(live)]

    def _is_own(self, live: JsonObject) -> bool:
        return find_owner_uid(live, self.kind.name) == self.uid

    def find_changes(self) -> list[FieldChange]:
        """Return every change, as the API server sees it; nothing is changed.

        Raises:
            Refused: the API server would not accept the change of the job.
        """
        changes = self._retry(self.job, self.live_job, self._find_job_changes)
        for item, live in self.others:
            changes += self._find_other_changes(item, live)
        return changes

    def _find_job_changes(self, live: JsonObject) -> list[FieldChange]:
        job = self.kind.adopt_live_fields(self.job, live)
        try:
            new = self.client.call(requests.dry_run_replace(job, resource_version=read_version(live)))
        except Refused as err:
            if not self.kind.refuses_change(err.cause or ""):
                raise
            new = {"metadata": job["metadata"], "spec": {**live["spec"], **job["spec"]}}
        return list_job_changes(self.kind, live, new)

    def _find_other_changes(self, item: JsonObject, live: JsonObject | None) -> list[FieldChange]:
        name = f"{item['kind']}/{describe_name(item)}"
        if live is None:
            return [FieldChange(path=name, live=None, desired="a new object", in_place=True)]
        if not self._is_own(live):
            return []
        in_place = not is_part_of_launch(item, self.job)
        try:
            new = self.client.change(requests.apply(self._own(item), dry_run=True))
        except Refused as err:
            return [FieldChange(path=name, live=None, desired=err.cause or err.title, in_place=False)]
        changes = [
            _make_change(difference, path=f"{name}: {format_path(difference.path)}", in_place=in_place)
            for difference in differences(_read_content(live), _read_content(new))
        ]
        changes += [
            FieldChange(path=f"{name}: {'.'.join(path)}", live=value, desired=None, in_place=in_place)
            for path, value in _list_removed(item, live, self._find_recorded(item))
        ]
        if item["kind"] == "Secret":
            return [replace(c, live=c.live and _HIDDEN, desired=c.desired and _HIDDEN) for c in changes]
        return changes

    def _find_recorded(self, item: JsonObject) -> JsonMapping:
        """Return the object as the live job's record has it; {} without a record."""
        record = get_annotation(self.live_job, api_objects.ANNOTATION_MANIFEST)
        with suppress(ParseError, AttributeError, TypeError):  # someone else changed the record
            for recorded in parse_json(record) if record else ():
                if recorded.get("kind") == item["kind"] and recorded["metadata"].get("name") == item["metadata"]["name"]:
                    found: JsonMapping = recorded
                    return found
        return {}

    def apply(self) -> JsonObject:
        """Change the live objects, and return the job.

        Raises:
            Refused: a change needs a relaunch; nothing was changed.
        """
        refuse_changes(self.job["metadata"]["name"], self.find_changes())
        metadata = {**self.job["metadata"], "uid": self.uid}  # so that an apply cannot create a new job
        job = self._apply({**self.job, "metadata": metadata}, self.live_job)
        for item, live in self.others:
            if live is None:
                self.client.change(requests.create(self._own(item)))
            elif self._is_own(live):
                self._apply(self._own(item), live)
        return job

    def _apply(self, item: JsonObject, live: JsonObject) -> JsonObject:
        def take_over(live: JsonObject) -> None:
            if operations := ownership.take_over_patch(live):
                self.client.change(requests.patch(item, operations))

        self._retry(item, live, take_over)
        return self.client.change(requests.apply(item))

    def _retry(self, item: JsonObject, live: JsonObject, change: Callable[[JsonObject], _T]) -> _T:
        """Return the result of a request that names the version of the live object, which a controller may write meanwhile."""
        for _ in range(1, _ATTEMPTS):
            try:
                return change(live)
            except Conflict:
                live = self.client.call(requests.get_object(item))
        return change(live)

    def _own(self, item: JsonObject) -> JsonObject:
        return with_owner(item, self.kind.make_owner_reference(self.job["metadata"]["name"], self.uid))


def read_live_objects(client: Client, objects: Sequence[JsonObject]) -> LiveObjects:
    """Return the objects of a job with the live ones. Objects whose name the API server makes are left out.

    Raises:
        NotFound: the job does not exist.
        Refused: kfjob did not submit the live job.
    """
    job = get_job(objects)
    live_job = client.call(requests.get_object(job))
    if not get_launch(live_job):
        title = f"job `{job['metadata']['name']}` was not submitted by kfjob"
        raise Refused(title, hint="change it with the tool that made it")
    others = [(item, find_object(client, item)) for item in objects if item is not job and "name" in item["metadata"]]
    return LiveObjects(client=client, kind=get_kind(job), job=keep_records(job, live_job), live_job=live_job, others=others)


def is_part_of_launch(item: JsonMapping, job: JsonMapping) -> bool:
    """Return whether an object was made for exactly this launch of a job, such as its own etcd."""
    return bool(launch := get_launch(job)) and get_launch(item) == launch


def with_owner(item: JsonObject, owner: JsonObject) -> JsonObject:
    """Return the object with an owner reference, so that it is deleted with its owner."""
    return {**item, "metadata": {**item["metadata"], "ownerReferences": [owner]}}


def list_job_changes(kind: JobKind, live: JsonObject, manifest: JsonObject) -> list[FieldChange]:
    """Return the changes from a live job to a manifest: of the spec, and of the labels and annotations that kfjob sets."""
    return [*_list_metadata_changes(live, manifest), *_list_spec_changes(kind, live, manifest)]


def _list_metadata_changes(live: JsonObject, manifest: JsonObject) -> Iterator[FieldChange]:
    for part in ("labels", "annotations"):
        old, new = live["metadata"].get(part) or {}, manifest["metadata"].get(part) or {}
        for key in sorted((ownership.owned_keys(live, part) | set(new)) - _CHANGES_WITH_EACH_SUBMIT):
            if old.get(key) != new.get(key):
                yield FieldChange(path=f"metadata.{part}.{key}", live=old.get(key), desired=new.get(key), in_place=True)


def _list_spec_changes(kind: JobKind, live: JsonObject, manifest: JsonObject) -> Iterator[FieldChange]:
    for difference in differences({"spec": live["spec"]}, {"spec": manifest["spec"]}):
        path = format_path(difference.path)
        change = _make_change(difference, path=path, in_place=kind.changes_in_place(path))
        if change.live != change.desired:
            yield change


def _make_change(difference: Difference, *, path: str, in_place: bool) -> FieldChange:
    old, new = (None if value is MISSING else value for value in (difference.old, difference.new))
    return FieldChange(path=path, live=old, desired=new, in_place=in_place)


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


def keep_records(job: JsonObject, live: JsonObject) -> JsonObject:
    """Return the job with what the live one records of its submit, where the job does not say it anew."""
    annotations = dict(job["metadata"].get("annotations") or {})
    kept = {key: value for key in _KEPT_RECORDS if key not in annotations and (value := get_annotation(live, key))}
    return {**job, "metadata": {**job["metadata"], "annotations": annotations | kept}} if kept else job


def find_object(client: Client, item: JsonObject) -> JsonObject | None:
    """Return the live object of a manifest; None if there is none."""
    try:
        return client.call(requests.get_object(item))
    except NotFound:
        return None


def _read_content(item: JsonObject) -> JsonObject:
    """Return what the user decides: the content, the labels and the annotations."""
    metadata = {part: item["metadata"].get(part) or {} for part in ("labels", "annotations")}
    return {key: value for key, value in item.items() if key not in _SERVER_FIELDS} | {"metadata": metadata}


def _list_removed(item: JsonObject, live: JsonObject, recorded: JsonMapping) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield the fields that kfjob has set in the live object and that the template no longer has.

    The API server records its own defaults in `spec` as kfjob's, so there the launch's record of the object decides.
    """
    if "stringData" in item:  # the API server stores it as `data`
        item = {**item, "data": {**(item.get("data") or {}), **item["stringData"]}}
    for path in ownership.list_owned(live):
        if path[0] not in _WITHOUT_DEFAULTS and get_value(recorded, path) is MISSING:
            continue
        old = get_value(live, path)
        if old is not MISSING and get_value(item, path) is MISSING and get_value(item, path[:-1]) is not MISSING:
            yield path, old
