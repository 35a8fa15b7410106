"""The job view after events of every kind."""

import itertools
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from kfjob.base.units import SECOND
from kfjob.cli.view_text import first_loss_text, no_progress_text, restarts_text
from kfjob.joblog.events import JobChanged, JobPhase, LogGap, LogLine, OpenLine, PodChanged, PodPhase, Tick
from kfjob.joblog.lines.prefixes import clean_line
from kfjob.joblog.lines.timestamps import parse_glog, parse_rfc3339, resolve_year
from kfjob.joblog.observe_config import ObserveConfig
from kfjob.joblog.pods.pod_view import ContainerLog, PodView
from kfjob.joblog.progress.curve import MAX_POINTS
from kfjob.joblog.progress.exact_formats import progress_reader
from kfjob.joblog.view.job_view import JobView
from kfjob.joblog.view.reduction import MAX_NEWS, reduce, reduce_all
from tests.unit.api import script

START = 1795242000 * SECOND


def say(text: str, second: float = 0, pod: str = "w-0", container: str = "") -> LogLine:
    return LogLine(pod=pod, text=text, time=START + int(second * SECOND), container_id=container)


def batch(step: int, second: float = 0, *, loss: float = 1.0, pod: str = "w-0", container: str = "") -> LogLine:
    return say(f"Batch {step} Loss: {loss:.5f}, Speed: 2.50 samples/sec, lr: 0.000091", second, pod, container)


def ours(message: str, second: float = 0, pod: str = "w-0") -> LogLine:
    return say(f"2026-11-21 07:10:48 I [train.py:18] {message}", second, pod)


def test_the_restart_of_a_pod_is_news_with_its_exit_code_and_count():
    """Without a pause between them, the end of a container and its restart come as one change of the pod's state."""
    view = JobView()
    for restarts, code, reason in ((0, None, ""), (1, 137, "Signal 9"), (2, 5, "Error")):
        event = PodChanged(pod="w-1", phase=PodPhase.RUNNING, restarts=restarts, exit_code=code, last_reason=reason)
        view = reduce(view, event)
    texts = [news.text for news in view.news]
    assert texts == [
        "Running",
        "Running again (restart 1, after SIGKILL (exit code 137))",
        "Running again (restart 2, after exit code 5)",
    ]


def test_a_plain_line_keeps_every_field_of_its_pod():
    """The pod and its log are copied field by field for each line."""
    values: dict[str, Any] = {name: name for name in PodView.__struct_fields__}
    pod = PodView(**values).with_log(ContainerLog())
    assert [name for name in values if getattr(pod, name) != name] == ["log"]
    changed = {"lines", "container", "last_line", "agent", "general"}
    values = {name: name for name in ContainerLog.__struct_fields__ if name not in changed}
    log, records, emissions = ContainerLog(**values).feed(say("hello"), 0, progress_reader())
    assert (records, emissions) == ((), ())
    assert [name for name in values if getattr(log, name) != name] == []


def test_empty_view_has_all_properties():
    view = JobView()
    assert (view.phase, view.running, view.eta, view.seconds_since_progress, view.stalled) == (None, False, None, None, False)
    assert (view.pod_problems, view.total, view.headline) == ((), None, "unknown")
    assert "no master" in view.master.to_error("job").title  # type: ignore[union-attr]


def test_progress_lines_are_combined():
    view = reduce_all(
        JobView(config=ObserveConfig(expected_steps=100)), [batch(step, step * 2, loss=10 / step) for step in (1, 2, 3)]
    )
    training = view.training
    assert (training.step, view.total, training.lines, training.pod) == (3, 100, 3, "w-0")
    assert training.loss == pytest.approx(3.33333)
    assert training.first_loss == 10.0
    assert training.smoothed_loss == pytest.approx((10 + 5 + 3.33333) / 3)
    assert (training.speed, training.unit, training.lr) == (2.5, "samples/s", 0.000091)
    assert training.seconds_per_step == pytest.approx(2)
    assert view.eta == pytest.approx(97 * 2)
    later = reduce_all(view, [Tick(time=START + 16 * SECOND)])
    assert later.eta == pytest.approx(97 * 2 - 2)  # the longest pause between two lines
    assert [(point.step, point.loss) for point in training.curve] == [(1, 10.0), (2, 5.0), (3, 3.33333)]


def test_first_trainer_line_has_the_total():
    start = "Start llama with 10 parameters, strategy fsdp2, world size 2, global batch 8 samples, 250 steps"
    assert reduce_all(JobView(config=ObserveConfig(expected_steps=100)), [ours(start), batch(1)]).total == 250


def test_step_metrics_extend_the_progress_line():
    figures = ours("Step 7 tokens/s: 45455, grad norm: 0.5000, peak memory: 3.00 GiB")
    training = reduce_all(JobView(), [batch(7), figures]).training
    assert (training.tokens_per_second, training.grad_norm, training.memory) == (45455.0, 0.5, 3.0)
    assert reduce_all(JobView(), [batch(8), figures]).training.tokens_per_second is None


def test_nan_loss_is_shown_but_not_averaged():
    training = reduce_all(JobView(), [batch(1, loss=2.0), batch(2, loss=math.nan), batch(3, loss=4.0)]).training
    assert training.smoothed_loss == pytest.approx(3.0)
    assert math.isnan(reduce_all(JobView(), [batch(1), batch(2, loss=math.nan)]).training.loss or 0.0)


def test_resume_removes_later_points_of_the_curve():
    events = [batch(step, step) for step in range(1, 8)] + [ours("Resume step-4 /ckpt/step-4", 20), batch(5, 21), batch(6, 22)]
    view = reduce_all(JobView(), events)
    assert [point.step for point in view.training.curve] == [1, 2, 3, 4, 5, 6]
    assert view.resume is not None
    assert view.resume.name == "step-4"
    assert view.training.seconds_per_step == pytest.approx(1.0)  # the pause does not count


def test_new_epoch_does_not_rewind():
    bar = "Epoch {}:  50%|█████     | {}/100 [00:01<00:01, 40.00it/s, train_loss=0.5]"
    training = reduce_all(JobView(), [say(bar.format(0, 99), 1), say(bar.format(1, 1), 2)]).training
    assert (training.step, training.epoch, training.eta()) == (1, 1.0, None)
    assert len(training.curve) == 2


def test_one_curve_is_kept_if_every_rank_prints():
    events = [batch(1, 1, pod="w-0"), batch(1, 1.5, pod="w-1"), batch(2, 2, pod="w-0"), batch(2, 2.5, pod="w-1")]
    assert reduce_all(JobView(), events).training.pod == "w-0"
    assert reduce_all(JobView(), events).training.lines == 2
    assert reduce_all(JobView(), [*events, batch(3, 90, pod="w-1")]).training.pod == "w-1"  # w-0 has stopped printing


def rank(pod: str, rank: int, second: float) -> LogLine:
    prefix = "I1121 06:18:58.464000 1 torch/distributed/elastic/rendezvous/dynamic_rendezvous.py:1207] "
    return say(
        f"{prefix}The node '{pod}_1_0' has joined round 0 of the rendezvous 'x' as rank {rank} in a world of size 2.",
        second,
        pod,
    )


def test_curve_follows_a_hand_over():
    for printing in (0, 1):
        before = [rank("w-0", printing, 1), rank("w-1", 1 - printing, 1), batch(1, 2, pod="w-0")]
        after = [rank("w-0", 1 - printing, 10), rank("w-1", printing, 10), batch(2, 11, pod="w-1")]
        training = reduce_all(JobView(), before + after).training
        assert (training.pod, training.step) == ("w-1", 2)


@pytest.mark.parametrize("timed", [True, False])
@pytest.mark.parametrize(("step", "printing"), [(9, "w-1"), (1, "w-0"), (2, "w-0")])
def test_log_without_times_continues_the_curve_with_later_steps(step: int, printing: str, timed: bool):  # noqa: FBT001
    first = [batch(1, 1, pod="w-0"), batch(2, 2, pod="w-0")]
    events = [*(first if timed else (replace(event, time=None) for event in first)), replace(batch(step, pod="w-1"), time=None)]
    training = reduce_all(JobView(), events).training
    assert (training.pod, training.step) == (printing, max(step, 2))


def test_older_log_read_later_does_not_rewind():
    view = reduce_all(JobView(), [batch(20, 100, pod="w-1"), batch(1, 5, pod="w-0")])
    assert (view.training.step, view.training.pod) == (20, "w-1")


def test_outcome_checkpoint_and_evaluation_are_kept():
    view = reduce_all(
        JobView(),
        [
            ours("Checkpoint step-4 in 1.50 s /ckpt/step-4"),
            ours("Evaluation step 4 loss 2.50000, perplexity 12.18, 4096 tokens"),
            ours("Outcome finished step 8 loss 1.25000 checkpoint step-8"),
        ],
    )
    assert view.checkpoint is not None
    assert view.evaluation is not None
    assert view.outcome is not None
    assert (view.checkpoint.path, view.evaluation.loss, view.outcome.outcome) == ("/ckpt/step-4", 2.5, "finished")
    assert [news.kind for news in view.news] == ["checkpoint", "evaluation", "outcome"]
    begun = "Start llama with 10 parameters, strategy fsdp2, world size 2, global batch 8 samples, 250 steps"
    assert reduce_all(view, [ours(begun)]).outcome is None  # relaunched in the same container


def test_crash_loop_shows_in_a_running_job():
    crash = PodChanged(pod="w-1", phase=PodPhase.RUNNING, reason="CrashLoopBackOff", message="back-off 40s", restarts=4)
    view = reduce_all(JobView(), [JobChanged(phase=JobPhase.RUNNING), PodChanged(pod="w-0", phase=PodPhase.RUNNING), crash])
    assert [(problem.pod, problem.reason, problem.restarts) for problem in view.pod_problems] == [
        ("w-1", "CrashLoopBackOff", 4)
    ]
    assert view.headline == "Running, but `w-1`: CrashLoopBackOff (back-off 40s)"
    assert view.news[-1].text == "Running: CrashLoopBackOff (back-off 40s)"


@pytest.mark.parametrize(
    ("state", "reason"),
    [
        (PodChanged(pod="w", phase=PodPhase.PENDING, reason="Unschedulable", message="0/12 nodes"), "Unschedulable"),
        (PodChanged(pod="w", phase=PodPhase.PENDING, reason="ImagePullBackOff"), "ImagePullBackOff"),
        (PodChanged(pod="w", phase=PodPhase.FAILED, exit_code=137), "exit code 137"),
        (PodChanged(pod="w", phase=PodPhase.FAILED), "Failed"),
        (PodChanged(pod="w", phase=PodPhase.FAILED, reason="OOMKilled", exit_code=137), "OOMKilled"),
        (PodChanged(pod="w", phase=PodPhase.PENDING, reason="ContainerCreating"), None),
        (PodChanged(pod="w", phase=PodPhase.RUNNING), None),
        (PodChanged(pod="w", phase=PodPhase.SUCCEEDED, reason="Completed"), None),
        (PodChanged(pod="w", phase=PodPhase.DELETED, reason="Evicted"), None),
    ],
)
def test_pod_problem_has_the_reason(state: PodChanged, reason: str | None):
    assert [problem.reason for problem in reduce_all(JobView(), [state]).pod_problems] == ([reason] if reason else [])


def test_running_job_without_progress_is_stalled():
    running = JobChanged(phase=JobPhase.RUNNING, started=START)
    view = reduce_all(JobView(config=ObserveConfig(stall_after=60)), [running, batch(1, 10)])
    assert not reduce_all(view, [Tick(time=START + 70 * SECOND)]).stalled
    silent = reduce_all(view, [Tick(time=START + 71 * SECOND)])
    assert silent.stalled
    assert silent.headline == "Running, but no progress for 61 s"
    assert not reduce_all(silent, [JobChanged(phase=JobPhase.SUCCEEDED)]).stalled
    never = reduce_all(JobView(config=ObserveConfig(stall_after=60)), [running, Tick(time=START + 61 * SECOND)])
    assert never.stalled


@pytest.mark.parametrize(
    ("seconds", "silence", "stalled"), [(0.1, 119, False), (0.1, 121, True), (30, 299, False), (30, 301, True)]
)
def test_stall_of_a_job_is_longer_than_its_usual_pauses(seconds: float, silence: int, *, stalled: bool):
    running = JobChanged(phase=JobPhase.RUNNING, started=START)
    lines = [say(f"step {step}/40 loss {3 - step / 40:.3f}", step * seconds) for step in range(1, 9)]
    now = START + int((8 * seconds + silence) * SECOND)
    view = reduce_all(JobView(), [running, *lines, Tick(time=now)])
    assert (view.stalled, view.eta is None) == (stalled, stalled)
    assert ("no progress" in view.headline) is stalled


def test_remaining_time_does_not_run_out_while_no_step_is_printed():
    running = JobChanged(phase=JobPhase.RUNNING, started=START)
    lines = [say(f"step {step}/40 loss {3 - step / 40:.3f}", step) for step in range(1, 9)]
    assert reduce_all(JobView(), [running, *lines, Tick(time=START + 60 * SECOND)]).eta == 31


def bar(step: int) -> str:
    return f"Epoch 0:  {step}%|█   | {step}/100 [00:01<00:09,  4.50it/s, train_loss=2.5]"


def open_line(text: str, second: int) -> OpenLine:
    return OpenLine(pod="w-0", text=text, time=START + second * SECOND)


def test_open_line_is_progress_but_not_counted():
    running = JobChanged(phase=JobPhase.RUNNING, started=START)
    view = reduce_all(JobView(config=ObserveConfig(stall_after=60)), [running, say("x"), open_line(bar(7), 100)])
    assert (view.lines, view.pods["w-0"].log.lines, view.training.step, view.training.loss) == (1, 1, 7, 2.5)
    assert view.pods["w-0"].log.reading_line.time == START + 100 * SECOND  # type: ignore[union-attr]
    assert not reduce_all(view, [Tick(time=START + 150 * SECOND)]).stalled


def test_long_bar_has_the_time_of_its_last_open_state():
    running = JobChanged(phase=JobPhase.RUNNING, started=START)
    whole = say("\r".join(bar(step) for step in range(100) for _ in range(5)), 1)  # the line has the time of its first part
    view = reduce_all(JobView(config=ObserveConfig(stall_after=60)), [running, open_line(bar(98), 100), whole])
    assert (view.lines, view.training.step, view.training.last_time) == (1, 99, START + 100 * SECOND)
    assert not reduce_all(view, [Tick(time=START + 150 * SECOND)]).stalled


def test_headline_has_the_reason_of_a_failure():
    assert reduce_all(JobView(), [JobChanged(phase=JobPhase.FAILED, reason="BackoffLimit")]).headline == "Failed: BackoffLimit"


def test_restarted_container_has_a_new_log():
    view = reduce_all(JobView(), [say("one", 1, container="a"), batch(5, 2, container="a"), say("two", 3, container="b")])
    pod = view.pods["w-0"]
    assert (pod.log.lines, pod.log.reading, pod.restarts) == (1, None, 1)
    assert pod.previous_log is not None
    assert pod.previous_log.reading is not None
    assert pod.previous_log.reading.step == 5
    late = reduce_all(view, [batch(6, 4, container="a")])  # the rest of the old log
    assert late.pods["w-0"].log.reading is None
    assert late.training.step == 5


def test_replaced_pod_has_a_new_log_without_container_ids():
    state = PodChanged(pod="w-0", phase=PodPhase.RUNNING, uid="1")
    view = reduce_all(JobView(), [state, batch(5), replace(state, uid="2")])
    assert view.pods["w-0"].log.lines == 0


def test_gap_ends_an_incomplete_block_and_is_news():
    prefix = "I1121 06:18:58.464000 1 torch/distributed/elastic/agent/server/api.py:552] "
    begun = [say(prefix + "[default] Rendezvous complete for workers. Result:"), say(prefix + "  restart_count=0")]
    view = reduce_all(JobView(), [*begun, LogGap(pod="w-0")])
    assert (view.pods["w-0"].gaps, view.pods["w-0"].log.agent.blocks) == (1, ())
    assert view.news[-1].kind == "gap"


def test_memory_is_bounded():
    events = [batch(step, step, loss=1 / (step + 1)) for step in range(5000)]
    view = reduce_all(JobView(), events)
    assert len(view.training.curve) <= MAX_POINTS
    steps = [point.step for point in view.training.curve]
    assert steps == sorted(steps)
    assert steps[0] == 0
    assert max(after - before for before, after in itertools.pairwise(steps)) <= 2 * view.training.curve_interval
    assert len(reduce_all(view, [ours(f"Resume step-{i} /x") for i in range(200)]).news) == MAX_NEWS


def test_view_is_immutable():
    view = reduce_all(JobView(), [batch(1)])
    before = repr(view)
    reduce_all(view, [batch(2), say("x", 3, "w-1"), PodChanged(pod="w-0", phase=PodPhase.FAILED), Tick(time=START)])
    assert repr(view) == before


@given(st.lists(st.text(alphabet=st.characters(codec="utf-8"), max_size=80)))
def test_any_log_is_accepted(texts: list[str]):
    view = reduce_all(JobView(), [LogLine(pod="w", text=text) for text in texts])
    assert view.lines == len(texts)
    assert view.master is not None


def test_timestamps_of_logs_are_parsed():
    assert parse_rfc3339("1970-01-01T00:00:01.000000002Z") == SECOND + 2
    assert parse_rfc3339("1970-01-01T01:00:01+01:00") == SECOND
    assert parse_rfc3339("1970-01-01 00:00:01,5") == SECOND + SECOND // 2
    assert parse_rfc3339("2026-13-01T00:00:00Z") is None
    assert parse_rfc3339("yesterday") is None
    assert parse_glog("0230", "00:00:00.0") is None


def test_time_without_a_year_gets_the_nearest_year():
    near = parse_rfc3339("2027-01-01T00:00:30Z")
    before, after = parse_glog("1231", "23:59:59.5"), parse_glog("0101", "00:01:00.0")
    assert before is not None
    assert after is not None
    assert resolve_year(before, near) == parse_rfc3339("2026-12-31T23:59:59.5Z")
    assert resolve_year(after, near) == parse_rfc3339("2027-01-01T00:01:00Z")
    leap = parse_glog("0229", "12:00:00.0")
    assert leap is not None
    assert resolve_year(leap, parse_rfc3339("2028-03-01T00:00:00Z")) == parse_rfc3339("2028-02-29T12:00:00Z")
    assert resolve_year(leap, parse_rfc3339("2026-03-01T00:00:00Z")) == parse_rfc3339("2026-02-28T12:00:00Z")
    assert resolve_year(leap, None) == leap


@given(st.text())
def test_cleaning_is_idempotent(text: str):
    once, _ = clean_line(text)
    assert clean_line(once)[0] == once or "\x1b" in text


def test_prefixes_of_kubectl_and_containerd_are_removed():
    assert clean_line("[pod/w-0/pytorch] 1970-01-01T00:00:01Z text\r\n") == ("text", SECOND)
    assert clean_line("1970-01-01T00:00:01.5Z stdout F \x1b[1;31mtext\x1b[0m") == ("text", SECOND + SECOND // 2)
    assert clean_line("[default0]:text") == ("[default0]:text", None)


def test_setbacks_are_counted_once_for_all_ranks():
    skipped = [ours("Step 5 skipped: loss is nan", 5, pod) for pod in ("w-0", "w-0", "w-1")]
    rolled = [ours("Step 6 rolled back to step-3: a spike", 6, pod) for pod in ("w-0", "w-1", "w-0")]
    view = reduce_all(JobView(config=ObserveConfig(trainer="kfjob")), [batch(4, 4), *skipped, *rolled])
    assert (view.training.skipped, view.training.rolled_back) == (1, 1)
    assert [news.text for news in view.news] == ["Step 5 skipped: loss is nan", "Step 6 rolled back to step-3: a spike"]
    again = reduce_all(view, [batch(4, 8), skipped[0]])  # the step comes a second time
    assert (again.training.skipped, again.training.rolled_back) == (2, 1)


def test_remembered_setbacks_are_bounded():
    view = reduce_all(JobView(), [batch(1, 1), *(ours(f"Step {step} skipped: a spike", step) for step in range(2, 500))])
    assert view.training.skipped == 498
    assert len(view.training.setbacks) <= 64


def test_news_from_every_rank_appears_once():
    damaged = [ours("Checkpoint step-9 is damaged: no manifest", 1, pod) for pod in ("w-0", "w-0", "w-1")]
    differs = [ours("Data differs from what step-8 was trained on: it is read from its beginning", 2) for _ in range(8)]
    view = reduce_all(JobView(), [*damaged, *differs, ours("Trace /data/a.json", 3), ours("Startup 9.8 s: imports 6.1", 4)])
    assert [news.kind for news in view.news] == ["checkpoint", "data", "trace", "startup"]
    assert view.checkpoint is None


@pytest.mark.parametrize(
    ("steps", "late"),
    [((1, 2, 3), False), ((0, 1), False), ((10, 20), False), ((1, 10, 20), False), ((400, 401), True), ((400, 410, 420), True)],
)
def test_log_without_its_beginning_is_not_said_to_show_the_first_loss(steps, late):
    """The kubelet rotates a log: its first line can be any step."""
    view = reduce_all(JobView(), [batch(step, step, loss=5.4 - step / 1000) for step in steps])
    assert view.training.first_step == steps[0]
    assert view.training.begins_late is late
    place = f"at step {steps[0]}, where the log begins)" if late else "at first)"
    assert first_loss_text(view.training).endswith(place)


def test_restarts_of_the_training_processes_are_counted():
    agent = "E1121 06:38:10.000000 1 torch/distributed/elastic/agent/server/api.py:1002]"
    restart = "[default] Worker group FAILED. {}/3 attempts left; will restart worker group"
    view = reduce_all(JobView(), script.STARTING)
    assert view.restarts is None
    assert restarts_text(view) == ""
    failed = script.line(0, f"{agent} failed (exitcode: -9) local_rank: 0 (pid: 7) of binary: /usr/bin/python", 5)
    view = reduce_all(view, [failed, *(script.line(0, f"{agent} {restart.format(left)}", 6) for left in (3, 2))])
    assert restarts_text(view) == "2 of 3, after train-worker-0, local rank 0, SIGKILL"


def test_success_without_progress_is_said():
    ended = [event for event in script.SUCCEEDED if event not in script.TRAINING]
    all_read = Tick(time=0)
    for lines in ([], [script.line(0, "hello", 3)]):
        view = reduce_all(JobView(), (*script.STARTING, *lines, *ended))
        assert (no_progress_text(view), view.headline) == ("", "Succeeded")  # the logs were not read to their ends
        view = reduce_all(view, [all_read])
        assert "none was printed" in no_progress_text(view)
        assert view.headline == "Succeeded, but no progress was printed"
    view = reduce_all(JobView(), (*script.SUCCEEDED, all_read))
    assert (no_progress_text(view), view.headline) == ("", "Succeeded")


def test_success_after_one_line_that_looks_like_progress_is_said():
    ended = [event for event in script.SUCCEEDED if event not in script.TRAINING]
    line = script.line(0, "step: 1, loss: 0.5", 3)
    view = reduce_all(JobView(), (*script.STARTING, line, *ended, Tick(time=0)))
    assert no_progress_text(view).startswith("none was read; lines like `step: 1, loss: 0.5` look like progress; `progress: ")
    assert view.headline == "Succeeded, but no progress was read"


def test_the_last_line_may_name_a_module_of_torch():
    agent = "W1121 06:38:10.000000 1 torch/distributed/elastic/agent/server/api.py:1002] [default] Stopping worker group"
    view = reduce_all(JobView(), [say("loading"), say("waiting in torch.distributed.barrier()", 1), say(agent, 2)])
    last_line = view.pods["w-0"].log.last_line
    assert last_line is not None
    assert last_line.text == "waiting in torch.distributed.barrier()"
