"""Smoke test of the GPU benchmark on CPU."""

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
def test_gpu_benchmark_runs_a_tiny_case_on_cpu(tmp_path, only, rows):
    raw = tmp_path / "raw.jsonl"
    command = [sys.executable, PROGRAM, "--smoke", "--out", raw, "--only", *only]
    environment = {**os.environ, "PYTHONPATH": str(PROGRAM.parents[1]), "OMP_NUM_THREADS": "1"}
    process = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert process.returncode == 0, process.stdout + process.stderr
    assert len(raw.read_text().splitlines()) == rows
    assert all(json.loads(line)["raw"] for line in raw.read_text().splitlines())
    if only == [""]:
        assert "losses equal to the bit" in process.stdout
        assert "x waiting" in process.stdout
