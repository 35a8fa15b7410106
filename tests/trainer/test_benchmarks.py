"""Smoke test of the GPU benchmark on CPU."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parents[2] / "benchmarks" / "trainer_gpu.py"


def run_benchmark(*arguments: str | Path):
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | {"OMP_NUM_THREADS": "1"}
    return subprocess.run([sys.executable, PROGRAM, *arguments], capture_output=True, text=True, check=False, env=environment)


SHORT = ["1B documents, compiled"]
"""A case of the trainer; a plain loop is in the long version."""


@pytest.mark.parametrize(
    ("cases", "rows"), [(SHORT, 1), pytest.param([], 27, marks=[pytest.mark.long, pytest.mark.timeout(3600)])]
)
def test_gpu_benchmark_runs_tiny_cases_on_cpu(tmp_path, cases, rows):
    raw = tmp_path / "raw.jsonl"
    choice = ["--steps=3", "--group", "documents", "--case", *cases] if cases else []
    process = run_benchmark("--smoke", "--out", raw, *choice)
    assert process.returncode == 0, process.stdout + process.stderr
    assert len(raw.read_text().splitlines()) == rows
    assert all(json.loads(line)["raw"] for line in raw.read_text().splitlines())
    if not cases:
        assert "losses equal to the bit" in process.stdout
        assert "in background / waiting: " in process.stdout


@pytest.mark.timeout(1200)
@pytest.mark.long  # the test above always runs the program, and test_float8.py and test_loss.py the compiler
def test_gpu_benchmark_compiles_tiny_cases_on_cpu(tmp_path):
    """Each kind of compiled layer, and the plain loop, compiled by layer and whole."""
    raw = tmp_path / "raw.jsonl"
    choice = ["--group", "published", "8B-block"]
    process = run_benchmark("--smoke", "--compiled", "--steps=3", "--time-limit=600", "--out", raw, *choice)
    assert process.returncode == 0, process.stdout + process.stderr
    cases = [json.loads(line) for line in raw.read_text().splitlines()]
    assert [case["spec"]["compile"] for case in cases] == [True] * 6


def test_case_beyond_the_time_limit_fails_by_name():
    process = run_benchmark("--smoke", "--group", "published", "--time-limit", "0.1")
    assert process.returncode == 1
    assert process.stdout.count("FAILED\ntook more than 0 s") == 2
    assert process.stderr == "failed: 1.3B like MPT, compiled, chunked loss, 8B selective, compiled, bf16 states\n"


def test_torchtitan_is_left_out_where_it_is_not_installed():
    process = run_benchmark("--smoke", "--group", "8B-block", "--time-limit", "0.1")
    assert "8B block torchtitan                      left out: torchtitan is not installed\n" in process.stdout
    assert "8B block torchtitan" not in process.stderr
