"""Progress lines of exact formats: those of kfjob's trainer, and those that match the job's own pattern."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfjob.base.errors import SpecError
from kfjob.joblog.progress.exact_formats import KFJOB_TRAINER, progress_reader
from kfjob.joblog.progress.reading import Reading

LINE = "2024-06-12 00:08:25 I [train.py:102] Batch 979 Loss: 5.63272, Speed: 0.43 samples/sec, lr: 0.000091"
VALUES = {"step": 979, "loss": 5.63272, "speed": 0.43, "unit": "samples/s", "lr": 0.000091}


def read(text: str) -> Reading:
    reading = progress_reader(KFJOB_TRAINER).read(text)
    assert reading is not None
    return reading


@pytest.mark.parametrize("frame", ["{}", "{}\r\n", "[default0]:{}", "2026-11-21T06:18:58.464000123Z {}", "\x1b[32m{}\x1b[0m"])
def test_line_of_the_trainer_is_read_in_every_frame(frame: str):
    reading = read(frame.format(LINE))
    assert {key: getattr(reading, key) for key in VALUES} == VALUES
    assert reading.line_time == (1795241938_464000123 if "06:18:58" in frame else 1718150905_000000000)


def test_line_without_time_and_file_is_read():
    reading = read("Batch 0 Loss: 10.912345, Speed: 1.20 samples/sec, lr: 0.000006")
    assert (reading.step, reading.loss, reading.speed, reading.line_time) == (0, 10.912345, 1.2, None)


def test_figures_between_speed_and_lr_are_left_out():
    reading = read("Batch 7 Loss: 10.9, Speed: 1.20 samples/sec, Model TFLOPS/GPU: 12.30, lr: 0.000006, gradnorm: 1.2")
    assert (reading.step, reading.loss, reading.lr) == (7, 10.9, 0.000006)


@pytest.mark.parametrize("text", ["step 5 loss 2.5", "Batch 5 Loss: x, Speed: 1 samples/sec", ""])
def test_other_lines_are_no_progress(text: str):
    assert progress_reader(KFJOB_TRAINER).read(text) is None


@pytest.mark.parametrize(("printed", "loss"), [("nan", math.nan), ("inf", math.inf), ("-inf", -math.inf), ("1e-05", 1e-05)])
def test_infinite_and_nan_losses_are_read(printed: str, loss: float):
    assert read(f"Batch 1 Loss: {printed}, Speed: 1.00 samples/sec, lr: 0.1").loss == pytest.approx(loss, nan_ok=True)


def test_beginning_of_a_long_line_is_read():
    assert read(LINE + " and more" * 100_000).step == 979


def test_line_of_a_custom_pattern_is_read():
    custom = progress_reader(
        pattern=r"done (?P<step>\d+) of (?P<total>[\d,]+), cost (?P<loss>\S+) at (?P<speed>\S+) (?P<unit>\w+/s)"
    )
    reading = custom.read("12:01 done 5 of 1,000, cost 0.25 at 12.5 images/s")
    assert reading == Reading(format="custom", step=5, total=1000, loss=0.25, speed=12.5, unit="images/s")
    assert custom.read("done 5 of 1000, cost unknown at 12.5 images/s") is None


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("(", "not a regular expression"),
        (r"loss (?!nan)(?P<loss>\S+)", "not a regular expression"),
        (r"(?P<stepp>\d+)", "unknown group `stepp`"),
        (r"(?P<lr>\d+)", "neither a group `step` nor a group `loss`"),
    ],
)
def test_invalid_pattern_is_an_error(pattern: str, message: str):
    with pytest.raises(SpecError, match=message):
        progress_reader(pattern=pattern)


def test_catastrophic_pattern_of_a_job_needs_linear_time():
    custom = progress_reader(pattern=r"(\w+\s?)+(?P<step>\d+)$")
    assert custom.read("word " * 800 + "!") is None
    assert custom.read("word " * 100 + "12") is not None


@pytest.mark.parametrize("epoch", ["1e308", "1" * 400, "nan", "inf"])
def test_an_epoch_without_end_is_none(epoch: str):
    reading = progress_reader(pattern=r"epoch (?P<epoch>\S+) loss (?P<loss>\S+)").read(f"epoch {epoch} loss 2.1")
    assert reading is not None
    assert (reading.loss, reading.epoch) == (2.1, None)


@given(st.text(alphabet="0123456789abloste:%|/[]<>,.{}'= \r", min_size=1))
def test_any_text_is_accepted(text: str):
    progress_reader(KFJOB_TRAINER).read(text)
    progress_reader(pattern=r"(?P<step>\S+) (?P<loss>\S+)").read(text)
