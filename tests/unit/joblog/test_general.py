"""The general reader: progress lines of programs that kfjob does not know."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfjob.base.units import SECOND
from kfjob.joblog.events import JobChanged, JobPhase, LogLine, Tick
from kfjob.joblog.lines.prefixes import find_message
from kfjob.joblog.master.evidence import Master
from kfjob.joblog.observe_config import ObserveConfig
from kfjob.joblog.prefilter import Prefilter
from kfjob.joblog.progress.exact_formats import progress_reader
from kfjob.joblog.progress.figures.line_figures import parse_line
from kfjob.joblog.progress.general.log_reader import read_progress
from kfjob.joblog.progress.general.reader_state import ReaderState
from kfjob.joblog.progress.general.templates import MAX_SAMPLES, MAX_TEMPLATES
from kfjob.joblog.progress.training import Training
from kfjob.joblog.view.job_view import JobView
from kfjob.joblog.view.reduction import reduce_all
from tests.unit.joblog.general_formats import FORMATS, LOSSES, NO_PROGRESS, STEPS, Values
from tests.unit.joblog.general_programs import OTHER_PROGRAMS, PROGRAMS

PREFIXES = {
    "none": "",
    "python": "2026-02-03 04:05:06,211 - trainer - INFO - ",
    "level and name": "INFO:trainer:",
    "brackets": "[2026-02-03 04:05:06,211][INFO][trainer.py:97:step] [Rank 0] ",
    "loguru": "2026-02-03 04:05:06.137 | INFO     | __main__:train:45 - ",
    "glog": "I0203 04:05:06.137000 140123 train.py:45] ",
    "torchrun": "[rank0]:",
    "default": "[default0]:",
    "rank of": "(0/24) ",
    "rank of, after a stamp": "2026-02-03 04:05:06,211 INFO [train.py:1075] (0/4) ",
    "process of": "Process 0/3: ",
    "label": "0: ",
    "ray": "(TrainWorker pid=9911, ip=10.0.0.7) ",
    "containerd": "2026-02-03T04:05:06.137000000Z stdout F ",
    "kubectl": "[pod/job-worker-0/pytorch] ",
    "clock": "[04:05:06] ",
    "colours": "\x1b[32m2026-02-03 04:05:06\x1b[0m | \x1b[1mINFO\x1b[0m | ",
}


def read(lines: list[str], *, pod: str = "w-0", view: JobView | None = None) -> JobView:
    """Return the view after the lines that pass the prefilter."""
    block = ("\n".join(lines) + "\n").encode()
    selected = [block[start:end].decode() for start, end in Prefilter(ObserveConfig()).select(block)]
    return reduce_all(view or JobView(), [LogLine(pod=pod, text=text) for text in selected])


def differences(training: Training, expected: Values) -> dict[str, object]:
    values = {name: getattr(training, name) for name in expected}
    return {name: values[name] for name, value in expected.items() if values[name] != (value and pytest.approx(value))}


ALL_FORMATS = FORMATS | PROGRAMS
ALL_OTHERS = NO_PROGRESS | OTHER_PROGRAMS


@pytest.mark.parametrize("name", ALL_FORMATS)
def test_layout_is_read(name: str):
    lines, expected = ALL_FORMATS[name]
    view = read(lines)
    assert differences(view.training, expected) == {}
    assert isinstance(view.master, Master)
    assert view.master.evidence.kind == "progress line"


@pytest.mark.parametrize("name", ALL_OTHERS)
def test_other_lines_are_not_taken(name: str):
    view = read(ALL_OTHERS[name])
    assert (view.training.step, view.training.epoch, view.training.loss, view.training.speed) == (None,) * 4
    assert view.training.format == ""


@pytest.mark.parametrize("prefix", PREFIXES.values(), ids=PREFIXES)
@pytest.mark.parametrize("name", ["colons", "fraction", "epoch and fraction", "json", "epoch over step", "tensor"])
def test_prefixes_of_loggers_do_not_matter(prefix: str, name: str):
    lines, expected = FORMATS[name]
    assert differences(read([prefix + line for line in lines]).training, expected) == {}


# the grammar: prefix x names x separators x counters; nobody wrote these formats down
STEP_NAMES = st.sampled_from(
    ["step", "Step", "STEP", "iter", "Iteration", "global_step", "train/step", "it", "update", "Batch"]
)
LOSS_NAMES = st.sampled_from(
    ["loss", "Loss", "LOSS", "train_loss", "train/loss", "Training Loss", "lm loss", "avg_loss", "total-loss"]
)
LR_NAMES = st.sampled_from(["lr", "LR", "learning_rate", "learning rate", "optim/lr"])
SEPARATORS = st.sampled_from([": ", "=", " ", " = ", ":", " : "])
JOINTS = st.sampled_from([", ", " | ", "  ", "\t", "; ", " - ", " || "])
COUNTERS = st.sampled_from(["{}", "{}/400", "[{}/400]", "[ {}/400]", "{} / 400", "({}/400)", "{} of 400"])
EXTRAS = st.lists(
    st.sampled_from(
        ["time{}0.31s", "mem{}12.1GB", "acc{}0.5", "eta{}0:10:11", "val_loss{}3.3", "loss_scale{}65536", "gnorm{}1.1"]
    ),
    max_size=3,
    unique=True,
)


@st.composite
def layouts(draw: st.DrawFn) -> list[str]:
    """Return the lines of a format."""
    separator, joint, counter = draw(SEPARATORS), draw(JOINTS), draw(COUNTERS)
    step, loss, lr = draw(STEP_NAMES), draw(LOSS_NAMES), draw(LR_NAMES)
    extras = [extra.format(separator) for extra in draw(EXTRAS)]
    head = draw(st.sampled_from(list(PREFIXES.values())))
    bracketed = counter.startswith(("[", "("))
    count = f"{step}{' ' if bracketed else separator}{counter}"
    pairs = draw(st.permutations([f"{loss}{separator}{{loss}}", f"{lr}{separator}0.001", *extras]))
    layout = joint.join([count, *pairs])
    return [
        head + layout.replace(counter, counter.format(s)).replace("{loss}", f"{v}") for s, v in zip(STEPS, LOSSES, strict=True)
    ]


@given(lines=layouts())
def test_any_layout_of_the_grammar_is_read(lines: list[str]):
    training = read(lines).training
    assert (training.step, training.loss, training.lr) == (50, 1.98, 0.001), lines[-1]
    assert [point.loss for point in training.curve] == list(LOSSES)


@given(lines=layouts())
def test_evaluation_is_never_training(lines: list[str]):
    plain = [find_message(line.replace("\x1b[", "")).text for line in lines]
    training = read([f"validation: {line}".replace("train", "val").replace("Train", "Val") for line in plain]).training
    assert training.loss is None, plain[-1]


@given(text=st.text(max_size=300))
def test_any_text_can_be_parsed(text: str):
    parse_line(text)
    read_progress(text, 0, None, progress_reader(), ReaderState())


@given(text=st.text("0123456789.,:/|%[](){}=-+eE \tsteplossKM'\"\r", max_size=200))
def test_any_text_of_figures_can_be_parsed(text: str):
    parse_line(text)
    read_progress(text + " loss ", 0, None, progress_reader(), ReaderState())


def test_a_counter_beside_a_loss_may_have_the_name_of_other_work():  # clovaai/voxceleb_trainer, SpeakerNet.py
    lines = [
        f"Processing {step} of 1092000: Loss {9 - step / 1000:.6f} TEER/TAcc 2.000% - 812.33 Hz" for step in range(0, 2000, 200)
    ]
    training = read(lines).training
    assert (training.step, training.total, training.loss) == (1800, 1092000, 7.2)
    assert not read([line.partition(":")[0] for line in lines]).training.lines


def test_one_line_is_no_progress():
    assert read(["step 1 loss 2.5"]).training.lines == 0
    assert read(["step 1 loss 2.5", "step 1 loss 2.5", "step 1 loss 2.5"]).training.lines == 0


def test_losses_that_are_not_finite_are_shown():
    training = read([f"step {i} loss {loss}" for i, loss in enumerate(["2.5", "2.4", "nan"])]).training
    assert training.loss is not None
    assert math.isnan(training.loss)
    assert read([f"step {i} loss nan" for i in range(5)]).training.step == 4
    assert read(["step 1 loss 2.5", "step 2 loss 2.4", "step 3 loss -inf"]).training.loss == -math.inf


def test_too_large_numbers_are_no_figures():
    training = read(["step 1 loss 2.5", "step 2 loss 2.4", "step 3 loss 1e999"]).training
    assert (training.step, training.loss) == (2, 2.4)


@pytest.mark.parametrize("losses", [
    ["3,1402", "2,2", "0,1402"],
    ["12,345", "2,345", "0,345"],
    ["47,25", "2,3e-1", "0,01"],
])  # fmt: skip
def test_decimal_commas_are_read(losses: list[str]):
    training = read([f"step {step} of 60 | loss {loss} | lr 0,0003" for step, loss in enumerate(losses)]).training
    assert [point.loss for point in training.curve] == [float(loss.replace(",", ".")) for loss in losses]
    assert (training.step, training.lr) == (2, 0.0003)


@pytest.mark.parametrize(("line", "step"), [("step 1,234 loss 2.5", 1234), ("step 12,345,678 loss 2.5", 12_345_678)])
def test_groups_of_thousands_are_read(line: str, step: int):
    training = read(["step 1 loss 3.5", "step 2 loss 3.0", line]).training
    assert (training.step, training.loss) == (step, 2.5)


@pytest.mark.parametrize("numbers", ["[1,20]", "(3,25)"])
def test_lists_of_whole_numbers_are_no_decimals(numbers: str):
    training = read([f"shape {numbers} step {step} loss {3 - step / 10}" for step in range(4)]).training
    assert (training.step, training.loss) == (3, 2.7)


def test_steps_that_restart_in_each_epoch_count_on():
    lines = [f"epoch {epoch} step {step} loss {9 - epoch - step / 100}" for epoch in range(4) for step in (0, 10, 20, 30)]
    training = read(lines).training
    assert (training.step, training.epoch, training.run_step, training.first_loss) == (30, 3, 150, 9)
    assert [point.step for point in training.curve] == list(range(0, 160, 10))


def test_eta_is_that_of_the_run():
    events = [
        LogLine(pod="w-0", text=f"Epoch [{e}/3], Step [{s}/40], Loss: {9 - e - s / 100}", time=(e * 4 + s // 10) * 10**9)
        for e in (1, 2)
        for s in (10, 20, 30, 40)
    ]
    training = reduce_all(JobView(), events).training
    assert (training.run_step, training.position.run_total, training.total) == (80, 120, 40)
    assert training.eta() == pytest.approx(4.0)


def test_pattern_of_the_job_counts_epochs_too():
    config = ObserveConfig(progress_pattern=r"it (?P<step>\d+) l (?P<loss>[\d.]+)")
    lines = [LogLine(pod="w-0", text=f"it {step} l {8 - n}") for n in range(4) for step in (0, 20, 40)]
    training = reduce_all(JobView(config=config), lines).training
    assert (training.run_step, training.first_loss, training.loss, len(training.curve)) == (220, 8, 5, 12)


def test_bar_and_dictionary_of_one_step_join():
    lines = ["***** Running training *****"]
    for step in (10, 20, 30):
        bars = "".join(f"\r  5%|▌         | {n}/200 [00:01<00:09,  4.50it/s]" for n in range(step - 9, step + 1))
        lines.append(
            f"{bars}\r                    \r{{'loss': {9 - step / 10}, 'learning_rate': 0.001, 'epoch': {step / 100}}}"
        )
    training = read(lines).training
    assert (training.step, training.total, training.loss, training.lr, training.epoch) == (30, 200, 6.0, 0.001, 0.3)
    assert [point.step for point in training.curve] == [10, 20, 30]


@pytest.mark.parametrize("named", [True, False])
def test_rank_0_stands_for_the_job_if_every_rank_prints(*, named: bool):
    view = JobView()
    ranks = {"w-0": 16, "w-1": 0, "w-2": 8} if named else dict.fromkeys(("w-0", "w-1", "w-2"), "x")
    for pod, rank in ranks.items():
        lines = [f"[rank{rank}]: step {step} loss {loss}" for step, loss in zip(STEPS, LOSSES, strict=True)]
        view = read(lines, pod=pod, view=view)
    master = view.master
    assert isinstance(master, Master)
    expected = "w-1" if named else "w-0"
    others = ", ".join(f"`{pod}`" for pod in ranks if pod != expected)
    assert (master.pod, view.training.pod, len(view.training.curve)) == (expected, expected, 5)
    assert master.notes == (f"also printed by {others}",)


@pytest.mark.parametrize(
    "layout",
    [
        "[proc {r}][Train]({s}/900) average loss: {l}",
        "Process {r}/3: epoch 1, batch {s}/400, loss = {l}",
        "({r}/3) step {s} loss {l}",
        "2026-02-03 04:05:06,211 INFO [train.py:1075] ({r}/3) Epoch 2, batch {s}, loss {l}",
        "[Rank {r}/3] step {s} loss {l}",
    ],
)
def test_rank_0_is_known_by_its_name_before_the_figures(layout: str):
    view = None
    for pod, rank in {"w-0": 2, "w-1": 0, "w-2": 1}.items():
        lines = [layout.format(r=rank, s=step, l=loss + rank) for step, loss in zip(STEPS, LOSSES, strict=True)]
        view = read(lines, pod=pod, view=view)
    assert view is not None
    assert isinstance(view.master, Master)
    assert (view.master.pod, view.training.step, view.training.loss) == ("w-1", 50, LOSSES[-1])


def test_a_step_in_parentheses_after_a_time_is_no_rank():
    view = read([f"2026-02-03 04:05:06,211 INFO ({step}/900) loss {loss}" for step, loss in zip(STEPS, LOSSES, strict=True)])
    assert (view.training.step, view.training.total, view.training.loss) == (50, 900, LOSSES[-1])


def test_interleaved_ranks_have_the_curve_of_one_pod():
    events = [
        LogLine(pod=pod, text=f"step {step} loss {loss + n}", time=step * 10**9 + n)
        for step, loss in zip(STEPS, LOSSES, strict=True)
        for n, pod in enumerate(("w-2", "w-0", "w-1"))
    ]
    view = reduce_all(JobView(), events)
    assert view.training.pod == "w-0"
    assert [point.loss for point in view.training.curve] == [loss + 1 for loss in LOSSES]


def test_pod_without_a_loss_does_not_take_over():
    view = read(["step 1 loss 2.5", "step 2 loss 2.4", "step 3 loss 2.3"], pod="w-1")
    view = read([f"[rank 0] step {i} speed: 9.5 it/s" for i in range(1, 9)], pod="w-0", view=view)
    assert (view.training.pod, view.training.loss) == ("w-1", 2.3)


def test_state_does_not_grow_with_the_number_of_templates():
    reader = ReaderState()
    formats = progress_reader()
    for i in range(2000):
        reader, _ = read_progress(
            f"step {i} {'x' * (i % 50)}_loss_{chr(97 + i % 26)}{chr(97 + i // 26 % 26)}: {i}.5", i, None, formats, reader
        )
        assert len(reader.templates) <= MAX_TEMPLATES
    assert max(len(template.samples) for template in reader.templates.values()) <= MAX_SAMPLES


def test_progress_stays_known_among_many_other_templates():
    noise = [f"part_{chr(97 + i % 26)}{chr(97 + i // 26)}_loss {i}.5 at step {i % 7}" for i in range(600)]
    lines = [
        line for i, other in enumerate(noise) for line in ([f"step {i} loss {9 - i / 100}"] if i % 20 == 0 else []) + [other]
    ]
    assert read(lines).training.step == 580


@pytest.mark.parametrize("unit", ["loss 1.5 ", "a/b:", "[1", "1,", "step=1 ", "{'a': ", "%|", "\r5%|x| 1/2 [", "- ", "  "])
def test_work_on_a_long_line_is_bounded(unit: str):
    text = unit * (65536 // len(unit))
    figures = parse_line(text)
    assert len(figures.counters) <= 128
    read_progress("loss" + text, 0, None, progress_reader(), ReaderState())


def test_progress_that_is_not_read_is_no_stall():
    running = JobChanged(phase=JobPhase.RUNNING, started=0)
    config = ObserveConfig(stall_after=60)
    silent = reduce_all(JobView(config=config), [running, Tick(time=1080 * SECOND)])
    assert silent.stalled
    prints = reduce_all(JobView(config=config), [running, LogLine(pod="w-0", text="x", time=0), Tick(time=1080 * SECOND)])
    assert (prints.stalled, prints.headline) == (False, "Running")


def test_unread_lines_have_a_pattern_that_reads_them():
    view = read([f"loss {loss}" for loss in LOSSES])
    assert view.unread is not None
    pod, lines = view.unread
    assert (pod, lines.lines, lines.example) == ("w-0", 5, "loss 2.91")
    assert lines.pattern is not None
    config = ObserveConfig(progress_pattern=lines.pattern)
    assert reduce_all(JobView(config=config), [LogLine(pod="w-0", text="loss 2.5")]).training.loss == 2.5
    assert read(FORMATS["colons"][0]).unread is None


def test_each_layout_is_news_once_and_lines_that_only_add_values_are_none():
    lines = []
    for epoch in range(3):
        steps = (
            f"Epoch: [{epoch}]  [{step}/50]  lr: 0.1  loss: {2 - step / 100} (1.3)  time: 0.1" for step in range(0, 50, 10)
        )
        lines += [*steps, f"Epoch: [{epoch}] Total time: 0:00:07 (0.1505 s / it)", "Averaged stats: lr: 0.1  loss: 1.2 (1.3)"]
    (item,) = read(lines).news
    assert item.text == "progress is read from lines like `Epoch: [0]  [0/50]  lr: 0.1  loss: 2.0 (1.3)  time: 0.1`"


def test_steps_go_on_between_rare_lines_with_the_speed():
    lines = []
    for update in range(1, 7):
        steps = range(512 * (update - 1) + 60, 512 * update, 60)
        lines += [f"global_step={step}, episodic_return=[{step % 37}.]" for step in steps] + [f"SPS: {40 + update}"]
    lines += [f"global_step={step}, episodic_return=[{step % 37}.]" for step in range(3100, 3500, 40)]
    training = read(lines).training
    assert (training.step, training.speed, training.template) == (3460, 46, "SPS: 41")


def test_restart_of_the_container_goes_back():
    before = [LogLine(pod="w-0", container_id="a", text=f"iter {step} loss {9 - step / 100}") for step in (0, 10, 20, 30)]
    after = [LogLine(pod="w-0", container_id="b", text=f"iter {step} loss {8 - step / 100}") for step in (0, 10, 20)]
    training = reduce_all(JobView(), [*before, *after]).training
    assert (training.run_step, training.per_epoch) == (20, False)
    assert [point.step for point in training.curve] == [0, 10, 20]


def test_pattern_reads_thousands_and_millions():
    config = ObserveConfig(progress_pattern=r"it (?P<step>[\d.]+[KM]?) speed (?P<speed>\S+)")
    training = reduce_all(JobView(config=config), [LogLine(pod="w-0", text="it 1.5K speed 2M")]).training
    assert (training.step, training.speed) == (1500, 2_000_000)


def test_unread_lines_are_news_once():
    view = read([f"loss {9 - i / 100}" for i in range(100)])
    [text] = [item.text for item in view.news if item.kind == "unread"]
    pattern = r"`progress: 'loss\W+?(?P<loss>[-+.\w]*\w)'`"
    assert text == f"no progress is read; lines like `loss 9.0` look like progress; {pattern} in the spec reads only their loss"


@pytest.mark.parametrize("value", ["nan", "NaN", "-inf", "Infinity", "+Inf"])
def test_suggested_pattern_reads_losses_that_are_not_finite(value: str):
    lines = [f"loss {9 - i}.5" for i in range(3)] + [f"loss {value}"] * 9
    unread = read(lines).unread
    assert unread is not None
    assert unread[1].pattern is not None
    loss = read_with_pattern(unread[1].pattern, lines).loss
    assert loss is not None
    assert not math.isfinite(loss)
    assert read([f"loss {value}"] * 3 + lines).unread is not None


def test_read_lines_are_no_news_of_unread_ones():
    lines = [line for i in range(40) for line in (f"step {i} loss {9 - i / 100}", f"warmup loss {i}.5")]
    assert not [item for item in read(lines).news if item.kind == "unread"]


@pytest.mark.parametrize("line", ["it {} of 80 loss {} speed 12.5K", "it {} of 80 loss {} speed 12.5 K"])
def test_pattern_has_a_group_for_thousands(line: str):
    pattern = r"it (?P<step>\d+) of (?P<total>\d+) loss (?P<loss>\S+) speed (?P<speed>[\d.]+) ?(?P<speed_unit>[KM])"
    training = read_with_pattern(pattern, [line.format(i, 9 - i / 100) for i in (10, 20)])
    assert (training.speed, training.step, training.total) == (12_500, 20, 80)


@pytest.mark.parametrize("is_run_step", [False, True])
def test_eta_of_a_pattern_is_that_of_the_run(*, is_run_step: bool):
    pattern = r"ep (?P<epoch>\d+)/(?P<epochs>\d+) it (?P<step>\d+) per epoch (?P<epoch_steps>\d+) l (?P<loss>\S+)"
    lines = [
        f"ep {epoch}/4 it {step + is_run_step * 40 * (epoch - 1)} per epoch 40 l {9 - epoch - step / 100}"
        for epoch in (1, 2)
        for step in (10, 20, 30, 40)
    ]
    for first in (0, 5):  # also where the beginning of the log is missing
        training = read_with_pattern(pattern, lines[first:])
        assert (training.run_step, training.position.run_total) == (80, 160)
        assert training.eta() == pytest.approx(8)


def read_with_pattern(pattern: str, lines: list[str]) -> Training:
    config = ObserveConfig(progress_pattern=pattern)
    events = [LogLine(pod="w-0", text=line, time=number * SECOND) for number, line in enumerate(lines)]
    return reduce_all(JobView(config=config), events).training


def test_epoch_that_begins_in_its_middle_has_the_length_of_the_others():
    training = read([f"[ep {step // 40} it {step % 40}] loss {9 - step / 100}" for step in range(10, 200)]).training
    assert (training.run_step, training.steps) == (199, 189)


@pytest.mark.parametrize(
    ("steps", "count"), [(range(180), 180), (range(1, 21), 20), (range(131, 251), 119), (range(10, 260, 10), 250)]
)
def test_steps_are_those_that_the_lines_show(steps: range, count: int):
    assert read([f"step {step} loss {900 - step}.5" for step in steps]).training.steps == count


@pytest.mark.parametrize("line", ["it {} l {} tok/s 3290", "it {} l {} rate 3290 tok/s", "it {} l {}, tok/s=3290"])
def test_pattern_reads_a_speed_with_the_unit_in_the_line(line: str):
    pattern = r"it (?P<step>\d+) l (?P<loss>[\d.]+).*?(?:rate|tok/s)[ =](?P<speed>\d+)"
    training = read_with_pattern(pattern, [line.format(i, 9 - i / 100) for i in (10, 20)])
    assert (training.speed, training.unit) == (3290, "tokens/s")
