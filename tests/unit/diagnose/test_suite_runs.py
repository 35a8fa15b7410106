"""A run of tests that provokes errors and ends well is no failure."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from kfjob.joblog.diagnose.diagnosis import Diagnosis
from kfjob.joblog.diagnose.engine.suite_runs import MAX_MARKS, MAX_RUNS, REACH, SuiteRuns
from kfjob.joblog.events import Event, JobChanged, JobPhase, LogLine, PodChanged, PodPhase
from kfjob.joblog.observe_config import ObserveConfig
from kfjob.joblog.prefilter import Prefilter
from tests.unit.diagnose.cases import block, examine, line, lines

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


OOM = f"""Traceback (most recent call last):
  File "/w/train.py", line 3, in <module>
    step()
{ERROR}"""
BEGIN = "===== test session starts ====="
END = "===== 3 passed in 0.41s ====="
FAILED = "E1121 06:38:10.0 1 torch/distributed/elastic/multiprocessing/api.py:1002] failed (exitcode: 1) local_rank: 1"


def diagnose(text: str) -> Diagnosis:
    events: list[Event] = [*lines(text)]
    return examine(events)[0]


def first_rule(*events: Event) -> str:
    first = examine(events)[0].first_cause
    return first.rule if first else ""


def fail(*texts: str) -> list[Event]:
    """Return the events of a job that prints these lines and ends with exit code 1."""
    state = PodChanged(pod="a-worker-0", phase=PodPhase.FAILED, exit_code=1, reason="Error")
    return [*lines("\n".join(texts)), state, JobChanged(phase=JobPhase.FAILED)]


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


@pytest.mark.parametrize("options", [(), ("-q",)])
def test_errors_of_passed_tests_are_harmless_in_a_saved_log(tmp_path: Path, options: tuple[str, ...]):
    """The lines that the prefilter keeps are enough."""
    text = run_tests(tmp_path, *PYTEST, "-k", "timeout", *options)
    block = "".join(f"{text}noise {number}\n" for number, text in enumerate(text.splitlines(keepends=True))).encode()
    select = Prefilter(ObserveConfig(trainer="kfjob", rendezvous="c10d"), diagnosis=True).select
    kept = [block[start:end].decode() for start, end in select(block)]
    assert not any("noise" in text for text in kept)
    assert examine(LogLine(pod="a", text=text) for text in kept)[0].healthy


@pytest.mark.parametrize("summary", ["12 passed in 0.1s", END, "Ran 12 tests in 0.1s\n\nOK", ".\n12 passed in 0.1s"])
def test_summary_without_the_lines_of_its_tests_hides_nothing(summary: str):
    assert first_rule(*fail(OOM, summary)) == "cuda-oom"
    assert first_rule(*lines(f"{OOM}\n{summary}")) == "cuda-oom"


@pytest.mark.parametrize("after", [[FAILED], ["step 1 loss 2", "step 2 loss 1.9"]])
def test_tests_of_one_rank_hide_no_error_of_another(after: list[str]):
    texts = [f"[rank1]: {ERROR}", "3 passed in 0.1s", *after]
    assert first_rule(*lines("\n".join(texts))) == "cuda-oom"
    texts = [f"[rank0]: {BEGIN}", f"[rank1]: {ERROR}", f"[rank0]: {END}", *after]
    assert first_rule(*lines("\n".join(texts))) == "cuda-oom"


def test_tests_below_an_agent_hide_no_error_of_a_rank():
    texts = [BEGIN, f"[rank1]: {ERROR}", END]
    assert first_rule(*lines("\n".join(texts))) == ""
    launch = line("I1121 06:37:49.6 1 torch/distributed/launcher/api.py:194] Starting elastic_operator with launch configs:")
    joined = [line(item.text.replace("local_ranks=[0]", "local_ranks=[0, 1]")) for item in block(0, 0, "a-worker-0")]
    joined = [line(item.text.replace("global_ranks=[0]", "global_ranks=[0, 1]")) for item in joined]
    assert first_rule(launch, *joined, *lines("\n".join(texts))) == "cuda-oom"


@pytest.mark.parametrize("text", ["Killed", "Segmentation fault (core dumped)"])
def test_signal_is_never_provoked(text: str):
    assert first_rule(*lines(f"{BEGIN}\n{text}\n{END}")) in {"worker-killed", "worker-crashed"}


def test_error_of_passed_tests_is_the_suspect_if_nothing_else_explains_the_failure():
    events = fail(BEGIN, OOM, END)
    diagnosis, _ = examine(events)
    assert diagnosis.first_cause
    assert (diagnosis.first_cause.rule, diagnosis.first_cause.role) == ("cuda-oom", "suspect")
    assert "the program went on after it" in diagnosis.first_cause.cause
    assert [issue.rule for issue in diagnosis.consequences] == ["pod-failed"]
    assert examine([*lines(f"{BEGIN}\n{OOM}\n{END}"), JobChanged(phase=JobPhase.SUCCEEDED)])[0].healthy
    assert first_rule(*fail(BEGIN, OOM, END, "KeyError: 'x'")) == "exception"


def test_heading_of_a_failed_run_does_not_count_for_the_next_one():
    assert first_rule(*lines(f"{BEGIN}\n===== 1 failed, 2 passed in 0.3s =====\n{OOM}\n3 passed in 0.1s")) == "cuda-oom"
    count = "Ran 3 tests in 0.1s\n"
    assert first_rule(*lines(f"...\n{count}\nFAILED (failures=1)\n{OOM}\n{count}\nOK")) == "cuda-oom"


def test_dots_reach_back_only_to_the_output_of_the_first_test():
    runs = SuiteRuns()
    for number in range(2 * MAX_MARKS):  # dots of something else
        runs.read("...", line=number)
    begin = 2 * MAX_MARKS + 2 * REACH
    runs.read("...", line=begin)
    assert runs.read("3 passed in 0.1s", line=begin + 1)
    assert (runs.passed[0].first, runs.passed[0].last) == (begin - REACH, begin + 1)


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
    assert not SuiteRuns().read(summary, line=7)


def test_few_runs_are_remembered():
    runs = SuiteRuns()
    for number in range(2 * MAX_RUNS):
        assert not runs.read("............                                    [100%]", line=2 * number)
        assert runs.read("12 passed, 2 warnings in 61.20s (0:01:01)", line=2 * number + 1)
    assert len(runs.passed) == MAX_RUNS


def test_result_of_unittest_passes_the_prefilter():
    prefilter = Prefilter(ObserveConfig(trainer="kfjob", rendezvous="c10d"), diagnosis=True)
    block = b"sample 7\nRan 6 tests in 41.007s\n\nOK\n"
    assert b"OK" in b"".join(block[start:end] for start, end in prefilter.select(block))
