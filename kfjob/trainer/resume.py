"""Finds the checkpoint with which a run continues: at its start, after a restart, and after an invalid step.

Every file is checked against the manifest. A damaged checkpoint causes a warning, and the newest valid one is used instead.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any, Literal

from torch import nn

from kfjob.base.errors import KfjobError
from kfjob.trainer.checkpoint import CheckpointState, NotFiniteError, find_checkpoints, list_checkpoints, load_checkpoint
from kfjob.trainer.checkpoint_writer import CheckpointWriter
from kfjob.trainer.distributed import Ranks
from kfjob.trainer.metrics import log
from kfjob.trainer.model_settings import find_different_settings
from kfjob.trainer.pins import keep_readers_out, pin
from kfjob.trainer.storage import Checkpoint, Storage, open_storage
from kfjob.trainspec.train_spec import TrainSpec


def find_checkpoint(
    resume: str,
    storage: Storage | None,
    ranks: Ranks,
    *,
    continues: str = "",
    bad: Collection[str] = (),
    pins: ExitStack | None = None,
) -> Checkpoint | None:
    """Return the verified checkpoint to resume from, the same on every rank; None for a fresh start.

    `auto` selects the newest valid one in `storage`, and so does the location of `storage` itself. `none` and another path
    apply only to the first start of a run: when torchrun restarts the ranks, they resume from what this launch has written, or
    one that it `continues`. `none` sets the checkpoints of other runs aside, and a checkpoint in `storage` the later ones,
    because `auto` would select one of them the next time.
    The checkpoints named in `bad` are passed over. A checkpoint of another storage is pinned until `pins` is closed.

    Raises:
        KfjobError: the checkpoint at `resume` is damaged, `storage` holds a later one of another run, or one cannot be set
            aside, because someone reads it.
    """
    if storage and resume not in ("auto", "none") and open_storage(resume) == storage:
        resume = "auto"
    own: list[Checkpoint] = []
    with ranks.fail_together():
        if ranks.is_rank_zero and storage:
            own = [
                checkpoint for checkpoint in list_checkpoints(storage, warn=True, set_aside=True) if checkpoint.name not in bad
            ]
    candidates: list[Checkpoint] = ranks.broadcast(own)
    if resume != "auto":
        launches = [_identify_launch(entry, continues, ranks) for entry in candidates]
        other_launches = [entry for entry, launch in zip(candidates, launches, strict=True) if launch == "other"]
        candidates = [checkpoint for checkpoint in candidates if checkpoint not in other_launches]
        if ranks.is_rank_zero and "unknown" in launches and "own" not in launches:
            log.warning("Note `resume: %s` does not apply: %s", resume, _UNKNOWN_LAUNCH.format(ranks.run_id))
        if not candidates:
            return _find_start(resume, storage, other_launches, ranks, pins)
    for checkpoint in candidates:
        if not (problem := _find_damage(checkpoint, ranks)):
            return checkpoint
        if ranks.is_rank_zero:
            log.warning("Checkpoint %s is damaged: %s", checkpoint.name, problem)
        with ranks.fail_together():
            if ranks.is_rank_zero:
                checkpoint.storage.set_aside(checkpoint.name, "damaged")
    return None


_UNKNOWN_LAUNCH = (
    "this is a restart of launch `{0}`, or another launch with the same rendezvous id; "
    "if it is another one, use another id or another checkpoint_dir"
)


def _identify_launch(checkpoint: Checkpoint, continues: str, ranks: Ranks) -> Literal["own", "other", "unknown"]:
    """Return whether this run has written a checkpoint: this launch, or one that it continues."""
    manifest = checkpoint.manifest
    launch = ranks.identify_launch(manifest.run_id, manifest.agents)  # every rank calls it
    return "own" if continues and continues in (manifest.run_id, manifest.spec.get("continues")) else launch


def _find_start(
    resume: str, storage: Storage | None, others: list[Checkpoint], ranks: Ranks, pins: ExitStack | None
) -> Checkpoint | None:
    """Return the first checkpoint of a run; `others` are those of other runs in its storage."""
    if resume == "none":
        _clear(others, ranks)
        return None
    with _blame_resume():
        start = _find_at(resume, ranks, pins)
    later = [checkpoint for checkpoint in others if checkpoint.manifest.step > start.manifest.step]
    if start.storage == storage:
        _clear(later, ranks)
    elif later:
        raise KfjobError(
            f"`{later[0].storage.location}` holds {later[0].name} of an earlier run",
            location="resume",
            hint="use another checkpoint_dir, set `resume: auto` to continue that run, or move its checkpoints away",
        )
    return start


def _clear(checkpoints: list[Checkpoint], ranks: Ranks) -> None:
    """Rename checkpoints of other runs to `earlier-…`.

    Raises:
        KfjobError: someone reads one.
    """
    if read := _set_aside(checkpoints, ranks, "earlier"):
        raise KfjobError(
            f"`{read[0].path}` cannot be renamed to `earlier-…`: someone reads it",
            location="resume",
            hint="use another checkpoint_dir, or try again when its reader has ended",
        )


def _set_aside(checkpoints: list[Checkpoint], ranks: Ranks, prefix: str) -> list[Checkpoint]:
    """Rename checkpoints to `PREFIX-…`; rank 0 does it for all. Return those that someone reads, which keep their names."""
    read: list[Checkpoint] = []
    with ranks.fail_together():
        for checkpoint in checkpoints if ranks.is_rank_zero else ():
            with keep_readers_out(checkpoint.storage, checkpoint.name) as is_free:
                if not is_free:
                    read.append(checkpoint)
                    continue
                name = checkpoint.storage.set_aside(checkpoint.name, prefix)
            log.warning("Checkpoint %s renamed to %s", checkpoint.name, name)
    everyones: list[Checkpoint] = ranks.broadcast(read)
    return everyones


def _find_at(location: str, ranks: Ranks, pins: ExitStack | None) -> Checkpoint:
    """Return the checkpoint at a location, or the newest valid one in it; nothing there is changed but its pins."""
    own: list[Checkpoint] = []
    with ranks.fail_together():
        if ranks.is_rank_zero:
            own = find_checkpoints(location, warn=True)
    candidates: list[Checkpoint] = ranks.broadcast(own)
    for checkpoint in candidates:
        with ranks.fail_together():  # the other ranks read after the pin
            if pins is not None and ranks.is_rank_zero:
                pins.enter_context(pin(checkpoint.storage, checkpoint.name))
        if not (problem := _find_damage(checkpoint, ranks)):
            return checkpoint
        if ranks.is_rank_zero and len(candidates) > 1:
            log.warning("Checkpoint %s is damaged: %s", checkpoint.name, problem)
    raise KfjobError(f"checkpoint `{location}` is damaged", location="resume", cause=problem)


@contextmanager
def _blame_resume() -> Iterator[None]:
    """Make the errors of a storage name the option `resume`, which the location comes from."""
    try:
        yield
    except KfjobError as error:
        error.location = "resume"
        raise


def _find_damage(checkpoint: Checkpoint, ranks: Ranks) -> str | None:
    """Return the first problem that any rank finds; each rank checks a share of the files."""
    own = None
    with ranks.fail_together():
        own = checkpoint.storage.find_damage(checkpoint.name, checkpoint.manifest, rank=ranks.rank, world_size=ranks.world_size)
    return next((problem for problem in ranks.all_gather(own) if problem), None)


def roll_back(
    writer: CheckpointWriter | None, model: nn.Module, state: CheckpointState, ranks: Ranks, *, before: int | None = None
) -> Checkpoint:
    """Load the run's newest valid checkpoint. The data position stays, so that the run skips the samples that failed.

    `before` is the step to which the run rolled back without making progress since: checkpoints from that step on are bad, and
    so are those whose values are not finite. They are renamed to `passed-over-…` once an older one is found, unless someone
    reads them, so that no later launch resumes from them.

    Raises:
        KfjobError: the run has no checkpoint whose values are finite.
    """
    passed_over: list[Checkpoint] = []
    checkpoint = None
    if writer:
        writer.settle()
        checkpoint = find_checkpoint("auto", writer.storage, ranks)
    while writer and checkpoint:
        bad = [entry.name for entry in (*passed_over, checkpoint)]
        problem, older = None, None
        if before is not None and checkpoint.manifest.step >= before:
            older = find_checkpoint("auto", writer.storage, ranks, bad=bad)
            problem = "the run made no progress from it" if older else None
        if problem is None:
            try:
                load_checkpoint(checkpoint, model, state, ranks)
            except NotFiniteError:
                problem = "it holds values that are not finite"
                older = find_checkpoint("auto", writer.storage, ranks, bad=bad)
            else:
                _set_aside(passed_over, ranks, "passed-over")
                return checkpoint
        log.warning("Checkpoint %s passed over: %s", checkpoint.name, problem)
        passed_over.append(checkpoint)
        checkpoint = older
    raise KfjobError("there is no checkpoint to roll back to", hint="set `checkpoint_dir` and a smaller `checkpoint_every`")


def describe_changes(checkpoint: Checkpoint, spec: TrainSpec, settings: Mapping[str, Any]) -> str | None:
    """Return what differs in the spec and the model's `settings` from the checkpoint's run; None if nothing does."""
    previous, present = checkpoint.manifest.spec, spec.model_dump(mode="json")
    changes = [
        f"{name} {json.dumps(previous[name])} -> {json.dumps(value)}"
        for name, value in present.items()
        if name not in _PER_LAUNCH and name in previous and previous[name] != value
    ]
    stored = checkpoint.manifest.model_settings
    changes += [
        f"{name} of the model {json.dumps(stored[name])} -> {json.dumps(settings[name])}"
        for name in find_different_settings(stored, settings, training=True)
    ]
    return ", ".join(changes) or None


_PER_LAUNCH = ("resume", "continues", "trust_checkpoint", "dry_run", "debug", "spawn")
"""Settings of a launch that do not change the training."""
