"""Regression tests for faults that are silent or appear only on other machines."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from kfjob.trainer import distributed
from kfjob.trainer.checkpoint import ModelState
from kfjob.trainer.checkpoint_writer import open_checkpoint_writer
from kfjob.trainer.distributed import Ranks
from kfjob.trainer.storage import open_storage
from kfjob.trainspec.train_spec import TrainSpec

TRAINER = Path(distributed.__file__).parent


def test_process_group_on_gpus_supports_cpu_tensors(monkeypatch):
    """Clipping offloaded parameters needs it: their norm is reduced on the host."""
    arguments = {}
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "set_device", lambda _: None)
    monkeypatch.setattr(dist, "init_process_group", lambda **options: arguments.update(options))
    monkeypatch.setattr(Ranks, "_divide_cores", lambda _: None)
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    Ranks.join()
    assert arguments["backend"] == "cpu:gloo,cuda:nccl"


@pytest.mark.usefixtures("in_process")
def test_checkpoint_writer_has_its_own_group(tmp_path, monkeypatch):
    """Collectives of two threads in one group would mix and hang."""
    monkeypatch.delenv("MASTER_ADDR", raising=False)
    ranks = Ranks.join()
    spec = TrainSpec(model="micro-llama", data="-", max_steps=1, sequence_length=8)
    model = torch.nn.Linear(2, 2)
    state = ModelState(model, torch.optim.AdamW(model.parameters()))
    with open_checkpoint_writer(spec, open_storage(str(tmp_path)), state, ranks, before_commit=None, on_commit=()) as writer:
        group = writer._ranks.group
        assert group not in (None, ranks.group, dist.group.WORLD)
        assert dist.get_backend(group) == "gloo"


def test_deepspeed_is_imported_only_on_use():
    """DeepSpeed prints and compiles at import, and is an extra."""
    for path in TRAINER.rglob("*.py"):
        for statement in ast.parse(path.read_text()).body:
            names = [alias.name for alias in statement.names] if isinstance(statement, ast.Import) else []
            names += [statement.module or ""] if isinstance(statement, ast.ImportFrom) else []
            assert not [name for name in names if name.split(".")[0] in ("deepspeed", "accelerate")], path


def test_warning_of_torchao_is_hidden_and_others_of_the_same_logger_are_not(fresh_imports):
    assert "register_constant" not in fresh_imports.stderr
    assert "another message" in fresh_imports.stderr
