"""Reasons why pods wait or do not exist."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from kfjob.joblog.events import Event, JobChanged, JobPhase, KubernetesEvent, PodChanged, PodPhase, StoreChanged, WorkloadStatus
from kfjob.joblog.observe_config import ObserveConfig
from kfjob.joblog.pods.pod_problems import MAX_EVENTS
from kfjob.joblog.view.job_view import JobView
from kfjob.joblog.view.reduction import MAX_NEWS, reduce_all

POD = "a-worker-0"
QUOTA = 'Error creating: pods "a-worker-0" is forbidden: exceeded quota: small'
CREATED = JobChanged(phase=JobPhase.PENDING, reason="PyTorchJobCreated")
MOUNT = KubernetesEvent(kind="Pod", name=POD, reason="FailedMount", message="secret not found", warning=True, time=5, uid="1")
WAITS = PodChanged(pod=POD, phase=PodPhase.PENDING, reason="ContainerCreating")


def headline(*events: Event) -> str:
    return reduce_all(JobView(), events).headline


def test_headline_has_the_reason_for_missing_pods():
    event = KubernetesEvent(
        kind="PyTorchJob", name="a", about_job=True, reason="FailedCreatePod", message=QUOTA, warning=True, time=3
    )
    assert headline(CREATED, event) == f"Pending, no pods: FailedCreatePod: {QUOTA}"
    assert headline(CREATED, event, replace(WAITS)) == "Pending"
    assert headline(event, JobChanged(phase=JobPhase.FAILED, message="m")) == "Failed: m"


def test_headline_has_the_reason_why_only_some_pods_exist():
    refusal = KubernetesEvent(kind="Job", name="a-node-0", reason="FailedCreate", message=QUOTA, warning=True, time=3)
    config = ObserveConfig(workers=("a-worker-0", "a-worker-1"))
    first = replace(WAITS, phase=PodPhase.RUNNING, reason="", created=2)
    view = reduce_all(JobView(config=config), [CREATED, refusal, first])
    assert view.headline == f"Pending, 1 of 2 pods: FailedCreate: {QUOTA}"
    assert reduce_all(view, [replace(first, created=4)]).headline == "Pending", "the pod was created after the refusal"
    assert reduce_all(view, [replace(first, pod="a-worker-1")]).headline == "Pending", "the job has all of its pods"


def test_state_of_own_etcd_is_news_and_in_the_headline():
    waiting = PodChanged(pod="a-etcd", phase=PodPhase.PENDING, reason="ErrImagePull", message="no such tag")
    view = reduce_all(JobView(), [CREATED, StoreChanged(state=waiting), StoreChanged(state=waiting)])
    assert view.headline == "Pending, but `a-etcd`: ErrImagePull (no such tag)"
    assert [(news.pod, news.text) for news in view.news] == [("a-etcd", "Pending: ErrImagePull (no such tag)")]
    assert not view.pods


def test_an_image_that_cannot_be_pulled_is_news_once():
    failed = PodChanged(pod="a-worker-0", phase=PodPhase.PENDING, reason="ErrImagePull", message="no such tag")
    again = replace(failed, reason="ImagePullBackOff", message="Back-off pulling image: no such tag")
    view = reduce_all(JobView(), [CREATED, failed, again, failed, again])
    assert [(news.pod, news.text) for news in view.news] == [("a-worker-0", "Pending: ErrImagePull (no such tag)")]


def test_headline_has_the_reason_for_waiting_in_a_queue():
    reason = "insufficient unused quota for nvidia.com/gpu"
    waits = WorkloadStatus(name="w", queue="team", position=3, reason="Pending", message=reason)
    suspended = JobChanged(phase=JobPhase.SUSPENDED, reason="PyTorchJobSuspended")
    text = "waits in queue `team` at position 3: Pending insufficient unused quota for nvidia.com/gpu"
    assert headline(suspended, waits) == f"Suspended, no pods: {text}"
    view = reduce_all(
        JobView(), [suspended, waits, replace(waits, time=9, position=2), replace(waits, admitted=True, cluster_queue="gpus")]
    )
    assert [news.text for news in view.news] == [text, "admitted by `gpus`"]
    assert view.headline == "Suspended"


def test_headline_names_the_cluster_where_multikueue_runs_the_job():
    runs = JobChanged(phase=JobPhase.RUNNING)
    elsewhere = WorkloadStatus(name="w", queue="team", cluster_queue="gpus", admitted=True, cluster="east")
    place = "MultiKueue runs the job in cluster `east`; use the kubeconfig context of that cluster"
    assert headline(runs, elsewhere) == f"Running, no pods: {place}"
    view = reduce_all(JobView(), [runs, replace(elsewhere, admitted=False, cluster=""), elsewhere])
    assert view.news[-1].text == "admitted by `gpus`, and runs in cluster `east`"


def test_headline_has_the_reason_of_a_pending_pod():
    assert headline(CREATED, WAITS, MOUNT) == f"Pending, but `{POD}`: FailedMount (secret not found)"
    running = PodChanged(pod=POD, phase=PodPhase.RUNNING, ready=True, started=6)
    assert headline(CREATED, WAITS, MOUNT, running) == "Pending"


@pytest.mark.parametrize(("state", "is_news"), [
    (WAITS, True),
    (PodChanged(pod=POD, phase=PodPhase.RUNNING, started=6), False),  # it has started since
    (PodChanged(pod=POD, phase=PodPhase.RUNNING, started=4), True),
    (PodChanged(pod=POD, phase=PodPhase.PENDING, message="secret not found"), False),  # its state has the same message
])  # fmt: skip
def test_warning_is_news_once_unless_the_pod_state_shows_it(state: PodChanged, *, is_news: bool):
    view = reduce_all(JobView(), [state, MOUNT, replace(MOUNT, count=2, time=7)])
    assert [news.text for news in view.news if news.kind == "event"] == (["FailedMount: secret not found"] if is_news else [])
    assert [(event.count, event.time) for event in view.cluster_events] == [(2, 7)]


def test_routine_events_do_not_push_out_others():
    normal = [KubernetesEvent(kind="Pod", name=f"p-{i}", reason="Started", uid=f"n{i}", time=10 + i) for i in range(300)]
    view = reduce_all(JobView(), [MOUNT, *normal])
    assert view.cluster_events == (MOUNT,)
    many = [replace(MOUNT, uid=str(i), time=i) for i in range(300)]
    view = reduce_all(JobView(), many)
    assert [event.time for event in view.cluster_events] == list(range(300 - MAX_EVENTS, 300))
    assert len(view.news) <= MAX_NEWS
