"""Milestones are read as the trainer writes them: its own functions create the lines."""

import ast
import logging
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from kfjob.joblog.events import LogLine
from kfjob.joblog.progress import milestones
from kfjob.joblog.progress.exact_formats import KFJOB_TRAINER, progress_reader
from kfjob.joblog.progress.milestones import (
    Checkpoint,
    DamagedCheckpoint,
    DataMismatch,
    Evaluation,
    Resume,
    Rollback,
    SkippedStep,
    Start,
    Startup,
    StepMetrics,
    Trace,
    TrainerOutcome,
)
from kfjob.joblog.view.job_view import JobView
from kfjob.joblog.view.reduction import reduce
from kfjob.trainer import metrics

TRAINER = Path(metrics.__file__).parent
FRAME = "2026-11-21 07:10:48 I [train.py:18] {}"
METRICS = metrics.StepMetrics(
    loss=2.5,
    lr=0.0001,
    grad_norm=0.1234,
    samples_per_second=4.0,
    tokens_per_second=45455,
    tokens_per_second_per_device=5682,
    mfu=0.41,
    peak_memory=3 * 2**30,
)


def startup() -> str:
    times = iter([0.0, 6.1, 8.3, 9.8])
    lap = metrics.StartupTimer(lambda: next(times))
    lap.lap("imports")
    lap.lap("process group")
    return lap.line()


LINES = {
    metrics.start_line(
        model="llama", parameters=6738415616, strategy="fsdp2", world_size=8, global_batch=64, total_steps=1000
    ): Start(model="llama", parameters=6738415616, strategy="fsdp2", world_size=8, global_batch=64, total_steps=1000),
    metrics.resume_line(None, None): Resume(name=None, path=None),
    metrics.resume_line("step-100", "/data/my runs/step-100"): Resume(name="step-100", path="/data/my runs/step-100"),
    metrics.checkpoint_line("step-100", "/data/my runs/step-100", 3.217): Checkpoint(
        name="step-100", path="/data/my runs/step-100", seconds=3.22
    ),
    metrics.evaluation_line(100, loss=2.5, tokens=4096): Evaluation(step=100, loss=2.5, perplexity=12.18),
    metrics.metrics_line(100, METRICS): StepMetrics(
        step=100, tokens_per_second=45455, grad_norm=0.1234, memory=3.0, tokens_per_second_per_device=5682, mfu=0.41
    ),
    metrics.metrics_line(100, replace(METRICS, mfu=None)): StepMetrics(
        step=100, tokens_per_second=45455, grad_norm=0.1234, memory=3.0, tokens_per_second_per_device=5682
    ),
    # from older images, whose trainer does not know its device
    "Step 100 tokens/s: 45455, grad norm: inf, peak memory: 3.00 GiB": StepMetrics(
        step=100, tokens_per_second=45455, grad_norm=float("inf"), memory=3.0
    ),
    startup(): Startup(seconds=9.8, parts=(("imports", 6.1), ("process group", 2.2), ("first step", 1.5))),
    metrics.Outcome(outcome="finished", step=1000, loss=1.25, checkpoint="step-1000").line(): TrainerOutcome(
        outcome="finished", step=1000, loss=1.25, checkpoint="step-1000", reason=None
    ),
    metrics.Outcome(outcome="failed", step=9, checkpoint="/data/my runs/step-8", reason="full").line(): TrainerOutcome(
        outcome="failed", step=9, loss=None, checkpoint="/data/my runs/step-8", reason="full"
    ),
    metrics.Outcome(outcome="failed", reason='loss is "nan"\nat step 3').line(): TrainerOutcome(
        outcome="failed", step=None, loss=None, checkpoint=None, reason='loss is "nan"\nat step 3'
    ),
}


@pytest.mark.parametrize("line", LINES)
@pytest.mark.parametrize("frame", ["{}", "[default0]:{}", "2026-11-21T07:10:48.000000001Z {}\r\n"])
def test_milestone_is_read(line: str, frame: str):
    milestone = milestones.parse_milestone(frame.format(FRAME.format(line)))
    assert milestone == (LINES[line], 1795245048_000000000)


@pytest.mark.parametrize(("loss", "speed", "lr"), [(2.5, 0.43, 0.000091), (1e-05, 0.0043, 5e-07), (4.3e-09, 1e-3, 0.0)])
def test_trainer_progress_line_is_read(loss: float, speed: float, lr: float):
    line = FRAME.format(metrics.progress_line(12, loss=loss, speed=speed, lr=lr))
    reading = progress_reader(KFJOB_TRAINER).read(line)
    assert reading is not None
    assert (reading.step, reading.loss, reading.speed, reading.lr) == (12, loss, speed, lr)
    assert milestones.parse_milestone(line) is None


def test_trainer_log_format_is_expected(capsys: pytest.CaptureFixture[str]):
    metrics.start_logging(verbose=True)
    try:
        metrics.log.info(metrics.resume_line(None, None))
    finally:
        logging.getLogger(metrics.log.name).handlers.clear()
    milestone = milestones.parse_milestone(capsys.readouterr().out)
    assert milestone is not None
    assert milestone[0] == Resume(name=None, path=None)


@pytest.mark.parametrize(
    "text",
    [
        "Resume none",
        FRAME.format("Checkpoint half a line"),
        FRAME.format("Outcome finished step"),
        FRAME.format("Start of something"),
        FRAME.format("Evaluation of a thing"),
        FRAME.format("Step by step"),
        "I1121 06:18:58.464000 1 torch/distributed/elastic/agent/server/api.py:714] [default] Starting worker group",
    ],
)
def test_other_lines_are_no_milestone(text: str):
    assert milestones.parse_milestone(text) is None


INLINE: dict[tuple[str, tuple[object, ...]], object] = {
    ("Step %s skipped: %s", (7, "loss is nan")): SkippedStep(step=7, reason="loss is nan"),
    ("Step %s rolled back to %s: %s", (7, "step-5", "a spike")): Rollback(step=7, name="step-5", reason="a spike"),
    ("Trace %s", ("/data/my traces/a.json",)): Trace(path="/data/my traces/a.json"),
    ("Trace not written to %s: %s", ("/data/a.json", "disk full")): None,
    ("Checkpoint %s is damaged: %s", ("step-5", "no manifest")): DamagedCheckpoint(name="step-5", reason="no manifest"),
    ("Checkpoint %s passed over: %s", ("step-5", "the run made no progress from it")): None,
    ("Checkpoint %s is not protected from deletion: %s", ("step-5", "the folder is read-only")): None,
    ("Checkpoint %s not written: %s", ("step-5", "no space left")): None,
    ("Checkpoint %s renamed to %s", ("step-5", "earlier-step-5-ab12")): None,
    ("Data differs from what %s was trained on: it is read from its beginning", ("step-5",)): DataMismatch(
        name="step-5", reason="it is read from its beginning"
    ),
}
"""Messages that the trainer logs inline, each with example values."""
FIRST = {"Start", "Startup", "Resume", "Checkpoint", "Evaluation", "Step", "Trace", "Data", "Outcome"}


def inline_messages() -> Iterator[str]:
    """Yield the constant texts of the trainer's log calls that start like a milestone."""
    for file in TRAINER.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and ast.unparse(node.func.value) == "log":
                texts = (
                    argument.value
                    for argument in node.args
                    if isinstance(argument, ast.Constant) and isinstance(argument.value, str)
                )
                yield from (text for text in texts if text.split(" ")[0] in FIRST)


def test_every_trainer_message_is_covered():
    assert set(inline_messages()) == {text for text, _ in INLINE}


@pytest.mark.parametrize("example", INLINE, ids=lambda example: example[0])
def test_inline_trainer_message_is_read(example: tuple[str, tuple[object, ...]]):
    text, values = example
    read = milestones.parse_milestone(FRAME.format(text % values))
    assert (read and read[0]) == INLINE[example]


def test_reader_and_view_parse_a_line_once(monkeypatch):
    lines: list[str] = []
    parse = milestones._parse_message

    def parse_and_count(message: str) -> milestones.Milestone | None:
        lines.append(message)
        return parse(message)

    monkeypatch.setattr(milestones, "_parse_message", parse_and_count)
    view = JobView()
    for step in (10, 20):
        text = FRAME.format(f"Evaluation step {step} loss 2.5, perplexity 12.2")
        view = reduce(view, LogLine(pod="a", text=text, container_id="1"))
        assert view.evaluation == Evaluation(step=step, loss=2.5, perplexity=12.2)
    assert len(lines) == 2
