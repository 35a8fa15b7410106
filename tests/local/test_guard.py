"""Jobs with `recovery` on this machine: their guard relaunches them, enforces limits and gives up; nobody follows."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml

from kfjob.backends import folder
from kfjob.local import processes
from kfjob.local.identity import read_identity
from kfjob.local.launch_spec import IDENTITY
from kfjob.local.proc import read_environment
from tests.kfjob_command import make_command
from tests.local.machine import Machine, wait_until
from tests.receiver import Receiver

pytestmark = pytest.mark.local
ROOT = Path(__file__).resolve().parents[2]

PROGRAM = """
import os, pathlib, sys, time
kept = pathlib.Path("kept"); kept.mkdir(exist_ok=True)
start = max((int(path.name[5:]) for path in kept.glob("step-*")), default=0)
def say(text): print(time.strftime("%Y-%m-%d %H:%M:%S I [train.py:1]"), text, flush=True)
say(f"Resume step-{start:08d} kept" if start else "Resume none")
for step in range(start + 1, 10**6):
    time.sleep(0.05)
    print(f"step {step} loss {2 + 1 / step:.4f}", flush=True)
    if step == int(os.environ.get("FAIL_AT", 0)): raise ValueError(f"bad batch {step}")
    if step == int(os.environ.get("HANG_AT", 0)) and not start: time.sleep(1000)
    if step % 10 == 0 and step != int(os.environ.get("FAIL_AT", 0)):
        (kept / f"step-{step:08d}").touch()
        say(f"Checkpoint step-{step:08d} in 0.1 s kept/step-{step:08d}")
"""


class GuardedJob:
    """A job of this test, submitted from the test's folder."""

    def __init__(self, machine: Machine, folder: Path, **fields: Any) -> None:
        self.machine, self.folder = machine, folder
        (folder / "fit.py").write_text(PROGRAM)
        spec = {"name": "job", "launcher": "python", "command": "python fit.py", "recovery": {}, **fields}
        (folder / "job.yaml").write_text(yaml.safe_dump(spec))
        machine("submit", "job.yaml")

    def read(self) -> dict[str, Any]:
        """Return the job's status; {} while no job has the name."""
        done = self.machine.run("status", "job", "-o", "json")
        status: dict[str, Any] = json.loads(done.stdout) if done.returncode == 0 else {}
        return status

    def launch(self) -> Path:
        (launch,) = folder.list_folders(self.folder / "state" / "local" / "default" / "job")
        return launch

    def has_checkpoint(self, step: int) -> bool:
        return any((self.folder / "kept" / name).exists() for name in (f"step-{step:08d}", f"step-{step:06d}"))

    def log(self) -> str:
        return (self.folder / "state" / "guard" / "default" / "job.log").read_text()


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    machine = Machine(tmp_path, cwd=tmp_path)
    yield machine
    machine.run("stop", "job", "--no-archive")


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as receiver:
        yield receiver


def has_guard(folder: Path) -> bool:
    """Return whether a process guards a job of the test's folder."""
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            line = file.read_bytes().split(b"\0")
            if b"kfjob.guard" in line and line[-2].startswith(str(folder).encode()):
                return True
    return False


def kill_supervisor(job: GuardedJob) -> None:
    identity = read_identity(job.launch() / folder.RUN / IDENTITY)
    assert identity
    assert identity.send(signal.SIGKILL)


def kill_process(job: GuardedJob) -> None:
    (pid,) = processes.find_marked(f"{job.read()['uid']}/")
    os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize("kill", [kill_process, kill_supervisor])
def test_killed_job_is_relaunched_from_its_newest_checkpoint(machine: Machine, tmp_path: Path, receiver: Receiver, kill: Any):
    machine.env["KFJOB_NOTIFY"] = f"json://me:swordfish@127.0.0.1:{receiver.port}"
    job = GuardedJob(machine, tmp_path)
    wait_until(lambda: job.has_checkpoint(20))
    assert has_guard(tmp_path)
    first = job.launch()
    kill(job)
    wait_until(lambda: (job.read().get("relaunches") or []) and (job.read().get("resume") or {}).get("name"))
    status = job.read()
    (entry,) = status["relaunches"]
    assert entry["launch"] == first.name
    assert status["resume"]["name"] == f"step-{entry['progress']:08d}"
    assert entry["progress"] >= 20
    assert "1 relaunch, the last after step" in machine("status", "job")
    assert "job: Running, 1 relaunch" in machine("guard", "status")
    archived = tmp_path / "state" / "archive" / "default" / "job" / first.name
    assert (archived / folder.STATUS).exists()
    check_notification(job, receiver, "SIGKILL" if kill is kill_process else "")
    machine("stop", "job")
    wait_until(lambda: not has_guard(tmp_path))
    assert machine.run("list", "-o", "name").stdout == ""  # a stopped job stays stopped


def check_notification(job: GuardedJob, receiver: Receiver, cause: str) -> None:
    """Check what the address received, and that neither the job nor the guard's log knows its password."""
    wait_until(lambda: receiver.received)
    (notification,) = receiver.received
    assert notification["title"] == "relaunch of job job in namespace default"
    assert cause in notification["message"]
    (pid,) = processes.find_marked(f"{job.read()['uid']}/")
    assert b"KFJOB_NOTIFY" not in read_environment(pid)
    assert "swordfish" not in job.log()


def test_same_exception_twice_at_one_step_ends_the_job(machine: Machine, tmp_path: Path):
    job = GuardedJob(machine, tmp_path, env={"FAIL_AT": "25"})
    wait_until(lambda: job.read().get("guard_decision"))
    status = job.read()
    assert status["phase"] == "Failed"
    assert status["guard_decision"].startswith("the same failure ended two launches after step 25")
    assert len(status["relaunches"]) == 1
    assert "gave up: the same failure ended two launches" in machine("status", "job")
    assert "job: stop: the same failure ended two launches" in job.log()


def test_job_that_prints_nothing_is_relaunched_and_one_past_its_deadline_is_stopped(machine: Machine, tmp_path: Path):
    job = GuardedJob(machine, tmp_path, env={"HANG_AT": "15"}, watchdog={"stall": 3, "deadline": 10})
    wait_until(lambda: job.read().get("relaunches"))
    assert job.read()["relaunches"][0]["step"] == 15
    wait_until(lambda: "job: stop: it has run for" in job.log())
    wait_until(lambda: not machine.run("list", "-o", "name").stdout)
    assert "it has run for" in machine("status", "job")  # of the archive


SHORT_WAIT = "from kfjob.api.lifecycle import wait; wait.REPLACE_SECONDS = 8.0"
"""Without it `wait` waits half a minute for a relaunch of the job that a person has stopped."""


def test_wait_goes_on_through_a_relaunch_until_a_person_stops_the_job(machine: Machine, tmp_path: Path):
    GuardedJob(machine, tmp_path, env={"HANG_AT": "15"}, watchdog={"stall": 3})
    notes, command = tmp_path / "notes", [*make_command(SHORT_WAIT), "wait", "job"]
    with (
        notes.open("w") as stderr,
        subprocess.Popen(command, env=machine.env, stdout=subprocess.PIPE, stderr=stderr, text=True) as waiting,
    ):
        try:
            wait_until(lambda: "the guard has relaunched `job`" in notes.read_text())
            wait_until(lambda: machine.run("stop", "job").returncode == 0)  # the guard may be about to relaunch it once more
            assert (waiting.communicate(timeout=60)[0], waiting.returncode) == ("Stopped\n", 103)
        finally:
            waiting.kill()


def test_relaunch_that_is_not_possible_is_no_relaunch(machine: Machine, tmp_path: Path):
    job = GuardedJob(machine, tmp_path)
    wait_until(lambda: job.has_checkpoint(10))
    (tmp_path / "fit.py").unlink()
    kill_process(job)
    wait_until(lambda: job.read().get("guard_decision"))
    assert "the next launch is refused" in job.read()["guard_decision"]
    assert job.read()["phase"] == "Failed"


@pytest.mark.trainer
def test_relaunch_continues_a_run_that_began_from_scratch(machine: Machine, tmp_path: Path):
    """`resume: none` names the start of a run. A relaunch by the guard goes on, and `--from` begins anew."""
    shape = {"vocab_size": 64, "hidden_size": 8, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    train = {"model": shape, "data": "synthetic", "sequence_length": 8, "micro_batch_size": 2, "max_steps": 10**6}
    train |= {"checkpoint_dir": str(tmp_path / "kept"), "checkpoint_every": 20, "keep_last": 0, "resume": "none"}
    job = GuardedJob(machine, tmp_path, launcher="torchrun", command=None, train=train)

    def has_begun(after: str) -> bool:
        launches = folder.list_folders(job.folder / "state" / "local" / "default" / "job")
        logs = [log for launch in launches if launch.name != after for log in launch.rglob("*.log")]
        return any("] Resume " in log.read_text() for log in logs)

    def wait_for_resume(after: str) -> str:
        """Wait until another launch than `after` says where it begins, and return the checkpoint."""
        wait_until(lambda: has_begun(after), patience=240)  # `kfjob status` again and again would take a core
        wait_until(lambda: job.read().get("launch", after) != after and (job.read().get("resume") or {}).get("name"))
        name: str = job.read()["resume"]["name"]
        return name

    wait_until(lambda: job.has_checkpoint(60))
    first = job.read()["launch"]
    os.kill(processes.find_marked(f"{job.read()['uid']}/")[0], signal.SIGKILL)
    assert int(wait_for_resume(first).removeprefix("step-")) >= 60
    second = job.read()["launch"]
    machine("relaunch", "job", "--from", "40")
    assert wait_for_resume(second) == "step-000040"
    assert list((tmp_path / "kept").glob("earlier-step-000060*"))


@pytest.mark.long  # test_killed_job_is_relaunched_from_its_newest_checkpoint kills the same two processes, one each
def test_random_faults_lose_nothing():
    """The short version of the campaigns in benchmarks/README.md."""
    command = [sys.executable, "-m", "benchmarks.survival", "--faults", "4", "--seed", "3"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "4 resumed, 0 steps before a checkpoint lost, 0 failed checks" in done.stdout
