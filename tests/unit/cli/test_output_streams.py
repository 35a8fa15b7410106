"""A command whose output cannot be written ends with one message, or with none for a closed pipe."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

KFJOB = f'"{sys.executable}" -c "from kfjob.cli.main import main; main()"'


@pytest.mark.parametrize(
    ("redirection", "code", "message"),
    [
        (">/dev/full", 1, "error: the output cannot be written\n  cause: No space left on device\n"),
        (">&-", 0, ""),
        ("| true", 0, ""),
        (">/dev/null 2>&-", 0, ""),
    ],
)
@pytest.mark.parametrize("command", ["schema", "instances", "--help"])
def test_output_that_cannot_be_written(command, redirection, code, message, tmp_path):
    shell = f"{KFJOB} {command} {redirection}"
    done = run(shell, tmp_path)
    assert done.returncode == code
    assert done.stderr == message


def test_output_that_is_not_utf_8_is_escaped(tmp_path):
    done = run(f"{KFJOB} nothing-\u202f", tmp_path, PYTHONIOENCODING="latin-1")
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert done.stderr.startswith("error: unknown command")


def run(shell: str, folder: object, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "HOME": str(folder), **variables}
    return subprocess.run(["bash", "-c", shell], env=environment, capture_output=True, text=True, timeout=120, check=False)
