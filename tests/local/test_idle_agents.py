"""After a failure, agents without workers do not use the whole grace time, and the view says what the job waits for."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from kfjob.joblog.events import TERMINATING, JobPhase, PodPhase
from kfjob.joblog.view.job_view import JobView
from kfjob.joblog.view.reduction import reduce_all
from kfjob.joblog.view.stages import find_stage
from tests.local.conftest import Here

pytestmark = pytest.mark.local

AGENT = f"""#!{sys.executable}
import os, signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)  # as an agent within a rendezvous, which waits in C++
if os.environ["KFJOB_LOCAL_POD"].endswith("-0"):
    while not os.path.exists(os.environ["GO"]):
        time.sleep(0.02)
    sys.exit(1)
if os.environ.get("WORKER"):
    subprocess.Popen([sys.executable, "-c", os.environ["WORKER"]], start_new_session=True)
print("waits", flush=True)
time.sleep(600)
"""
SAVE = "import os, signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(5); open(os.environ['SAVED'], 'w')"
GRACE = 600.0


@pytest.fixture
def agent(tmp_path: Path) -> str:
    """Return a `torchrun` of our own."""
    program = tmp_path / "bin" / "torchrun"
    program.parent.mkdir()
    program.write_text(AGENT)
    program.chmod(0o700)
    return str(program)


def test_agent_without_workers_is_ended_soon(here: Here, tmp_path: Path, agent: str):
    ref = here.submit(command=[agent, sys.executable], nodes=2, grace=GRACE, env={"GO": str(tmp_path / "go")})
    here.until_says(ref, "waits", index=1)
    (tmp_path / "go").touch()
    here.until(lambda: here.get(ref).pods[1].reason == TERMINATING)
    snapshot = here.get(ref)
    stage = str(find_stage(reduce_all(JobView(), [snapshot.job, *snapshot.pods])))
    assert stage == "waiting for `job-worker-1` to end: it has received SIGTERM, and gets SIGKILL within 600 s"
    ended = here.end(ref)
    assert ended.job.phase is JobPhase.FAILED
    assert [(pod.phase, pod.exit_code) for pod in ended.pods] == [(PodPhase.FAILED, 1), (PodPhase.FAILED, 137)]
    assert ended.pods[1].message.startswith("ended, because pod `job-worker-0` has failed")


@pytest.mark.parametrize("mark", ["a mark", "no mark"])
def test_worker_that_saves_keeps_its_time(here: Here, tmp_path: Path, agent: str, mark: str):
    worker = (
        SAVE
        if mark == "a mark"
        else f"import os, sys; os.execve(sys.executable, [sys.executable, '-c', {SAVE!r}], {{'SAVED': os.environ['SAVED']}})"
    )
    env = {"GO": str(tmp_path / "go"), "SAVED": str(tmp_path / "saved"), "WORKER": worker}
    ref = here.submit(command=[agent, sys.executable], nodes=2, grace=GRACE, env=env)
    here.until_says(ref, "waits", index=1)
    (tmp_path / "go").touch()
    here.end(ref)
    assert (tmp_path / "saved").exists()


def test_program_without_a_launcher_keeps_its_time(here: Here, tmp_path: Path):
    code = (
        "import os, signal, sys, time\n"
        "saved = os.environ['SAVED']\n"
        "while os.environ['KFJOB_LOCAL_POD'].endswith('-0'):\n"
        "    time.sleep(0.02)\n"
        "    if os.path.exists(saved + '.ready'): sys.exit(1)\n"
        "signal.signal(signal.SIGTERM, lambda *_: (time.sleep(5), open(saved, 'w'), os._exit(0)))\n"
        "open(saved + '.ready', 'w')\n"
        "time.sleep(600)"
    )
    ref = here.submit(code, nodes=2, grace=GRACE, env={"SAVED": str(tmp_path / "saved")})
    here.end(ref)
    assert (tmp_path / "saved").exists()
