"""The trainer's lines are read as the trainer writes them: its own functions make the lines here."""

import logging

import pytest

from kfjob.observe import milestones
from kfjob.observe.milestones import Checkpoint, Evaluation, Figures, Outcome, Resume, Start
from kfjob.observe.progress import KFJOB, reader
from kfjob.trainer import metrics

FRAME = "2026-11-21 07:10:48 I [train.py:18] {}"
TOLD = metrics.Figures(
    loss=2.5,
    lr=0.0001,
    grad_norm=0.1234,
    samples_per_second=4.0,
    tokens_per_second=45455,
    tokens_per_second_per_device=5682,
    mfu=0.41,
    peak_memory=3 * 2**30,
)
LINES = {
    metrics.start(
        model="llama", parameters=6738415616, strategy="fsdp2", world_size=8, global_batch=64, total_steps=1000
    ): Start(model="llama", parameters=6738415616, strategy="fsdp2", world_size=8, global_batch=64, total_steps=1000),
    metrics.resume(None, None): Resume(name=None, path=None),
    metrics.resume("step-100", "/data/my runs/step-100"): Resume(name="step-100", path="/data/my runs/step-100"),
    metrics.checkpoint("step-100", "/data/my runs/step-100", 3.217): Checkpoint(
        name="step-100", path="/data/my runs/step-100", seconds=3.22
    ),
    metrics.evaluation(100, loss=2.5, tokens=4096): Evaluation(step=100, loss=2.5, perplexity=12.18),
    metrics.figures(100, TOLD): Figures(step=100, tokens_per_second=45455, grad_norm=0.1234, memory=3.0),
    metrics.Outcome(outcome="finished", step=1000, loss=1.25, checkpoint="step-1000").line(): Outcome(
        outcome="finished", step=1000, loss=1.25, checkpoint="step-1000", reason=None
    ),
    metrics.Outcome(outcome="failed", reason='loss is "nan"\nat step 3').line(): Outcome(
        outcome="failed", step=None, loss=None, checkpoint=None, reason='loss is "nan"\nat step 3'
    ),
}


@pytest.mark.parametrize("line", LINES)
@pytest.mark.parametrize("frame", ["{}", "[default0]:{}", "2026-11-21T07:10:48.000000001Z {}\r\n"])
def test_a_milestone_is_read(line: str, frame: str):
    told = milestones.read(frame.format(FRAME.format(line)))
    assert told == (LINES[line], 1795245048_000000000)


def test_a_progress_line_is_read():
    line = FRAME.format(metrics.progress(12, loss=2.5, speed=0.43, lr=0.000091))
    reading = reader(KFJOB).read(line)
    assert reading is not None
    assert (reading.step, reading.loss, reading.speed, reading.lr) == (12, 2.5, 0.43, 0.000091)
    assert milestones.read(line) is None


def test_the_frame_is_the_trainers(capsys: pytest.CaptureFixture[str]):
    metrics.start_logging(verbose=True)
    try:
        metrics.log.info(metrics.resume(None, None))
    finally:
        logging.getLogger(metrics.log.name).handlers.clear()
    told = milestones.read(capsys.readouterr().out)
    assert told is not None
    assert told[0] == Resume(name=None, path=None)


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
def test_what_is_no_milestone(text: str):
    assert milestones.read(text) is None
