"""The fields of the API's objects that every kind of object has: times, labels, annotations, owners. Pure."""

from __future__ import annotations

from datetime import UTC, datetime

from kfjob.base.common_types import JsonMapping
from kfjob.base.errors import BackendError
from kfjob.base.units import SECOND
from kfjob.objects import api_objects


class Malformed(BackendError):
    """An object of the API server has a field of another type. Asking again does not help."""


def format_time(seconds: float, *, microseconds: bool = False) -> str:
    """Return a time as the API writes it."""
    shape = "%Y-%m-%dT%H:%M:%S.%fZ" if microseconds else "%Y-%m-%dT%H:%M:%SZ"
    return datetime.fromtimestamp(seconds, UTC).strftime(shape)


def parse_time(text: str | None) -> int | None:
    """Return a time of the API (in seconds or microseconds) as nanoseconds since the epoch.

    Raises:
        Malformed: the text is not a time.
    """
    if not text:
        return None
    try:
        time = datetime.fromisoformat(text)
        return int(time.timestamp()) * SECOND + time.microsecond * 1000
    except (ValueError, OverflowError) as err:
        raise Malformed("the API server sent a time that kfjob cannot read", cause=f"it is `{text[:100]}`") from err


def get_label(item: JsonMapping, key: str) -> str:
    """Return a label of an object; "" without it."""
    return (item["metadata"].get("labels") or {}).get(key) or ""


def get_annotation(item: JsonMapping, key: str) -> str | None:
    """Return an annotation of an object; None without it."""
    annotation: str | None = (item["metadata"].get("annotations") or {}).get(key)
    return annotation


def get_launch(item: JsonMapping) -> str:
    """Return the launch id of a job or of an object that belongs to it; "" if kfjob did not submit the job."""
    return get_label(item, api_objects.LABEL_LAUNCH)


def find_owner_uid(item: JsonMapping, kind: str) -> str:
    """Return the uid of the owner of this kind; "" for none."""
    references = item["metadata"].get("ownerReferences") or []
    return next((one.get("uid") or "" for one in references if one.get("kind") == kind), "")


def is_being_deleted(item: JsonMapping) -> bool:
    """Return whether the deletion of an object has begun."""
    return bool(item["metadata"].get("deletionTimestamp"))
