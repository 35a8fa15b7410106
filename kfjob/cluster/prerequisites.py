"""Create the objects that must exist before a job, such as the TrainingRuntime of a TrainJob."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence

from kfjob.base.common_types import JsonObject
from kfjob.base.concurrency import cleaning_up
from kfjob.base.errors import AlreadyExists, KfjobError, NotFound
from kfjob.base.units import SECOND
from kfjob.cluster import requests
from kfjob.cluster.client import Client
from kfjob.cluster.live_objects import find_object
from kfjob.objects.api_objects import describe_object
from kfjob.objects.reading import get_launch, parse_time

ABANDONED_SECONDS = 60
"""Time after which an object that waits for its job belongs to a submit that has ended; a submit needs about a second."""


@contextlib.contextmanager
def created_before_job(client: Client, objects: Sequence[JsonObject], job: JsonObject) -> Iterator[None]:
    """Create the prerequisites of a job, and delete them again if the job cannot be created."""
    created = list[JsonObject]()
    try:
        for item in objects:
            created.append(_create_prerequisite(client, item, job))
        yield
    except BaseException:
        for item in created:
            notice = f"{describe_object(item)} may still exist; `kubectl delete` removes it"
            with contextlib.suppress(KfjobError), cleaning_up(notice):
                client.call(requests.delete_object(item))
        raise


def _create_prerequisite(client: Client, item: JsonObject, job: JsonObject) -> JsonObject:
    """Create an object, in place of one that a submit left behind: kfjob made it, and no job has owned it for a minute."""
    try:
        return client.change(requests.create(item))
    except AlreadyExists:
        live = client.call(requests.get_object(item))
        created = parse_time(live["metadata"].get("creationTimestamp")) or 0
        is_new = time.time_ns() - created < ABANDONED_SECONDS * SECOND
        if is_new or not get_launch(live) or live["metadata"].get("ownerReferences") or find_object(client, job):
            raise
        with contextlib.suppress(NotFound):
            client.call(requests.delete_object(live))
        return client.change(requests.create(item))
