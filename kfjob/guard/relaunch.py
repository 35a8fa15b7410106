"""Replace a launch so that a guard that is killed at any moment leaves exactly one: write a record, stop, start, delete it.

The launch id is chosen before anything is stopped. So whoever completes the record creates the same launch, or finds it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress

from msgspec.structs import replace

from kfjob.api.lifecycle.relaunch import prepare_relaunch
from kfjob.api.lifecycle.replace import check_acceptance
from kfjob.api.lifecycle.start import list_objects
from kfjob.api.lifecycle.stop import stop
from kfjob.api.prepared import PreparedJob
from kfjob.api.reader import make_ref
from kfjob.api.target import Target
from kfjob.base.common_types import JsonObject
from kfjob.base.errors import AlreadyExists, KfjobError, NotFound, UsageError
from kfjob.base.http import backoff
from kfjob.guard import records
from kfjob.joblog.events import JobSnapshot
from kfjob.kinds.registry import get_job
from kfjob.objects.reading import get_launch

LONGEST_PAUSE = 15.0
"""Seconds between two attempts."""


def prepare(target: Target, live: JobSnapshot, *, history: str, avoid: Sequence[str]) -> PreparedJob:
    """Return the next launch of a live job, which the API server accepts; nothing is changed.

    Raises:
        SpecError, UsageError: the recorded spec is not valid any more.
        Refused: the API server does not accept the launch.
        KfjobError: the API server does not answer.
    """
    if live.spec is None:
        hint = "`recovery` is a field of a spec; submit the job from one"
        raise UsageError(f"job `{live.name}` has no record of a spec, so the guard does not relaunch it", hint=hint)
    unnamed = replace(live, spec_file="")  # the guard opens no file that a job names
    prepared = prepare_relaunch(target.change(user=live.submitted_by or None), unnamed, avoid=avoid)
    prepared = replace(prepared, relaunches=history, file_record=live.spec_file)
    check_acceptance(prepared)
    return prepared


def begin(target: Target, live: JobSnapshot, prepared: PreparedJob) -> JsonObject:
    """Write the record of the relaunch, and return it. From here on `complete` must be called until it succeeds."""
    record = records.make_relaunch_record(make_ref(target, live), list_objects(prepared))
    try:
        return target.cluster.create_object(record)
    except AlreadyExists:  # from a guard that was killed
        name = record["metadata"]["name"]
        listed = records.list_relaunch_records(target, live.namespace)
        found = next((one for one in listed if one["metadata"]["name"] == name), None)
        if found and records.read_relaunch_record(found)[0] == live.uid:
            return found  # its launch counts
        if found:  # of an earlier relaunch
            records.delete_record(target, found)
        return target.cluster.create_object(record)


def complete(target: Target, record: JsonObject) -> str:
    """Carry out what a record says, as far as that has not happened, and return the id of the new launch.

    Raises:
        WaitTimeout: the pods of the old launch have not ended; the record stays.
        KfjobError: the API server does not answer or refuses the new launch; the record stays.
    """
    uid, objects = records.read_relaunch_record(record)
    if not objects:
        records.delete_record(target, record)
        return ""
    job = get_job(objects)
    with suppress(NotFound):  # the old launch is gone already
        stop(target, job["metadata"]["name"], uid=uid)
    launch = _start(target, objects, get_launch(job))
    records.delete_record(target, record)
    return launch


def retry(call: Callable[[], object], name: str, say: Callable[[str], None]) -> None:
    """Call until it succeeds, with growing pauses; a job that is gone needs nothing more."""
    attempt = 1
    while True:
        try:
            call()
        except NotFound:
            return
        except KfjobError as err:
            say(f"{name}: {err.title}{f': {err.cause}' if err.cause else ''}; tries again")
            time.sleep(backoff(attempt, longest=LONGEST_PAUSE))
            attempt += 1
        else:
            return


def _start(target: Target, objects: Sequence[JsonObject], launch: str) -> str:
    """Create the objects; if the job exists, complete it if it is this launch. Return its id; "" for another launch."""
    try:
        target.cluster.submit(objects)
    except AlreadyExists:
        metadata = get_job(objects)["metadata"]
        live = target.cluster.get(metadata["name"], namespace=metadata["namespace"])
        if live.launch != launch:
            return ""  # a person has started another one in the meantime
        target.cluster.apply(objects)  # creates the objects beside the job that are missing
    return launch
