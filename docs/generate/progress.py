"""The page of the progress lines: which shapes and names are read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kfjob.joblog.lines import vocabulary
from kfjob.joblog.progress.general.templates import MAX_SAMPLES, MAX_TEMPLATES, MIN_LINES, MIN_WEAK_LINES
from kfjob.joblog.progress.pattern import PROGRESS_GROUPS

_SHAPES = {
    "pairs": "step: 100, loss: 2.31, lr: 3.0e-04",
    "counters": "Epoch [1/5], Step [100/600], Loss: 2.31",
    "counters without names": "[1][100/7330] loss: 2.31 (2.40)",
    "bars": "Training:  10%|█    | 100/1000 [00:40<06:00,  2.50it/s, loss=2.31]",
    "JSON and dictionaries": '{"step": 100, "train": {"loss": 2.31}}',
    "blocks": "[step=100/1000]\n    train/loss=2.31\n    optim/lr=0.0003",
    "tables": "epoch  train_loss  valid_loss\n1      2.31        2.40",
}


def format_page() -> str:
    """Return the page as Markdown."""
    shapes = "\n\n".join(f"{name[:1].upper()}{name[1:]}:\n\n```text\n{example}\n```" for name, example in _SHAPES.items())
    return f"""# What kfjob reads

kfjob finds the training progress in the lines that any program prints. It removes what loggers put before a message (time,
level, logger, rank), and reads these shapes:

{shapes}

A line with one count, a loss, and a speed or a learning rate is progress at once. Other lines of one layout count after
{MIN_LINES} or {MIN_WEAK_LINES} lines that fit it: a counter grows and the loss changes, or a counter grows and a speed is
printed. The first lines are then read again. A bar without a name counts only after
a line that says that training begins. Lines about the preparation of data never count.

kfjob remembers at most {MAX_TEMPLATES} layouts per container, with at most {MAX_SAMPLES} lines each, in less than 1 MB. Then
it forgets the layout that it saw least recently.

## Names

Of two names for the same figure the one listed first wins.

{_table("Step", vocabulary.STEPS)}
{_table("Epoch", vocabulary.EPOCHS)}
{_table("Loss", vocabulary.LOSSES)}
Every other name with the word `loss` is a loss too, and then {_join(sorted(vocabulary.LOSS_PARTS))}.

kfjob also reads these names in Chinese and Russian, such as `损失` and `потери`.
A single letter `L` is a loss too, and so is a `total` that is no whole number.

To be fast, kfjob searches a log for few strings. Lines such as `it 12 nll 2.93`, with none of the words `step`, `iter`,
`batch`, `epoch` and `loss`, are found in the first 32 KiB of a log, and later as long as no other line has figures.
Numbers may have a decimal comma.

Names and line heads with {_join(sorted(vocabulary.EVALUATION_WORDS))} belong to the evaluation.

## Your own pattern

`progress:` in a spec is a regular expression (RE2) that kfjob searches in each line. It replaces the general reader,
and needs a named group `step` or `loss`. All groups:

| group | value |
| --- | --- |
{_rows(PROGRESS_GROUPS)}

Numbers may have commas, and a K, M, G or T at the end. Where a space separates the letter (`12.5 K tok/s`), match it with
`step_unit` or `speed_unit`:

```yaml
progress: 'it (?P<step>\\d+) of epoch (?P<epoch>\\d+)/(?P<epochs>\\d+) loss (?P<loss>\\S+)'
```

Steps that begin again in each epoch count on. With `epochs` and `epoch_steps` the remaining time is that of the whole run.

## Try it

`kfjob progress LOG` shows the layouts in a log and which one counts. `kfjob progress LOG --progress PATTERN` tries a pattern
before you write it to `progress:` in a spec.
"""


def _table(title: str, ranks: tuple[tuple[str, ...], ...]) -> str:
    rows = "\n".join(f"{number}. {_join(names)}" for number, names in enumerate(ranks, 1))
    return f"{title}:\n\n{rows}\n"


def _rows(values: Mapping[str, str]) -> str:
    return "\n".join(f"| `{name}` | {text} |" for name, text in values.items())


def _join(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)
