"""The restart policies, as the kubelet carries them out."""

from __future__ import annotations

import sys

import pytest

from kfjob.api.target import FAILURE_CHECK
from kfjob.backends.base import LogRange
from kfjob.joblog.events import JobPhase, LogGap, LogLine, PodChanged, PodPhase
from kfjob.local.agent import Agent, RestartBackoff
from kfjob.local.backend import LocalBackend
from tests.local.conftest import PATIENCE, Here

COUNT_LIVES = """
import os, sys, time
lives = os.path.join(os.environ["FOLDER"], os.environ["HOSTNAME"])
with open(lives, "a") as file:
    file.write("x")
life = os.path.getsize(lives)
print("life", life)
sys.stdout.flush()
time.sleep(float(os.environ.get("PAUSE", "0")))
sys.exit(0 if life == 3 else 5)
"""


def test_the_waits_are_the_kubelets():
    backoff = RestartBackoff(10)
    assert [backoff.after(1) for _ in range(8)] == [0, 10, 20, 40, 80, 160, 300, 300]
    assert [backoff.after(601), backoff.after(1)] == [0, 10]
    assert [backoff.after(599), backoff.after(1)] == [20, 40]


@pytest.mark.local
def test_on_failure_starts_an_agent_again_until_it_succeeds(here: Here, tmp_path):
    ref = here.submit(COUNT_LIVES, restarts={"policy": "OnFailure"}, env={"FOLDER": str(tmp_path)})
    pods = [event for event in here.backend.watch(ref) if isinstance(event, PodChanged)]
    assert {"CrashLoopBackOff"} == {pod.reason for pod in pods if pod.phase is PodPhase.RUNNING and not pod.ready}
    assert all(pod.exit_code == 5 for pod in pods if pod.reason == "CrashLoopBackOff")
    snapshot = here.end(ref)
    assert snapshot.job.phase is JobPhase.SUCCEEDED
    assert (snapshot.pods[0].restarts, snapshot.pods[0].exit_code) == (2, 0)
    assert here.texts(ref) == ["life 3"]
    assert here.texts(ref, previous=True) == ["life 2"]


@pytest.mark.local
def test_a_log_is_followed_across_restarts(here: Here, tmp_path):
    ref = here.submit(COUNT_LIVES, restarts={"policy": "OnFailure"}, env={"FOLDER": str(tmp_path), "PAUSE": "1"})
    lines = [line for line in here.backend.logs(ref, "job-worker-0", LogRange(follow=True)) if isinstance(line, LogLine)]
    assert [line.text for line in lines] == ["life 1", "life 2", "life 3"]
    assert len({line.container_id for line in lines}) == 3


@pytest.mark.local
def test_a_follower_gets_a_gap_for_missed_restarts(here: Here, tmp_path):
    ref = here.submit(COUNT_LIVES, restarts={"policy": "OnFailure"}, env={"FOLDER": str(tmp_path), "PAUSE": "1"})
    lines = here.backend.logs(ref, "job-worker-0", LogRange(follow=True))
    first = next(lines)
    assert isinstance(first, LogLine)
    here.end(ref)
    gap, last = lines
    assert isinstance(gap, LogGap)
    assert (gap.container_id, "1 log file" in gap.reason) == (first.container_id, True)
    assert isinstance(last, LogLine)
    assert (first.text, last.text) == ("life 1", "life 3")


@pytest.mark.local
def test_always_starts_an_agent_again_though_it_succeeded(here: Here, tmp_path):
    ref = here.submit(COUNT_LIVES, restarts={"policy": "Always"}, env={"FOLDER": str(tmp_path)})
    here.until(lambda: here.get(ref).pods[0].restarts >= 3)
    here.backend.stop(ref, timeout=PATIENCE)
    assert "life 4" in here.archived_log(ref) or (here.archived(ref) / "job-worker-0" / "pytorch.previous.log").exists()


@pytest.mark.local
def test_a_stop_does_not_wait_for_a_back_off(here: Here):
    here.backend = LocalBackend(state=here.state, backoff_seconds=600)
    ref = here.submit("import sys; sys.exit(5)", restarts={"policy": "OnFailure"})
    here.until(lambda: here.get(ref).pods[0].reason == "CrashLoopBackOff")
    assert here.get(ref).job.phase is JobPhase.RUNNING
    here.backend.stop(ref, timeout=PATIENCE)


@pytest.mark.parametrize(
    ("code", "kills", "exit_code", "reason"),
    [(0, 0, 0, "Completed"), (0, 1, 0, "Completed"), (1, 0, 1, "Error"), (-11, 0, 139, "Signal 11"), (1, 2, 1, "OOMKilled")],
)
def test_how_the_end_of_a_process_is_recorded(code: int, kills: int, exit_code: int, reason: str):
    agent = Agent.__new__(Agent)
    agent.state, agent._end_reason = PodChanged(pod="p", phase=PodPhase.RUNNING), ""
    assert agent._record_end(code, kills=kills) == exit_code
    assert (agent.state.exit_code, agent.state.reason) == (exit_code, reason)
    assert bool(agent.state.message) == (code < 0 or reason == "OOMKilled")


BROKEN_WORKER = """
import sys, time
print("Traceback (most recent call last):")
print('  File "train.py", line 1, in <module>')
print("ModuleNotFoundError: No module named 'nosuch'")
prefix = "E1121 06:18:58.464000 1 torch/distributed/elastic/multiprocessing/api.py:1002]"
print(prefix, "failed (exitcode: 1) local_rank: 0 (pid: 5) of binary: /usr/bin/python", flush=True)
time.sleep(float(sys.argv[1]))
"""


@pytest.mark.local
def test_a_failure_that_no_restart_cures_ends_the_job(here: Here):
    here.backend = LocalBackend(state=here.state, failure_check=FAILURE_CHECK)
    job = here.end(here.submit(command=[sys.executable, "-c", BROKEN_WORKER, "600"])).job
    assert (job.phase, job.reason) == (JobPhase.FAILED, "NotRestarted")
    assert job.message == "a restart cannot cure this: module `nosuch` is not installed"


@pytest.mark.local
def test_restarts_always_keeps_restarting(here: Here):
    here.backend = LocalBackend(state=here.state, failure_check=FAILURE_CHECK)
    ref = here.submit(command=[sys.executable, "-c", BROKEN_WORKER, "1.5"], restarts="always")
    assert here.end(ref).job.phase is JobPhase.SUCCEEDED


@pytest.mark.local
def test_an_agent_is_not_started_again_after_such_a_failure(here: Here):
    here.backend = LocalBackend(state=here.state, backoff_seconds=300, failure_check=FAILURE_CHECK)
    ref = here.submit(code="import nosuch", restarts={"policy": "OnFailure"})
    assert here.end(ref).job.message == "a restart cannot cure this: module `nosuch` is not installed"
