"""What goes wrong silently or on other machines only, and has no better place."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from kfjob.spec.train import TrainSpec
from kfjob.trainer import distributed
from kfjob.trainer.checkpoint import ModelState, open_checkpoint_writer
from kfjob.trainer.distributed import Ranks
from kfjob.trainer.storage import open_storage

TRAINER = Path(distributed.__file__).parent


def test_on_gpus_tensors_of_the_host_have_a_backend_too(monkeypatch):
    """Or clipping parameters that are offloaded fails: their norm is summed over the ranks on the host."""
    asked = {}
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "set_device", lambda _: None)
    monkeypatch.setattr(dist, "init_process_group", lambda **options: asked.update(options))
    monkeypatch.setattr(Ranks, "_divide_cores", lambda _: None)
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    Ranks.join()
    assert asked["backend"] == "cpu:gloo,cuda:nccl"


@pytest.mark.usefixtures("in_process")
def test_checkpoints_have_a_group_of_their_own(tmp_path, monkeypatch):
    """Collectives of two threads in one group would meet each other's, and hang."""
    monkeypatch.delenv("MASTER_ADDR", raising=False)
    ranks = Ranks.join()
    spec = TrainSpec(model="micro-llama", data="-", max_steps=1, sequence_length=8)
    model = torch.nn.Linear(2, 2)
    state = ModelState(model, torch.optim.AdamW(model.parameters()))
    with open_checkpoint_writer(spec, open_storage(str(tmp_path)), state, ranks, lambda _: None) as checkpoints:
        own = checkpoints._ranks.group
        assert own not in (None, ranks.group, dist.group.WORLD)
        assert dist.get_backend(own) == "gloo"


def test_deepspeed_is_imported_on_use_only():
    """It prints when it is imported, compiles, and is an extra."""
    for path in TRAINER.rglob("*.py"):
        for statement in ast.parse(path.read_text()).body:
            names = [alias.name for alias in statement.names] if isinstance(statement, ast.Import) else []
            names += [statement.module or ""] if isinstance(statement, ast.ImportFrom) else []
            assert not [name for name in names if name.split(".")[0] in ("deepspeed", "accelerate")], path
