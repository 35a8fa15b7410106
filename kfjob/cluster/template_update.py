"""Compare the live objects of a template's job with the template, and change them where that is possible in place."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from msgspec.structs import replace

from kfjob.backends.base import FieldChange
from kfjob.backends.resources import CREATABLE_KINDS
from kfjob.base.common_types import JsonMapping, JsonObject
from kfjob.base.errors import NotFound, Refused
from kfjob.base.parsing import ParseError, parse_json
from kfjob.cluster import ownership, requests
from kfjob.cluster.client import Client
from kfjob.cluster.errors import Conflict
from kfjob.cluster.job_update import job_changes, refuse_changes
from kfjob.cluster.objects import launch_of, owner_uid, with_owner
from kfjob.cluster.shapes.meta import read_version
from kfjob.objects import api_objects
from kfjob.objects.api_objects import describe_name
from kfjob.objects.differences import MISSING, differences, format_path

_ATTEMPTS = 5
_SERVER_FIELDS = frozenset(("apiVersion", "kind", "metadata", "status"))
_WITHOUT_DEFAULTS = frozenset(("data", "binaryData", "metadata"))
_HIDDEN = "(hidden)"
"""Stands for a value of a Secret."""


@dataclass(frozen=True, kw_only=True)
class LiveTemplate:
    """The objects of a template and those of its live job."""

    client: Client
    job: JsonObject  # the PyTorchJob of the template
    live_job: JsonObject
    others: Sequence[tuple[JsonObject, JsonObject | None]]  # of the template, and the live object; None if there is none

    @property
    def uid(self) -> str:
        """The uid of the live job."""
        return str(self.live_job["metadata"]["uid"])

    @property
    def foreign(self) -> list[JsonObject]:
        """The objects of the template whose live objects do not belong to the job."""
        return [item for item, live in self.others if live and owner_uid(live) != self.uid]

    def find_changes(self) -> list[FieldChange]:
        """Return every change, as the API server sees it; nothing is changed.

        Raises:
            Refused: the API server would not accept the change of the job.
        """
        request = requests.dry_run_replace(self.job, resource_version=read_version(self.live_job))
        changes = job_changes(self.live_job, self.client.call(request))
        for item, live in self.others:
            changes += self._find_other_changes(item, live)
        return changes

    def _find_other_changes(self, item: JsonObject, live: JsonObject | None) -> list[FieldChange]:
        name = f"{item['kind']}/{describe_name(item)}"
        if live is None:
            return [FieldChange(path=name, live=None, desired="a new object", in_place=True)]
        if owner_uid(live) != self.uid:
            return []
        try:
            new = self.client.call(requests.apply(self._own(item), dry_run=True))
        except Refused as err:
            return [FieldChange(path=name, live=None, desired=err.cause or err.title, in_place=False)]
        changes = [
            FieldChange(
                path=f"{name}: {format_path(difference.path)}",
                live=None if difference.old is MISSING else difference.old,
                desired=None if difference.new is MISSING else difference.new,
                in_place=True,
            )
            for difference in differences(_read_content(live), _read_content(new))
        ]
        changes += [
            FieldChange(path=f"{name}: {'.'.join(path)}", live=value, desired=None, in_place=True)
            for path, value in _list_removed(item, live, self._find_recorded(item))
        ]
        if item["kind"] == "Secret":
            return [replace(c, live=c.live and _HIDDEN, desired=c.desired and _HIDDEN) for c in changes]
        return changes

    def _find_recorded(self, item: JsonObject) -> JsonMapping:
        """Return the object as the live job's record has it; {} without a record."""
        record = (self.live_job["metadata"].get("annotations") or {}).get(api_objects.ANNOTATION_MANIFEST)
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
                self.client.call(requests.create(self._own(item)))
            elif owner_uid(live) == self.uid:
                self._apply(self._own(item), live)
        return job

    def _apply(self, item: JsonObject, live: JsonObject) -> JsonObject:
        resource, metadata = CREATABLE_KINDS[item["kind"]], item["metadata"]
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                if operations := ownership.take_over_patch(live):
                    patch = requests.patch(resource, metadata["namespace"], metadata["name"], operations)
                    self.client.call(replace(patch, path=requests.get_object(item).path))
                break
            except Conflict:  # a controller has written the object's status since `live` was read
                if attempt == _ATTEMPTS:
                    raise
                live = self.client.call(requests.get_object(item))
        return self.client.call(requests.apply(item))

    def _own(self, item: JsonObject) -> JsonObject:
        return with_owner(item, self.job["metadata"]["name"], self.uid)


def read_live_template(client: Client, objects: Sequence[JsonObject]) -> LiveTemplate:
    """Return the objects of a template with the live ones. Objects whose name the API server makes are left out.

    Raises:
        NotFound: the job does not exist.
        Refused: kfjob did not submit the live job.
    """
    (job,) = (item for item in objects if item["kind"] == api_objects.PYTORCHJOB)
    live_job = client.call(requests.get_object(job))
    if not launch_of(live_job):
        title = f"job `{job['metadata']['name']}` was not submitted by kfjob"
        raise Refused(title, hint="change it with the tool that made it")
    named = [item for item in objects if item is not job and "name" in item["metadata"]]
    return LiveTemplate(client=client, job=job, live_job=live_job, others=[(item, _find(client, item)) for item in named])


def _find(client: Client, item: JsonObject) -> JsonObject | None:
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
        if path[0] not in _WITHOUT_DEFAULTS and _get(recorded, path) is MISSING:
            continue
        old = _get(live, path)
        if old is not MISSING and _get(item, path) is MISSING and _get(item, path[:-1]) is not MISSING:
            yield path, old


def _get(value: Any, path: Sequence[str]) -> Any:
    for step in path:
        if not isinstance(value, dict) or step not in value:
            return MISSING
        value = value[step]
    return value
