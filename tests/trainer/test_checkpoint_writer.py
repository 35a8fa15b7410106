"""A checkpoint holds the values at the call of `save`, is on the disk before it is visible, and stays while it is the last."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.distributed.checkpoint import _state_dict_stager, state_dict_loader
from torch.utils import _pytree

from kfjob.trainer.checkpoint import ModelState
from kfjob.trainer.checkpoint_writer import CheckpointWriter
from kfjob.trainer.distributed import Ranks
from kfjob.trainer.storage import open_storage
from tests.trainer.manifests import make_manifest


@pytest.fixture
def ranks(in_process, monkeypatch):
    monkeypatch.delenv("MASTER_ADDR", raising=False)
    return Ranks.join()


@pytest.fixture
def model():
    torch.manual_seed(1)
    return torch.nn.Linear(7, 5)


def make_state(model):
    return ModelState(model, torch.optim.AdamW(model.parameters()))


class FakeCudaStager:
    """Copies to pinned memory as CUDA does: the values are those at the call, and arrive when the host waits for the device."""

    def __init__(self, *, pin_memory: bool) -> None:
        assert pin_memory
        self._copies: list[tuple[torch.Tensor, torch.Tensor]] = []

    def stage(self, state: Any, *, non_blocking: bool) -> Any:
        assert non_blocking
        return _pytree.tree_map_only(torch.Tensor, self._copy, state)

    def _copy(self, tensor: torch.Tensor) -> torch.Tensor:
        self._copies.append((torch.full_like(tensor, -1), tensor.clone()))
        return self._copies[-1][0]

    def synchronize(self) -> None:
        for buffer, values in self._copies:
            buffer.copy_(values)

    def close(self) -> None:
        pass


def test_save_waits_for_the_copies_to_pinned_memory(ranks, model, tmp_path, monkeypatch):
    stager = FakeCudaStager(pin_memory=True)
    monkeypatch.setattr(_state_dict_stager, "StateDictStager", lambda *, pin_memory: stager if pin_memory else None)
    monkeypatch.setattr(torch.cuda, "synchronize", stager.synchronize)
    expected = model.weight.detach().clone()
    on_cuda = replace(ranks, device=torch.device("cuda"))
    with CheckpointWriter(open_storage(str(tmp_path)), make_state(model), on_cuda) as writer:
        checkpoint = writer.save(make_manifest(3))
    stored = {"model": {"weight": torch.zeros(5, 7)}}
    state_dict_loader.load(stored, checkpoint_id=checkpoint.path)
    assert torch.equal(stored["model"]["weight"], expected)


class Flushes:
    """Records what `os.fsync` has flushed, and the files and folders that a renamed folder held without being flushed."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.content: dict[int, object] = {}
        """The size of a file or the names in a folder, as flushed, by inode."""
        self.unflushed: dict[str, list[str]] = {}
        """By the new name of the folder."""
        self._fsync, self._rename = os.fsync, os.rename
        monkeypatch.setattr(os, "fsync", self._record_fsync)
        monkeypatch.setattr(os, "rename", self._record_rename)

    def _record_fsync(self, descriptor: int) -> None:
        self._fsync(descriptor)
        self.content[os.fstat(descriptor).st_ino] = describe(Path(f"/proc/self/fd/{descriptor}"))

    def _record_rename(self, source: Path, target: Path) -> None:
        if source.is_dir():
            paths = (source, *source.iterdir())
            self.unflushed[target.name] = [path.name for path in paths if self.find(path) != describe(path)]
        self._rename(source, target)

    def find(self, path: Path) -> Any:
        return self.content.get(path.stat().st_ino)


def describe(path):
    return sorted(entry.name for entry in path.iterdir()) if path.is_dir() else path.stat().st_size


@pytest.mark.parametrize("asynchronous", [False, True])
def test_everything_is_flushed_before_a_checkpoint_is_visible(ranks, model, tmp_path, monkeypatch, asynchronous):
    """After a power failure a file that was not flushed may be empty, and a name that was not flushed may be the old one."""
    flushes = Flushes(monkeypatch)
    storage = open_storage(str(tmp_path))
    with CheckpointWriter(storage, make_state(model), ranks, asynchronous=asynchronous, full=True) as writer:
        writer.save(make_manifest(3))
    names = [".metadata", "__0_0.distcp", "manifest.json", "model.pt"]
    assert sorted(path.name for path in (tmp_path / "step-000003").iterdir()) == names
    assert flushes.unflushed == {"step-000003": []}
    assert "step-000003" in (flushes.find(tmp_path) or ())


def test_retention_keeps_the_checkpoint_saved_last(ranks, model, tmp_path):
    """After a roll-back it may be older than one that the run passed over, and that someone reads."""
    with CheckpointWriter(open_storage(str(tmp_path)), make_state(model), ranks, keep_last=1) as writer:
        for step in (5, 3):
            writer.save(make_manifest(step))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step-000003", "step-000005"]
