"""Progress lines of every trainer. kfjob/joblog/progress/formats.py has their sources."""

import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfjob.base.errors import SpecError
from kfjob.base.patterns import Match, Pattern
from kfjob.joblog.observe_config import ObserveConfig
from kfjob.joblog.prefilter import Prefilter
from kfjob.joblog.progress.formats import FORMATS, ProgressReader, progress_reader
from kfjob.joblog.progress.general.log_reader import read_progress
from kfjob.joblog.progress.general.reader_state import ReaderState
from kfjob.joblog.progress.reading import Reading

LINES: dict[str, tuple[str, dict[str, object]]] = {
    "ours and the reference's": (
        "2024-06-12 00:08:25 I [train.py:102] Batch 979 Loss: 5.63272, Speed: 0.43 samples/sec, lr: 0.000091",
        {
            "format": "reference",
            "step": 979,
            "loss": 5.63272,
            "speed": 0.43,
            "unit": "samples/s",
            "lr": 0.000091,
            "line_time": 1718150905_000000000,
        },
    ),
    "the reference's without time and file": (
        "Batch 0 Loss: 10.912345, Speed: 1.20 samples/sec, lr: 0.000006",
        {"step": 0, "loss": 10.912345, "speed": 1.2, "lr": 0.000006, "line_time": None},
    ),
    "a relative with more figures": (
        "Batch 7 Loss: 10.9, Speed: 1.20 samples/sec, Model TFLOPS/GPU: 12.30, lr: 0.000006, gradnorm: 1.2",
        {"step": 7, "loss": 10.9, "lr": 0.000006},
    ),
    "transformers 4": (
        "{'loss': 5.1, 'grad_norm': 1.5, 'learning_rate': 5e-05, 'epoch': 0.01}",
        {"format": "hugging-face", "step": None, "loss": 5.1, "grad_norm": 1.5, "lr": 5e-05, "epoch": 0.01},
    ),
    "transformers 5": (
        "{'loss': '5.123', 'grad_norm': '1.5', 'learning_rate': '5e-05', 'epoch': '0.01'}",
        {"format": "hugging-face", "loss": 5.123, "lr": 5e-05, "epoch": 0.01},
    ),
    "transformers behind its own bar": (
        "\r 10%|█         | 50/500 [00:01<02:00,  4.11it/s]{'loss': 5.1, 'learning_rate': 5e-05, 'epoch': 0.01}",
        {"format": "hugging-face", "loss": 5.1},
    ),
    "a nameless bar": (
        "\r  1%|▏         | 4/500 [00:01<02:00,  4.11it/s]\r  1%|▏         | 5/500 [00:01<02:00,  4.12it/s]",
        {"format": "tqdm", "step": 5, "total": 500, "speed": 4.12, "unit": "it/s", "conclusive": False},
    ),
    "a slow bar": (
        " 10%|█         | 50/500 [10:01<1:20:00, 4.00s/it]",
        {"step": 50, "total": 500, "speed": 0.25, "unit": "it/s"},
    ),
    "torchtitan": (
        (
            "[rank0]:[titan] 2025-02-11 10:01:02,123 - root - INFO - \x1b[31mstep:  1  \x1b[32mloss:  8.1309  "
            "\x1b[38;2;180;60;0mgrad_norm:  1.3000  \x1b[35mmemory:  1.49GiB(1.57%)  \x1b[34mtps: 12,345  "
            "\x1b[36mtflops: 1.02  \x1b[35mmfu: 0.33%\x1b[39m"
        ),
        {
            "format": "torchtitan",
            "step": 1,
            "loss": 8.1309,
            "grad_norm": 1.3,
            "speed": 12345.0,
            "unit": "tokens/s/device",
            "line_time": 1739268062_123000000,
        },
    ),
    "nanoGPT": ("iter 10: loss 3.2412, time 123.45ms, mfu 12.30%", {"format": "nanogpt", "step": 10, "loss": 3.2412}),
    "Megatron-LM without a batch size": (
        " iteration       10/     100 | elapsed time per iteration (ms): 500.0 | learning rate: 1.5E-06 | lm loss: 1.08E+01 |",
        {"format": "megatron", "step": 10, "total": 100, "loss": 10.8, "speed": 2.0, "unit": "it/s"},
    ),
    "nanochat": (
        "step 00010/21400 (0.05%) | loss: 9.123456 | grad norm: 1.0 | lrm: 1.00 | dt: 1234.56ms | tok/sec: 123,456",
        {"format": "nanochat", "step": 10, "total": 21400, "loss": 9.123456, "speed": 123456.0, "unit": "tokens/s", "lr": None},
    ),
    "Megatron-LM": (
        (
            " [2025-02-11 10:01:02.123456] iteration       10/     100 | consumed samples:          320 | "
            "elapsed time per iteration (ms): 2000.0 | throughput per GPU (TFLOP/s/GPU): 12.3 | learning rate: 1.500000E-06 | "
            "global batch size:    32 | lm loss: 1.081234E+01 | loss scale: 1.0 | grad norm: 1.234 | nan iterations:   0 |"
        ),
        {
            "format": "megatron",
            "step": 10,
            "total": 100,
            "loss": 10.81234,
            "lr": 1.5e-06,
            "speed": 16.0,
            "unit": "samples/s",
            "grad_norm": 1.234,
        },
    ),
    "DeepSpeed": (
        "[2023-11-07 01:55:23,711] [INFO] [logging.py:96:log_dist] [Rank 0] step=10, skipped=4, lr=[4.998e-05, 4e-05], mom",
        {"format": "deepspeed", "step": 10, "lr": 4.998e-05, "loss": None},
    ),
    "DeepSpeed's timer": (
        (
            "[2023-11-07 01:55:23,714] [INFO] [timer.py:260:stop] epoch=0/micro_step=40/global_step=10, "
            "RunningAvgSamplesPerSec=25.02, CurrSamplesPerSec=25.7042, MemAllocated=4.32GB, MaxMemAllocated=38.49GB"
        ),
        {"format": "deepspeed", "step": 10, "epoch": 0.0, "speed": 25.7042, "unit": "samples/s"},
    ),
    "Lightning": (
        "Epoch 1:  50%|█████     | 50/100 [00:01<00:01, 40.00it/s, v_num=0, train_loss=0.512]",
        {"format": "tqdm", "step": 50, "total": 100, "epoch": 1.0, "loss": 0.512, "per_epoch": True, "conclusive": True},
    ),
    "Lightning with rich": (
        "Epoch 1/1  ━━━━━━━━━━━━━━━━━ 10/10 0:00:00 •        271.85it/s train_loss: 0.489",
        {"format": "lightning", "step": 10, "total": 10, "epoch": 1.0, "speed": 271.85, "loss": 0.489, "per_epoch": True},
    ),
    "llama-recipes": (
        (
            "Training Epoch: 1/3, step 9/100 completed (loss: 1.3):  9%|▉ | 9/100 [00:09<01:30, 1.00s/it]"
            "\rTraining Epoch: 1/3, step 10/100 completed (loss: 1.2345):  10%|█ | 10/100 [00:10<01:30, 1.00s/it]"
        ),
        {"format": "llama-recipes", "step": 10, "total": 100, "epoch": 1.0, "loss": 1.2345, "per_epoch": True},
    ),
}


@pytest.mark.parametrize("name", LINES)
def test_progress_line_is_read(name: str):
    text, expected = LINES[name]
    reading = progress_reader().read(text)
    assert reading is not None
    assert {key: getattr(reading, key) for key in expected} == pytest.approx(expected)


@pytest.mark.parametrize("name", LINES)
@pytest.mark.parametrize("frame", ["{}\r\n", "[default0]:{}", "2026-11-21T06:18:58.464000123Z {}", "\x1b[32m{}\x1b[0m"])
def test_progress_line_is_read_in_every_frame(name: str, frame: str):
    text, expected = LINES[name]
    reading = progress_reader().read(frame.format(text))
    assert reading is not None
    prefix_values = {"line_time": 1795241938_464000123} if "06:18:58" in frame and "line_time" in expected else {}
    assert {key: getattr(reading, key) for key in expected} == pytest.approx(expected | prefix_values)


def test_every_format_has_an_example():
    examples = [text for text, _ in LINES.values()]
    assert [item for item in FORMATS if not any(map(ProgressReader((item,), ()).read, examples))] == []


@pytest.mark.parametrize("name", LINES)
@pytest.mark.parametrize("named", [False, True], ids=["any trainer", "its own trainer"])
def test_example_passes_every_gate(name: str, *, named: bool):
    text, expected = LINES[name]
    known = progress_reader().read(text)
    assert known is not None
    trainer = known.format if named else ""
    assert Prefilter(ObserveConfig(trainer=trainer)).select(f"{text}\n".encode()) == [(0, len(text.encode()))]
    announced = ReaderState(announced=True)  # a bar without a name counts after a line that says that training begins
    _, emissions = read_progress(text, 0, None, progress_reader(trainer), announced)
    assert {key: getattr(emissions[-1].reading, key) for key in expected} == pytest.approx(expected)


@pytest.mark.parametrize(
    "text",
    [
        "Batch 500 Validation loss: 3.2",
        "{'eval_loss': 5.1, 'eval_runtime': 1.0, 'epoch': 0.01}",
        "{'train_runtime': 9.1, 'train_loss': 5.0, 'epoch': 1.0}",
        "[titan] 2025-02-11 10:01:02,123 - root - INFO - validate step:  1  loss:  8.1309  memory:  1.49GiB(1.57%)  tps: 12",
        "step 10: train loss 4.2874, val loss 4.2823",
        "Map:  10%|█         | 50/500 [00:01<02:00,  4.11it/s]",
        "Loading checkpoint shards: 100%|██████████| 2/2 [00:01<00:00,  1.4it/s]",
        "model.safetensors:  10%|█         | 50.1M/500M [00:01<02:00,  4.11MB/s]",
        "evaluating Epoch:  10%|█ | 1/10 [00:01<00:09,  1.0it/s]",
        "lossless compression, 12 glosses",
        "",
    ],
)
def test_other_lines_are_no_progress(text: str):
    assert progress_reader().read(text) is None


@pytest.mark.parametrize(("printed", "loss"), [("nan", math.nan), ("inf", math.inf), ("-inf", -math.inf), ("1e-05", 1e-05)])
def test_infinite_and_nan_losses_are_read(printed: str, loss: float):
    reading = progress_reader().read(f"Batch 1 Loss: {printed}, Speed: 1.00 samples/sec, lr: 0.1")
    assert reading is not None
    assert reading.loss == pytest.approx(loss, nan_ok=True)


@pytest.mark.parametrize("epoch", ["1e308", "1" * 400, "nan", "inf"])
def test_an_epoch_without_end_is_none(epoch: str):
    reading = progress_reader().read(f"{{'loss': 2.1, 'learning_rate': 5e-05, 'epoch': {epoch}}}")
    assert reading is not None
    assert (reading.loss, reading.epoch) == (2.1, None)


def test_custom_pattern_is_tried_first():
    custom = progress_reader(
        pattern=r"done (?P<step>\d+) of (?P<total>[\d,]+), cost (?P<loss>\S+) at (?P<speed>\S+) (?P<unit>\w+/s)"
    )
    reading = custom.read("12:01 done 5 of 1,000, cost 0.25 at 12.5 images/s")
    assert reading == Reading(format="custom", step=5, total=1000, loss=0.25, speed=12.5, unit="images/s")
    assert custom.read("done 5 of 1000, cost unknown at 12.5 images/s") is None
    assert custom.read(LINES["nanoGPT"][0]) is not None


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


def test_newest_state_of_a_long_bar_is_read():
    states = "".join(f"\r{step:4}%|█| {step}/9999 [00:01<02:00,  4.11it/s]" for step in range(1000))
    reading = progress_reader().read(states)
    assert reading is not None
    assert reading.step == 999


def test_beginning_of_a_long_line_is_read():
    reading = progress_reader().read(LINES["ours and the reference's"][0] + " and more" * 100_000)
    assert reading is not None
    assert reading.step == 979


@given(st.text())
def test_any_text_is_accepted(text: str):
    for candidate in FORMATS:
        candidate.read(text)
    progress_reader().read(text)


@pytest.mark.parametrize(
    "layout",
    [
        "step {n:5d} | loss: 2.{n} | lr 6.0000e-04 | norm: 1.2 | dt: 81{n}.20ms | tok/sec: 237000.12",
        "iter {n}: loss 2.{n}, time 81{n}.20ms",
        "iter {n}: loss 2.{n}, time 8{n}.20s",
        " iteration {n}/ 100 | learning rate: 1.0E-04 | lm loss: 2.{n}E+00 |",
        "{{'loss': 2.{n}, 'epoch': 0.{n}}}",
        "{{'step': {n}, 'loss': 2.{n}, 'learning_rate': 5e-05}}",
        "Epoch 1/1  ━━━━━━━━━━━━━━━━━ {n}/100 0:00:00 271.85it/s loss: 2.{n}",
    ],
)
def test_shape_of_several_programs_names_none(layout: str):
    lines = [layout.format(n=number) for number in range(12, 19)]
    assert [progress_reader().read(line) for line in lines] == [None] * len(lines)
    state, formats = ReaderState(), set()
    for number, line in enumerate(lines):
        state, emissions = read_progress(line, number, None, progress_reader(), state)
        formats |= {(emission.reading.format, emission.reading.loss is not None) for emission in emissions}
    assert formats == {("general", True)}


@given(st.text(alphabet="0123456789abloste:%|/[]<>,.{}'= \r", min_size=1))
def test_any_text_of_the_formats_characters_is_accepted(text: str):
    for candidate in FORMATS:
        candidate.read(text)


LAYOUTS = {
    "reference": "2026-11-21 07:10:{n} I [train.py:18] Batch {n} Loss: 3.{n}, Speed: 4.{n} samples/sec, lr: 0.0000{n}",
    "torchtitan": "step: {n}  loss:  8.{n}  grad_norm:  1.{n}  memory: 12.34GiB(15.2%)  tps: 7,0{n}  tflops: 91.11  mfu: 29.2%",
    "nanogpt": "iter {n}: loss 2.{n}, time 12.{n}ms, mfu 3.{n}%",
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_lines_of_one_layout_have_their_own_values(name: str):
    read = progress_reader().read
    for number in (17, 42, 99, 10):
        reading = read(LAYOUTS[name].format(n=number))
        assert reading is not None
        assert (reading.format, reading.step) == (name, number)
        assert reading.loss is not None
        assert f"{reading.loss:.2f}".endswith(f"{number}")


def test_lines_of_one_layout_are_searched_once(monkeypatch: pytest.MonkeyPatch):
    searched = []
    search = Pattern.search

    def count(self: Pattern, text: str) -> Match | None:
        searched.append(text)
        return search(self, text)

    monkeypatch.setattr(Pattern, "search", count)
    read = progress_reader().read
    assert all(read(f"   {LAYOUTS['reference'].format(n=10 + number % 90)}") for number in range(500))
    assert len(searched) == 1


@pytest.mark.parametrize("digit", "0479")
@pytest.mark.parametrize("text", [text for text, _ in LINES.values()])
def test_no_format_tells_digits_apart(text: str, digit: str):
    """Lines that differ in digits alone share one search."""
    before, after = progress_reader().read(text), progress_reader().read(re.sub(r"\d", digit, text))
    assert (before and before.format) == (after and after.format)
