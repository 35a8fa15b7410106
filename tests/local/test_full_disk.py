"""A full disk hides no outcome. Each test has a small file system of its own, in its own mount namespace."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.local

PREPARE = """
import errno, os, signal, sys
from pathlib import Path
from kfjob.backends import folder
from kfjob.local.backend import LocalBackend
from kfjob.joblog.events import JobPhase
from tests.local.conftest import Here

disk, code = Path(sys.argv[1]), "import os, sys, time\\nwhile not os.path.exists(os.environ['GO']): time.sleep(0.02)\\n"
go = disk.parent / "go"
here = Here(disk / "state", LocalBackend(state=disk / "state", backoff_seconds=0.2))

def fill():
    with (disk / "filler").open("ab", buffering=0) as file:
        for size in (4096, 1):
            try:
                while True:
                    file.write(b"x" * size)
            except OSError as err:
                assert err.errno == errno.ENOSPC, err

def start(end, **spec):
    ref = here.submit(code + end, env={"GO": str(go)}, **spec)
    here.until(lambda: here.get(ref).job.phase is JobPhase.RUNNING)
    return ref

def lose_outcome():  # as on a file system that needs free space to write over a block
    ref = start("sys.exit(0)")
    (here.launch(ref) / folder.RUN / "outcome").unlink()
    fill()
    go.touch()
    here.until(lambda: here.get(ref).job.message == "outcome unknown (disk full)")
    return ref
"""


def run_on_small_disk(tmp_path: Path, program: str, *arguments: str) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    script = f'mount -t tmpfs -o size=512k none {disk} && exec "$@"'
    words = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", script, "sh", sys.executable, "-c"]
    done = subprocess.run([*words, program, str(disk), *arguments], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(("code", "phase"), [(0, "SUCCEEDED"), (7, "FAILED")])
def test_outcome_on_a_full_disk_is_kept(tmp_path: Path, code: int, phase: str):
    program = f"""
ref = start("sys.exit({code})")
fill()
go.touch()
assert here.end(ref).job.phase is JobPhase.{phase}, here.get(ref)
assert [pod.exit_code for pod in here.get(ref).pods] == [{code}]
assert here.get(ref).spec
(disk / "filler").unlink()
here.until(lambda: folder.read_snapshot(here.launch(ref)).job.phase is JobPhase.{phase})
here.until(lambda: not (here.launch(ref) / folder.RUN / "outcome").read_bytes().strip())
here.backend.stop(ref, timeout=30)
assert folder.read_snapshot(here.archived(ref)).job.phase is JobPhase.{phase}
"""
    run_on_small_disk(tmp_path, PREPARE + program)


def test_outcome_that_cannot_be_written_is_unknown(tmp_path: Path):
    program = """
ref = lose_outcome()
assert here.get(ref).job.phase is JobPhase.RUNNING
(disk / "filler").unlink()
assert here.end(ref).job.phase is JobPhase.SUCCEEDED  # the supervisor has tried again
here.backend.stop(ref, timeout=30)
"""
    run_on_small_disk(tmp_path, PREPARE + program)


def test_dead_supervisor_on_a_full_disk_is_no_failure_of_the_job(tmp_path: Path):
    program = """
ref = lose_outcome()
os.kill(here.supervisor(ref), signal.SIGKILL)
here.until(lambda: here.get(ref).job.phase.ended)
assert here.get(ref).job.phase is JobPhase.STOPPED
assert here.get(ref).job.message == "outcome unknown (disk full)"
"""
    run_on_small_disk(tmp_path, PREPARE + program + "(disk / 'filler').unlink()\nhere.backend.stop(ref, timeout=30)")


def test_stop_on_a_full_disk_loses_no_outcome(tmp_path: Path):
    program = """
from kfjob.base.errors import BackendError
ref = start("sys.exit(0)")
fill()
go.touch()
here.end(ref)
try:
    here.backend.stop(ref, timeout=30)
except BackendError as err:
    assert "cannot be written" in err.title, err
else:
    raise AssertionError("the final state was not written, and nothing was said")
assert here.get(ref).job.phase is JobPhase.SUCCEEDED
(disk / "filler").unlink()
here.backend.stop(ref, timeout=30)
assert folder.read_snapshot(here.archived(ref)).job.phase is JobPhase.SUCCEEDED
"""
    run_on_small_disk(tmp_path, PREPARE + program)


def test_lines_that_a_full_disk_loses_are_reported(tmp_path: Path):
    program = """
import io
from contextlib import redirect_stdout
from kfjob.cli.main import main

def show(*words):
    with redirect_stdout(io.StringIO()) as output:
        try:
            main([*words, "job", "--backend", "local"])
        except SystemExit:
            pass
    return output.getvalue()

os.environ["KFJOB_STATE"] = str(disk / "state")
ref = start("[print('line', number) for number in range(298)]; sys.exit(3)", nodes=1)
fill()
go.touch()
snapshot = here.end(ref)
assert snapshot.pods[0].lost_lines == 298, snapshot
loss = "298 lines of its log were lost: no space left on device"
assert f"lost       `job-worker-0`: {loss}" in show("status"), show("status")
assert f"pod `job-worker-0`: {loss}" in show("diagnose"), show("diagnose")
"""
    run_on_small_disk(tmp_path, PREPARE + program + "(disk / 'filler').unlink()\nhere.backend.stop(ref, timeout=30)")


STOP_ON_CLUSTER = """
import contextlib, io, os, sys
from pathlib import Path
from kfjob.api.settings import Settings
from kfjob.api.target import Target, make_target
from kfjob.api.lifecycle.stop import stop
from tests.fakes.backend import FakeBackend
from kfjob.cli.commands import run
from kfjob.joblog.events import LogLine
from tests.unit.api import script

disk, free = Path(sys.argv[1]), int(sys.argv[2])
os.environ["XDG_STATE_HOME"] = str(disk)
backend = FakeBackend()
Target._open_cluster = lambda target: backend
backend.play("train", *script.TRAINING, spec=script.SPEC)
with (disk / "filler").open("wb", buffering=0) as file, contextlib.suppress(OSError):
    while True:
        file.write(b"x" * 4096)
with (disk / "filler").open("r+b") as file:
    file.truncate((disk / "filler").stat().st_size - free)
messages = io.StringIO()
with contextlib.redirect_stderr(messages):
    code = run(["stop", "train", "--backend", "kubernetes"])
text = messages.getvalue()
assert code == 1, (code, text)
assert text.startswith("error: job `train` cannot be archived, so it was not stopped\\n  --> "), text
assert "cause: No space left on device" in text, text
assert text.count("error: ") == 1, text
assert backend.calls == [], backend.calls
(disk / "filler").unlink()
assert run(["stop", "train", "--backend", "kubernetes"]) == 0
assert backend.calls == [("stop", "train")]
archived = "".join(log.read_text() for log in (disk / "kfjob").rglob("pytorch.log"))
texts = [event.text for event in script.TRAINING if isinstance(event, LogLine)]
assert texts, "the job has no log"
assert [text for text in texts if text not in archived] == [], archived
"""


@pytest.mark.parametrize("free", [0, 4096, 8192])
def test_a_job_of_a_cluster_is_not_stopped_if_the_disk_of_its_archive_is_full(tmp_path: Path, free: int):
    run_on_small_disk(tmp_path, STOP_ON_CLUSTER, str(free))
