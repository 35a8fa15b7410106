"""A command whose output cannot be written ends with one message, or with none for a closed pipe."""

from __future__ import annotations

import gzip
import os
import re
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from itertools import product
from pathlib import Path

import pytest

from kfjob.api.logs.merge import THREADS
from kfjob.backends import folder
from kfjob.base.errors import BackendError
from kfjob.cli import commands
from kfjob.joblog.events import JobChanged, JobPhase, JobSnapshot, PodChanged, PodPhase

KFJOB = f'"{sys.executable}" -c "from kfjob.cli.main import main; main()"'


LOST = "error: the output cannot be written\n  cause: No space left on device\n"
CLOSED = "error: the output cannot be written\n  cause: standard output is closed\n"


@pytest.mark.parametrize(
    ("command", "redirection", "code", "message"),
    [
        ("schema", ">/dev/full", 1, LOST),
        ("instances", ">/dev/full", 1, LOST),
        ("--help", ">/dev/full", 1, LOST),
        ("--help", ">&-", 1, CLOSED),
        ("schema", ">&-", 1, CLOSED),
        ("schema", "| true", 0, ""),
        ("schema", "| true; exit ${PIPESTATUS[0]}", 141, ""),
        ("schema", ">/dev/null 2>&-", 0, ""),
    ],
)
def test_output_that_cannot_be_written(command, redirection, code, message, tmp_path):
    shell = f"{KFJOB} {command} {redirection}"
    done = run(shell, tmp_path)
    assert done.returncode == code
    assert done.stderr == message


JOB_COMMANDS = ["list", "status", "logs", "master", "progress", "watch", "wait", "diagnose", "report -o page.html"]
REDIRECTIONS = [">/dev/full", "2>/dev/full", ">/dev/full 2>/dev/full", ">&-", ">&- 2>&-"]


@pytest.mark.parametrize(
    ("command", "redirection"),
    [*((command, ">/dev/full") for command in JOB_COMMANDS), *product(("status", "watch"), REDIRECTIONS[1:])],
)
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


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("init job.yaml --yes --force", "error: `kfjob.schema.json` cannot be written\n  cause: File too large\n"),
        (
            "logs train --from saved --all",
            "error: `{temporary}/kfjob-logs-X` cannot be written\n  cause: File too large\n",
        ),
        ("logs --from - < a.log.gz", "error: `{temporary}/kfjob-X` cannot be written\n  cause: File too large\n"),
        ("report --from saved/a.log -o page.html", "error: cannot write `page.html`\n  cause: File too large\n"),
    ],
)
def test_error_of_a_file_names_the_file_and_not_the_output(command, message, tmp_path):
    """No file can grow beyond 1 KiB; standard output is a pipe, which can."""
    (tmp_path / "saved").mkdir()
    (tmp_path / "temporary").mkdir()
    for name in ("a", *map(str, range(THREADS))):
        (tmp_path / "saved" / f"{name}.log").write_text("2026-11-21T06:37:49.644000000Z step 1/10 loss=2.5\n" * 2000)
    (tmp_path / "a.log.gz").write_bytes(gzip.compress((tmp_path / "saved" / "a.log").read_bytes()))
    done = run(f"ulimit -f 1; {KFJOB} {command}", tmp_path, TMPDIR=str(tmp_path / "temporary"), KFJOB_BACKEND="local")
    assert done.returncode in (1, 2, 3)
    shown = re.sub(r"(kfjob-(logs-)?)\w+", r"\1X", done.stderr)
    assert message.format(temporary=tmp_path / "temporary") in shown


@pytest.mark.parametrize(
    ("error", "lines"),
    [
        (OSError(28, "No space left on device", "/a/b"), ["`/a/b` cannot be written", "No space left on device", "make space"]),
        (OSError(13, "Permission denied", "/a/b"), ["`/a/b` cannot be used", "Permission denied"]),
        (OSError(28, "No space left on device"), ["the operating system refused an operation", "No space left", "`--debug`"]),
        (BrokenPipeError(32, "Broken pipe"), ["the operating system refused an operation", "Broken pipe"]),
    ],
)
def test_unexpected_error_of_the_system_is_one_message(error, lines, monkeypatch, capsys):
    def fail(**_options: object) -> None:
        raise error

    monkeypatch.setattr("kfjob.cli.jobs_list.list_jobs.callback", fail)
    assert commands.run(["list"]) == 1
    shown = capsys.readouterr().err
    assert shown.startswith("error: ")
    assert all(line in shown for line in lines)
    with pytest.raises(BackendError) as caught:
        commands.run(["list", "--debug"])
    assert caught.value.__cause__ is error


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
