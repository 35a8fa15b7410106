"""A running job that prints nothing: the last line of each rank, before the time at which it counts as a stall."""

from __future__ import annotations

from kfjob.base.units import SECOND
from kfjob.cli.diagnose import diagnosis_text
from kfjob.cli.reminders import SilenceReminder, StageReminder, find_next_reminder
from kfjob.cli.view_json import view_json
from kfjob.cli.view_text import status_text
from kfjob.joblog.diagnose.diagnosis import Diagnosis
from kfjob.joblog.events import Event, JobChanged, JobPhase, PodChanged, PodPhase, Tick
from kfjob.joblog.observe_config import Limits, ObserveConfig
from kfjob.joblog.view.job_view import JobView
from kfjob.joblog.view.reduction import reduce_all
from kfjob.joblog.view.silence import (
    MAX_LAST_LINES,
    MIN_SECONDS,
    PY_SPY,
    LastLine,
    Silence,
    describe_behind,
    describe_last_lines,
    describe_silence,
)
from tests.unit.diagnose.cases import FINISHED, START, block, examine, line, progress

PODS = ("a-worker-0", "a-worker-1")
STARTED: list[Event] = [
    JobChanged(phase=JobPhase.RUNNING, created=START, started=START, time=START),
    *(PodChanged(pod=pod, phase=PodPhase.RUNNING, time=START) for pod in PODS),
    *block(0, 1, PODS[0]),
    *block(1, 1, PODS[1]),
]
TRAINED = [*STARTED, *(progress(step, 10 + step, pod) for step in range(4) for pod in PODS)]
HANG = [*TRAINED, progress(4, 14), line("refreshing the shard index", 14.5, PODS[1])]
SILENT = "no progress for 20 s (a stall after 2 min; the job runs on); rank 1 reported step 3, others step 4"


def test_a_pod_that_waits_for_its_restart_is_no_silence():
    waits = PodChanged(pod=PODS[1], phase=PodPhase.RUNNING, reason="CrashLoopBackOff", message="restarts in 10 s", restarts=1)
    view = reduce_all(JobView(), [*HANG, waits, tick(34)])
    assert SilenceReminder().announce(view) == ""
    assert view.headline == "Running, but `a-worker-1`: CrashLoopBackOff (restarts in 10 s)"


def test_a_job_whose_agents_report_success_is_not_silent():
    ended = [line(FINISHED, 16, pod) for pod in PODS]
    assert SilenceReminder().announce(reduce_all(JobView(), [*HANG, ended[0], tick(34)]))
    assert SilenceReminder().announce(reduce_all(JobView(), [*HANG, *ended, tick(34)])) == ""


def tick(second: float) -> Tick:
    return Tick(time=START + int(second * SECOND))


def diagnose(*events: Event) -> Diagnosis:
    diagnosis, _ = examine(events)
    return diagnosis


def test_last_line_of_each_rank_is_quoted_with_its_age():
    diagnosis = diagnose(*HANG, tick(34))
    assert diagnosis.silence
    assert diagnosis.healthy
    text = "\n".join(diagnosis_text("a", diagnosis))
    assert f"no error was found so far; {SILENT}" in text
    assert "`a-worker-1`, rank 1, step 3, 20 s ago: refreshing the shard index" in text
    assert "`a-worker-0`, rank 0, step 4, 20 s ago: 2026-11-21" in text
    assert "no problems found" not in text


def test_limit_of_the_watchdog_is_the_only_one():
    config = ObserveConfig(limits=Limits(stall=40))
    silent, _ = examine([*HANG, tick(34)], config)
    assert silent.silence
    assert describe_silence(silent.silence).startswith("no progress for 20 s (`watchdog.stall` stops the job after 40 s)")
    stalled, _ = examine([*HANG, tick(14 + 41)], config)
    assert stalled.headline == "Running, but no progress for 41 s"


def test_limit_of_the_watchdog_waits_for_a_line_of_progress():
    config = ObserveConfig(limits=Limits(stall=40))
    events = [*STARTED, line("reading the data", 12, PODS[1])]
    for second in (50, 150):
        silent, _ = examine([*events, tick(second)], config)
        assert silent.silence
        text = describe_silence(silent.silence)
        assert "(`watchdog.stall` counts from the first line of progress, and none was read)" in text


def test_usual_pause_is_no_silence():
    assert diagnose(*HANG, tick(14 + MIN_SECONDS - 1)).silence is None
    slow = [*STARTED, progress(1, 100), progress(2, 200)]
    assert diagnose(*slow, tick(400)).silence is None
    assert diagnose(*slow, tick(520)).silence


def test_job_that_has_ended_is_not_silent():
    assert diagnose(*HANG, JobChanged(phase=JobPhase.SUCCEEDED), tick(100)).silence is None


def test_job_without_progress_is_silent_since_its_newest_line():
    events = [*STARTED, line("loading the tokenizer", 5, PODS[0])]
    assert diagnose(*events, tick(30)).silence is None
    silence = diagnose(*events, tick(50)).silence
    assert silence
    assert (silence.seconds, silence.has_progress) == (45, False)


def test_ranks_of_one_pod_are_told_apart():
    result = block(0, 1, "a-worker-0", world=1)
    both = [line(item.text.replace("ranks=[0]", "ranks=[0, 1]"), 1) for item in result]
    steps = [line(f"[default{rank}]: step {step} loss 1.5", 2 + step) for step in range(1, 6) for rank in (0, 1)]
    events = [STARTED[0], STARTED[1], *both, *steps[:-1], line("[default1]: evaluating", 7.5), tick(40)]
    silence = diagnose(*events).silence
    assert silence
    assert [(item.rank, item.step, item.text) for item in silence.last_lines] == [
        (1, 4, "[default1]: evaluating"),
        (0, 5, "[default0]: step 5 loss 1.5"),
    ]


def test_steps_within_epochs_are_not_compared():
    ends = [line("epoch 1 step 90 loss 2.0", 20, PODS[0]), line("epoch 2 step 1 loss 2.0", 20, PODS[1])]
    silence = diagnose(*STARTED, *ends, tick(90)).silence
    assert silence
    assert not silence.behind


def test_status_shows_the_last_lines():
    view = reduce_all(JobView(), [*HANG, tick(34)])
    text = status_text(view, name="a", now=START)
    assert f"silent     {SILENT}" in text
    assert "           `a-worker-1`, rank 1, step 3, 20 s ago: refreshing the shard index" in text
    assert view_json(view)["silence"]["seconds"] == 20


def test_reminder_of_a_silence_comes_again_rarely():
    reminder, view = SilenceReminder(), reduce_all(JobView(), HANG)
    said = [second for second in range(330) if reminder.announce(reduce_all(view, [tick(14 + second)]))]
    assert said == [10, 60, 120, 300]
    view = reduce_all(view, [progress(5, 350)])
    assert not reminder.announce(reduce_all(view, [tick(351)]))
    assert [find_next_reminder(seconds) for seconds in (299, 300, 600)] == [300, 600, 1200]


def remind(events: list[Event], *, start: int) -> list[tuple[int, str]]:
    """Return the messages about the stage of a job, with the seconds since `start`."""
    reminder, view = StageReminder(), reduce_all(JobView(), events)
    messages = ((second, reminder.announce(reduce_all(view, [tick(start + second)]), job="a")) for second in range(330))
    return [(second, text) for second, text in messages if text]


def test_end_of_some_is_said_once_and_then_rarely():
    said = remind([*HANG, line(FINISHED, 15, PODS[1])], start=20)
    assert [second for second, _ in said] == [2, 60, 120, 300]
    assert said[0][1].startswith("the training processes of `a-worker-1` have ended; waiting for `a-worker-0`; ")
    assert said[2][1].endswith("`kfjob stop a` ends the job (for 2 min)")


def test_silent_program_is_said_with_the_time_since_its_start():
    said = remind(STARTED, start=10)
    assert [second for second, _ in said] == [2, 15, 60, 120, 300]
    assert said[1][1] == "the workers have started; the program has printed nothing yet (24 s after they started)"


def test_many_ranks_are_counted():
    lines = tuple(LastLine(pod=f"p{rank}", rank=rank, step=7 if rank in {2, 3, 9} else 8) for rank in range(12))
    behind = tuple(item for item in lines if item.step == 7)
    silence = Silence(seconds=40, limit=600, stops=False, has_progress=True, last_lines=lines, behind=behind, time=0)
    assert describe_behind(silence) == "ranks 2-3, 9 reported step 7, others step 8"
    assert len(describe_last_lines(silence)) == MAX_LAST_LINES + 1
    assert describe_last_lines(silence)[-1] == "and 4 more"


AGENT = (
    "I1123 15:02:04.1 9 torch/distributed/elastic/agent/server/local_elastic_agent.py:298] Environment variable "
    "'TORCHELASTIC_HEALTH_CHECK_PORT' not found. Do not start health check."
)


def test_lines_of_agents_are_never_quoted():
    quiet = diagnose(*STARTED, *(line(AGENT, 2, pod) for pod in PODS), tick(60))
    assert "HEALTH_CHECK" not in "\n".join(diagnosis_text("a", quiet))
    view = reduce_all(JobView(), [*STARTED, *(line(AGENT, 2, pod) for pod in PODS), tick(60)])
    assert SilenceReminder().announce(view) == ""  # it imports, and the stage says so
    view = reduce_all(view, [tick(400)])
    assert "HEALTH_CHECK" not in SilenceReminder().announce(view)
    assert "the program has printed nothing yet" in SilenceReminder().announce(view)
    view = reduce_all(view, [line("reading the shards", 410, PODS[0]), line(AGENT, 411, PODS[0]), tick(470)])
    assert "reading the shards" in SilenceReminder().announce(view)


def test_py_spy_is_named_for_a_look_at_the_stacks_of_a_hang():
    diagnosis, _ = examine([*HANG, tick(700)], local=True)
    assert [PY_SPY in issue.remedy for issue in diagnosis.warnings] == [True]
    assert f"next: {PY_SPY}" in "\n".join(diagnosis_text("a", diagnosis))


def test_pod_that_printed_nothing_has_a_last_line():
    diagnosis = diagnose(*STARTED, line("reading the data", 12, PODS[0]), tick(60))
    text = "\n".join(diagnosis_text("a", diagnosis))
    assert "`a-worker-1`, rank 1: the program has printed nothing yet" in text
    assert "next: rank 1 printed nothing; `pip install py-spy` and `py-spy dump --pid PID` in a pod show where" in text


def test_silence_of_pods_that_wait_for_another_one_is_not_reported():
    waiting = PodChanged(pod=PODS[1], phase=PodPhase.PENDING, reason="Unschedulable", time=START)
    events = [STARTED[0], waiting, line("reading the shards", 2, PODS[0]), tick(500)]
    assert SilenceReminder().announce(reduce_all(JobView(), events)) == ""
