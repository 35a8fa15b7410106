"""A diagnosis says what the log shows, and nothing that it does not."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from kfjob.base.units import SECOND
from kfjob.joblog.events import Event, JobChanged, JobPhase, PodChanged, PodPhase
from tests.unit.diagnose.cases import START, block, examine, exit_report, get_cause, line, lines, progress, read_cause

A, B = "a-worker-0", "a-worker-1"
FAILED = JobChanged(phase=JobPhase.FAILED)
CLOSED = "[rank1]: RuntimeError: [pair.cc:561] Connection closed by peer [10.0.0.2]:54475."
FRAME = 'Traceback (most recent call last):\n  File "/w/train.py", line 7, in main\n    {code}\n'


def test_missing_input_is_no_damaged_file():
    assert read_cause(FRAME.format(code="input()") + "EOFError: EOF when reading a line").rule == "exception"


def test_thread_that_renews_the_lease_is_named():
    error = FRAME.format(code="refresh()") + "etcd.EtcdException: Raft Internal Error : etcdserver: Not a file"
    diagnosis, _ = examine(lines(f"Exception in thread Thread-2 (lease_worker):\n{error}"))
    assert [issue.rule for issue in diagnosis.warnings] == ["etcd-lease-dead"]


def test_layer_size_is_no_padding():
    cause = read_cause("RuntimeError: mat1 and mat2 shapes cannot be multiplied (64x16 and 32x1)")
    texts = cause.title + cause.cause + cause.remedy
    assert "64x16" in texts
    assert "32x1" in texts
    assert "pad" not in texts


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("*** JOB 12 ON n1 CANCELLED AT 2026-11-21T10:00:00 ***", "`CANCELLED AT 2026-11-21T10:00:00`"),
        ("*** JOB 12 ON n1 CANCELLED AT 2026-11-21T10:00:00 DUE TO TIME LIMIT ***", "DUE TO TIME LIMIT`"),
    ],
)
def test_slurm_is_quoted(text: str, what: str):
    assert what in read_cause(f"slurmstepd: error: {text}").cause


def test_last_error_of_nccl_is_told():
    error = "torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:9, invalid usage (run with NCCL_DEBUG)"
    reason = "ncclInvalidUsage: This usually reflects invalid usage of NCCL library.\nLast error:\nInvalid blocking attribute"
    assert read_cause(f"{error}\n{reason}").title == "NCCL reports an error: Invalid blocking attribute"


def test_exception_that_hydra_prints_without_a_traceback_is_the_cause():
    call = "Error executing job with overrides: ['model=a']\nError in call to target 'lightning.Trainer':"
    assert read_cause(f"{call}\nMisconfigurationException('No supported gpu backend found!')").rule == "no-gpu"
    assert read_cause(f'{call}\nValueError("depth is 0")\nfull_key: trainer').title.startswith("the program ended with `Val")


def test_timeout_of_gloo_has_no_advice_for_nccl():
    cause = read_cause("RuntimeError: [unbound_buffer.cc:84] Timed out waiting 1800000ms for recv operation")
    assert "NCCL" not in cause.title + cause.cause + cause.remedy


def lose_peer(*, state: PodPhase, seconds: float, job: JobPhase = JobPhase.RUNNING) -> set[str]:
    created = [PodChanged(pod=pod, phase=PodPhase.RUNNING, container_id="c", time=START) for pod in (A, B)]
    trained: list[Event] = [*block(0, 0, A), *block(1, 0, B), progress(1, 1), progress(2, 2)]
    end = START + int(seconds * SECOND)
    events: list[Event] = [JobChanged(phase=JobPhase.RUNNING, time=START), *created, *trained, line(CLOSED, 10, B)]
    events += [replace(created[0], phase=state, time=end), JobChanged(phase=job, time=end)]
    diagnosis, _ = examine(events)
    return {issue.rule for issue in (diagnosis.first_cause, *diagnosis.other_causes) if issue}


def test_running_peer_is_not_lost():
    assert "peer-lost" not in lose_peer(state=PodPhase.RUNNING, seconds=60)
    assert "peer-lost" in lose_peer(state=PodPhase.FAILED, seconds=60)
    assert "peer-lost" in lose_peer(state=PodPhase.RUNNING, seconds=60, job=JobPhase.FAILED)


def test_error_of_a_peer_may_arrive_late():
    assert "peer-lost" not in lose_peer(state=PodPhase.UNKNOWN, seconds=11)
    assert "peer-lost" in lose_peer(state=PodPhase.UNKNOWN, seconds=60)


def test_notes_of_the_agent_are_no_context():
    note = "I1121 06:18:58.463000 1 torch/distributed/elastic/agent/server/local_elastic_agent.py:270] Environment variable "
    names = ("TORCHELASTIC_ENABLE_FILE_TIMER", "TORCHELASTIC_HEALTH_CHECK_PORT")
    notes = "\n".join(f"{note}'{name}' not found. Do not start it." for name in names)
    assert read_cause(f"epoch 1\n{notes}\n{FRAME.format(code='step()')}KeyError: 'x'").context == ("epoch 1",)


@pytest.mark.parametrize("code", [137, 143])
def test_container_that_is_killed_after_success_is_no_error(code: int):
    ended = PodChanged(pod=A, phase=PodPhase.FAILED, container_id="c", exit_code=code, reason="Error", time=START + 9)
    trained, succeeded = [*block(0, 0, A), progress(1, 1)], JobChanged(phase=JobPhase.SUCCEEDED)
    orders: list[list[Event]] = [[ended, succeeded], [succeeded, ended]]
    for events in orders:
        diagnosis, _ = examine([*trained, *events])
        assert not diagnosis.recovered
        assert diagnosis.healthy


def test_container_that_is_killed_and_starts_again_is_a_recovered_error():
    ended = PodChanged(pod=A, phase=PodPhase.FAILED, container_id="c", exit_code=137, reason="Error", time=START + 9)
    events: list[Event] = [*block(0, 0, A), ended, line("started", 10, container="d"), JobChanged(phase=JobPhase.SUCCEEDED)]
    diagnosis, _ = examine(events)
    assert [issue.rule for issue in diagnosis.recovered] == ["pod-killed"]


def test_signal_in_the_table_of_torchrun_is_named():
    table = "Root Cause (first observed failure):\n[0]:\n  rank : 4 (local_rank: 0)\n  exitcode : -11 (pid: 75)\n"
    cause = read_cause(table + "  traceback : Signal 11 (SIGSEGV) received by PID 75")
    assert (cause.rule, "SIGSEGV" in cause.title) == ("worker-crashed", True)
    assert read_cause("  traceback : Signal 6 (SIGABRT) received by PID 75").rule == "worker-aborted"


def test_abort_that_a_shell_reports_is_named():
    assert read_cause("/job.sh: line 12:    17 Aborted                 (core dumped) python train.py").rule == "worker-aborted"


def test_information_of_nccl_is_no_cause():
    plugin = "a-0:22:22 [0] NCCL INFO NET/Plugin: Plugin load returned 2 : libnccl-net.so: cannot open shared object file"
    assert examine(lines(plugin))[0].first_cause is None
    assert read_cause(plugin + "\n" + FRAME.format(code="f()") + "ValueError: x is 7").rule == "exception"


@pytest.mark.parametrize("end", [{"last_ended": START + 20 * SECOND}, {"ended_by_kfjob": True}])
def test_process_that_is_killed_after_a_failure_is_no_cause(end: dict[str, Any]):
    ended = PodChanged(pod=B, phase=PodPhase.FAILED, exit_code=137, reason="Error", time=START + 20 * SECOND, **end)
    failure = line("[rank0]: ValueError: 7 columns", 3, A)
    diagnosis, _ = examine([*block(0, 0, A), *block(1, 0, B), failure, line(exit_report(-9), 12, A), ended, FAILED])
    assert "7 columns" in get_cause(diagnosis).title
    assert not diagnosis.other_causes
    assert {issue.rule for issue in diagnosis.consequences} == {"worker-killed", "pod-killed"}


def test_pod_that_is_killed_after_another_failed_is_no_cause():
    failed = PodChanged(pod=A, phase=PodPhase.FAILED, exit_code=3, reason="Error", last_ended=START + 5 * SECOND)
    killed = PodChanged(pod=B, phase=PodPhase.FAILED, exit_code=137, reason="Error", last_ended=START + 9 * SECOND)
    diagnosis, _ = examine([*block(0, 0, A), *block(1, 0, B), failed, killed, FAILED])
    assert diagnosis.first_cause
    assert (diagnosis.first_cause.rule, diagnosis.first_cause.pod) == ("pod-failed", A)
    assert [issue.rule for issue in diagnosis.consequences] == ["pod-killed"]


def test_end_of_torchrun_is_a_consequence_of_the_end_of_its_worker():
    gave_up = "torch.distributed.elastic.multiprocessing.errors.ChildFailedError:"
    diagnosis, _ = examine([*block(0, 0, A), line(exit_report(3), 3, A), *lines(gave_up, 4, A), FAILED])
    assert get_cause(diagnosis).rule == "worker-failed"
    assert not diagnosis.other_causes


@pytest.mark.parametrize("phase", [JobPhase.RUNNING, JobPhase.FAILED])
def test_pod_that_has_not_started_is_the_cause_and_no_endpoint_is_guessed(phase: JobPhase):
    message = "0/2 nodes are available: pod has unbound immediate PersistentVolumeClaims."
    waiting = PodChanged(pod=A, phase=PodPhase.PENDING, reason="Unschedulable", message=message, time=START + 2 * SECOND)
    lost = "[W1121 06:38:10.0 socket.cpp:752] [c10d] The IPv6 network addresses of (a-worker-0, 29400) cannot be retrieved"
    diagnosis, _ = examine([line(lost, 1, B), waiting, JobChanged(phase=phase, time=START + 9 * SECOND)])
    assert diagnosis.first_cause
    assert (diagnosis.first_cause.rule, diagnosis.first_cause.pod) == ("claim-pending", A)
    assert not diagnosis.other_causes
    assert not diagnosis.warnings
