"""Every name of the vocabulary, and every format, has a literal by which a search finds its lines."""

from __future__ import annotations

import pytest

from kfjob.joblog.lines import vocabulary
from kfjob.joblog.lines.meanings import Quantity, find_meaning, split_name
from kfjob.joblog.lines.vocabulary import TRANSLATIONS
from kfjob.joblog.observe_config import ObserveConfig
from kfjob.joblog.prefilter import RARE_SAMPLE, RARE_WHOLE, Prefilter, find_markers
from kfjob.joblog.progress.formats import FORMATS, progress_reader
from kfjob.joblog.progress.general.candidates import (
    FOREIGN_MARKERS,
    MAIN_MARKERS,
    MORE_MARKERS,
    RARE_MARKERS,
    make_gate,
    may_hold_progress,
)

FIGURES = {Quantity.STEP, Quantity.EPOCH, Quantity.LOSS, Quantity.LR, Quantity.SPEED}
COUNTERS = [
    name for group in (*vocabulary.STEPS[: vocabulary.WEAK_COUNT], vocabulary.EPOCHS[0]) for name in group if len(name) >= 4
]
LOSSES = [name for group in vocabulary.LOSSES for name in group]
NAMES = [*COUNTERS, *LOSSES, *sorted(vocabulary.LOSS_PARTS | vocabulary.RATES), "learning rate"]
FOREIGN = [word for word in TRANSLATIONS if (meaning := find_meaning(split_name(word))) and meaning.quantity in FIGURES]
SHORTER = {"pas"}
"""Words of plain letters that are too short to search for: a loss or another counter stands beside them."""

LEARNING_RATES = ("Taux d'apprentissage", "tasa de aprendizaje", "Taxa de aprendizado", "taxa de aprendizagem",
                  "Tasso di apprendimento", "скорость обучения")  # fmt: skip
"""Names of several words."""

PRINTED = {
    "loss": "it 5 train_loss 2.5", "Loss": "It 5 Loss 2.5", "LOSS": "IT 5 LOSS 2.5", "step": "step 5", "Step": "Step 5",
    "STEP": "STEP 5", "poch": "Epoch 5", "EPOC": "EPOCH 5", "iter": "iter 5", "Iter": "Iteration 5", "pdate": "Updates 5",
    "batch": "batch 5", "Batch": "Batch 5", "it/s": "[5/10] 2.5it/s", "s/it": "[5/10] 2.5s/it", "/sec": "it 5 812 imgs/sec",
    "per_s": "it 5 tokens_per_s 812", "per s": "it 5 tokens per s: 812", "es/s": "it 5 812 samples/s", "peed": "it 5 Speed 81",
    "ghpu": "it 5 throughput 812", "Cost": "it 5 Cost 2.5", "piso": "Episode 5/10", "earn": "5: learn: 2.5 total: 1m",
    "rmse": "it 5 rmse 2.5", "kimg": "tick 5 kimg 8.1", "raini": "Training [5/10]", "erlust": "Schritt 5 Verlust 2.5",
    "perte": "pas 5 perte 2.5", "perd": "paso 5 perda 2.5",
}  # fmt: skip
"""A line for each literal of the search through whole logs; it has no other of them."""
BESIDE = {
    "ITER": "ITER 5", "%|█": "Up: 10%|█  | 1/9", "%|##": "Up: 20%|##  | 2/9", "%|  ": "Up:  0%|   | 0/9",
    "ens/s": "812 tokens/s",
    " lr ": "| lr 0.1", " lr:": "a lr: 0.1", " lr-": "a lr-0: 0.1", " lr=": "a lr=0.1", "/lr=": "optim/lr=0.1",
    '"lr"': '"lr": 0.1', "'lr'": "'lr': 0.1", "_lr": "pg0_lr 0.1", " LR ": "a LR 0.1", " LR:": "a LR: 0.1",
    " LR=": "a LR=0.1",
    "/LR ": "opt/LR 0.1", "ntropy": "cross_entropy: 2.5", "Up. ": "Up. 5", " fps": "25 fps", "VALI": "VALID 5",
    "VAL ": "VAL ppl 5",
    "alid": "validation ppl 5", "pass: ": "pass: 5", "SPS:": "SPS: 812", "cost": "cost: 2.5", "ound ": "Round 5",
    "otal": "Total: 2.5",
    "etrics": " - Test metrics:",
}  # fmt: skip
"""A line for each literal of the search through logs with figures."""
ROWS = (
    "2026-11-21 07:10:41 I [train.py:18] Batch 5 Loss: 3.00000, Speed: 4.98 samples/sec, lr: 0.000091",
    "Training Epoch: 1/2, step 5/9 completed (loss: 2.5)",
    "{'loss': 2.5, 'learning_rate': 5e-05, 'epoch': 0.1}",
    "step:  5  loss:  2.5  memory: 12.34GiB(15.2%)  tps: 7,023",
    "step 00005/00009 (1.2%) | loss: 2.5 | lrm: 1.0 | tok/sec: 812",
    "iter 5: loss 2.5, time 81.20ms, mfu 3.1%",
    " iteration        5/      9 | elapsed time per iteration (ms): 81.2 | lm loss: 2.5E+00 | learning rate: 1.0E-4 |",
    "step=5, skipped=0, lr=[0.001], mom=[[0.9, 0.95]]",
    "epoch=0/micro_step=5/global_step=5, RunningAvgSamplesPerSec=8.5, CurrSamplesPerSec=9.5",
    "Epoch 1/2 ━━━━╸━━━ 5/9 0:00:01 • 0:00:02 4.5it/s train_loss: 2.5",
    " 50%|█████     | 5/10 [00:01<00:01,  4.50it/s]",
    " 50%|█████     | 5/10 [00:10<00:10,  2.00s/it]",
)
"""A line for each format."""


def find_forms(name: str) -> list[str]:
    joined = [name.replace(" ", joint) for joint in " _-"]
    return [form for text in joined for form in (text, text.upper(), text.capitalize())]


def find_literals(text: str) -> set[str]:
    return {marker for marker in (*MAIN_MARKERS, *MORE_MARKERS) if marker in text}


def select_late(line: str, *, beginning: str = "") -> bool:
    """Return whether the prefilter selects the line where it no longer searches for rare names."""
    prefilter = Prefilter(ObserveConfig())
    noise = b"nothing here\n" * (RARE_WHOLE // 13)
    prefilter.select(f"{beginning}\n".encode() + noise)
    lines = prefilter.select(noise[: RARE_SAMPLE // 13 * 13] + f"{line}\n".encode() + noise)
    return len(lines) == 1


@pytest.mark.parametrize("name", NAMES)
def test_each_name_has_a_literal_in_each_form(name: str):
    gate = make_gate(progress_reader())
    lines = [
        layout.format(form) for form in find_forms(name) for layout in ("{}: 5.5", "{} 5", "it 5 {}=5.5", "it 5 | {}\t5.5")
    ]
    read = [line for line in lines if may_hold_progress(line.encode())]
    assert read
    assert [line for line in read if not gate.is_candidate(line)] == []


@pytest.mark.parametrize("name", [*sorted(set(FOREIGN) - SHORTER), *LEARNING_RATES])
def test_each_name_in_another_language_has_a_literal(name: str):
    gate = make_gate(progress_reader())
    lines = [layout.format(form) for form in (name, name.capitalize()) for layout in ("{}: 5.5", "{} 5", "it 5 {}=5.5")]
    read = [line for line in lines if may_hold_progress(line.encode())]
    assert read
    assert [line for line in read if not gate.is_candidate(line)] == []


@pytest.mark.parametrize("name", sorted({name for name in FOREIGN if not name.isascii()}))
def test_names_in_other_scripts_are_found_throughout_a_log(name: str):
    assert select_late(f"{name}: 5.5") or not may_hold_progress(f"{name}: 5.5".encode())


@pytest.mark.parametrize("name", [*LOSSES, *COUNTERS, "learning rate"])
def test_common_names_are_found_throughout_a_log(name: str):
    forms = {form for form in find_forms(name) if not form.isupper() and may_hold_progress(f"{form}: 5.5".encode())}
    assert [form for form in forms if not select_late(f"{form}: 5.5")] == []


@pytest.mark.parametrize("line", PRINTED.values())
def test_common_lines_are_found_throughout_a_log(line: str):
    assert may_hold_progress(line.encode())
    assert select_late(line)


@pytest.mark.parametrize("line", BESIDE.values())
def test_lines_beside_figures_are_found_throughout_a_log(line: str):
    assert select_late(line, beginning="step 5 loss 2.5")


def test_each_chosen_literal_is_needed():
    assert {literal: find_literals(line) & set(MAIN_MARKERS) for literal, line in PRINTED.items()} == {
        literal: {literal} for literal in MAIN_MARKERS
    }
    assert {literal: find_literals(line) for literal, line in BESIDE.items()} == {
        literal: {literal} for literal in MORE_MARKERS
    }


@pytest.mark.parametrize("row", range(len(FORMATS)))
def test_each_format_is_found_throughout_a_log(row: int):
    assert len(ROWS) == len(FORMATS)
    assert FORMATS[row].read(ROWS[row])
    assert FORMATS[row].marker in ROWS[row]
    assert FORMATS[row].literal in ROWS[row]
    assert select_late(ROWS[row])


def test_searches_of_whole_logs_have_few_literals():
    """A search for more than 64 literals is 5 to 10 times slower."""
    markers = find_markers(ObserveConfig())
    assert len({*markers, *MORE_MARKERS}) + len(("lr:", "lr=", "lr ")) <= 64
    assert len(FOREIGN_MARKERS) <= 64
    assert len(set(RARE_MARKERS)) == len(RARE_MARKERS)
