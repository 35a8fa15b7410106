"""A run of tests that provokes errors and ends well is no failure."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from kfjob.events import Event
from kfjob.observe.diagnose.diagnosis import Diagnosis
from kfjob.observe.diagnose.suite_runs import MAX_RUNS, SuiteRuns
from kfjob.observe.prefilter import Prefilter
from kfjob.spec.observe_config import ObserveConfig
from tests.unit.diagnose.cases import examine, lines

WATCHDOG = "[rank1]:[E ProcessGroupNCCL.cpp:475] [Rank 1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=3)"
ERROR = "RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB"
PROGRAM = f"""
import sys, unittest

class Dist(unittest.TestCase):
    def test_timeout(self):
        print({WATCHDOG!r}, file=sys.stderr)
    def test_memory(self):
        print({ERROR!r}, file=sys.stderr)
        self.assertEqual(len(sys.argv), 1)
"""


def diagnose(text: str) -> Diagnosis:
    events: list[Event] = [*lines(text)]
    return examine(events)[0]


def run_tests(folder: Path, *arguments: str) -> str:
    (folder / "test_dist.py").write_text(PROGRAM)
    command = [sys.executable, "-m", *arguments]
    merged = subprocess.STDOUT
    done = subprocess.run(command, cwd=folder, stdout=subprocess.PIPE, stderr=merged, text=True, check=False, env={"PATH": ""})
    return done.stdout


UNITTEST = ("unittest", "-v", "test_dist")
PYTEST = ("pytest", "-p", "no:cacheprovider", "--capture=no", "test_dist.py")


def test_errors_of_passed_unittests_are_harmless(tmp_path: Path):
    text = run_tests(tmp_path, *UNITTEST).replace("FAILED (failures=1)", "OK")
    assert diagnose(text).healthy


def test_errors_of_failed_unittests_remain(tmp_path: Path):
    text = run_tests(tmp_path, *UNITTEST)
    assert "FAILED (failures=1)" in text
    assert not diagnose(text).healthy


@pytest.mark.parametrize("options", [(), ("-q",), ("--color=yes",)])
def test_errors_of_a_passed_pytest_are_harmless(tmp_path: Path, options: tuple[str, ...]):
    text = run_tests(tmp_path, *PYTEST, "-k", "timeout", *options)
    assert "Watchdog caught" in text
    diagnosis = diagnose(text)
    assert diagnosis.healthy
    assert diagnosis.reports
    assert [issue.rule for issue in diagnosis.harmless] == ["nccl-timeout"]


def test_errors_of_a_failed_pytest_remain(tmp_path: Path):
    assert not diagnose(run_tests(tmp_path, *PYTEST)).healthy


def test_errors_after_and_before_the_tests_count():
    begin, end = "===== test session starts =====", "===== 3 passed, 1 skipped in 0.41s ====="
    for text in (f"{begin}\n{end}\n{ERROR}", f"{ERROR}\n{begin}\n{end}"):
        first = diagnose(text).first_cause
        assert first
        assert first.rule == "cuda-oom"


@pytest.mark.parametrize(
    "summary",
    ["1 failed, 3 passed in 2.10s", "3 passed, 1 error in 2.10s", "no tests ran in 0.01s", "all checks passed", "3 passed"],
)
def test_other_summaries_say_nothing(summary: str):
    assert not SuiteRuns().read(summary, order=7, line=7)


def test_few_runs_are_remembered():
    runs = SuiteRuns()
    for order in range(2 * MAX_RUNS):
        assert runs.read("12 passed, 2 warnings in 61.20s (0:01:01)", order=order, line=order)
    assert len(runs.passed) == MAX_RUNS


def test_result_of_unittest_passes_the_prefilter():
    prefilter = Prefilter(ObserveConfig(trainer="kfjob", rendezvous="c10d"), diagnosis=True)
    block = b"sample 7\nRan 6 tests in 41.007s\n\nOK\n"
    assert b"OK" in b"".join(block[start:end] for start, end in prefilter.select(block))
