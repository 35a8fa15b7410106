"""Writes checkpoints that are complete or invisible, while the training continues.

A save copies the state to the host's memory (pinned with a GPU), and the training continues. A thread then writes the shards
with torch's distributed checkpoint (DCP), gathers every rank's checksums, and rank 0 commits them with a manifest (see
`storage`). The ranks' threads use a gloo group of their own. The next save waits for the one before, the end of the `with`
block for the last. A kill at any moment leaves only temporary files, which the next run removes.
"""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import torch

from kfjob.base.errors import KfjobError
from kfjob.trainer import metrics
from kfjob.trainer.anomalies import HINT
from kfjob.trainer.checkpoint import CheckpointState, NotFiniteError, is_finite, list_checkpoints
from kfjob.trainer.distributed import PeerError, Ranks
from kfjob.trainer.lease import LostLeaseError
from kfjob.trainer.manifest import Manifest, describe_file
from kfjob.trainer.metrics import log
from kfjob.trainer.pins import delete_unless_pinned
from kfjob.trainer.storage import Checkpoint, Storage
from kfjob.trainer.storage.base import describe_write_error
from kfjob.trainspec import name_checkpoint
from kfjob.trainspec.train_fields import OnSaveError
from kfjob.trainspec.train_spec import TrainSpec

Files = dict[str, dict[str, Any]]
"""Files of a checkpoint by name, as `describe_file` describes them."""
FULL_WEIGHTS_FILE = "model.pt"
FAILURE_TIMEOUT = 60.0
"""Time that a failed run waits for a checkpoint in progress."""


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
        on_commit: Sequence[Callable[[Checkpoint], None]] = (),
    ) -> None:
        """Save `state` to `storage`, which `prepare_storage` has prepared; `full` also saves the full weights in one file.

        `before_commit` is called on rank 0. Each `on_commit` receives every complete checkpoint, on every rank, in the writing
        thread, before old ones are deleted.
        """
        from torch.distributed.checkpoint._state_dict_stager import StateDictStager

        self.storage, self._state, self._full = storage, state, full
        self._keep_last, self._keep_every = keep_last, keep_every
        self._on_error, self._before_commit, self._asynchronous = on_error, before_commit, asynchronous
        self._loop_ranks, self._ranks, self._on_commit = ranks, ranks.with_own_group(), on_commit
        # The class that DefaultStager wraps; torch 2.11 closes DefaultStager after the first use.
        self._pinned = ranks.device.type == "cuda"
        self._stager = StateDictStager(pin_memory=self._pinned) if asynchronous else None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="checkpoint")
        self._pending: Future[None] | None = None
        self._lease_is_lost = False
        """Whether a save failed on any rank because another run has the lease."""

    def save(self, manifest: Manifest) -> Checkpoint:
        """Copy the state and write it, in the background if asynchronous. Gradients must be zero.

        Raises:
            NotFiniteError: a value is not finite.
            KfjobError: writing fails; the error may be that of the previous save.
        """
        self.settle()
        began = time.monotonic()
        state = self._state.state_dict()
        if not is_finite(state, self._loop_ranks):
            title = f"the weights or the optimiser state at step {manifest.step} hold values that are not finite"
            raise NotFiniteError(title, cause="such a checkpoint would be useless, so it is not written", hint=HINT)
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
        return Checkpoint(storage=self.storage, name=name_checkpoint(manifest.step), manifest=manifest)

    def settle(self, *, keep: bool = False) -> None:
        """Wait for the last save. With `on_error: continue` its failure is only logged; `keep` lets the next `wait` raise it.

        Raises:
            KfjobError: the save failed, with `on_error: stop`, or because another run has the lease.
        """
        pending = self._pending
        try:
            self.wait()
        except KfjobError:
            if self._on_error == "stop" or self._lease_is_lost:  # without the lease no later save can succeed
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
        name = name_checkpoint(manifest.step)
        try:
            self._write_and_commit(name, state, weights, manifest)
        except KfjobError as error:
            self._lease_is_lost = any(self._ranks.all_gather(isinstance(error, LostLeaseError)))
            if self._on_error == "continue" and not isinstance(error, PeerError):
                log.error("Checkpoint %s not written: %s", name, error.title)
            raise
        checkpoint = Checkpoint(storage=self.storage, name=name, manifest=manifest)
        log.info(metrics.checkpoint_line(name, checkpoint.path, time.monotonic() - began))
        for note_commit in self._on_commit:
            note_commit(checkpoint)
        with self._ranks.fail_together():
            if self._ranks.is_rank_zero:
                self._delete_old(newest=name)

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
            self._check_take_over()
            raise

    def _check_take_over(self) -> None:
        """Raise the error of a lost lease, if this rank has lost one: the other job has removed the unfinished checkpoint."""
        try:
            if self._before_commit:
                self._before_commit()
        except LostLeaseError:
            raise
        except KfjobError as error:  # the storage is not available; the error of the save says so
            log.debug("Lease not checked: %s", error.title)

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
                with (staging / FULL_WEIGHTS_FILE).open("wb") as file:
                    torch.save(weights, file)
                    file.flush()
                    os.fsync(file.fileno())
            return {path.name: describe_file(path) for path in self._list_own_files(staging)}
        except (OSError, RuntimeError, CheckpointException) as error:
            title, hint = describe_write_error(error, staging) or (f"cannot write to `{staging}`", None)
            raise KfjobError(title, location="checkpoint_dir", cause=_last_line(error), hint=hint) from error

    def _list_own_files(self, staging: Path) -> list[Path]:
        """Return the files that this rank has written: DCP names them `__<rank>_<n>.distcp`; rank 0 writes the metadata."""
        shards = list(staging.glob(f"__{self._ranks.rank}_*"))
        extra = (staging / ".metadata", staging / FULL_WEIGHTS_FILE) if self._ranks.is_rank_zero else ()
        return [*shards, *(path for path in extra if path.exists())]

    def _delete_old(self, *, newest: str) -> None:
        """Delete checkpoints beyond `keep_last` and `keep_every`; only complete ones count, and `newest`, just saved, stays.

        After a roll-back it may have a lower step than others.
        """
        if not self._keep_last:
            return
        try:
            for old in list_checkpoints(self.storage)[self._keep_last :]:
                if old.name != newest and (not self._keep_every or old.manifest.step % self._keep_every):
                    delete_unless_pinned(self.storage, old.name)
        except KfjobError as error:  # the new checkpoint is complete
            log.warning("Old checkpoints not deleted: %s", error.title)


def open_checkpoint_writer(
    spec: TrainSpec,
    storage: Storage,
    state: CheckpointState,
    ranks: Ranks,
    *,
    before_commit: Callable[[], None] | None,
    on_commit: Sequence[Callable[[Checkpoint], None]],
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
