"""Every name of the vocabulary has a literal by which a search finds its lines."""

from __future__ import annotations

import pytest

from kfjob.joblog.lines import vocabulary
from kfjob.joblog.lines.meanings import Quantity, find_meaning, split_name
from kfjob.joblog.lines.vocabulary import TRANSLATIONS
from kfjob.joblog.observe_config import ObserveConfig
from kfjob.joblog.prefilter import RARE_WHOLE, Prefilter, find_markers
from kfjob.joblog.progress.general.candidates import (
    MORE_MARKERS,
    RARE_MARKERS,
    is_candidate,
    may_hold_progress,
)

FIGURES = {Quantity.STEP, Quantity.EPOCH, Quantity.LOSS, Quantity.LR, Quantity.SPEED}
COUNTERS = [
    name for group in (*vocabulary.STEPS[: vocabulary.WEAK_COUNT], vocabulary.EPOCHS[0]) for name in group if len(name) >= 4
]
LOSSES = [name for group in vocabulary.LOSSES for name in group]
NAMES = [*COUNTERS, *LOSSES, *sorted(vocabulary.LOSS_PARTS | vocabulary.RATES), "learning rate"]
FOREIGN = [word for word in TRANSLATIONS if (meaning := find_meaning(split_name(word))) and meaning.quantity in FIGURES]
LEARNING_RATE = "скорость обучения"
"""A name of several words."""


def find_forms(name: str) -> list[str]:
    joined = [name.replace(" ", joint) for joint in " _-"]
    return [form for text in joined for form in (text, text.upper(), text.capitalize())]


def select_late(line: str) -> bool:
    """Return whether the prefilter selects the line where it no longer searches for rare names."""
    prefilter = Prefilter(ObserveConfig())
    noise = b"nothing here\n" * (RARE_WHOLE // 13)
    prefilter.select(noise + b"step 5 loss 2.5\n")
    return len(prefilter.select(noise + f"{line}\n".encode())) == 1


@pytest.mark.parametrize("name", NAMES)
def test_each_name_has_a_literal_in_each_form(name: str):
    lines = [
        layout.format(form) for form in find_forms(name) for layout in ("{}: 5.5", "{} 5", "it 5 {}=5.5", "it 5 | {}\t5.5")
    ]
    read = [line for line in lines if may_hold_progress(line.encode())]
    assert read
    assert [line for line in read if not is_candidate(line)] == []


@pytest.mark.parametrize("name", [*FOREIGN, LEARNING_RATE])
def test_each_name_in_another_language_has_a_literal(name: str):
    lines = [layout.format(form) for form in (name, name.capitalize()) for layout in ("{}: 5.5", "{} 5", "it 5 {}=5.5")]
    read = [line for line in lines if may_hold_progress(line.encode())]
    assert read
    assert [line for line in read if not is_candidate(line)] == []


@pytest.mark.parametrize("name", [*LOSSES, *COUNTERS, "learning rate"])
def test_common_names_are_found_throughout_a_log(name: str):
    forms = {form for form in find_forms(name) if not form.isupper() and may_hold_progress(f"{form}: 5.5".encode())}
    assert [form for form in forms if not select_late(f"{form}: 5.5")] == []


def test_searches_of_whole_logs_have_few_literals():
    """A search for more than 64 literals is 5 to 10 times slower."""
    markers = find_markers(ObserveConfig())
    assert len({*markers, *MORE_MARKERS}) + len(("lr:", "lr=", "lr ")) <= 64
    assert len(set(RARE_MARKERS)) == len(RARE_MARKERS)
