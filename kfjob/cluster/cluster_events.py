"""Read the events of a job's objects, and its state in a Kueue queue. Pure, except for `read_events`.

The server can select events by one exact name only, and a job has many pods. So kfjob lists the events of the namespace in
pages, and selects those of the job. Sources: core/v1 Event (an event of events.k8s.io has `eventTime` and `series` instead of
timestamps and a count), Kueue apis/kueue/{v1beta1,v1beta2}/workload_types.go and
apis/visibility.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import suppress

from msgspec import Struct
from msgspec.structs import replace

from kfjob.base.common_types import JsonObject
from kfjob.base.errors import Forbidden, KfjobError, NotFound, Refused
from kfjob.base.text import join_lines
from kfjob.base.units import SECOND
from kfjob.cluster import requests
from kfjob.cluster.client import Client
from kfjob.cluster.errors import Expired
from kfjob.joblog.events import KubernetesEvent, WorkloadStatus
from kfjob.kinds.base import JobKind
from kfjob.objects import api_objects, names
from kfjob.objects.reading import parse_time
from kfjob.objects.shapes.kueue import PendingWorkloadsShape

MAX_EVENT_PAGES = 200
"""Pages of 500 events that one command reads; a cluster keeps its events for an hour."""
EVENTS_SECONDS = 60.0
"""Time after which no further page of events is requested."""


_ENDS = frozenset({"Killing", "Evicted", "Preempted", "Preempting"})
"""Reasons of events about the end of a pod.

Times are whole seconds. In the second in which a job is created, only a pod of the job before it can end.
"""


class EventSelector(Struct, frozen=True, kw_only=True):
    """Selects the events of one job."""

    kind: JobKind
    name: str
    uid: str
    created: int
    claims: frozenset[str]

    @classmethod
    def for_job(cls, kind: JobKind, job: JsonObject) -> EventSelector:
        """Return the selector for a job of the API."""
        metadata = job["metadata"]
        created = parse_time(metadata.get("creationTimestamp")) or 0
        claims = frozenset(_claim_names(kind, job))
        return cls(kind=kind, name=metadata["name"], uid=metadata["uid"], created=created, claims=claims)

    def matches(self, event: JsonObject) -> bool:
        """Return whether an event is about this job, and not about an earlier job of the same name."""
        about = event.get("involvedObject") or {}
        kind, name = about.get("kind", ""), about.get("name", "")
        if kind == self.kind.name:
            return bool(about.get("uid") == self.uid)
        if kind == "PersistentVolumeClaim" and name in self.claims:
            return True  # a claim is older than the job
        earliest = self.created + SECOND if event.get("reason") in _ENDS else self.created
        if (_last_time(event) or earliest) < earliest:
            return False
        if kind in self.kind.named_after_job and name == self.name:
            return True
        prefix = f"{self.name}-"
        is_pod = name.startswith(prefix) and self.kind.pod_suffix.fullmatch(name[len(prefix) :])
        return bool(is_pod) or (name.startswith(prefix) and name.startswith(names.etcd_name(self.name)))


def read_events(client: Client, kind: JobKind, job: JsonObject) -> list[KubernetesEvent | WorkloadStatus]:
    """Return the events of the job and its state in a queue, oldest first, without those that the user may not read."""
    namespace, selector = job["metadata"].get("namespace", ""), EventSelector.for_job(kind, job)
    events: list[KubernetesEvent | WorkloadStatus] = []
    with suppress(Forbidden, Refused, NotFound):
        events += [kubernetes_event(event, kind) for event in _list_events(client, namespace) if selector.matches(event)]
    if queue := (job["metadata"].get("labels") or {}).get(api_objects.LABEL_KUEUE_QUEUE):
        events += _read_workloads(client, kind, job, queue)
    return sorted(events, key=lambda event: event.time or 0)


def _read_workloads(client: Client, kind: JobKind, job: JsonObject, queue: str) -> list[WorkloadStatus]:
    """Return the state of the job in its queue, in the newest version of Kueue's API that the cluster serves."""
    namespace, uid = job["metadata"]["namespace"], job["metadata"]["uid"]
    for api_version in api_objects.KUEUE_API_VERSIONS:
        try:
            response = client.call(requests.list_workloads(namespace, uid, api_version))
        except NotFound:  # the cluster does not serve this version
            continue
        except Forbidden:
            # Kueue suspends a job until it admits it
            return [_make_unreadable_status(job, queue)] if kind.is_suspended(job) else []
        except Refused:
            return []
        statuses = (workload_status(workload) for workload in response.get("items") or ())
        return [_add_position(client, namespace, one) if one.queue and not one.admitted else one for one in statuses]
    return []


def _add_position(client: Client, namespace: str, status: WorkloadStatus) -> WorkloadStatus:
    """Return the status with its position among all jobs that wait for its quota, if Kueue says it and the user may know."""
    for api_version in api_objects.KUEUE_VISIBILITY_VERSIONS:
        request = requests.list_pending_workloads(namespace, status.queue, api_version)
        try:
            items = client.call(request, shape=PendingWorkloadsShape).get("items") or ()
        except NotFound:  # the cluster does not serve this version
            continue
        except KfjobError:
            return status
        positions = (one.get("positionInClusterQueue") for one in items if one["metadata"]["name"] == status.name)
        index = next(positions, None)
        return status if index is None else replace(status, position=index + 1)
    return status


def _make_unreadable_status(job: JsonObject, queue: str) -> WorkloadStatus:
    message = (
        f"you may not read why: list workloads in API group kueue.x-k8s.io is not allowed in `{job['metadata']['namespace']}` "
        "(`manifests/rbac/submitter.yaml` has the right)"
    )
    time = parse_time(job["metadata"].get("creationTimestamp"))
    return WorkloadStatus(name=job["metadata"]["name"], queue=queue, reason="Forbidden", message=message, time=time)


def kubernetes_event(event: JsonObject, job_kind: JobKind) -> KubernetesEvent:
    """Return an event of the API, about a job of this kind or one of its objects, as a value."""
    about, series = event.get("involvedObject") or {}, event.get("series") or {}
    return KubernetesEvent(
        kind=about.get("kind") or "",
        name=about.get("name") or "",
        container=_find_container(about, job_kind),
        about_job=about.get("kind") == job_kind.name,
        reason=join_lines(event.get("reason") or ""),
        message=join_lines(event.get("message") or ""),
        warning=event.get("type") == "Warning",
        source=(event.get("source") or {}).get("component") or event.get("reportingComponent") or "",
        count=series.get("count") or event.get("count") or 1,
        first=parse_time(event.get("firstTimestamp")) or parse_time(event.get("eventTime")),
        time=_last_time(event),
        uid=event["metadata"].get("uid", ""),
    )


def _find_container(about: JsonObject, kind: JobKind) -> str:
    """Return the container that an event of the kubelet is about (`spec.containers{istio-proxy}`); "" if it trains."""
    name = str(about.get("fieldPath") or "").partition("{")[2].rstrip("}")
    return "" if name == kind.training_container else name


def workload_status(workload: JsonObject) -> WorkloadStatus:
    """Return a Workload of Kueue as a value, with the condition that explains why the job waits.

    A finished job does not wait. Kueue 0.15 and newer take its quota back, so that its workload is no longer admitted.
    """
    spec, status = workload.get("spec") or {}, workload.get("status") or {}
    conditions = {one["type"]: one for one in status.get("conditions") or () if one.get("type")}
    admitted = any((conditions.get(kind) or {}).get("status") == "True" for kind in ("Admitted", "Finished"))
    reason: JsonObject = {}
    if not admitted:
        evicted = conditions.get("Evicted") or {}
        waiting = conditions.get("QuotaReserved") or conditions.get("Admitted") or {}
        reason = evicted if evicted.get("status") == "True" else waiting
    return WorkloadStatus(
        name=workload["metadata"]["name"],
        queue=spec.get("queueName") or "",
        cluster_queue=(status.get("admission") or {}).get("clusterQueue") or "",
        admitted=admitted,
        cluster=status.get("clusterName") or "",
        reason=join_lines(reason.get("reason") or ("" if spec.get("active", True) else "Inactive")),
        message=join_lines(reason.get("message") or ""),
        time=parse_time(reason.get("lastTransitionTime") or workload["metadata"].get("creationTimestamp")),
    )


def _list_events(client: Client, namespace: str) -> Iterator[JsonObject]:
    """Yield the events of the namespace, as far as the limits allow: the first pages hold the older events."""
    page, deadline = "", time.monotonic() + EVENTS_SECONDS
    for _ in range(MAX_EVENT_PAGES):
        try:
            response = client.call(requests.list_events(namespace, page=page))
        except Expired:  # the server has dropped the rest of the list
            return
        yield from response.get("items") or ()
        page = (response.get("metadata") or {}).get("continue") or ""
        if not page or time.monotonic() > deadline:
            return


def _last_time(event: JsonObject) -> int | None:
    series = event.get("series") or {}
    times = (series.get("lastObservedTime"), event.get("lastTimestamp"), event.get("eventTime"), event.get("firstTimestamp"))
    return next((time for text in times if (time := parse_time(text)) is not None), None)


def _claim_names(kind: JobKind, job: JsonObject) -> Iterable[str]:
    for template in kind.read_pod_templates(job):
        for volume in template.spec.get("volumes") or ():
            if claim := (volume.get("persistentVolumeClaim") or {}).get("claimName"):
                yield claim
