"""After a failure, agents without workers do not use the whole grace time, and the view says what the job waits for."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from kfjob.backends.base import JobRef
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
SAVE_UNMARKED = f"import os, sys; os.execve(sys.executable, [sys.executable, '-c', {SAVE!r}], {{'SAVED': os.environ['SAVED']}})"
SAVE_WITHOUT_LAUNCHER = """
import os, signal, sys, time
saved = os.environ["SAVED"]
while os.environ["KFJOB_LOCAL_POD"].endswith("-0"):
    time.sleep(0.02)
    if os.path.exists(saved + ".ready"): sys.exit(1)
signal.signal(signal.SIGTERM, lambda *_: (time.sleep(5), open(saved, "w"), os._exit(0)))
open(saved + ".ready", "w")
time.sleep(600)
"""
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


def test_workers_and_programs_that_save_keep_their_time(here: Here, tmp_path: Path, agent: str):
    """The jobs run side by side, because each takes longer than the time of an idle agent."""
    refs: dict[str, JobRef] = {}
    for name, worker in {"marked": SAVE, "unmarked": SAVE_UNMARKED}.items():
        env = {"GO": str(tmp_path / "go"), "SAVED": str(tmp_path / name), "WORKER": worker}
        refs[name] = here.submit(name=name, command=[agent, sys.executable], nodes=2, grace=GRACE, env=env)
    for ref in refs.values():
        here.until_says(ref, "waits", index=1)
    (tmp_path / "go").touch()
    env = {"SAVED": str(tmp_path / "program")}
    refs["program"] = here.submit(SAVE_WITHOUT_LAUNCHER, name="program", nodes=2, grace=GRACE, env=env)
    for name, ref in refs.items():
        here.end(ref)
        assert (tmp_path / name).exists(), name
