"""The ranking of causes, consequences and recovered errors."""

from __future__ import annotations

import pytest

from kfjob.base.units import SECOND
from kfjob.joblog.diagnose.engine.history import MAX_OCCURRENCES, MAX_SYMPTOMS
from kfjob.joblog.diagnose.rule import Severity
from kfjob.joblog.events import TERMINATING, Event, JobChanged, JobPhase, LogGap, PodChanged, PodPhase, Tick
from tests.unit.diagnose.cases import FINISHED, START, block, examine, exit_report, find_cause, get_cause, line, lines, progress

A, B = "a-worker-0", "a-worker-1"
CLOSED = "[rank0]: RuntimeError: [pair.cc:561] Connection closed by peer [10.0.0.2]:54475."
OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.50 GiB."
FAILED = JobChanged(phase=JobPhase.FAILED, reason="PyTorchJobFailed")
BOOM = """
Traceback (most recent call last):
  File "/workspace/train.py", line 9, in <module>
    main()
  File "/opt/venv/lib/python3.11/site-packages/torch/nn/modules/module.py", line 1, in forward
    raise KeyError("x")
KeyError: 'x'
"""


def trained(second: float = 0) -> list[Event]:
    return [*block(0, second, A), *block(1, second, B), progress(1, second + 1), progress(2, second + 2)]


def test_earlier_cause_is_first_in_any_reading_order():
    first, second = line(OOM, 5, B), line("OSError: [Errno 28] No space left on device", 6, A)
    for events in ((first, second), (second, first)):
        diagnosis, _ = examine([*events, FAILED])
        assert get_cause(diagnosis).rule == "cuda-oom"
        assert [issue.rule for issue in diagnosis.other_causes] == ["disk-full"]


def test_first_consequence_stands_in_for_a_missing_cause():
    assert find_cause([*trained(), line(CLOSED, 10, A), progress(3, 12, B), FAILED]).rule == "peer-closed"


def test_pod_state_ranks_before_a_log_that_stops():
    killed = PodChanged(
        pod=A, phase=PodPhase.FAILED, reason="OOMKilled", exit_code=137, container_id="c", time=START + 30 * SECOND
    )
    first = find_cause([*trained(), line(CLOSED.replace("rank0", "rank1"), 10, B), killed, FAILED])
    assert (first.rule, first.pod) == ("out-of-memory", A)
    assert first.time == START + 2 * SECOND  # time of its last line: the state comes later


def test_unknown_exception_is_reported_with_its_location():
    first = find_cause([*lines(BOOM, 3), FAILED])
    assert first.title == "the program ended with `KeyError: 'x'`"
    assert first.place == "/workspace/train.py:9"
    assert first.evidence == (
        '  File "/workspace/train.py", line 9, in <module>',
        "    main()",
        "KeyError: 'x'",
    )


def test_killed_process_ranks_before_later_unknown_exceptions():
    assert find_cause([*trained(), line(exit_report(-9), 5, B), *lines(BOOM, 6, A), FAILED]).rule == "worker-killed"


def test_later_round_that_trains_means_recovery():
    events = [*trained(), line(OOM, 10, B), line(CLOSED, 10, A), *trained(20)]
    diagnosis, _ = examine(events)
    assert diagnosis.healthy
    assert {issue.rule for issue in diagnosis.recovered} == {"cuda-oom", "peer-closed"}


def test_later_round_without_progress_is_no_recovery():
    assert find_cause([*trained(), line(OOM, 10, B), *block(0, 20, A), *block(1, 20, B)]).rule == "cuda-oom"


def test_repeated_error_is_located_where_it_was_not_recovered():
    further = [*trained(20), progress(3, 25)]
    first = find_cause([*trained(), line(OOM, 10, B), *further, line(OOM, 30, B), line(OOM, 31, B), FAILED])
    assert (first.time, first.count) == (START + 30 * SECOND, 3)


ELASTIC = "torch/distributed/elastic"
GLOO = "[rank0]: RuntimeError: [/w/gloo/unbound_buffer.cc:78] Timed out waiting 20000ms for recv operation to complete"


def play_round(number: int, *, steps: int = 11, end: bool = True) -> list[Event]:
    """Return a round in which rank 1 sleeps at the same step as before, until the agents begin again."""
    second = 100 * number
    reached = [progress(step, second + 1 + step) for step in range(1, steps + 1)]
    events: list[Event] = [*block(0, second, A), *block(1, second, B), *reached]
    if not end:
        return events
    joins = f"I1121 06:20:54.3 1 {ELASTIC}/agent/server/api.py:961] [default] Detected 1 new nodes from group_rank=1"
    signal = f"W1121 07:10:17.9 1 {ELASTIC}/multiprocessing/api.py:1028] Sending process 7 closing signal SIGTERM"
    ends = [line(exit_report(), second + 33, A), line(f"{joins}; will restart", second + 34, B), line(signal, second + 34, B)]
    return [*events, line(GLOO, second + 32, A), *ends]


UNREACHABLE = "torch.distributed.elastic.rendezvous.api.RendezvousConnectionError: The connection to the C10d store has failed."


@pytest.mark.parametrize("after", [
    play_round(3, end=False),
    play_round(3, steps=4, end=False),
    [FAILED],
    [line(UNREACHABLE, 290, B), FAILED],
], ids=["same step again", "fewer steps", "failed", "agent lost"])  # fmt: skip
def test_hang_at_the_same_step_in_each_round_is_no_recovery(after: list[Event]):
    diagnosis, _ = examine([*play_round(0), *play_round(1), *play_round(2), *after])
    assert diagnosis.failed
    assert not diagnosis.recovered
    first = get_cause(diagnosis)
    assert (first.rule, first.pod, first.rank, first.time) == ("rank-absent", B, 1, START + 32 * SECOND)
    assert ("gloo-timeout", 3) in [(issue.rule, issue.count) for issue in diagnosis.consequences]


def test_hang_is_recovered_when_training_gets_further():
    diagnosis, _ = examine([*play_round(0), *play_round(1), *play_round(2, steps=12, end=False)])
    assert diagnosis.healthy
    assert {"rank-absent", "gloo-timeout"} <= {issue.rule for issue in diagnosis.recovered}


def test_hang_after_a_recovered_one_is_located_in_its_own_round():
    first = find_cause([*play_round(0), *play_round(1, steps=14), FAILED])
    assert (first.rule, first.time) == ("rank-absent", START + 132 * SECOND)


def test_killed_worker_at_the_same_step_in_each_round_is_no_recovery():
    rounds = [[*trained(20 * number), line(exit_report(-9, number), 20 * number + 5, B)] for number in range(2)]
    first = find_cause([*rounds[0], *rounds[1], *trained(40)])
    assert (first.rule, first.time) == ("worker-killed", START + 5 * SECOND)
    diagnosis, _ = examine([*rounds[0], *rounds[1], *trained(40), progress(3, 43)])
    assert diagnosis.healthy


def test_long_progress_after_an_error_means_recovery():
    handled = [*lines(BOOM, 3), *(progress(step, 4 + step) for step in range(1, 80))]
    diagnosis, _ = examine(handled)
    assert diagnosis.healthy
    assert [issue.rule for issue in diagnosis.recovered] == ["exception"]


def test_success_recovers_all_but_permanent_errors():
    order = "UserWarning: Forward order differs from that of the first iteration on rank 3. Collectives are unchecked"
    diagnosis, _ = examine([line(OOM, 1), line(order, 2), JobChanged(phase=JobPhase.SUCCEEDED)])
    assert get_cause(diagnosis).title == "the forward order differs from that of the first iteration on rank 3"
    assert [issue.rule for issue in diagnosis.recovered] == ["cuda-oom"]


SOCKET = (
    "[W1121 06:37:49.6 socket.cpp:764] [c10d] The client socket has failed to connect to [localhost]:12345 "
    "(errno: 101 - Network is unreachable)."
)
UNRESOLVED = (
    "[W1121 06:45:03.6 socket.cpp:764] [c10d] The IPv6 network addresses of (x, 29400) cannot be retrieved (gai error: -2 - x)."
)


@pytest.mark.parametrize("text", [SOCKET, UNRESOLVED])
def test_failed_connection_is_harmless_after_the_agents_join(text: str):
    diagnosis, _ = examine([line(text, 1), *block(0, 2, A), progress(1, 3)])
    assert diagnosis.healthy
    assert not diagnosis.warnings
    assert diagnosis.harmless[0].severity is Severity.HARMLESS


def test_failed_connection_is_harmless_if_training_goes_on():
    diagnosis, _ = examine([line(SOCKET, 1), line("GPU_Count: 4", 2), progress(1, 3)])
    assert diagnosis.healthy
    assert not diagnosis.warnings


def test_failed_connection_of_a_waiting_agent_is_a_warning():
    running: list[Event] = [
        JobChanged(phase=JobPhase.RUNNING, created=START, started=START),
        PodChanged(pod=A, phase=PodPhase.RUNNING, container_id="c"),
    ]
    diagnosis, _ = examine([*running, line(UNRESOLVED, 1), Tick(time=START + 5 * SECOND)])
    assert diagnosis.healthy
    assert [issue.rule for issue in diagnosis.warnings] == ["rendezvous-unresolvable"]
    assert "`nc -zv x 29400`" in diagnosis.warnings[0].remedy


def test_lost_connection_after_success_is_harmless():
    lost = "torch.distributed.DistNetworkError: Failed to recv, got 0 bytes. Connection was likely closed."
    diagnosis, _ = examine([*trained(), line(FINISHED, 5, B), line(lost, 6, B)])
    assert diagnosis.healthy
    assert not diagnosis.warnings


def test_rank_0_that_ends_early_explains_lost_connections():
    first = find_cause([*trained(), line(FINISHED, 5, A), line(CLOSED.replace("rank0", "rank1"), 6, B), FAILED])
    assert (first.rule, first.pod) == ("rank0-left-early", A)


def test_pod_that_starts_after_waiting_is_no_error():
    waits = PodChanged(
        pod=A, phase=PodPhase.PENDING, reason="Unschedulable", message="0/1 nodes are available: 1 Insufficient cpu."
    )
    assert find_cause([waits]).title == "no node has enough cpu free"
    diagnosis, _ = examine([waits, PodChanged(pod=A, phase=PodPhase.RUNNING, ready=True)])
    assert diagnosis.healthy
    assert not diagnosis.recovered


def test_pod_that_never_starts_explains_a_rendezvous_timeout():
    pull = PodChanged(
        pod=B, phase=PodPhase.PENDING, reason="ErrImagePull", message="r/a:1: not found", time=START + 900 * SECOND
    )
    timeout = line("torch.distributed.elastic.rendezvous.api.RendezvousTimeoutError", 600, A)
    first = find_cause([timeout, pull, FAILED])
    assert (first.rule, first.pod) == ("image-not-found", B)


def test_cause_is_found_in_the_previous_container():
    loop = PodChanged(
        pod=A,
        phase=PodPhase.RUNNING,
        reason="CrashLoopBackOff",
        restarts=1,
        exit_code=1,
        container_id="c2",
        time=START + 20 * SECOND,
    )
    events: list[Event] = [
        line("ModuleNotFoundError: No module named 'flash_attn'", 1),
        JobChanged(phase=JobPhase.RUNNING),
        loop,
    ]
    diagnosis, _ = examine([*events, line("starts", 15, A, "c2")])
    assert diagnosis.first_cause
    assert (diagnosis.first_cause.rule, diagnosis.first_cause.previous) == ("module-not-found", True)
    assert diagnosis.first_cause.title == "module `flash_attn` is not installed"
    assert [issue.rule for issue in diagnosis.consequences] == ["crash-loop"]


@pytest.mark.parametrize(
    ("after", "name"),
    [
        ("OSError: meta/lama is not a local folder and is not a valid model identifier listed on 'https://…'", "meta/lama"),
        ("Repository Not Found for url: https://huggingface.co/meta/lama/resolve/main/config.json.", "meta/lama"),
        ("Repository Not Found for url: https://huggingface.co/lama/resolve/main/config.json.", "lama"),
        ("Repository Not Found for url: https://huggingface.co/api/models/meta/lama-2.1.", "meta/lama-2.1"),
    ],
)
@pytest.mark.parametrize("status", [401, 404])
def test_name_in_a_later_line_completes_the_error(status: int, after: str, name: str):
    error = f"huggingface_hub.errors.RepositoryNotFoundError: {status} Client Error. (Request ID: Root=1-2;3)"
    diagnosis, _ = examine([line(error, 1), line(after, 2), FAILED])
    assert diagnosis.first_cause
    assert (diagnosis.first_cause.rule, diagnosis.first_cause.line, diagnosis.other_causes) == ("model-not-found", 1, ())
    assert diagnosis.first_cause.title.startswith(f"`{name}` is neither")


def test_earlier_log_lines_do_not_recover_an_ended_container():
    """A snapshot has the states before the logs are read."""
    ended = PodChanged(pod=A, phase=PodPhase.FAILED, reason="Error", exit_code=1, time=START + 20 * SECOND)
    diagnosis, _ = examine([FAILED, ended, *trained(), line(OOM, 10, A)])
    assert get_cause(diagnosis).rule == "cuda-oom"
    assert not diagnosis.recovered
    assert [issue.rule for issue in diagnosis.consequences] == ["pod-failed"]


def test_interleaved_tracebacks_are_separated_by_rank():
    text = """
[rank0]: Traceback (most recent call last):
[rank1]: Traceback (most recent call last):
[rank0]:   File "/w/a.py", line 1, in f
[rank1]:   File "/w/b.py", line 2, in g
[rank0]:     f()
Batch 3 printed by somebody
[rank1]:     g()
[rank1]: KeyError: 'b'
[rank0]: ValueError: a
"""
    diagnosis, _ = examine([*lines(text, 1), FAILED])
    issues = [issue for issue in (diagnosis.first_cause, *diagnosis.other_causes) if issue]
    assert [(issue.rank, issue.title.split("`")[1], issue.place) for issue in issues] == [
        (1, "KeyError: 'b'", "/w/b.py:2"),
        (0, "ValueError: a", "/w/a.py:1"),
    ]


def test_source_code_in_a_traceback_is_no_symptom():
    text = BOOM.replace("main()", 'raise SystemError("CUDA out of memory")')
    assert find_cause([*lines(text, 3), FAILED]).rule == "exception"


def test_memory_does_not_grow_with_the_log():
    events: list[Event] = []
    for second in range(200):
        events += [*block(0, second, A), line(OOM, second), *lines(BOOM.replace("'x'", f"'{'x' * second}'"), second)]
    _, collector = examine(events)
    symptoms = collector.history.pods[A].symptoms
    assert len(symptoms) == MAX_SYMPTOMS
    assert symptoms["cuda-oom", ""].count == 200
    assert max(len(symptom.occurrences) for symptom in symptoms.values()) <= MAX_OCCURRENCES


def test_job_without_logs_is_healthy():
    diagnosis, _ = examine([LogGap(pod=A)])
    assert diagnosis.healthy
    assert not diagnosis.failed


def test_nan_loss_and_constant_loss_are_reported():
    first = find_cause([progress(1, 1), *(progress(step, step, loss=float("nan")) for step in range(2, 9))])
    assert first.title == "the loss is nan since step 2"
    assert first.line == 2
    assert "Batch 2 Loss: nan" in first.evidence[0]
    diagnosis, _ = examine([progress(step, step) for step in range(1, 30)])
    assert [issue.rule for issue in diagnosis.warnings] == ["loss-constant"]
    diagnosis, _ = examine([progress(step, step, loss=3 - step / 100) for step in range(1, 30)])
    assert diagnosis.healthy
    assert not diagnosis.warnings


@pytest.mark.parametrize(("reason", "rule"), [("", "operator-missing"), ("PyTorchJobCreated", "no-pods")])
def test_missing_operator_and_missing_pods_are_reported(reason: str, rule: str):
    job = JobChanged(phase=JobPhase.PENDING, reason=reason, created=START)
    diagnosis, _ = examine([job, Tick(time=START + 5 * SECOND)])
    assert diagnosis.healthy
    assert find_cause([job, Tick(time=START + 60 * SECOND)]).rule == rule


def test_stalled_job_is_a_warning():
    events: list[Event] = [JobChanged(phase=JobPhase.RUNNING, created=START, started=START), *trained()]
    diagnosis, _ = examine([*events, Tick(time=START + 700 * SECOND)])
    assert [issue.rule for issue in diagnosis.warnings] == ["stalled"]
    assert diagnosis.warnings[0].title == "no progress for 11 min"


IMPORT = (
    "/x/torch/distributed/_shard/checkpoint/__init__.py:8: DeprecationWarning: `torch.distributed._shard.checkpoint` will be"
)


def import_lines(*local_ranks: int) -> list[Event]:
    joined = (item.text.replace("_ranks=[0]", "_ranks=[0, 1, 2, 3]") for item in block(0, 0, A, world=4))
    return [*(line(text, 0, A) for text in joined), *(line(f"[default{rank}]:{IMPORT}", 1, A) for rank in local_ranks)]


@pytest.mark.parametrize(("printed", "missing"), [((0, 1, 3), "rank 2"), ((1,), "ranks 0, 2-3")])
def test_ranks_without_the_import_line_are_named(printed, missing):
    diagnosis, _ = examine([*import_lines(*printed), FAILED])
    (issue,) = [item for item in diagnosis.warnings if item.rule == "import-shortfall"]
    assert issue.title == f"{missing} in pod `{A}` did not print the line that every process prints at its start"


def test_import_lines_of_all_ranks_are_harmless():
    diagnosis, _ = examine([*import_lines(0, 1, 2, 3), FAILED])
    assert "import-shortfall" not in {item.rule for item in diagnosis.warnings}


def test_ranks_have_time_to_import():
    events: list[Event] = [JobChanged(phase=JobPhase.RUNNING, created=START, started=START), *import_lines(0, 1, 3)]
    soon, _ = examine([*events, Tick(time=START + 20 * SECOND)])
    late, _ = examine([*events, Tick(time=START + 90 * SECOND)])
    assert [[item.rule for item in found.warnings if item.rule == "import-shortfall"] for found in (soon, late)] == [
        [],
        ["import-shortfall"],
    ]


def test_failed_ipv6_address_does_not_lead_above_another_error():
    order = "[rank0]:UserWarning: Forward order differs from that of the first iteration on rank 0. Collectives are unchecked."
    assert find_cause([*block(0, 0, A), progress(1, 3), line(SOCKET, 4, A), line(order, 5, A)]).rule == "forward-order"


def test_container_end_after_a_stop_is_harmless():
    ended = [PodChanged(pod=pod, phase=PodPhase.FAILED, exit_code=code) for pod, code in ((A, 143), (B, 1))]
    diagnosis, _ = examine([*trained(), *ended, JobChanged(phase=JobPhase.STOPPED)])
    assert diagnosis.healthy
    diagnosis, _ = examine([*trained(), *ended, FAILED])
    assert diagnosis.first_cause
    assert find_cause([line(OOM, 1), *ended, JobChanged(phase=JobPhase.STOPPED)]).rule == "cuda-oom"


SIGNAL = "W1121 06:20:54.3 1 torch/distributed/elastic/agent/server/api.py:743] Received 15 death signal, shutting down workers"


@pytest.mark.parametrize("phase", [PodPhase.RUNNING, PodPhase.FAILED])
def test_agent_that_kfjob_ends_is_no_error_while_the_job_ends(phase: PodPhase):
    events = [JobChanged(phase=JobPhase.RUNNING), *trained(), line(SIGNAL, 9, A)]
    ended, _ = examine([*events, PodChanged(pod=A, phase=phase, reason="Error", ended_by_kfjob=True)])
    assert ended.healthy
    assert [issue.rule for issue in ended.harmless] == ["agent-stopped"]
    assert find_cause([*events, PodChanged(pod=A, phase=phase, reason="Error")]).rule == "agent-stopped"


def test_agents_of_a_job_that_is_removed_are_no_errors():
    told = [PodChanged(pod=pod, phase=PodPhase.RUNNING, reason=TERMINATING) for pod in (A, B)]
    events = [JobChanged(phase=JobPhase.RUNNING), *trained(), line(SIGNAL, 9, A)]
    removed, _ = examine([*events, *told])
    assert removed.healthy
    assert find_cause([*events, told[0], PodChanged(pod=B, phase=PodPhase.RUNNING)]).rule == "agent-stopped"


def test_exception_of_the_first_round_comes_before_a_known_error_after_the_restart():
    events: list[Event] = [*block(0, 0, A), *lines(BOOM, 5, A), *block(0, 10, A), line(OOM, 15, A), FAILED]
    first = find_cause(events)
    assert (first.rule, "KeyError" in first.title) == ("exception", True)
    first = find_cause([*block(0, 0, A), *lines(BOOM, 5, A), line(OOM, 6, A), FAILED])
    assert first.rule == "cuda-oom", "in one round, a known error explains more"


def test_first_of_many_rounds_is_the_one_that_is_shown():
    events: list[Event] = []
    for second in range(0, 200, 10):
        events += [*block(0, second, A), *lines(BOOM, second + 5, A)]
    assert find_cause([*events, FAILED]).time == START + 5 * SECOND


def test_rank_that_ends_early_is_quoted_where_it_ended():
    gave_up = "E1121 06:25:54.3 1 torch/distributed/elastic/agent/server/api.py:1007] torch.distributed.DistStoreError: gave up"
    events: list[Event] = [*trained(), line("the shard is exhausted", 5, B), line(FINISHED, 5, B), line(CLOSED, 6, A)]
    first = find_cause([*events, JobChanged(phase=JobPhase.RUNNING)])
    assert first.remedy.endswith("`kfjob stop a` ends a job whose other ranks wait")
    ended, _ = examine([*events, line(gave_up, 306, B), FAILED])
    assert ended.first_cause
    assert (ended.first_cause.rule, ended.first_cause.pod) == ("rank-left-early", B)
    assert ended.first_cause.evidence == ("the shard is exhausted", FINISHED)
    assert ended.first_cause.title == "global rank 1 ended while other ranks were still working"
