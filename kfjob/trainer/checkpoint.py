"""Checkpoints that are complete or invisible.

A checkpoint is staged in a fresh hidden folder, every rank writing its shards with torch's distributed checkpoint (DCP); the
manifest with all checksums is written last; then the folder is renamed to `step-000050`. A kill at any moment leaves at most
hidden folders, which the next run removes. On load every file is checked against the manifest, and a damaged checkpoint is
passed over for the newest good one, with a warning. Since DCP keeps tensors by name, one written by 4 ranks with fsdp loads on
2 with ddp.
"""

from __future__ import annotations

import logging
import re
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from kfjob.errors import KfjobError
from kfjob.trainer import manifest, metrics
from kfjob.trainer.distributed import Ranks
from kfjob.trainer.manifest import Manifest
from kfjob.trainer.metrics import log

_COMPLETE = re.compile(r"step-(\d+)$")
_HIDDEN = (".staging-", ".discarded-")


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """A checkpoint that is complete and, when it was found for resuming, verified."""

    path: Path
    manifest: Manifest

    @property
    def name(self) -> str:
        """`step-000050`."""
        return self.path.name


def complete(folder: Path, *, aloud: bool = False) -> list[Checkpoint]:
    """The checkpoints in `folder` that have a right manifest, newest first; their files are not checked.

    With `aloud` the others are warned of.
    """
    found = []
    for path in folder.iterdir() if folder.is_dir() else ():
        if _COMPLETE.fullmatch(path.name):
            try:
                found.append(Checkpoint(path=path, manifest=Manifest.read(path)))
            except KfjobError as error:
                log.log(logging.WARNING if aloud else logging.DEBUG, "Checkpoint %s is damaged: %s", path.name, error.title)
    return sorted(found, key=lambda checkpoint: checkpoint.manifest.step, reverse=True)


def find(resume: str, folder: Path | None, ranks: Ranks) -> Checkpoint | None:
    """The checkpoint to go on from, the same on every rank: verified, or None for a fresh start.

    `auto` takes the newest good one. `none` and a path count for the first start of a launch only: when torchrun restarts the
    ranks of the same launch they go on from what that launch has written.

    Raises:
        KfjobError: the checkpoint asked for is damaged, or `folder` holds a later one of another launch, which would be taken
            for the newest the next time.
    """
    candidates: list[Checkpoint] = ranks.share(complete(folder, aloud=True) if ranks.first and folder else None) or []
    if resume != "auto":
        others = [checkpoint for checkpoint in candidates if checkpoint.manifest.run_id != ranks.run_id or not ranks.run_id]
        candidates = [checkpoint for checkpoint in candidates if checkpoint not in others]
        if not candidates:
            return _asked_for(resume, others, ranks)
    for checkpoint in candidates:
        if not (fault := _fault(checkpoint, ranks)):
            return checkpoint
        if ranks.first:
            log.warning("Checkpoint %s is damaged: %s", checkpoint.name, fault)
            _set_aside(checkpoint.path)
    return None


def _set_aside(path: Path) -> None:
    """Keep a damaged checkpoint for a person to look at, where retention cannot take it for one that is worth keeping."""
    path.rename(path.with_name(f"damaged-{path.name}-{secrets.token_hex(2)}"))


def _asked_for(resume: str, others: list[Checkpoint], ranks: Ranks) -> Checkpoint | None:
    start = None
    if resume != "none":
        path = Path(resume).expanduser()
        start = Checkpoint(path=path, manifest=Manifest.read(path))
        if fault := _fault(start, ranks):
            raise KfjobError(f"checkpoint `{resume}` is damaged", where="resume", cause=fault)
    later = [other for other in others if not start or other.manifest.step > start.manifest.step]
    if later:
        raise KfjobError(
            f"`{later[0].path.parent}` holds {later[0].name} of an earlier run",
            where="resume",
            hint="use another checkpoint_dir, `resume: auto` to go on from it, or move it away",
        )
    return start


def _fault(checkpoint: Checkpoint, ranks: Ranks) -> str | None:
    """What any rank finds wrong; the ranks share the reading."""
    own = manifest.damage(checkpoint.path, checkpoint.manifest, share=ranks.rank, of=ranks.world_size)
    return next((fault for fault in ranks.gather(own) if fault), None)


def prepare(folder: Path, ranks: Ranks) -> None:
    """Make the folder, and remove what killed runs have left in it and how the run before ended.

    Raises:
        KfjobError: it cannot be written.
    """
    with ranks.together(), _disk_errors(folder):
        if ranks.first:
            folder.mkdir(parents=True, exist_ok=True)
            (folder / metrics.OUTCOME).unlink(missing_ok=True)
            for path in folder.iterdir():
                if path.name.startswith(_HIDDEN):
                    shutil.rmtree(path)


class Checkpoints:
    """Writes the checkpoints of one run."""

    def __init__(
        self, folder: Path, *, keep_last: int, model: nn.Module, optimizer: torch.optim.Optimizer, ranks: Ranks
    ) -> None:
        """Save `model` and `optimizer` to `folder`, which `prepare` has prepared."""
        self.folder, self._keep_last, self._ranks = folder, keep_last, ranks
        self._model, self._optimizer = model, optimizer

    def save(self, about: Manifest) -> Checkpoint:
        """Write a checkpoint of model and optimiser; on return it is complete. Gradients must have been zeroed.

        Raises:
            KfjobError: the ranks do not share the folder, or it cannot be written.
        """
        from torch.distributed.checkpoint.filesystem import FileSystemWriter
        from torch.distributed.checkpoint.state_dict_saver import save

        name = f"step-{about.step:06d}"
        staging = self.folder / self._ranks.share(f".staging-{name}-{secrets.token_hex(4)}")
        with self._ranks.together(), _disk_errors(self.folder):
            staging.mkdir(exist_ok=True)
            writer = FileSystemWriter(staging, single_file_per_rank=True, sync_files=True)
            save(_state(self._model, self._optimizer), storage_writer=writer)
            mine = {path.name: manifest.describe(path) for path in self._written_here(staging)}
        everyone = {file: facts for part in self._ranks.gather(mine) for file, facts in part.items()}
        with self._ranks.together(), _disk_errors(self.folder):
            if self._ranks.first:
                self._commit(staging, replace(about, files=everyone))
        return Checkpoint(path=self.folder / name, manifest=about)

    def _written_here(self, staging: Path) -> list[Path]:
        """The files that this rank has written: DCP names them `__<rank>_<n>.distcp`; rank 0 writes the metadata."""
        mine = list(staging.glob(f"__{self._ranks.rank}_*"))
        return [*mine, staging / ".metadata"] if self._ranks.first else mine

    def _commit(self, staging: Path, about: Manifest) -> None:
        target = self.folder / f"step-{about.step:06d}"
        for file in about.files:
            if not (staging / file).exists():
                hint = "a volume that every pod mounts at the same path"
                raise KfjobError(
                    f"the ranks do not share `{self.folder}`: {file} is not there", where="checkpoint_dir", hint=hint
                )
        about.write(staging)
        if target.exists():  # without a right manifest, or of an earlier start at this very step
            _discard(target)
        staging.rename(target)
        manifest.sync_folder(self.folder)
        for old in complete(self.folder)[self._keep_last :] if self._keep_last else ():
            _discard(old.path)


def load(checkpoint: Checkpoint, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Load model and optimiser, in place.

    Raises:
        KfjobError: the checkpoint is of a model of another shape.
    """
    from torch.distributed.checkpoint.filesystem import FileSystemReader
    from torch.distributed.checkpoint.state_dict import set_state_dict
    from torch.distributed.checkpoint.state_dict_loader import load as load_shards

    _same_shape(checkpoint, parameter_shapes(model))
    state = _state(model, optimizer)
    load_shards(state, storage_reader=FileSystemReader(checkpoint.path))
    set_state_dict(model, optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"])


def _state(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    from torch.distributed.checkpoint.state_dict import get_state_dict

    model_state, optimizer_state = get_state_dict(model, optimizer)
    return {"model": model_state, "optimizer": optimizer_state}


def parameter_shapes(model: nn.Module) -> dict[str, list[int]]:
    """Name and whole shape of each parameter, whatever the strategy."""
    return {name.removeprefix("module."): list(parameter.shape) for name, parameter in model.named_parameters()}


def _same_shape(checkpoint: Checkpoint, here: dict[str, list[int]]) -> None:
    there = checkpoint.manifest.parameters
    if there == here:
        return
    different = [name for name in {**there, **here} if there.get(name) != here.get(name)]
    shapes = [f"{name}: {there.get(name, 'absent')} there, {here.get(name, 'absent')} here" for name in different[:3]]
    more = [f"and {len(different) - 3} more"] if len(different) > 3 else []
    raise KfjobError(
        f"{checkpoint.name} is of a model of another shape",
        where=str(checkpoint.path),
        cause="\n".join(shapes + more),
        hint="give the model that wrote it, or another checkpoint_dir",
    )


@contextmanager
def _disk_errors(folder: Path) -> Iterator[None]:
    """Say in our words what the disk says."""
    from torch.distributed.checkpoint.api import CheckpointException

    try:
        yield
    except (OSError, CheckpointException) as error:
        raise KfjobError(f"cannot write to `{folder}`", where="checkpoint_dir", cause=str(error)) from error


def _discard(path: Path) -> None:
    """Delete a checkpoint so that a kill half-way does not leave a damaged one in sight."""
    hidden = path.with_name(f".discarded-{path.name}-{secrets.token_hex(4)}")
    path.rename(hidden)
    shutil.rmtree(hidden, ignore_errors=True)
