"""Failures after which a restart is futile."""

import pytest

from kfjob.joblog.diagnose.engine.aftermath import find_futile_restart
from kfjob.joblog.diagnose.engine.collector import SymptomCollector
from kfjob.joblog.events import Event
from kfjob.joblog.view.job_view import JobView
from kfjob.joblog.view.reduction import reduce
from tests.unit.api import script
from tests.unit.diagnose.cases import exit_report


def traceback(index: int, text: str, second: int) -> list[Event]:
    lines = ("Traceback (most recent call last):", '  File "train.py", line 3, in <module>', "    work()", text)
    return [script.line(index, line, second) for line in lines]


def failed(index: int, second: int, code: int = 1) -> Event:
    return script.line(index, exit_report(code), second)


def round_(rank: int, second: int) -> list[Event]:
    return [*script.block(0, rank, second)]


KEY_ERROR = "KeyError: 'lr'"


def attempt(second: int, *texts: str, steps: int = 0) -> list[Event]:
    """Return a round that prints steps and ends with these exceptions."""
    lines = [script.line(0, f"step {step} loss 2.5", second + 1) for step in range(1, steps + 1)]
    errors = [event for text in texts for event in traceback(0, text, second + 2)]
    return [*round_(0, second), *lines, *errors, failed(0, second + 3)]


def rule_of(*events: Event) -> str | None:
    collector, view = SymptomCollector(), JobView()
    for event in (*script.STARTING, *events):
        view = reduce(view, event)
        collector.feed(event, view)
    occurrence = find_futile_restart(collector.history)
    return occurrence.rule.id if occurrence else None


@pytest.mark.parametrize(
    ("text", "code", "rule"),
    [
        ("ModuleNotFoundError: No module named 'nosuch'", 1, "module-not-found"),
        ("ImportError: cannot import name 'x' from 'torch' (/venv/torch/__init__.py)", 1, "name-missing"),
        ("SyntaxError: invalid syntax", 1, "python-syntax"),
        ("train.py: error: unrecognized arguments: --epoch", 2, "argument-error"),
        ("python: can't open file '/w/train.py': [Errno 2] No such file or directory", 2, "script-not-found"),
    ],
)
def test_the_first_round_is_enough(text, code, rule):
    assert rule_of(*round_(0, 5), script.line(0, text, 6), failed(0, 7, code)) == rule


def test_a_worker_that_has_not_failed_goes_on():
    assert rule_of(*round_(0, 5), *traceback(0, "ModuleNotFoundError: No module named 'flash_attn'", 6)) is None


def test_a_killed_worker_may_succeed_in_the_next_round():
    module = traceback(0, "ModuleNotFoundError: No module named 'flash_attn'", 6)
    assert rule_of(*round_(0, 5), *module, failed(0, 7, -9)) is None


def test_an_error_that_the_program_handled_is_not_the_reason():
    module = traceback(0, "ModuleNotFoundError: No module named 'flash_attn'", 6)
    later = traceback(0, "RuntimeError: CUDA error: an illegal memory access was encountered", 7)
    assert rule_of(*round_(0, 5), *module, *later, failed(0, 8)) is None


def test_the_last_of_several_equal_tracebacks_counts():
    module = traceback(0, "ModuleNotFoundError: No module named 'nosuch'", 6)
    assert rule_of(*round_(0, 5), *module, script.line(0, "rank 1 starts", 6), *module, failed(0, 7)) == "module-not-found"


def test_progress_leaves_the_failure_to_the_restarts():
    module = traceback(0, "ModuleNotFoundError: No module named 'safetensors'", 9)
    first = [*round_(0, 5), script.progress(0, 1, 8.0), *module, failed(0, 10)]
    assert rule_of(*first) is None
    module = traceback(0, "ModuleNotFoundError: No module named 'safetensors'", 19)
    again = [*round_(0, 15), script.progress(0, 1, 8.0), *module, failed(0, 20)]
    assert rule_of(*first, *again) == "module-not-found"
    assert rule_of(*first, *round_(0, 15), script.progress(0, 2, 7.0), *module, failed(0, 20)) is None


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("KeyError: 'lr'", "exception"),
        ("my.package.ValueError: 7", "exception"),
        ("FileNotFoundError: [Errno 2] No such file or directory: 'data.txt'", "file-not-found"),
        ("RuntimeError: mat1 and mat2 shapes cannot be multiplied (2x3 and 4x5)", "exception"),
        ("my.package.WrongConfig: no layer 3", "exception"),
        ("TypeError: f() got an unexpected keyword argument 't_mul'", "library-interface"),
        ("TypeError: unsupported operand type(s) for +: 'int' and 'str'", "exception"),
        ("RuntimeError: No CUDA GPUs are available", "no-gpu"),
        ("RuntimeError: [1] is setting up NCCL communicator and retrieving ncclUniqueId from TCPStore", None),
        ("requests.exceptions.ConnectTimeout: 30 s", None),
        ("RuntimeError: NCCL error in: ProcessGroupNCCL.cpp:1", None),
        ("torch.distributed.DistStoreError: wait failed", None),
        ("OSError: [Errno 5] Input/output error: I/O error", None),
        ("OSError: [Errno 98] Address already in use", None),
        ("RuntimeError: checkpoint directory is locked by pid 123", None),
        ("filelock.Timeout: the file lock is held by another process", None),
    ],
)
def test_the_same_exception_in_two_rounds_is_enough(text, rule):
    assert rule_of(*attempt(5, text)) is None
    assert rule_of(*attempt(5, text), *attempt(15, text)) == rule
    assert rule_of(*attempt(5, text), *attempt(15, text, steps=10)) is None


@pytest.mark.parametrize("text", ["RuntimeError: bad state in pid {}", "RuntimeError: <Loader object at 0x7f{}e> is empty"])
def test_an_exception_with_another_number_is_the_same_one(text):
    assert rule_of(*attempt(5, text.format("4711")), *attempt(15, text.format("4812"))) == "exception"


def test_different_exceptions_in_two_rounds_are_not():
    assert rule_of(*attempt(5, "KeyError: 'a'"), *attempt(15, "KeyError: 'b'")) is None


def test_the_same_exception_at_the_same_step_is_no_progress():
    first = attempt(5, KEY_ERROR, steps=10)
    assert rule_of(*first) is None
    assert rule_of(*first, *attempt(15, KEY_ERROR, steps=10)) == "exception"
    assert rule_of(*first, *attempt(15, KEY_ERROR, steps=8)) == "exception"
    assert rule_of(*first, *attempt(15, KEY_ERROR, steps=11)) is None
    assert rule_of(*first, *attempt(15, "KeyError: 'wd'", steps=10)) is None
    assert rule_of(*first, *attempt(15, "ConnectionError: reset by peer", steps=10)) is None


def test_processes_of_one_pod_that_fail_alike_are_one_round():
    first = attempt(5, KEY_ERROR, KEY_ERROR, steps=10)
    assert rule_of(*first) is None
    assert rule_of(*first, *attempt(15, KEY_ERROR, KEY_ERROR, steps=20)) is None
    assert rule_of(*first, *attempt(15, KEY_ERROR, KEY_ERROR, steps=10)) == "exception"


STEP = "step {step} loss 2.5"
EPOCH = "{{'loss': 2.5, 'learning_rate': 0.01, 'epoch': {epoch}}}"


def pair_of_rounds(layout: str, printers: tuple[int, int], steps: tuple[int, int], *, is_late: bool) -> list[Event]:
    """Return two rounds in which pod 1 fails and a pod prints; `is_late`: its last line comes after the exception."""

    def attempt(second: int, printer: int, count: int) -> list[Event]:
        texts = [layout.format(step=step, epoch=step / 10) for step in range(1, count + 1)]
        lines: list[Event] = [script.line(printer, text, second + 1) for text in texts]
        exception = traceback(1, "KeyError: 'lr'", second + 1)
        lines = [*lines[:-1], *exception, lines[-1]] if is_late else [*lines, *exception]
        blocks = [*script.block(0, printer, second), *script.block(1, 1 - printer, second)]
        return [*blocks, *lines, failed(1, second + 3)]

    return [event for number in (0, 1) for event in attempt(5 + 10 * number, printers[number], steps[number])]


@pytest.mark.parametrize("layout", [STEP, EPOCH])
@pytest.mark.parametrize("printers", [(0, 0), (0, 1), (1, 0), (1, 1)])
@pytest.mark.parametrize("is_late", [False, True])
def test_a_pod_that_prints_while_another_one_fails_makes_no_progress(layout, printers, is_late):
    events = [pair_of_rounds(layout, printers, steps, is_late=is_late) for steps in ((6, 6), (6, 5), (6, 9))]
    assert [rule_of(*items) for items in events] == ["exception", "exception", None]


def test_an_empty_bar_is_no_progress():
    bars = [script.line(0, f"\rTraining:   0%|   | 0/8 [00:00<?, ?it/s{loss}]", 9) for loss in ("", ", loss=2.5")]
    events = [*round_(0, 8), *bars, *traceback(0, KEY_ERROR, 10), failed(0, 11)]
    assert rule_of(*events, *events) == "exception"


def test_trainer_that_says_that_no_restart_helps():
    line = '2026-11-21 06:37:50 E [run.py:64] Outcome failed step none loss none checkpoint none permanent reason "no package"'
    assert rule_of(*round_(0, 5), script.line(0, line, 6), failed(0, 7)) == "outcome-permanent"


@pytest.mark.parametrize(
    ("reason", "rule"),
    [
        ("step-000044 is of a model of another shape", "outcome-failed"),
        ("cannot read `s3://bucket/x`: connection timed out", None),
        ("RuntimeError: [gloo/transport/tcp/pair.cc:547] Connection closed by peer [127.0.0.1]:1", None),
    ],
)
def test_trainer_that_gives_up_twice_for_the_same_reason(reason, rule):
    line = f'2026-11-21 06:37:50 E [run.py:64] Outcome failed step none loss none checkpoint none reason "{reason}"'
    first = [*round_(0, 5), script.line(0, line, 6), failed(0, 7)]
    assert rule_of(*first) is None
    assert rule_of(*first, *round_(0, 8), script.line(0, line, 9), failed(0, 10)) == rule
