"""Checkpoints that are complete or invisible, written while the training continues.

A save copies the state to the host's memory (pinned with a GPU), and the training continues. A thread then writes the shards
with torch's distributed checkpoint (DCP), gathers every rank's checksums, and rank 0 commits them with a manifest (see
`storage.py`). The ranks' threads use a gloo group of their own. The next save waits for the one before, the end of the `with`
block for the last. A kill at any moment leaves only temporary files, which the next run removes.

A load checks every file against the manifest. It warns about a damaged checkpoint and uses the newest valid one instead. DCP
stores tensors by name, so a checkpoint of 4 ranks with fsdp loads on 2 ranks with ddp.
"""

from __future__ import annotations

import json
import logging
import math
import secrets
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

import torch
from torch import nn
from torch.distributed.tensor import DTensor

from kfjob.errors import KfjobError
from kfjob.spec.train import OnSaveError, TrainSpec
from kfjob.trainer import metrics
from kfjob.trainer.anomalies import HINT
from kfjob.trainer.distributed import PeerError, Ranks
from kfjob.trainer.manifest import Manifest, describe_file
from kfjob.trainer.metrics import log
from kfjob.trainer.pins import delete_unless_pinned, pin
from kfjob.trainer.shapes import full_shape
from kfjob.trainer.storage import Storage, open_storage, split_location
from kfjob.trainer.storage.base import describe_write_error, not_shared

Files = dict[str, dict[str, Any]]
"""Files of a checkpoint by name, as `describe_file` describes them."""
FULL_WEIGHTS_FILE = "model.pt"
FAILURE_TIMEOUT = 60.0
"""Seconds that a failed run waits for a checkpoint that is being written."""


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """A checkpoint: complete and verified if `find_checkpoint` returned it, perhaps unfinished if `save` did."""

    storage: Storage
    name: str
    """`step-000050`."""
    manifest: Manifest

    @property
    def path(self) -> str:
        """Its folder or URL."""
        return f"{self.storage.location}/{self.name}"


class CheckpointState(Protocol):
    """The tensors of a checkpoint."""

    def state_dict(self) -> dict[str, Any]:
        """Return the tensors in a form that DCP writes; every rank calls it, and gradients are zero."""

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the values that DCP has loaded into the tensors of `state_dict`."""

    def full_weights(self) -> dict[str, torch.Tensor]:
        """Return the model's full tensors on the host on rank 0, nothing on the other ranks."""


class ModelState:
    """The model and the optimiser of torch's own strategies."""

    def __init__(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        """Read and restore these two."""
        self._model, self._optimizer = model, optimizer

    def state_dict(self) -> dict[str, Any]:
        """Return the tensors by parameter name, which is the same for every strategy."""
        from torch.distributed.checkpoint.state_dict import get_state_dict

        model_state, optimizer_state = get_state_dict(self._model, self._optimizer)
        return {"model": model_state, "optimizer": optimizer_state}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Set the state of the model and the optimiser; the optimiser keeps its own settings, which are those of the spec."""
        from torch.distributed.checkpoint.state_dict import set_state_dict

        groups = self._optimizer.param_groups
        settings = [{name: value for name, value in group.items() if name != "params"} for group in groups]
        set_state_dict(self._model, self._optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"])
        for group, own in zip(self._optimizer.param_groups, settings, strict=True):
            group.update(own)

    def full_weights(self) -> dict[str, torch.Tensor]:
        """Return the gathered tensors; tensors that are the parameters themselves are copied."""
        from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict

        weights: dict[str, Any] = get_model_state_dict(
            self._model, options=StateDictOptions(full_state_dict=True, cpu_offload=True)
        )
        parameters = {parameter.data_ptr() for parameter in self._model.parameters()}
        return {name: tensor.clone() if tensor.data_ptr() in parameters else tensor for name, tensor in weights.items()}


def list_checkpoints(storage: Storage, *, warn: bool = False) -> list[Checkpoint]:
    """Return the checkpoints with a valid manifest, newest first; their files are not checked.

    `warn` logs a warning about each of the others.
    """
    checkpoints = []
    for name in storage.list_names():
        try:
            checkpoints.append(Checkpoint(storage=storage, name=name, manifest=storage.read_manifest(name)))
        except KfjobError as error:
            log.log(logging.WARNING if warn else logging.DEBUG, "Checkpoint %s is damaged: %s", name, error.title)
    return sorted(checkpoints, key=lambda checkpoint: checkpoint.manifest.step, reverse=True)


def find_checkpoint(
    resume: str, storage: Storage | None, ranks: Ranks, *, bad: Collection[str] = (), pins: ExitStack | None = None
) -> Checkpoint | None:
    """Return the verified checkpoint to resume from, the same on every rank; None for a fresh start.

    `auto` selects the newest valid one in `storage`, and so does the location of `storage` itself. `none` and another path
    apply only to the first start of a launch: when torchrun restarts the ranks, they resume from what this launch has written.
    The checkpoints named in `bad` are passed over. A checkpoint of another storage is pinned until `pins` is closed.

    Raises:
        KfjobError: the checkpoint at `resume` is damaged, or `storage` holds a later one of another launch, which `auto` would
            select the next time.
    """
    if storage and resume not in ("auto", "none") and open_storage(resume) == storage:
        resume = "auto"
    own: list[Checkpoint] = []
    with ranks.fail_together():
        if ranks.is_rank_zero and storage:
            own = [checkpoint for checkpoint in list_checkpoints(storage, warn=True) if checkpoint.name not in bad]
    candidates: list[Checkpoint] = ranks.broadcast(own)
    if resume != "auto":
        other_launches = [entry for entry in candidates if not ranks.is_own_launch(entry.manifest.run_id)]
        candidates = [checkpoint for checkpoint in candidates if checkpoint not in other_launches]
        if not candidates:
            return _find_start(resume, other_launches, ranks, pins)
    for checkpoint in candidates:
        if not (problem := _find_damage(checkpoint, ranks)):
            return checkpoint
        if ranks.is_rank_zero:
            log.warning("Checkpoint %s is damaged: %s", checkpoint.name, problem)
            checkpoint.storage.quarantine(checkpoint.name)
    return None


def _find_start(resume: str, other_launches: list[Checkpoint], ranks: Ranks, pins: ExitStack | None) -> Checkpoint | None:
    start = None if resume == "none" else _find_at(resume, ranks, pins)
    later = [checkpoint for checkpoint in other_launches if not start or checkpoint.manifest.step > start.manifest.step]
    if later:
        raise KfjobError(
            f"`{later[0].storage.location}` holds {later[0].name} of an earlier run",
            location="resume",
            hint="use another checkpoint_dir, set `resume: auto` to continue that run, or move its checkpoints away",
        )
    return start


def _find_at(location: str, ranks: Ranks, pins: ExitStack | None) -> Checkpoint:
    """Return the checkpoint at a location, or the newest valid one in it; nothing there is changed but its pins."""
    own: list[Checkpoint] = []
    with ranks.fail_together():
        if ranks.is_rank_zero:
            own = list_checkpoints(open_storage(location), warn=True)
    candidates: list[Checkpoint] = ranks.broadcast(own)
    if not candidates:
        storage, name = split_location(location)
        candidates = [Checkpoint(storage=storage, name=name, manifest=storage.read_manifest(name))]
    for checkpoint in candidates:
        if pins is not None and ranks.is_rank_zero:
            pins.enter_context(pin(checkpoint.storage, checkpoint.name))
        ranks.all_gather(None)  # the other ranks read after the pin
        if not (problem := _find_damage(checkpoint, ranks)):
            return checkpoint
        if ranks.is_rank_zero and len(candidates) > 1:
            log.warning("Checkpoint %s is damaged: %s", checkpoint.name, problem)
    raise KfjobError(f"checkpoint `{location}` is damaged", location="resume", cause=problem)


def _find_damage(checkpoint: Checkpoint, ranks: Ranks) -> str | None:
    """Return the first problem that any rank finds; each rank checks a share of the files."""
    own = checkpoint.storage.find_damage(checkpoint.name, checkpoint.manifest, rank=ranks.rank, world_size=ranks.world_size)
    return next((problem for problem in ranks.all_gather(own) if problem), None)


def prepare_storage(storage: Storage, ranks: Ranks) -> None:
    """Prove that every rank can use the storage, and remove temporary files of killed runs and the outcome of the run before.

    Raises:
        KfjobError: a rank cannot write, read, rename or delete there, or the ranks do not share the location.
    """
    names = [f".probe-{ranks.broadcast(secrets.token_hex(4))}-{rank}" for rank in range(ranks.world_size)]
    with ranks.fail_together():
        storage.probe(names[ranks.rank])
    with ranks.fail_together():
        if ranks.is_rank_zero and (missing := set(names) - set(storage.list_files(".probe-"))):
            raise not_shared(storage.location, min(missing))
    with ranks.fail_together():
        storage.remove_file(names[ranks.rank])
    with ranks.fail_together():
        if ranks.is_rank_zero:
            storage.prepare()
            storage.remove_file(metrics.OUTCOME_FILE)


class CheckpointWriter:
    """Writes the checkpoints of one run; a context manager, whose end waits for the last save."""

    def __init__(
        self,
        storage: Storage,
        state: CheckpointState,
        ranks: Ranks,
        *,
        keep_last: int = 0,
        keep_every: int = 0,
        asynchronous: bool = True,
        full: bool = False,
        on_error: OnSaveError = "stop",
        before_commit: Callable[[], None] | None = None,
        on_commit: Callable[[Checkpoint], None] | None = None,
    ) -> None:
        """Save `state` to `storage`, which `prepare_storage` has prepared; `full` also saves the full weights in one file.

        `before_commit` is called on rank 0. `on_commit` receives each complete checkpoint, on every rank, in the writing
        thread, before old ones are deleted.
        """
        from torch.distributed.checkpoint._state_dict_stager import StateDictStager

        self.storage, self._state, self._full = storage, state, full
        self._keep_last, self._keep_every = keep_last, keep_every
        self._on_error, self._before_commit, self._asynchronous = on_error, before_commit, asynchronous
        self.last: Checkpoint | None = None
        """The last complete checkpoint of this writer."""
        self._loop_ranks, self._ranks, self._on_commit = ranks, ranks.with_own_group(), on_commit
        # The class that DefaultStager wraps; torch 2.11 closes DefaultStager after the first use.
        self._pinned = ranks.device.type == "cuda"
        self._stager = StateDictStager(pin_memory=self._pinned) if asynchronous else None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="checkpoint")
        self._pending: Future[None] | None = None

    def save(self, manifest: Manifest) -> Checkpoint:
        """Copy the state and write it, in the background if asynchronous. Gradients must be zero.

        Raises:
            KfjobError: a value is not finite, or writing fails; the error may be that of the previous save.
        """
        self.settle()
        began = time.monotonic()
        state = self._state.state_dict()
        if not is_finite(state, self._loop_ranks):
            title = f"the weights or the optimiser state at step {manifest.step} hold values that are not finite"
            raise KfjobError(title, cause="such a checkpoint would be useless, so it is not written", hint=HINT)
        weights = self._state.full_weights() if self._full else {}
        if self._stager:
            staged = self._stager.stage(state, non_blocking=self._pinned)
            if self._pinned:
                torch.cuda.synchronize()
        else:
            staged = state
        self._pending = self._thread.submit(self._write, staged, weights, manifest, began)
        if not self._asynchronous:
            self.settle(keep=True)
        return Checkpoint(storage=self.storage, name=_checkpoint_name(manifest), manifest=manifest)

    def settle(self, *, keep: bool = False) -> None:
        """Wait for the last save. With `on_error: continue` a failure ends only the run's last `wait`, so `keep` keeps it."""
        pending = self._pending
        try:
            self.wait()
        except KfjobError:
            if self._on_error == "stop":
                raise
            self._pending = pending if keep else None

    def wait(self, timeout: float | None = None) -> None:
        """Wait until the last save is committed.

        Raises:
            KfjobError: the save failed.
        """
        pending, self._pending = self._pending, None
        if pending:
            pending.result(timeout)

    def __enter__(self) -> Self:
        """Return the writer."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Wait for the last save. A failed run waits at most a minute, because a peer may be gone, and keeps its own error."""
        if kind is None:
            self.wait()
        else:
            with suppress(Exception):
                self.wait(FAILURE_TIMEOUT)
        self._thread.shutdown(wait=kind is None)
        if self._stager:
            self._stager.close()  # type: ignore[no-untyped-call]

    def _write(self, state: dict[str, Any], weights: dict[str, torch.Tensor], manifest: Manifest, began: float) -> None:
        """Write, commit and delete old checkpoints; the writing threads of all ranks call it together."""
        name = _checkpoint_name(manifest)
        try:
            self._write_and_commit(name, state, weights, manifest)
        except KfjobError as error:
            if self._on_error == "continue" and not isinstance(error, PeerError):
                log.error("Checkpoint %s not written: %s", name, error.title)
            raise
        self.last = Checkpoint(storage=self.storage, name=name, manifest=manifest)
        log.info(metrics.checkpoint_line(name, self.last.path, time.monotonic() - began))
        if self._on_commit:
            self._on_commit(self.last)
        with self._ranks.fail_together():
            if self._ranks.is_rank_zero:
                self._delete_old()

    def _write_and_commit(self, name: str, state: dict[str, Any], weights: dict[str, torch.Tensor], manifest: Manifest) -> None:
        ranks, storage = self._ranks, self.storage
        token = ranks.broadcast(secrets.token_hex(4))
        with ranks.fail_together():
            staging = storage.stage(name, token)
        try:
            with ranks.fail_together():
                own_files = self._write_shards(staging, state, weights)
                storage.upload(staging, name, token, list(own_files))
            files = {file: facts for part in ranks.all_gather(own_files) for file, facts in part.items()}
            with ranks.fail_together():
                if ranks.is_rank_zero:
                    if self._before_commit:
                        self._before_commit()
                    storage.commit(staging, name, token, replace(manifest, files=files))
        except KfjobError:
            storage.discard_staging(staging)
            raise

    def _write_shards(
        self, staging: Path, state: dict[str, Any], weights: dict[str, torch.Tensor]
    ) -> dict[str, dict[str, Any]]:
        """Write this rank's files, and return their sizes and checksums."""
        from torch.distributed.checkpoint.api import CheckpointException
        from torch.distributed.checkpoint.filesystem import FileSystemWriter
        from torch.distributed.checkpoint.state_dict_saver import save

        try:
            writer = FileSystemWriter(staging, single_file_per_rank=True, sync_files=True)
            save(state, storage_writer=writer, process_group=self._ranks.group)
            if weights:
                torch.save(weights, staging / FULL_WEIGHTS_FILE)
            return {path.name: describe_file(path) for path in self._list_own_files(staging)}
        except (OSError, RuntimeError, CheckpointException) as error:
            title, hint = describe_write_error(error, staging) or (f"cannot write to `{staging}`", None)
            raise KfjobError(title, location="checkpoint_dir", cause=_last_line(error), hint=hint) from error

    def _list_own_files(self, staging: Path) -> list[Path]:
        """Return the files that this rank has written: DCP names them `__<rank>_<n>.distcp`; rank 0 writes the metadata."""
        shards = list(staging.glob(f"__{self._ranks.rank}_*"))
        extra = (staging / ".metadata", staging / FULL_WEIGHTS_FILE) if self._ranks.is_rank_zero else ()
        return [*shards, *(path for path in extra if path.exists())]

    def _delete_old(self) -> None:
        """Delete checkpoints beyond `keep_last` and `keep_every`; only complete ones count."""
        for old in list_checkpoints(self.storage)[self._keep_last :] if self._keep_last else ():
            if not self._keep_every or old.manifest.step % self._keep_every:
                delete_unless_pinned(self.storage, old.name)


def open_checkpoint_writer(
    spec: TrainSpec,
    storage: Storage,
    state: CheckpointState,
    ranks: Ranks,
    *,
    before_commit: Callable[[], None] | None,
    on_commit: Callable[[Checkpoint], None],
) -> CheckpointWriter:
    """Return a writer with the settings of the spec."""
    return CheckpointWriter(
        storage,
        state,
        ranks,
        keep_last=spec.keep_last,
        keep_every=spec.keep_every,
        asynchronous=spec.async_checkpoint,
        full=spec.full_state_dict,
        on_error=spec.on_save_error,
        before_commit=before_commit,
        on_commit=on_commit,
    )


def _last_line(error: BaseException) -> str:
    """Return the last line of a message: DCP puts the tracebacks of the ranks before it."""
    return next((line for line in reversed(str(error).splitlines()) if line.strip()), repr(error))


def _checkpoint_name(manifest: Manifest) -> str:
    return f"step-{manifest.step:06d}"


def load_checkpoint(checkpoint: Checkpoint, model: nn.Module, state: CheckpointState, *, trusted: bool = False) -> None:
    """Load the checkpoint into `state`, which belongs to `model`; see `dcp_reader` for `trusted`.

    Raises:
        KfjobError: the checkpoint belongs to a model with other shapes, or holds more than data.
    """
    from kfjob.trainer.dcp_reader import load_tensors

    _check_shapes(checkpoint, parameter_shapes(model))
    _check_heads(checkpoint, read_attention(model))
    tensors = state.state_dict()
    load_tensors(checkpoint, tensors, trusted=trusted)
    state.load_state_dict(tensors)


def roll_back(
    writer: CheckpointWriter | None, model: nn.Module, state: CheckpointState, ranks: Ranks, *, passed_over: int = 0
) -> Checkpoint:
    """Load the run's newest valid checkpoint. The data position stays, so that the run skips the samples that failed.

    A checkpoint from which the run made no progress is bad: the newest `passed_over` ones are not used if there are older ones.

    Raises:
        KfjobError: the run has no checkpoint whose values are finite.
    """
    bad: list[str] = []
    if writer:
        writer.settle()
    while writer:
        checkpoint = find_checkpoint("auto", writer.storage, ranks, bad=bad)
        if checkpoint is None:
            break
        has_older = any(entry.name not in (*bad, checkpoint.name) for entry in list_checkpoints(writer.storage))
        if len(bad) < passed_over and has_older:
            log.warning("Checkpoint %s passed over: the run made no progress from it", checkpoint.name)
        else:
            load_checkpoint(checkpoint, model, state)
            if is_finite(state.state_dict(), ranks):
                return checkpoint
            log.warning("Checkpoint %s passed over: it holds values that are not finite", checkpoint.name)
        bad.append(checkpoint.name)
    raise KfjobError("there is no checkpoint to roll back to", hint="set `checkpoint_dir` and a smaller `checkpoint_every`")


def is_finite(state: object, ranks: Ranks) -> bool:
    """Return whether every number in the tensors of all ranks is finite."""
    tensors = [tensor for tensor in _local_tensors(state) if tensor.is_floating_point() and tensor.numel()]
    largest = torch.nn.utils.get_total_norm(tensors, norm_type=math.inf)  # needs no memory, and NaN is larger than all numbers
    return ranks.all_reduce([not bool(largest.isfinite())]) == [0]


def _local_tensors(state: object) -> Iterator[torch.Tensor]:
    """Yield this rank's tensors in nested dictionaries and lists."""
    if isinstance(state, torch.Tensor):
        yield state.to_local() if isinstance(state, DTensor) else state
    elif isinstance(state, Mapping):
        for value in state.values():
            yield from _local_tensors(value)
    elif isinstance(state, list | tuple):
        for value in state:
            yield from _local_tensors(value)


def parameter_shapes(model: nn.Module) -> dict[str, list[int]]:
    """Return the name and full shape of each parameter, the same for every strategy."""
    return {name.removeprefix("module."): list(full_shape(parameter)) for name, parameter in model.named_parameters()}


def read_attention(model: nn.Module) -> dict[str, int]:
    """Return the settings of the attention that the shapes of the parameters do not show."""
    config = getattr(getattr(model, "module", model), "config", None)
    return {name: value for name in _ATTENTION if isinstance(value := getattr(config, name, None), int)}


_ATTENTION = ("num_attention_heads", "num_key_value_heads", "head_dim")


def _check_heads(checkpoint: Checkpoint, attention: dict[str, int]) -> None:
    """Check that the attention has the same heads; checkpoints of earlier versions do not tell."""
    stored = checkpoint.manifest.attention
    if different := [name for name in stored if stored[name] != attention.get(name)]:
        raise KfjobError(
            f"{checkpoint.name} is of a model with other attention heads",
            location=checkpoint.path,
            cause="\n".join(
                f"{name}: {stored[name]} in the checkpoint, {attention.get(name)} in the model" for name in different
            ),
            hint="use the model that wrote the checkpoint, or another checkpoint_dir",
        )


def describe_changes(checkpoint: Checkpoint, spec: TrainSpec) -> str | None:
    """Return the settings that differ from those of the checkpoint's run; None if there are none."""
    previous, present = checkpoint.manifest.spec, spec.model_dump(mode="json")
    changes = [
        f"{name} {json.dumps(previous[name])} -> {json.dumps(value)}"
        for name, value in present.items()
        if name not in _PER_LAUNCH and name in previous and previous[name] != value
    ]
    return ", ".join(changes) or None


_PER_LAUNCH = ("resume", "trust_checkpoint", "dry_run", "debug", "spawn")
"""Settings of a launch that do not change the training."""


def _check_shapes(checkpoint: Checkpoint, model_shapes: dict[str, list[int]]) -> None:
    stored = checkpoint.manifest.parameters
    if stored == model_shapes:
        return
    different = [name for name in {**stored, **model_shapes} if stored.get(name) != model_shapes.get(name)]
    shapes = [
        f"{name}: {stored.get(name, 'absent')} in the checkpoint, {model_shapes.get(name, 'absent')} in the model"
        for name in different[:3]
    ]
    more = [f"and {len(different) - 3} more"] if len(different) > 3 else []
    raise KfjobError(
        f"{checkpoint.name} is of a model of another shape",
        location=checkpoint.path,
        cause="\n".join(shapes + more),
        hint="use the model that wrote the checkpoint, or another checkpoint_dir",
    )
