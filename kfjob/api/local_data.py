"""Check the data, the model and the tokenizer that the trainer reads on this machine: they are there, and the data suffices."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from kfjob.base.errors import Problem
from kfjob.base.parsing import ParseError, parse_json, read_document
from kfjob.base.text import find_similar, plural
from kfjob.plan import JobPlan
from kfjob.trainspec.model_shapes import PRESETS, find_config_problems
from kfjob.trainspec.train_rules import SYNTHETIC, TOKENS_HEADER, can_be_repository
from kfjob.trainspec.train_spec import TrainSpec, get_shape, resolve_micro_batch_size, resolve_packing

_SIMILAR = 0.8
_MANY_PASSES = 10
"""Passes over the data above which a run without `epochs` gets a note; gains end long before (Muennighoff et al. 2023)."""


def find_data_problems(train: TrainSpec, plan: JobPlan) -> Iterator[Problem]:
    """Yield the data, the tokenizer and the model of the trainer that this machine lacks, and data that ends too early."""
    for field in ("data", "validation", "tokenizer"):
        value = getattr(train, field)
        if value and value != SYNTHETIC and (path := _resolve(value, plan)) and not path.exists():
            yield from _explain_missing(f"train.{field}", value, path)
    if isinstance(train.model, str) and train.model not in PRESETS:
        yield from _find_model_problems(train.model, plan)
    folder = _resolve(train.data, plan)
    if train.data != SYNTHETIC and folder and folder.is_dir() and _lacks_tokenizer(train, folder):
        yield Problem(
            title=f"the text in `{folder}` needs a tokenizer, and a preset or a shape has none",
            path="train.data",
            hint="set `train.tokenizer` to a folder with tokenizer.json",
        )
    if (samples := _count_samples(train, folder)) and (batch := _count_global_batch(train, plan)):
        yield from _compare_lengths(train, samples, batch)


def _compare_lengths(train: TrainSpec, samples: int, batch: int) -> Iterator[Problem]:
    """Yield how `max_steps` and `epochs` do not fit the data, which has `samples` of which a step reads `batch`."""
    if train.epochs and (last := train.epochs * samples // batch) < (train.max_steps or 1):
        data = f"{plural(train.epochs, 'epoch')} of {plural(samples, 'sample')}"
        if not last:
            title = f"{data} {'is' if train.epochs == 1 else 'are'} less than a global batch of {batch}"
            yield Problem(title=title, path="train.epochs", hint="use more data, or a smaller batch")
            return
        hint = "remove `epochs` or `max_steps`, or set more epochs"
        title = f"`max_steps: {train.max_steps}` is never reached: {data} end{'s' * (train.epochs == 1)} after step {last}"
        yield Problem(title=title, path="train.max_steps", hint=hint, severity="warning")
    elif not train.epochs and (passes := (train.max_steps or 0) * batch / samples) > _MANY_PASSES:
        title = f"`max_steps: {train.max_steps}` reads each of {plural(samples, 'sample')} {passes:.0f} times"
        yield Problem(title=title, path="train.max_steps", hint="`epochs` limits the passes", severity="note")


def _count_samples(train: TrainSpec, folder: Path | None) -> int:
    """Return the samples of a tokenised folder; 0 if only the trainer can count them, or cannot read it."""
    try:
        header = parse_json(read_document(folder / TOKENS_HEADER)) if folder else None
        if not isinstance(header, dict) or header["answers"] or resolve_packing(train) != "stream":
            return 0
        return max(0, (int(header["tokens"][train.data_split]) - 1) // train.sequence_length)
    except (OSError, ParseError, LookupError, TypeError, ValueError):
        return 0


def _count_global_batch(train: TrainSpec, plan: JobPlan) -> int:
    """Return the samples of a step over all ranks; 0 if the nodes decide how many ranks there are."""
    processes = str(train.spawn or plan.processes_per_node)
    ranks = plan.spec.nodes * int(processes) // train.context_parallel if processes.isdecimal() else 0
    return ranks * resolve_micro_batch_size(train) * train.gradient_accumulation_steps


def _find_model_problems(model: str, plan: JobPlan) -> Iterator[Problem]:
    """Yield the problems of a model in a folder on this machine: no configuration, or a shape that nothing can compute."""
    folder = _resolve(model, plan)
    if folder is None or not (folder.is_dir() or model.startswith((".", "/", "~"))):
        return  # a model on the hub
    try:
        config = parse_json(read_document(folder / "config.json"))
    except FileNotFoundError:
        title = f"there is no model at `{folder}`"
        yield Problem(title=title, path="train.model", hint="use a folder with config.json, or a preset")
    except (OSError, ParseError) as err:
        yield Problem(title=f"cannot read `{folder / 'config.json'}`", path="train.model", detail=str(err))
    else:
        for title in find_config_problems(config if isinstance(config, dict) else {}):
            yield Problem(title=title, path="train.model", detail=f"in `{folder / 'config.json'}`")


def _explain_missing(field: str, value: str, path: Path) -> Iterator[Problem]:
    """Yield the problem of a path that does not exist, unless it can be a name on the hub."""
    if field == "train.data" and find_similar(value, [SYNTHETIC], cutoff=_SIMILAR):
        yield Problem(title=f"there is no data `{value}`", path=field, hint=f"did you mean `{SYNTHETIC}`?")
    elif not can_be_repository(value):
        kind = "tokenizer" if field == "train.tokenizer" else "data"
        yield Problem(title=f"there is no {kind} at `{path}`", path=field, hint=f"set `{field}` to a path on this machine")


def _lacks_tokenizer(train: TrainSpec, folder: Path) -> bool:
    is_tokenised = (folder / TOKENS_HEADER).exists() or (folder / "tokenizer" / "tokenizer.json").exists()
    return not is_tokenised and not train.tokenizer and get_shape(train) is not None


def _resolve(value: str, plan: JobPlan) -> Path | None:
    """Return the path that the trainer opens; None if it is in a volume."""
    path = Path(plan.spec.pod.working_dir or plan.start_folder) / Path(value).expanduser()
    mounts = [Path(volume.mount_path) for volume in plan.volumes]
    return None if any(path == mount or mount in path.parents for mount in mounts) else path
