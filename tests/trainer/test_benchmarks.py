"""The program for a GPU must be ready when one is at hand: its smoke test on CPU."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parents[2] / "benchmarks" / "trainer_gpu.py"
SHORT = ["1B eager", "1B by hand", "1B transformers"]


@pytest.mark.parametrize(
    ("only", "rows"),
    [(SHORT, 3), pytest.param([""], 12, marks=[pytest.mark.long, pytest.mark.timeout(3600)])],
    ids=["short", "long"],
)
def test_the_program_for_a_gpu_runs_tiny_on_cpu(tmp_path, only, rows):
    raw = tmp_path / "raw.jsonl"
    command = [sys.executable, PROGRAM, "--smoke", "--out", raw, "--only", *only]
    environment = {**os.environ, "PYTHONPATH": str(PROGRAM.parents[1]), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(raw.read_text().splitlines()) == rows
    assert all(json.loads(line)["raw"] for line in raw.read_text().splitlines())
    if only == [""]:
        assert "losses equal to the bit" in done.stdout
        assert "x waiting" in done.stdout
