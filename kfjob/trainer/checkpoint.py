"""Checkpoints that are complete or invisible, and that the training hardly waits for.

The state is copied to the host's memory (pinned where there is a GPU) and the training goes on. A thread then writes the shards
with torch's distributed checkpoint (DCP), has every rank's checksums, and rank 0 commits them with a manifest (`storage.py`
says how). The ranks' threads meet in a gloo group of their own. The next save waits for the one before, the end of the `with`
block for the last. A kill at any moment leaves at most litter that the next run removes.

On load every file is checked against the manifest, and a damaged checkpoint is passed over for the newest good one, with a
warning. Since DCP keeps tensors by name, one written by 4 ranks with fsdp loads on 2 with ddp.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as NotYet
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

import torch
from torch import nn

from kfjob.errors import KfjobError
from kfjob.spec.train import TrainSpec
from kfjob.trainer import manifest, metrics
from kfjob.trainer.distributed import Ranks
from kfjob.trainer.manifest import Manifest
from kfjob.trainer.metrics import log
from kfjob.trainer.shapes import whole_shape
from kfjob.trainer.storage import Storage, split, storage_of

FULL = "model.pt"
LAST_WORDS = 60.0
"""Seconds that a run which has failed gives a checkpoint that is being written."""


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """A checkpoint; complete and verified when it was found, on its way when `Checkpoints.save` has returned it."""

    storage: Storage
    name: str
    """`step-000050`."""
    manifest: Manifest

    @property
    def path(self) -> str:
        """Its folder or URL."""
        return f"{self.storage.place}/{self.name}"


class State(Protocol):
    """What a checkpoint holds beside its manifest."""

    def read(self) -> dict[str, Any]:
        """The tensors, in a form that DCP writes; every rank calls it, gradients are zero."""

    def write(self, state: dict[str, Any]) -> None:
        """Take over what DCP has loaded into the tensors of `read`."""

    def weights(self) -> dict[str, torch.Tensor]:
        """The model's tensors whole, on the host, on rank 0; empty on the others."""


class ModelState:
    """Model and optimiser of torch's own strategies."""

    def __init__(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        """Of these two."""
        self._model, self._optimizer = model, optimizer

    def read(self) -> dict[str, Any]:
        """By the names of the parameters, whatever the strategy."""
        from torch.distributed.checkpoint.state_dict import get_state_dict

        model_state, optimizer_state = get_state_dict(self._model, self._optimizer)
        return {"model": model_state, "optimizer": optimizer_state}

    def write(self, state: dict[str, Any]) -> None:
        """In place."""
        from torch.distributed.checkpoint.state_dict import set_state_dict

        set_state_dict(self._model, self._optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"])

    def weights(self) -> dict[str, torch.Tensor]:
        """Gathered, and copied where they are the parameters themselves."""
        from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict

        whole: dict[str, Any] = get_model_state_dict(
            self._model, options=StateDictOptions(full_state_dict=True, cpu_offload=True)
        )
        own = {parameter.data_ptr() for parameter in self._model.parameters()}
        return {name: tensor.clone() if tensor.data_ptr() in own else tensor for name, tensor in whole.items()}


def complete(storage: Storage, *, aloud: bool = False) -> list[Checkpoint]:
    """The checkpoints that have a right manifest, newest first; their files are not checked.

    With `aloud` the others are warned of.
    """
    found = []
    for name in storage.names():
        try:
            found.append(Checkpoint(storage=storage, name=name, manifest=storage.read(name)))
        except KfjobError as error:
            log.log(logging.WARNING if aloud else logging.DEBUG, "Checkpoint %s is damaged: %s", name, error.title)
    return sorted(found, key=lambda checkpoint: checkpoint.manifest.step, reverse=True)


def find(resume: str, storage: Storage | None, ranks: Ranks) -> Checkpoint | None:
    """The checkpoint to go on from, the same on every rank: verified, or None for a fresh start.

    `auto` takes the newest good one, and so does the name of `storage` itself. `none` and another path count for the first
    start of a launch only: when torchrun restarts the ranks of the same launch they go on from what that launch has written.

    Raises:
        KfjobError: the checkpoint asked for is damaged, or `storage` holds a later one of another launch, which would be taken
            for the newest the next time.
    """
    if storage and resume not in ("auto", "none") and storage_of(resume) == storage:
        resume = "auto"
    own: list[Checkpoint] = []
    with ranks.together():
        if ranks.first and storage:
            own = complete(storage, aloud=True)
    candidates: list[Checkpoint] = ranks.share(own)
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
            checkpoint.storage.set_aside(checkpoint.name)
    return None


def _asked_for(resume: str, others: list[Checkpoint], ranks: Ranks) -> Checkpoint | None:
    start = None if resume == "none" else _at(resume, ranks)
    later = [other for other in others if not start or other.manifest.step > start.manifest.step]
    if later:
        raise KfjobError(
            f"`{later[0].storage.place}` holds {later[0].name} of an earlier run",
            location="resume",
            hint="use another checkpoint_dir, `resume: auto` to go on from it, or move it away",
        )
    return start


def _at(place: str, ranks: Ranks) -> Checkpoint:
    """The checkpoint at a place, or the newest good one in it, which is another run's and left as it is."""
    own: list[Checkpoint] = []
    with ranks.together():
        if ranks.first:
            own = complete(storage_of(place), aloud=True)
    within: list[Checkpoint] = ranks.share(own)
    if not within:
        storage, name = split(place)
        within = [Checkpoint(storage=storage, name=name, manifest=storage.read(name))]
    for checkpoint in within:
        if not (fault := _fault(checkpoint, ranks)):
            return checkpoint
        if ranks.first and len(within) > 1:
            log.warning("Checkpoint %s is damaged: %s", checkpoint.name, fault)
    raise KfjobError(f"checkpoint `{place}` is damaged", location="resume", cause=fault)


def _fault(checkpoint: Checkpoint, ranks: Ranks) -> str | None:
    """What any rank finds wrong; the ranks share the reading."""
    own = checkpoint.storage.damage(checkpoint.name, checkpoint.manifest, share=ranks.rank, of=ranks.world_size)
    return next((fault for fault in ranks.gather(own) if fault), None)


def prepare(storage: Storage, ranks: Ranks) -> None:
    """Make the place, and remove what killed runs have left in it and how the run before ended.

    Raises:
        KfjobError: it cannot be written.
    """
    with ranks.together():
        if ranks.first:
            storage.prepare()
            storage.remove(metrics.OUTCOME)


class Checkpoints:
    """Writes the checkpoints of one run; a context manager, whose end waits for what is being written."""

    def __init__(
        self,
        storage: Storage,
        state: State,
        ranks: Ranks,
        *,
        keep_last: int = 0,
        keep_every: int = 0,
        asynchronous: bool = True,
        full: bool = False,
        committed: Callable[[Checkpoint], None] | None = None,
    ) -> None:
        """Save `state` to `storage`, which `prepare` has prepared; with `full` also the weights in one file.

        `committed` hears of each complete checkpoint, on every rank, in the thread that wrote it, before older ones go.
        """
        from torch.distributed.checkpoint._state_dict_stager import StateDictStager

        self.storage, self._state, self._full = storage, state, full
        self._keep_last, self._keep_every = keep_last, keep_every
        self._ranks, self._committed = ranks.apart(), committed
        # What DefaultStager wraps; torch 2.11 closes that after the first use.
        self._pinned = ranks.device.type == "cuda"
        self._stager = StateDictStager(pin_memory=self._pinned) if asynchronous else None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="checkpoint")
        self._pending: Future[None] | None = None

    def save(self, about: Manifest) -> Checkpoint:
        """Take a copy of the state and write it, in the background if asked for. Gradients must have been zeroed.

        Raises:
            KfjobError: the ranks do not share the storage or it cannot be written; perhaps the save before this one.
        """
        self.wait()
        began = time.monotonic()
        state = self._state.read()
        weights = self._state.weights() if self._full else {}
        if self._stager:
            staged = self._stager.stage(state, non_blocking=self._pinned)
            if self._pinned:
                torch.cuda.synchronize()
            self._pending = self._thread.submit(self._write, staged, weights, about, began)
        else:
            self._write(state, weights, about, began)
        return Checkpoint(storage=self.storage, name=_name(about), manifest=about)

    def wait(self, timeout: float | None = None) -> None:
        """Until what has been saved is committed.

        Raises:
            KfjobError: it cannot be.
        """
        if self._pending:
            self._pending.result(timeout)
        self._pending = None

    def __enter__(self) -> Self:
        """Nothing to do."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Have all committed; a run that has failed gives it a minute, for a peer may be gone, and keeps its own error."""
        if kind is None:
            self.wait()
        else:
            with suppress(NotYet, Exception):
                self.wait(LAST_WORDS)
        self._thread.shutdown(wait=kind is None)
        if self._stager:
            self._stager.close()  # type: ignore[no-untyped-call]

    def _write(self, state: dict[str, Any], weights: dict[str, torch.Tensor], about: Manifest, began: float) -> None:
        """Write, commit and retire; all ranks meet in it, each in its own thread."""
        from torch.distributed.checkpoint.api import CheckpointException
        from torch.distributed.checkpoint.filesystem import FileSystemWriter
        from torch.distributed.checkpoint.state_dict_saver import save

        ranks, storage, name = self._ranks, self.storage, _name(about)
        token = ranks.share(secrets.token_hex(4))
        mine = {}
        with ranks.together():
            staging = storage.stage(name, token)
        with ranks.together():
            try:
                writer = FileSystemWriter(staging, single_file_per_rank=True, sync_files=True)
                save(state, storage_writer=writer, process_group=ranks.group)
                if weights:
                    torch.save(weights, staging / FULL)
                mine = {path.name: manifest.describe(path) for path in self._written_here(staging)}
            except (OSError, RuntimeError, CheckpointException) as error:
                raise KfjobError(f"cannot write to `{staging}`", location="checkpoint_dir", cause=str(error)) from error
            storage.put(staging, name, token, list(mine))
        everyone = {file: facts for part in ranks.gather(mine) for file, facts in part.items()}
        with ranks.together():
            if ranks.first:
                storage.commit(staging, name, token, replace(about, files=everyone))
        seconds = time.monotonic() - began
        log.info(metrics.checkpoint(name, f"{storage.place}/{name}", seconds))
        if self._committed:
            self._committed(Checkpoint(storage=storage, name=name, manifest=about))
        with ranks.together():
            if ranks.first:
                self._retire()

    def _written_here(self, staging: Path) -> list[Path]:
        """The files that this rank has written: DCP names them `__<rank>_<n>.distcp`; rank 0 writes the metadata."""
        mine = list(staging.glob(f"__{self._ranks.rank}_*"))
        return [*mine, *(path for path in (staging / ".metadata", staging / FULL) if self._ranks.first and path.exists())]

    def _retire(self) -> None:
        """Keep the newest, and those that are kept for ever; only complete ones count."""
        for old in complete(self.storage)[self._keep_last :] if self._keep_last else ():
            if not self._keep_every or old.manifest.step % self._keep_every:
                self.storage.discard(old.name)


def make_checkpoints(
    spec: TrainSpec, storage: Storage, state: State, ranks: Ranks, committed: Callable[[Checkpoint], None]
) -> Checkpoints:
    """As the spec says."""
    return Checkpoints(
        storage,
        state,
        ranks,
        keep_last=spec.keep_last,
        keep_every=spec.keep_every,
        asynchronous=spec.async_checkpoint,
        full=spec.full_state_dict,
        committed=committed,
    )


def _name(about: Manifest) -> str:
    return f"step-{about.step:06d}"


def load(checkpoint: Checkpoint, model: nn.Module, state: State) -> None:
    """Load `state`, of `model`, in place.

    Raises:
        KfjobError: the checkpoint is of a model of another shape.
    """
    from torch.distributed.checkpoint.state_dict_loader import load as load_shards

    _same_shape(checkpoint, parameter_shapes(model))
    tensors = state.read()
    load_shards(tensors, storage_reader=checkpoint.storage.reader(checkpoint.name, checkpoint.manifest))
    state.write(tensors)


def roll_back(checkpoints: Checkpoints | None, model: nn.Module, state: State, ranks: Ranks) -> Checkpoint:
    """Load the newest good checkpoint of the run, in place. The data is not moved back: it goes on behind what was bad.

    Raises:
        KfjobError: there is none.
    """
    found = None
    if checkpoints:
        checkpoints.wait()
        found = find("auto", checkpoints.storage, ranks)
    if found is None:
        raise KfjobError("there is no checkpoint to roll back to", hint="set `checkpoint_dir` and a smaller `checkpoint_every`")
    load(found, model, state)
    return found


def parameter_shapes(model: nn.Module) -> dict[str, list[int]]:
    """Name and whole shape of each parameter, whatever the strategy."""
    return {name.removeprefix("module."): list(whole_shape(parameter)) for name, parameter in model.named_parameters()}


def _same_shape(checkpoint: Checkpoint, here: dict[str, list[int]]) -> None:
    there = checkpoint.manifest.parameters
    if there == here:
        return
    different = [name for name in {**there, **here} if there.get(name) != here.get(name)]
    shapes = [f"{name}: {there.get(name, 'absent')} there, {here.get(name, 'absent')} here" for name in different[:3]]
    more = [f"and {len(different) - 3} more"] if len(different) > 3 else []
    raise KfjobError(
        f"{checkpoint.name} is of a model of another shape",
        location=checkpoint.path,
        cause="\n".join(shapes + more),
        hint="give the model that wrote it, or another checkpoint_dir",
    )
