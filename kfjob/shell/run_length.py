"""The length of a run in the arguments of its command: `--epochs 10`, `--max_steps=5000`, `trainer.max_epochs=10`."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator
from typing import NamedTuple

EPOCHS = frozenset({"epochs", "num_epochs", "n_epochs", "max_epochs", "total_epochs", "num_train_epochs", "train_epochs"})
"""Names of the epochs of the whole run."""
STEPS = frozenset((
    "max_steps", "num_steps", "total_steps", "max_iters", "num_iters", "total_iters", "train_iters", "max_iterations",
    "num_iterations", "total_iterations", "max_train_steps", "num_train_steps", "total_train_steps", "num_training_steps",
    "training_steps", "train_steps",
))  # fmt: skip
"""Names of the steps of the whole run."""
_OPTION = re.compile(r"(?:-{1,2}|\+{0,2})(?P<name>[A-Za-z][\w.-]*)(?:=(?P<value>.*))?")
_WHOLE = r"\d{1,15}"
_MAX_TEXT = 100_000
"""Characters of a script in which kfjob looks for options."""


class RunLength(NamedTuple):
    """What a run ends after; None if unknown."""

    steps: int | None = None
    epochs: int | None = None


def find_run_length(words: Iterable[str]) -> RunLength:
    """Return the length that the words of a command set; unknown if they set several, of which the program may take any."""
    steps: set[str] = set()
    epochs: set[str] = set()
    for name, value in _find_options(split_scripts(words)):
        names = name.replace("-", "_").lower().split(".")
        joined = "_".join(names[-2:])
        if names[-1] in EPOCHS:
            epochs.add(value)
        elif names[-1] in STEPS or joined in STEPS:
            steps.add(value)
    steps -= {"-1"}  # transformers and Lightning take it for no limit
    if len(steps) + len(epochs) != 1:
        return RunLength()
    return RunLength(_to_count(steps), _to_count(epochs))


def _to_count(values: set[str]) -> int | None:
    value = next(iter(values), "")
    return int(value) or None if re.fullmatch(_WHOLE, value) else None


def split_scripts(words: Iterable[str]) -> list[str]:
    """Return the words, and in place of a script of a shell the words in it."""
    split: list[str] = []
    for word in words:
        if not any(space in word for space in " \n\t") or len(word) > _MAX_TEXT:
            split.append(word)
            continue
        try:
            split += shlex.split(word, comments=True)
        except ValueError:  # quotes that nothing closes
            split.append(word)
    return split


def _find_options(words: list[str]) -> Iterator[tuple[str, str]]:
    """Yield the options of the command with their values."""
    for place, word in enumerate(words):
        match = _OPTION.fullmatch(word)
        if match is None:
            continue
        if match["value"] is not None:
            yield match["name"], match["value"]
        elif word.startswith("-") and place + 1 < len(words):
            yield match["name"], words[place + 1]
