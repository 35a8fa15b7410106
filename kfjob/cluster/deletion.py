"""Delete a job, and wait until nothing of it is left."""

from __future__ import annotations

import contextlib
import time
from itertools import chain

from kfjob.backends.base import JobRef
from kfjob.base.errors import BackendError, NotFound, Unreachable, WaitTimeout
from kfjob.base.http import backoff
from kfjob.base.units import SECOND
from kfjob.cluster import requests
from kfjob.cluster.client import Client
from kfjob.cluster.errors import Conflict
from kfjob.cluster.requests import Selection
from kfjob.kinds.registry import find_kind, identify
from kfjob.objects.names import etcd_name
from kfjob.objects.reading import parse_time
from kfjob.objects.shapes.core import PodShape
from kfjob.objects.shapes.meta import ListShape

OVERDUE_SECONDS = 10
"""Time after the end of a pod's grace period in which a kubelet surely confirms that the pod has ended."""


def delete_and_wait(client: Client, ref: JobRef, *, timeout: float, force: bool) -> None:
    """Delete this launch, and wait until the job, its pods and its services are gone; see `ClusterBackend.stop`."""
    deadline = time.monotonic() + timeout
    for selection in _select_dependents(ref):
        client.call(selection.list_request())  # a right that the wait needs is missed before anything is deleted
    try:
        client.call(requests.delete_job(find_kind(ref.job_kind), ref.namespace, ref.name, ref.uid))
    except Conflict as err:  # the uid precondition failed: a later job has the name
        raise NotFound(f"job `{ref.name}` is gone; another job has its name, and was not changed") from err
    attempt = 1
    while has_remains(client, ref):
        remaining = deadline - time.monotonic()
        if remaining <= 0 or not client.pause(min(remaining, backoff(attempt, longest=2.0))):
            raise _make_timeout(client, ref, timeout)
        if force:
            _remove_overdue_pods(client, ref)
        attempt += 1


def has_remains(client: Client, ref: JobRef) -> bool:
    """Return whether an object of a job that is being deleted is left; the cheapest request comes first."""
    kind = find_kind(ref.job_kind)
    try:
        selections = (
            requests.select_job(kind, ref.namespace, ref.name),
            *_select_dependents(ref),
            *requests.select_prerequisites(kind, ref.namespace, ref.name),
        )
        return any(_list_remaining(client, selection, ref) for selection in selections)
    except (Unreachable, BackendError):  # the deletion continues without kfjob
        return True


def _select_dependents(ref: JobRef) -> list[Selection]:
    kind = find_kind(ref.job_kind)
    selections = [requests.select_dependents(kind, resource, ref.namespace, ref.name) for resource in kind.dependents]
    if kind.etcd_outlives_job:  # it has no label of the kind
        name = etcd_name(ref.name)
        selections += [requests.select_object(resource, ref.namespace, name) for resource in ("pods", "services")]
    return selections


def _select_pods(ref: JobRef) -> list[Selection]:
    return [selection for selection in _select_dependents(ref) if selection.resource == "pods"]


def _remove_overdue_pods(client: Client, ref: JobRef) -> None:
    """Remove the pods whose time to end is over: no kubelet will confirm that those of a lost node have ended."""
    now, kind, job_id = time.time_ns(), find_kind(ref.job_kind), identify(ref)
    answers = [client.call(selection.list_request(), shape=ListShape[PodShape]) for selection in _select_pods(ref)]
    for pod in chain.from_iterable(answer.get("items") or () for answer in answers):
        deadline = parse_time(pod["metadata"].get("deletionTimestamp"))
        if kind.find_job_id(pod) == job_id and deadline is not None and now > deadline + OVERDUE_SECONDS * SECOND:
            with contextlib.suppress(NotFound, Conflict):
                client.call(requests.remove_pod(ref.namespace, pod["metadata"]["name"], pod["metadata"]["uid"]))


def _list_remaining(client: Client, selection: Selection, ref: JobRef) -> tuple[str, ...]:
    """Return the names of the objects that are the job or belong to it."""
    find_id, job_id = find_kind(ref.job_kind).find_job_id, identify(ref)
    items = client.call(selection.list_request()).get("items") or []
    return tuple(item["metadata"]["name"] for item in items if ref.uid == item["metadata"]["uid"] or find_id(item) == job_id)


def _make_timeout(client: Client, ref: JobRef, timeout: float) -> WaitTimeout:
    kind = find_kind(ref.job_kind)
    pods = [pod for selection in _select_pods(ref) for pod in _list_remaining(client, selection, ref)]
    title = f"job `{ref.name}` is being deleted, but not gone after {timeout:g} s"
    cause = f"still there: {', '.join(f'`{pod}`' for pod in pods)}" if pods else "its pods are gone, the job itself is not yet"
    selector = f"-n {ref.namespace} -l {kind.select_pods(ref.name)}"
    hint = (
        f"Kubernetes continues the deletion; `kubectl get pods {selector}` shows its progress; "
        f"`kfjob stop {ref.name} --force` removes the pods of a lost node"
    )
    return WaitTimeout(title, cause=cause, hint=hint)
