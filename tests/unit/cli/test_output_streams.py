"""A command whose output cannot be written ends with one message, or with none for a closed pipe."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from kfjob.backends import folder
from kfjob.events import JobChanged, JobPhase, JobSnapshot, PodChanged, PodPhase

KFJOB = f'"{sys.executable}" -c "from kfjob.cli.main import main; main()"'


@pytest.mark.parametrize(
    ("redirection", "code", "message"),
    [
        (">/dev/full", 1, "error: the output cannot be written\n  cause: No space left on device\n"),
        (">&-", 1, "error: the output cannot be written\n  cause: standard output is closed\n"),
        ("| true", 0, ""),
        ("| true; exit ${PIPESTATUS[0]}", 141, ""),
        (">/dev/null 2>&-", 0, ""),
    ],
)
@pytest.mark.parametrize("command", ["schema", "instances", "--help"])
def test_output_that_cannot_be_written(command, redirection, code, message, tmp_path):
    shell = f"{KFJOB} {command} {redirection}"
    done = run(shell, tmp_path)
    assert done.returncode == code
    assert done.stderr == message


JOB_COMMANDS = ["list", "status", "logs", "master", "progress", "watch", "wait", "diagnose", "report -o page.html"]
LOST = "error: the output cannot be written\n  cause: No space left on device\n"


CLOSED = "error: the output cannot be written\n  cause: standard output is closed\n"


@pytest.mark.parametrize("command", JOB_COMMANDS)
@pytest.mark.parametrize("redirection", [">/dev/full", "2>/dev/full", ">/dev/full 2>/dev/full", ">&-", ">&- 2>&-"])
def test_a_command_of_a_job_whose_output_cannot_be_written(command, redirection, run_as_usual, home):
    shell, usual = run_as_usual(command)
    lost = run(f"{shell} {redirection}", home, KFJOB_STATE=str(home), KFJOB_BACKEND="local")
    assert "Traceback" not in lost.stderr
    assert "Exception ignored" not in lost.stderr
    if redirection == ">/dev/full" and usual.stdout:
        assert (lost.returncode, lost.stderr.endswith(LOST)) == (1, True)
    elif redirection == ">&-" and usual.stdout:
        assert (lost.returncode, lost.stderr.endswith(CLOSED)) == (1, True)
    elif redirection == "2>/dev/full":
        assert lost.returncode == usual.returncode
    else:
        assert lost.returncode == (1 if usual.stdout else usual.returncode)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder whose archive holds a job."""
    home = tmp_path_factory.mktemp("home")
    path = folder.make_private(launch_folder(home))
    job = JobChanged(phase=JobPhase.SUCCEEDED, created=1, ended=2)
    pods = (PodChanged(pod="train-worker-0", phase=PodPhase.SUCCEEDED),)
    folder.write_snapshot(path, JobSnapshot(name="train", namespace="default", job=job, pods=pods, uid="u", launch="l1"))
    log = folder.log_path(path, "train-worker-0")
    folder.make_private(log.parent)
    log.write_text("2026-11-21T06:37:49.644000000Z step 1/10 loss=2.5\n" * 2000)
    return home


def launch_folder(home: Path) -> Path:
    return folder.launch_folder(home / "archive", "default", "train", "l1")


@pytest.fixture(scope="module")
def run_as_usual(home: Path) -> Callable[[str], tuple[str, subprocess.CompletedProcess[str]]]:
    """Return a function that returns the shell text of a command, and what it does with all streams; it runs once."""

    @cache
    def run_command(command: str) -> tuple[str, subprocess.CompletedProcess[str]]:
        name, *options = command.split()
        arguments = [] if name == "list" else [f"--from {launch_folder(home)}"] if name == "progress" else ["train"]
        shell = " ".join([KFJOB, name, *arguments, *options])
        return shell, run(shell, home, KFJOB_STATE=str(home), KFJOB_BACKEND="local")

    return run_command


@pytest.mark.parametrize("command", ["render", "explain"])
def test_standard_output_of_another_encoding_gets_every_text(command, tmp_path):
    (tmp_path / "job.yaml").write_text("name: a\nimage: b\ncommand: [python, -c, 'print(\"→ ж 🙂 é\")']\n")
    done = run(f"{KFJOB} {command} job.yaml --backend local", tmp_path, PYTHONIOENCODING="latin-1")
    assert (done.returncode, "Traceback" in done.stderr) == (0, False)
    assert "\\u2192" in done.stdout


def test_output_that_is_not_utf_8_is_escaped(tmp_path):
    done = run(f"{KFJOB} nothing-\u202f", tmp_path, PYTHONIOENCODING="latin-1")
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert done.stderr.startswith("error: unknown command")


def run(shell: str, home: object, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "HOME": str(home), **variables}
    return subprocess.run(
        ["bash", "-c", shell],
        cwd=str(home),
        env=environment,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=120,
        check=False,
    )
