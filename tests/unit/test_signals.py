"""Tests interrupt the programs that they start, so these must not inherit an ignored signal."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP, signal.SIGTERM])
def test_a_program_of_a_test_ends_with_a_signal(number):
    with subprocess.Popen(["sleep", "60"]) as process:
        process.send_signal(number)
        assert process.wait(timeout=30) == -number


def test_ignored_signals_are_restored_in_the_background_of_a_script_and_under_nohup():
    test = f"{__file__}::{test_a_program_of_a_test_ends_with_a_signal.__name__}"
    argv = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", test]
    ignoring = ["bash", "-c", "trap '' INT HUP; exec \"$@\"", "ignoring", *argv]
    done = subprocess.run(ignoring, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout
    assert "3 passed" in done.stdout
