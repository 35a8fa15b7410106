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

def lose_outcome(end="sys.exit(0)"):
    ref = start(end)
    fill()
    go.touch()
    here.until(lambda: here.get(ref).job.message == "outcome unknown (disk full)")
    return ref
"""


def run_on_small_disk(tmp_path: Path, program: str) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    script = f'mount -t tmpfs -o size=512k none {disk} && exec "$@"'
    words = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", script, "sh", sys.executable, "-c"]
    done = subprocess.run([*words, PREPARE + program, str(disk)], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr


def test_outcome_that_cannot_be_written_is_unknown(tmp_path: Path):
    program = """
ref = lose_outcome()
assert here.get(ref).job.phase is JobPhase.RUNNING
(disk / "filler").unlink()
assert here.end(ref).job.phase is JobPhase.SUCCEEDED  # the supervisor has tried again
here.backend.stop(ref, timeout=30)
assert folder.read_snapshot(here.archived(ref)).job.phase is JobPhase.SUCCEEDED
"""
    run_on_small_disk(tmp_path, program)


def test_failure_on_a_full_disk_keeps_its_exit_code(tmp_path: Path):
    program = """
ref = lose_outcome("sys.exit(7)")
(disk / "filler").unlink()
snapshot = here.end(ref)
assert (snapshot.job.phase, snapshot.pods[0].exit_code) == (JobPhase.FAILED, 7)
here.backend.stop(ref, timeout=30)
"""
    run_on_small_disk(tmp_path, program)


def test_dead_supervisor_on_a_full_disk_is_no_failure_of_the_job(tmp_path: Path):
    program = """
ref = lose_outcome()
os.kill(here.supervisor(ref), signal.SIGKILL)
here.until(lambda: here.get(ref).job.phase.ended)
assert here.get(ref).job.phase is JobPhase.STOPPED
assert here.get(ref).job.message == "outcome unknown (disk full)"
"""
    run_on_small_disk(tmp_path, program + "(disk / 'filler').unlink()\nhere.backend.stop(ref, timeout=30)")
