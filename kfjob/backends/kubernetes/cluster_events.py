"""What the cluster's controllers wrote down of a job: events of its objects, and its place in a queue. Pure, but for `read`.

Events can be selected on the server by one exact name only, and a job has many pods: so those of the namespace are listed, page
by page, and its own are picked out. Sources: core/v1 Event (events of events.k8s.io have `eventTime` and `series` instead of
time stamps and a count), Kueue v0.14 apis/kueue/v1beta1/workload_types.go.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import suppress

from msgspec import Struct

from kfjob.backends.kubernetes import requests
from kfjob.backends.kubernetes.client import Client
from kfjob.backends.kubernetes.errors import Expired
from kfjob.backends.kubernetes.objects import Object, parse_time
from kfjob.errors import Forbidden, NotFound, Refused
from kfjob.events import KubernetesEvent, WorkloadStatus
from kfjob.spec import api_objects, names

_PART = re.compile(r"(?:master|worker)-\d+")
_BESIDE = frozenset({"PodGroup", "HorizontalPodAutoscaler", "PodDisruptionBudget"})
"""Kinds that the operator makes one of for each job, under the job's name."""


class EventSelector(Struct, frozen=True, kw_only=True):
    """What tells a job's events from those of others."""

    name: str
    uid: str
    created: int
    claims: frozenset[str]

    @classmethod
    def of(cls, job: Object) -> EventSelector:
        """The job as the API has it."""
        metadata = job["metadata"]
        created = parse_time(metadata.get("creationTimestamp")) or 0
        return cls(name=metadata["name"], uid=metadata["uid"], created=created, claims=frozenset(_claims(job)))

    def has(self, event: Object) -> bool:
        """Whether this event is about it, and not about an earlier job of the same name."""
        about = event.get("involvedObject") or {}
        kind, name = about.get("kind", ""), about.get("name", "")
        if kind == api_objects.PYTORCHJOB:
            return bool(about.get("uid") == self.uid)
        if kind == "PersistentVolumeClaim" and name in self.claims:
            return True  # made before the job
        if (_newest(event) or self.created) < self.created:
            return False
        head = f"{self.name}-"
        ours = name.startswith(head) and (_PART.fullmatch(name[len(head) :]) or name.startswith(names.etcd_name(self.name)))
        return bool(ours) or (kind in _BESIDE and name == self.name)


def read_events(client: Client, job: Object) -> list[KubernetesEvent | WorkloadStatus]:
    """Everything that was written down of the job, oldest first; what we may not read is left out."""
    owner = EventSelector.of(job)
    found: list[KubernetesEvent | WorkloadStatus] = []
    with suppress(Forbidden, Refused, NotFound):
        found += [kubernetes_event(one) for one in _listed(client, job["metadata"]["namespace"]) if owner.has(one)]
    if (job["metadata"].get("labels") or {}).get(api_objects.LABEL_KUEUE_QUEUE):
        with suppress(Forbidden, Refused, NotFound):  # the cluster has no Kueue, or one of another version
            answer = client.call(requests.workloads(job["metadata"]["namespace"], owner.uid))
            found += [workload_status(one) for one in answer.get("items") or ()]
    return sorted(found, key=lambda one: one.time or 0)


def kubernetes_event(event: Object) -> KubernetesEvent:
    """One event of the API."""
    about, series = event.get("involvedObject") or {}, event.get("series") or {}
    return KubernetesEvent(
        kind=about.get("kind") or "",
        name=about.get("name") or "",
        reason=event.get("reason") or "",
        message=(event.get("message") or "").strip(),
        warning=event.get("type") == "Warning",
        source=(event.get("source") or {}).get("component") or event.get("reportingComponent") or "",
        count=series.get("count") or event.get("count") or 1,
        first=parse_time(event.get("firstTimestamp")) or parse_time(event.get("eventTime")),
        time=_newest(event),
        uid=event["metadata"].get("uid", ""),
    )


def workload_status(workload: Object) -> WorkloadStatus:
    """One Workload of Kueue: of its conditions the one that says why it waits."""
    spec, status = workload.get("spec") or {}, workload.get("status") or {}
    conditions = {one["type"]: one for one in status.get("conditions") or () if one.get("type")}
    admitted = (conditions.get("Admitted") or {}).get("status") == "True"
    told: Object = {}
    if not admitted:
        evicted = conditions.get("Evicted") or {}
        waits = conditions.get("QuotaReserved") or conditions.get("Admitted") or {}
        told = evicted if evicted.get("status") == "True" else waits
    return WorkloadStatus(
        name=workload["metadata"]["name"],
        queue=spec.get("queueName") or "",
        cluster_queue=(status.get("admission") or {}).get("clusterQueue") or "",
        admitted=admitted,
        reason=told.get("reason") or ("" if spec.get("active", True) else "Inactive"),
        message=told.get("message") or "",
        time=parse_time(told.get("lastTransitionTime") or workload["metadata"].get("creationTimestamp")),
    )


def _listed(client: Client, namespace: str) -> Iterator[Object]:
    page = ""
    while True:
        try:
            answer = client.call(requests.events(namespace, page=page))
        except Expired:  # the list took longer than the server keeps it: what was read is the older part
            return
        yield from answer.get("items") or ()
        page = (answer.get("metadata") or {}).get("continue") or ""
        if not page:
            return


def _newest(event: Object) -> int | None:
    series = event.get("series") or {}
    stamps = (series.get("lastObservedTime"), event.get("lastTimestamp"), event.get("eventTime"), event.get("firstTimestamp"))
    return next((time for stamp in stamps if (time := parse_time(stamp)) is not None), None)


def _claims(job: Object) -> Iterable[str]:
    for replicas in ((job.get("spec") or {}).get("pytorchReplicaSpecs") or {}).values():
        pod = ((replicas or {}).get("template") or {}).get("spec") or {}
        for volume in pod.get("volumes") or ():
            if claim := (volume.get("persistentVolumeClaim") or {}).get("claimName"):
                yield claim
