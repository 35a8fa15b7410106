"""What every backend promises (kfjob.backends.base), held against each of them with tiny jobs."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import groupby

import pytest

from kfjob.backends.base import JobRef, LogRange
from kfjob.base.errors import AlreadyExists, NotFound
from kfjob.joblog.events import JobChanged, JobPhase, JobSnapshot, KubernetesEvent, LogLine, PodChanged, PodPhase, StateEvent
from kfjob.joblog.master.evidence import EvidenceKind, Master
from kfjob.joblog.observe_config import ObserveConfig
from kfjob.joblog.view.job_view import JobView
from kfjob.joblog.view.reduction import reduce_all
from tests.contract.side import Side
from tests.local.machine import wait_until

COUNT = ["python3", "-c", "import time\nfor i in range(6):\n    print('line', i, flush=True)\n    time.sleep(0.4)"]
FAIL = ["python3", "-c", "import sys\nprint('about to fail', flush=True)\nsys.exit(3)"]
# pid 1 of a container ignores SIGTERM unless it says otherwise, and every stop would wait for the end of the grace period
SLEEP = [
    "python3",
    "-c",
    "import signal, time\nsignal.signal(15, lambda *_: exit(143))\nprint('asleep', flush=True)\ntime.sleep(600)",
]
LINES = [f"line {i}" for i in range(6)]


@pytest.fixture(scope="module", autouse=True)
def restarted(side: Side) -> JobRef:
    """Submit a job whose container fails and is restarted before the other tests: the kubelet waits ten seconds."""
    name = f"contract-restarted-{os.getpid()}-{os.urandom(2).hex()}"
    return side.submit(side.plan(name, FAIL, restarts={"policy": "OnFailure"}))


def until(side: Side, condition: Callable[[], bool]) -> None:
    wait_until(condition, patience=side.patience)


def end_of(side: Side, ref: JobRef) -> tuple[list[JobPhase], JobSnapshot]:
    """The phases that a job went through until it ended, and what is known of it then."""
    phases = [event.phase for event in side.backend.watch(ref) if isinstance(event, JobChanged)]
    return [phase for phase, _ in groupby(phases)], side.again.get(ref.name, namespace=ref.namespace)


def texts(side: Side, ref: JobRef, *, follow: bool = False, tail: int | None = None, since: int | None = None) -> list[str]:
    wanted = LogRange(follow=follow, tail=tail, since=since)
    return [line.text for line in side.again.logs(ref, side.find_pod(ref.name, 0), wanted) if isinstance(line, LogLine)]


def stranger(side: Side, name: str) -> JobRef:
    return JobRef(backend=side.backend.name, namespace=side.namespace, name=name, uid="0b8e4a5e-7f0e-4b59-9d7e-3f1b2f6f3c11")


def test_a_job_runs_to_its_end(side: Side, name: str):
    plan = side.plan(name, COUNT, nodes=2, env={"COLOUR": "blue"})
    ref = side.submit(plan)
    assert (ref.backend, ref.namespace, ref.name, ref.launch) == (side.backend.name, side.namespace, name, plan.launch)
    with pytest.raises(AlreadyExists):
        side.submit_again(side.plan(name, FAIL))
    with ThreadPoolExecutor() as threads:
        followed = threads.submit(follow, side, ref)
        events = list(side.backend.watch(ref))
        check_followed_lines(followed.result(side.patience))
    snapshot = side.again.get(name, namespace=ref.namespace)
    check_phases(events, snapshot)
    assert (snapshot.uid, snapshot.launch, snapshot.spec) == (ref.uid, plan.launch, plan.spec_json)
    check_pods(side, ref, events)
    check_ended_log(side, ref)
    with pytest.raises(AlreadyExists):  # a job that has ended keeps its name
        side.submit_again(side.plan(name, FAIL))


def check_phases(events: list[StateEvent], snapshot: JobSnapshot) -> None:
    phases = [phase for phase, _ in groupby(event.phase for event in events if isinstance(event, JobChanged))]
    assert phases in (
        [JobPhase.PENDING, JobPhase.RUNNING, JobPhase.SUCCEEDED],
        [JobPhase.RUNNING, JobPhase.SUCCEEDED],
    )
    assert snapshot.job.phase is JobPhase.SUCCEEDED
    assert snapshot.job.created is not None
    assert snapshot.job.started is not None
    assert snapshot.job.ended is not None
    assert snapshot.job.created <= snapshot.job.started <= snapshot.job.ended


def check_pods(side: Side, ref: JobRef, events: list[StateEvent]) -> None:
    seen: dict[str, list[PodPhase]] = {}
    for event in events:
        if isinstance(event, PodChanged):
            seen.setdefault(event.pod, []).append(event.phase)
    names = [side.find_pod(ref.name, rank) for rank in range(2)]
    assert set(seen) == set(names)
    assert all(PodPhase.RUNNING in phases for phases in seen.values())
    until(side, lambda: all(pod.phase.ended for pod in side.again.get(ref.name, namespace=ref.namespace).pods))
    pods = side.again.get(ref.name, namespace=ref.namespace).pods
    assert [(pod.pod, pod.replica_index, pod.replica_type) for pod in pods] == [
        (names[0], 0, "Worker"),
        (names[1], 1, "Worker"),
    ]
    assert all((pod.phase, pod.exit_code, pod.restarts) == (PodPhase.SUCCEEDED, 0, 0) for pod in pods)
    assert all(pod.uid and pod.node and pod.container_id for pod in pods)
    assert len({pod.uid for pod in pods}) == 2


def check_ended_log(side: Side, ref: JobRef) -> None:
    pod = side.find_pod(ref.name, 0)
    lines = [line for line in side.again.logs(ref, pod, LogRange()) if isinstance(line, LogLine)]
    assert [line.text for line in lines] == LINES
    times = [line.time or 0 for line in lines]
    assert times == sorted(times)
    assert abs(times[-1] - time.time_ns()) < side.patience * 1e9
    assert len({line.container_id for line in lines}) == 1
    assert texts(side, ref, tail=2) == LINES[-2:]
    assert texts(side, ref, tail=0) == []
    assert texts(side, ref, since=times[3]) == LINES[3:]
    assert texts(side, ref, since=times[3] + 1) == LINES[4:]
    assert texts(side, ref, follow=True, tail=1) == LINES[-1:]
    with pytest.raises(NotFound):
        list(side.again.logs(ref, pod, LogRange(previous=True)))
    with pytest.raises(NotFound):
        list(side.again.logs(ref, side.find_pod(ref.name, 7), LogRange()))


def follow(side: Side, ref: JobRef) -> list[tuple[int, LogLine]]:
    """Follow the log of rank 0 from before its pod runs until it ends; return the lines, and when each arrived."""
    log = side.again.logs(ref, side.find_pod(ref.name, 0), LogRange(follow=True))
    return [(time.time_ns(), line) for line in log if isinstance(line, LogLine)]


def check_followed_lines(arrived: list[tuple[int, LogLine]]) -> None:
    assert [line.text for _, line in arrived] == LINES
    assert min(seen - line.time for seen, line in arrived if line.time) < 1e9, "lines came only after the end"


def test_a_job_that_fails(side: Side, name: str):
    ref = side.submit(side.plan(name, FAIL))
    phases, snapshot = end_of(side, ref)
    assert phases[-1] is JobPhase.FAILED
    (pod,) = snapshot.pods
    assert (pod.phase, pod.exit_code, pod.reason) == (PodPhase.FAILED, 3, "Error")
    assert texts(side, ref) == ["about to fail"]
    recorded = side.again.events(ref)
    assert [one.time for one in recorded] == sorted(one.time or 0 for one in recorded)
    if side.backend.name == "kubernetes":
        of_pod = [one.reason for one in recorded if isinstance(one, KubernetesEvent) and one.name == side.find_pod(name, 0)]
        assert {"Scheduled", "Started"} <= set(of_pod)
    else:
        assert recorded == []
    events = list(side.again.watch(ref))  # of a job that has ended
    assert [event.phase for event in events if isinstance(event, JobChanged)] == [JobPhase.FAILED]
    assert [event.pod for event in events if isinstance(event, PodChanged)] == [side.find_pod(name, 0)]


def test_stopping_a_job_that_runs(side: Side, name: str):
    ref = side.submit(side.plan(name, SLEEP))
    until(side, lambda: any(pod.phase is PodPhase.RUNNING for pod in side.again.get(name, namespace=ref.namespace).pods))
    events: list[StateEvent] = []
    watcher = threading.Thread(target=lambda: events.extend(side.backend.watch(ref)), daemon=True)
    watcher.start()
    until(side, lambda: bool(events))
    side.again.stop(ref, timeout=side.patience)
    watcher.join(side.patience)
    assert not watcher.is_alive()
    assert [event for event in events if isinstance(event, JobChanged)][-1].phase is JobPhase.STOPPED
    for ask in (
        lambda: side.backend.get(name, namespace=ref.namespace),
        lambda: list(side.backend.logs(ref, side.find_pod(name, 0), LogRange())),
        lambda: side.backend.stop(ref, timeout=side.patience),
    ):
        with pytest.raises(NotFound):
            ask()


def test_a_name_is_free_after_a_stop_and_the_next_job_is_another(side: Side, name: str):
    first = side.submit(side.plan(name, FAIL))
    end_of(side, first)
    side.backend.stop(first, timeout=side.patience)
    second = side.submit(side.plan(name, SLEEP))
    assert second.uid != first.uid
    assert second.launch != first.launch
    with pytest.raises(NotFound):
        side.again.stop(first, timeout=side.patience)
    assert side.again.get(name, namespace=second.namespace).uid == second.uid
    side.backend.stop(second, timeout=side.patience)


def test_of_two_submitters_one_wins(side: Side, name: str):
    plans = [side.plan(name, SLEEP), side.plan(name, SLEEP)]
    won: list[JobRef] = []
    lost: list[AlreadyExists] = []
    together = threading.Barrier(2)

    def submit(number: int) -> None:
        together.wait()
        try:
            won.append((side.submit, side.submit_again)[number](plans[number]))
        except AlreadyExists as err:
            lost.append(err)

    threads = [threading.Thread(target=submit, args=(number,), daemon=True) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(side.patience)
    assert (len(won), len(lost)) == (1, 1)
    assert side.again.get(name, namespace=side.namespace).uid == won[0].uid
    side.backend.stop(won[0], timeout=side.patience)


def test_a_job_that_is_not_there(side: Side, name: str):
    ref = stranger(side, name)
    for ask in (
        lambda: side.backend.get(name, namespace=side.namespace),
        lambda: side.backend.stop(ref, timeout=side.patience),
        lambda: list(side.backend.logs(ref, side.find_pod(name, 0), LogRange())),
        lambda: list(side.backend.logs(ref, side.find_pod(name, 0), LogRange(follow=True))),
        lambda: side.backend.events(ref),
        lambda: side.apply(side.plan(name, COUNT)),
    ):
        with pytest.raises(NotFound) as caught:
            ask()
        assert name in str(caught.value)
    assert [event.phase for event in side.backend.watch(ref) if isinstance(event, JobChanged)] == [JobPhase.STOPPED]


def test_the_list_of_jobs(side: Side, name: str):
    refs = [side.submit(side.plan(f"{name}-{letter}", FAIL)) for letter in "ba"]
    for ref in refs:
        end_of(side, ref)
    listed = [job for job in side.again.list(namespace=side.namespace) if job.name.startswith(name)]
    everywhere = [job for job in side.again.list(namespace=None) if job.name.startswith(name)]
    assert [(job.namespace, job.uid) for job in everywhere] == [(side.namespace, job.uid) for job in listed]
    assert sorted(job.uid for job in listed) == sorted(ref.uid for ref in refs)
    assert [job.job.created for job in listed] == sorted(job.job.created or 0 for job in listed)
    assert all(job.job.phase is JobPhase.FAILED and not job.pods for job in listed)
    side.backend.stop(refs[0], timeout=side.patience)
    assert [job.uid for job in side.again.list(namespace=side.namespace) if job.name.startswith(name)] == [refs[1].uid]


def test_a_container_that_is_restarted(side: Side, restarted: JobRef):
    ref, name = restarted, restarted.name
    pod = side.find_pod(name, 0)
    until(side, lambda: any(state.restarts for state in side.again.get(name, namespace=ref.namespace).pods))
    wanted = LogRange(previous=True)
    assert [line.text for line in side.again.logs(ref, pod, wanted) if isinstance(line, LogLine)] == ["about to fail"]
    until(side, lambda: any(s.reason == "CrashLoopBackOff" for s in side.again.get(name, namespace=ref.namespace).pods))
    snapshot = side.again.get(name, namespace=ref.namespace)
    assert not snapshot.job.phase.ended
    side.backend.stop(ref, timeout=side.patience)


def test_agents_meet_and_rank_0_prints(side: Side, name: str):
    fork = ["--start-method=fork", "--run-path"]  # the agent forks its rank, so torch is imported once
    plan = side.plan(name, ["torchrun", *fork, side.scripts["reduce.py"]], nodes=2)
    ref = side.submit(plan)
    _, snapshot = end_of(side, ref)
    assert snapshot.job.phase is JobPhase.SUCCEEDED
    logs = [list(side.again.logs(ref, pod, LogRange(follow=True))) for pod in (side.find_pod(name, rank) for rank in range(2))]
    lines = [line for log in logs for line in log if isinstance(line, LogLine)]
    printed = [line.pod for line in lines if line.text == "world 2"]
    assert [line.pod for line in lines if line.text.endswith("  group_rank=0")] == printed
    assert len(printed) == 1

    config = ObserveConfig(workers=plan.pods, rendezvous=plan.rendezvous.backend)
    ignore_notice = [line for line in lines if "Loss" not in line.text]
    for said, kind in ((lines, EvidenceKind.PROGRESS), (ignore_notice, EvidenceKind.GROUP_RANK)):
        master = reduce_all(JobView(config=config), [snapshot.job, *snapshot.pods, *said]).master
        assert isinstance(master, Master)
        assert (master.pod, master.evidence.kind) == (printed[0], kind)
