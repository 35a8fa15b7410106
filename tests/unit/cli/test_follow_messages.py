"""What a follower prints about a stalled job, and about one that `kfjob stop` ends."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest
from msgspec.structs import replace

from kfjob.api.reader import LiveReader
from kfjob.base.units import SECOND
from kfjob.cli.display import Display
from kfjob.joblog.events import Event, JobChanged, JobPhase, PodChanged, PodPhase, Tick
from kfjob.joblog.program_output import ProgramOutput
from kfjob.joblog.view.job_view import JobView
from kfjob.joblog.view.reduction import reduce
from tests.unit.diagnose.cases import START, block, line, progress

PODS = ("a-worker-0", "a-worker-1")
RUNNING: list[Event] = [
    JobChanged(phase=JobPhase.RUNNING, created=START, started=START, time=START),
    *(PodChanged(pod=pod, phase=PodPhase.RUNNING, time=START) for pod in PODS),
]
ROUND = [*block(0, 1, PODS[0]), *block(1, 1, PODS[1]), *(progress(step, 1 + step) for step in range(1, 4))]
KILLED = line(
    "E1121 06:37:55.0 1 torch/distributed/elastic/multiprocessing/api.py:1002] failed (exitcode: -9) local_rank: 0 (pid: 7)",
    6,
    PODS[1],
)
AGAIN = [*block(0, 10, PODS[0]), *block(1, 10, PODS[1])]
ENDED = "ended, because `kfjob stop` ended the job"
STOP: list[Event] = [
    *(
        PodChanged(pod=pod, phase=PodPhase.FAILED, exit_code=1, reason="Error", message=ENDED, ended_by_kfjob=True)
        for pod in PODS
    ),
    JobChanged(phase=JobPhase.STOPPED, message="the job was removed"),
]


def follow(events: list[Event], capsys: pytest.CaptureFixture[str]) -> str:
    """Return what a follower of these events prints."""
    ref = SimpleNamespace(name="a", capabilities=SimpleNamespace(runs_on_this_machine=False))
    reader = SimpleNamespace(ref=ref, logs=lambda *_: ())
    view, display = JobView(), Display(cast("LiveReader", reader))
    for event in events:
        view = reduce(view, event)
        display.update(view, event, 0)
    display.finish(view)
    return capsys.readouterr().err


def test_stalled_job_is_announced_once(capsys: pytest.CaptureFixture[str]):
    ticks = [Tick(time=START + second * SECOND) for second in range(9, 400)]
    text = follow([*RUNNING, *ROUND, *(progress(step, 1 + step) for step in range(4, 8)), *ticks], capsys)
    assert text.count("Running, but no progress for 2 min") == 1
    assert "Running, but no progress for 3 min" not in text


def test_pods_that_a_stop_ends_have_not_failed(capsys: pytest.CaptureFixture[str]):
    text = follow([*RUNNING, *ROUND, *STOP], capsys)
    assert "a-worker-0  Ended, because `kfjob stop` ended the job\n" in text
    assert "Failed" not in text
    assert "Running, but" not in text
    assert "a  Stopped: the job was removed" in text


def test_what_a_pod_reports_after_kfjob_has_ended_it_is_no_cause(capsys: pytest.CaptureFixture[str]):
    exception = [line(text, 7, PODS[1]) for text in ("Traceback (most recent call last):", "KeyError: 'lr'")]
    failed = [*exception, replace(KILLED, text=KILLED.text.replace("-9", "1"))]
    assert "cause: " in follow([*RUNNING, *ROUND, *failed, Tick(time=START + 20 * SECOND)], capsys)
    stopped = follow([*RUNNING, *ROUND, *STOP[:-1], *failed, STOP[-1]], capsys)
    assert "worker failed" in stopped
    assert "cause: " not in stopped.partition("\n\n")[0]


def test_success_without_progress_has_the_last_lines(capsys: pytest.CaptureFixture[str]):
    succeeded = JobChanged(phase=JobPhase.SUCCEEDED, created=START)
    text = follow([*RUNNING, line("all files are written", 3, PODS[0]), succeeded, Tick(time=START)], capsys)
    assert "  a  Succeeded\n" in text
    assert "a: Succeeded after 3s, but no progress was printed\n" in text
    assert "  last lines a-worker-0  all files are written\n" in text
    silent = follow([*RUNNING, succeeded, Tick(time=START)], capsys)
    assert "  last lines the program has printed nothing\n" in silent


def test_summary_leaves_out_a_crash_after_which_a_round_trained(capsys: pytest.CaptureFixture[str]):
    recovered = follow([*RUNNING, *ROUND, KILLED, *AGAIN, progress(4, 15), *STOP], capsys)
    assert "  failed  " not in recovered
    unrecovered = follow([*RUNNING, *ROUND, KILLED, *AGAIN, *STOP], capsys)
    assert "  failed     a-worker-1, rank 1, SIGKILL" in unrecovered


@pytest.mark.parametrize(
    ("lost", "end"),
    [
        (0, "`a-worker-0` (Error) printed nothing\n"),
        (2, "last lines of `a-worker-0` (Error):\n  2 lines of its log were lost: no space left on device\n"),
    ],
)
def test_failed_pod_without_a_line_printed_nothing_or_lost_it(capsys: pytest.CaptureFixture[str], lost: int, end: str):
    failed = PodChanged(
        pod=PODS[0], phase=PodPhase.FAILED, exit_code=3, reason="Error", lost_lines=lost, loss_reason="No space left on device"
    )
    text = follow([*RUNNING, failed, JobChanged(phase=JobPhase.FAILED, message="pod failed")], capsys)
    assert end in text


def test_lines_that_were_not_read_are_no_missing_progress(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch):
    """A talkative program's last lines may not be read in time: the summary says so, shows the newest and reads the state."""
    end = [JobChanged(phase=JobPhase.SUCCEEDED, created=START, started=START, ended=START + 60 * SECOND)]
    whole = JobView()
    for event in (*RUNNING, *ROUND, *end):
        whole = reduce(whole, event)
    monkeypatch.setattr("kfjob.api.view.read_view", lambda _: whole)
    ref = SimpleNamespace(name="a", capabilities=SimpleNamespace(runs_on_this_machine=False))
    logs = [line("noise", 50, PODS[0]), line("the end", 51, PODS[0])]
    reader = SimpleNamespace(ref=ref, logs=lambda *_: logs)
    view, display = JobView(), Display(cast("LiveReader", reader), ProgramOutput())
    for event in (*RUNNING, *end):
        view = reduce(view, event)
        display.update(view, event, 0)
    display.set_cut()
    display.finish(view)
    out, err = capsys.readouterr()
    assert out.splitlines() == ["noise", "the end"]
    assert "… lines left out; `kfjob logs a` shows them" in err
    assert "none was printed" not in err
    assert "in 3 steps" in err
