"""Ranks that wait for each other or do not know each other, and the first cause among the errors of all ranks."""

from __future__ import annotations

import random
from itertools import zip_longest

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kfjob.base.units import SECOND
from kfjob.cli.diagnose import diagnosis_text
from kfjob.joblog.agents.agent_records import ResultSource
from kfjob.joblog.diagnose.diagnosis import Verdict
from kfjob.joblog.diagnose.engine.ranking import GAP
from kfjob.joblog.diagnose.rule import Role, Severity
from kfjob.joblog.diagnose.rules import BY_ID
from kfjob.joblog.events import END_UNKNOWN, Event, JobChanged, JobPhase, KubernetesEvent, PodChanged, PodPhase, StoreChanged
from tests.unit.diagnose.cases import RECORDED, START, block, examine, exit_report, find_cause, line, lines, progress, recorded
from tests.unit.diagnose.texts import LINES

A, B = "a-worker-0", "a-worker-1"
FAILED = JobChanged(phase=JobPhase.FAILED, reason="PyTorchJobFailed")
TIMEOUT = next(text.text for text in LINES if text.rule == "nccl-timeout")
BAR = "Running tokenizer on dataset:  34%|███▍      | 1200/3600 [29:51<57:30, 0.7 examples/s]"


@pytest.mark.parametrize(
    ("container", "setting"),
    [
        ("", "`image`"),
        ("wait-for-etcd", "`image`"),
        ("etcd", "`etcd_image` of the settings (kfjob.toml, `KFJOB_ETCD_IMAGE`)"),
        ("proxy", "the `image` of container `proxy`"),
    ],
)
def test_hint_names_the_setting_that_chose_the_image(container: str, setting: str):
    message = 'failed to pull image "a/b:1": not found'
    state = PodChanged(pod="a-etcd", phase=PodPhase.PENDING, reason="ErrImagePull", message=message, container=container)
    recorded_event = KubernetesEvent(
        kind="Pod", name="a-etcd", reason="Failed", message="Failed to pull image: not found", container=container, warning=True
    )
    for event in (state, StoreChanged(state=state), recorded_event):
        first = find_cause([JobChanged(phase=JobPhase.RUNNING), event])
        assert (first.rule, first.pod) == ("image-not-found", "a-etcd")
        assert first.remedy.startswith(f"check {setting}; ")


def test_logs_of_another_container_are_those_of_kubectl():
    """`kfjob logs` knows the pods of the job and the container that trains."""
    state = PodChanged(pod="a-etcd", phase=PodPhase.RUNNING, reason="CrashLoopBackOff", restarts=4, container="etcd")
    first = find_cause([JobChanged(phase=JobPhase.RUNNING), StoreChanged(state=state)])
    assert first.remedy.startswith("`kubectl logs a-etcd -c etcd --previous` shows the last lines")


def test_own_etcd_that_waits_is_no_pod_of_the_job():
    """All pods of the job are deleted, so nothing singles one of them out."""
    store = StoreChanged(state=PodChanged(pod="a-etcd", phase=PodPhase.RUNNING))
    gone = [PodChanged(pod=name, phase=PodPhase.DELETED, time=START) for name in (A, B)]
    assert examine([store, *gone, FAILED])[0].first_cause is None


def test_abort_without_another_error_comes_before_a_lost_connection():
    """Seen with gloo: a thread of rank 0 was still running when the program ended."""
    events: list[Event] = [*block(0, 0, A), *block(1, 0, B), progress(1, 1), progress(2, 2)]
    events += [line("RuntimeError: [pair.cc:561] Connection closed by peer [10.0.0.2]:54475.", 9, B)]
    events += [line("terminate called without an active exception", 10, A)]
    events += [line(exit_report(-6), 11, A), FAILED]
    first = find_cause(events)
    assert (first.rule, first.pod) == ("native-crash", A)


def test_abort_after_a_timeout_is_its_consequence():
    crash = "terminate called after throwing an instance of 'c10::DistBackendError'\n  what():  [Rank 0] gave up"
    ends: list[Event] = [line(TIMEOUT, 9, A), line(TIMEOUT, 9, B), *lines(crash, 10, A), FAILED]
    assert find_cause([*block(0, 0, A), *block(1, 0, B), *ends]).rule == "nccl-timeout"


def test_failed_worker_without_output_comes_before_a_lost_connection():
    ends: list[Event] = [line("RuntimeError: Connection reset by peer", 9, B), line(exit_report(), 10, A), FAILED]
    diagnosis, _ = examine([*block(0, 0, A), *block(1, 0, B), *ends])
    first = diagnosis.first_cause
    assert first
    assert (first.rule, first.pod) == ("worker-failed", A)
    assert "its output is missing" in first.cause
    assert not diagnosis.explained


def test_timeout_while_a_rank_prepares_data_is_explained_with_its_bar():
    first = find_cause([line(BAR, 1, A), line(TIMEOUT.replace("rank0", "rank1"), 1800, B), FAILED])
    assert (first.rule, first.pod) == ("slow-preparation", A)
    assert "`Running tokenizer on dataset` was at 34 %" in first.cause
    done = BAR.replace(" 34%", "100%")
    assert find_cause([line(done, 1, A), line(TIMEOUT.replace("rank0", "rank1"), 1800, B), FAILED]).rule != "slow-preparation"


def test_pods_with_a_process_group_each_are_independent_trainings():
    events: list[Event] = [JobChanged(phase=JobPhase.RUNNING), *block(0, 0, A, world=1), *block(0, 0, B, world=1)]
    first = find_cause([*events, progress(1, 1), progress(1, 1, B)])
    assert first.title == "the job runs 2 independent trainings instead of one on 2 nodes"
    diagnosis, _ = examine([JobChanged(phase=JobPhase.RUNNING), *block(0, 0, A), *block(1, 0, B), progress(1, 1)])
    assert diagnosis.healthy


def test_rank_0_without_an_agent_that_ended_explains_lost_connections():
    lost = line("RuntimeError: Connection reset by peer", 2, B)
    first = find_cause([line("ready", 1, A), lost, JobChanged(phase=JobPhase.STOPPED)])
    assert (first.rule, first.pod) == ("rank0-gone", A)


def test_hang_after_the_first_connection_is_a_warning():
    text = "[I1121 06:37:49.6 socket.cpp:946] [c10d] The client socket has connected to [a-worker-0]:2345 on [a-worker-1]:3825."
    diagnosis, _ = examine([line(text, 1, B), JobChanged(phase=JobPhase.STOPPED)])
    assert diagnosis.healthy
    assert [issue.rule for issue in diagnosis.warnings] == ["connect-hang"]
    diagnosis, _ = examine([line(text, 1, B), progress(1, 2, B), JobChanged(phase=JobPhase.STOPPED)])
    assert not diagnosis.warnings


STEPS = [progress(step, step) for step in range(1, 4)]


@pytest.mark.parametrize(("end", "verdict"), [
    (JobChanged(phase=JobPhase.STOPPED, reason=END_UNKNOWN), Verdict.UNKNOWN),
    (JobChanged(phase=JobPhase.STOPPED, reason="Stopped"), Verdict.STOPPED),
    (JobChanged(phase=JobPhase.RUNNING), Verdict.RUNNING),
    (JobChanged(phase=JobPhase.SUCCEEDED), Verdict.SUCCEEDED),
    (JobChanged(phase=JobPhase.FAILED), Verdict.FAILED),
])  # fmt: skip
def test_verdict_of_a_job_that_trained(end: JobChanged, verdict: Verdict):
    diagnosis, _ = examine([*STEPS, end])
    assert diagnosis.verdict is verdict
    assert (diagnosis.succeeded, diagnosis.failed) == (verdict is Verdict.SUCCEEDED, verdict is Verdict.FAILED)


def test_report_of_success_after_steps_is_quoted_and_is_no_success():
    end = JobChanged(phase=JobPhase.STOPPED, reason=END_UNKNOWN)
    diagnosis, _ = examine([*STEPS, line("Training finished", 4), end])
    assert diagnosis.verdict is Verdict.REPORTED
    assert f"  pod `{A}`: Training finished" in diagnosis_text("a", diagnosis)


def test_success_is_claimed_only_where_it_was_seen():
    stopped, _ = examine([line("epoch 1", 1), line("epoch 2", 2), JobChanged(phase=JobPhase.STOPPED)])
    assert (stopped.succeeded, stopped.last_lines) == (False, ((A, ("epoch 1", "epoch 2")),))
    done, _ = examine([line("epoch 1", 1), PodChanged(pod=A, phase=PodPhase.SUCCEEDED), JobChanged(phase=JobPhase.STOPPED)])
    assert done.succeeded


def test_raised_connection_error_is_an_error_before_the_agent_joins():
    text = "torch.distributed.DistNetworkError: The client socket has timed out after 600ms while trying to connect to (h, 1)."
    assert find_cause([line(text, 1)]).rule == "rendezvous-refused"


@pytest.mark.parametrize("case", ["2.15.0-c10d-tee-logdir", "2.9.1-c10d-loglevel-info", "2.2.2-etcd-loglevel-info"])
def test_one_rendezvous_is_one_start(case: str):
    """An agent prints ten lines for it, and each repeats the result."""
    _, collector = examine(recorded(case))
    assert {len(pod.starts) for pod in collector.history.pods.values()} == {1}
    assert (RECORDED / case).is_dir()
    assert {pod.result.source for pod in collector.history.pods.values() if pod.result} == {ResultSource.BLOCK}


CAUSES = [
    text for text in LINES
    if BY_ID[text.rule].severity is Severity.ERROR and BY_ID[text.rule].role is Role.CAUSE
    and not BY_ID[text.rule].harmless_before_join and not BY_ID[text.rule].role_after_join
    and not text.text.startswith("\t")  # a later line of a message
]  # fmt: skip
COLLATERAL = [
    "[rank{rank}]: RuntimeError: [pair.cc:561] Connection closed by peer [10.0.0.2]:54475.",
    "[rank{rank}]: torch.distributed.DistBackendError: NCCL error in: p.cpp:1, remote process exited",
    "[rank{rank}]:[E1121 06:37:49.6 ProcessGroupNCCL.cpp:632] Watchdog caught collective operation timeout: WorkNCCL(1)",
    "torch.distributed.DistNetworkError: Failed to recv, got 0 bytes. Connection was likely closed.",
    "W1121 06:41:43.6 1 torch/distributed/elastic/multiprocessing/api.py:1028] Sending process 9 closing signal SIGTERM",
    exit_report(-6),
    exit_report(),
    "terminate called after throwing an instance of 'gloo::IoException'",
    "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: ",
]


def generate_job(choose: random.Random) -> tuple[str, str, list[Event]]:
    """Return the rule and the pod of the first cause, and the events: other ranks notice it before or after it is printed."""
    pods = [f"a-worker-{number}" for number in range(choose.randint(2, 4))]
    cause, guilty = choose.choice(CAUSES), choose.choice(pods)
    logs: dict[str, list[Event]] = {}
    for rank, pod in enumerate(pods):
        log: list[Event] = [*block(rank, 0, pod, world=len(pods)), line("training starts", 1, pod)]
        second = 20 + choose.random() * 10
        if pod == guilty:
            frames = ("Traceback (most recent call last):", '  File "/w/train.py", line 9, in main', "    step()")
            log += [line(f"[rank{rank}]: {text}", second, pod) for text in (*frames, cause.text)]
            second += choose.random()
        for text in choose.sample(COLLATERAL, choose.randint(0 if pod == guilty else 1, 3)):
            log.append(line(text.replace("{rank}", str(rank)), second, pod))
            second += choose.random() * 5
        logs[pod] = log
    choose.shuffle(pods)
    mixed = [item for group in zip_longest(*(logs[pod] for pod in pods)) for item in group if item is not None]
    ordered = mixed if choose.random() < 0.5 else [item for pod in pods for item in logs[pod]]
    ended: list[Event] = [
        PodChanged(pod=pod, phase=PodPhase.FAILED, exit_code=1, reason="Error", container_id="c", time=START + 60 * SECOND)
        for pod in pods
    ]
    return cause.rule, guilty, [*ended, FAILED, *ordered] if choose.random() < 0.5 else [*ordered, *ended, FAILED]


def check_generated_job(choose: random.Random) -> None:
    rule, pod, events = generate_job(choose)
    first = find_cause(events)
    assert (first.rule, first.pod) == (rule, pod)


@given(st.randoms(use_true_random=True))
@settings(max_examples=60, derandomize=True, deadline=None)
def test_injected_cause_is_found_in_generated_jobs(choose: random.Random):
    check_generated_job(choose)


@pytest.mark.long
@given(st.randoms(use_true_random=True))
@settings(max_examples=1000, deadline=None)
def test_injected_cause_is_found_in_a_thousand_generated_jobs(choose: random.Random):
    check_generated_job(choose)


def test_lines_that_name_a_problem_are_quoted_with_the_last_ones():
    texts = ["flash: cannot open the card list", "WARNING: 2 errors in the cache", "a retry failed, ignoring it", *"abcd"]
    stopped, _ = examine([*lines("\n".join(texts)), JobChanged(phase=JobPhase.STOPPED)])
    assert stopped.last_lines == ((A, ("flash: cannot open the card list", GAP, "b", "c", "d")),)
