"""How a job ended that only its logs show: the view and the diagnosis agree, also after restarts."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from kfjob.joblog.diagnose.engine.collector import SymptomCollector
from kfjob.joblog.diagnose.engine.ranking import diagnose
from kfjob.joblog.events import END_UNKNOWN, Event, JobChanged, JobPhase, LogLine
from kfjob.joblog.view.job_view import ENDED_WELL, ENDED_WITH_ERROR, UNKNOWN_END, JobView
from kfjob.joblog.view.reduction import reduce
from tests.unit.api import script

AGENT = "I1121 06:38:10.000000 1 torch/distributed/elastic/agent/server/api.py:879]"
FAILURE = f"{AGENT.replace('I', 'E', 1)} failed (exitcode: 1) local_rank: 0 (pid: 7) of binary: /usr/bin/python"
ENDED = JobChanged(phase=JobPhase.STOPPED, reason=END_UNKNOWN)
JOINED = (*script.block(0, 0, 5), *script.block(1, 1, 5))


def success(index: int, second: int) -> LogLine:
    return script.line(index, f"{AGENT} [default] worker group successfully finished. Waiting 300 seconds", second)


def step(index: int, number: int, second: int) -> LogLine:
    return script.line(index, f"step {number} loss 2.{number}", second)


def restarted(line: LogLine) -> LogLine:
    return replace(line, container_id="new")


def read(*events: Event) -> tuple[JobView, str]:
    """Return the view, and the headline of the diagnosis."""
    view, symptoms = JobView(), SymptomCollector()
    for event in (*events, ENDED):
        view = reduce(view, event)
        symptoms.feed(event, view)
    return view, diagnose(symptoms, view, job="train").headline


@pytest.mark.parametrize(
    ("events", "headline"),
    [
        ([success(0, 9), success(1, 9)], ENDED_WELL),
        ([success(0, 9)], UNKNOWN_END),
        ([success(0, 9), restarted(script.line(1, "loading the data", 10))], UNKNOWN_END),
        ([success(0, 9), restarted(script.line(1, "loading", 10)), restarted(success(1, 12))], ENDED_WELL),
    ],
)
def test_each_pod_with_an_agent_reports_success(events, headline):
    view, diagnosed = read(*JOINED, *events)
    assert (view.headline, diagnosed) == (headline, headline)


def test_success_of_all_agents_is_the_end_although_the_loss_is_nan():
    lines = [script.line(0, f"step {number} loss nan", 5 + number) for number in range(1, 5)]
    view, diagnosed = read(*JOINED, *lines, success(0, 12), success(1, 12))
    assert (view.headline, diagnosed) == (ENDED_WELL, ENDED_WELL)


@pytest.mark.parametrize(
    ("events", "headline"),
    [
        ([], ENDED_WITH_ERROR),
        ([*script.block(0, 0, 20), *script.block(1, 1, 20)], ENDED_WITH_ERROR),
        ([*script.block(0, 0, 20), *(step(0, number, 20 + number) for number in range(1, 9))], UNKNOWN_END),
        ([*script.block(1, 0, 20), *(step(1, number, 20 + number) for number in range(1, 9))], UNKNOWN_END),
    ],
)
def test_a_failure_after_which_training_went_on_is_no_end(events, headline):
    failed = [*(step(0, number, 5 + number) for number in range(1, 4)), script.line(1, FAILURE, 10)]
    view, _ = read(*JOINED, *failed, *events)
    assert (view.headline, view.has_trained_since_failure) == (headline, headline == UNKNOWN_END)
