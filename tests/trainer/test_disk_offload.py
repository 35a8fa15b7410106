"""ZeRO-3 with parameters and optimiser in files."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

# DeepSpeed leaves in memory what has less than a MiB on a rank: two ranks' halves of the matrices have more.
SHAPE = {
    "architecture": "llama",
    "vocab_size": 320,
    "hidden_size": 512,
    "intermediate_size": 1408,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
}
CASES = [(1, "fp32", 10), (2, "fp32", 6), (1, "bf16", 6)]
"""Ranks, precision, and how many matrices of a rank are so large."""


def losses(result):
    return list(result["losses"].values())


@pytest.mark.long
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_same_is_computed_and_resumed(workers, tiny, tmp_path, case):
    """To the bit, without clipping: DeepSpeed sums the norm in another order when it offloads.

    The first time DeepSpeed compiles its input and output, for minutes.
    """
    ranks, precision, matrices = case
    spec = tiny | {"model": SHAPE, "vocab_size": None, "strategy": "deepspeed", "grad_clip": 0}
    spec |= {"micro_batch_size": 8 // ranks, "max_steps": 4, "precision": precision}
    disk = spec | {"disk_offload": str(tmp_path / "disk"), "checkpoint_dir": str(tmp_path / "saved")}
    in_memory = losses(workers.run("run_training", {"spec": spec}, world_size=ranks)[0])
    first = workers.run("run_training", {"spec": disk, "stop_after": 2}, world_size=ranks)[0]
    files = [path.relative_to(tmp_path).as_posix() for path in (tmp_path / "disk").rglob("*.swp")]
    for rank in range(ranks):
        assert len([file for file in files if f"params/rank{rank}/" in file]) == matrices, files
        assert any(f"optimizer/rank{rank}/exp_avg_sq" in file for file in files)
    then = workers.run("run_training", {"spec": disk}, world_size=ranks)[0]
    assert losses(first) + losses(then) == in_memory
    assert len(losses(first)) == 2


WITHOUT_LOCKS = "from kfjob.trainer.strategies import zero; zero.LOCK_TRIAL_BYTES = 0; "
WITHOUT_RIGHTS = "import resource; resource.setrlimit(resource.RLIMIT_MEMLOCK, (2**20, 2**20)); "
REFUSED = """
from kfjob.errors import KfjobError
from kfjob.spec.train import TrainSpec
from kfjob.trainer.distributed import Ranks
from kfjob.trainer.strategies import make_strategy

try:
    make_strategy(
        TrainSpec(model="tiny-llama", data="-", max_steps=1, strategy="deepspeed", disk_offload="/nowhere"), Ranks.join()
    )
except KfjobError as error:
    print(error)
"""


def refused(before="", *, prefix=(), **environment):
    command = [*prefix, sys.executable, "-c", before + REFUSED]
    environment = {**os.environ, "DS_ACCELERATOR": "cpu", **environment}
    environment.pop("MASTER_ADDR", None)
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=True).stdout


def test_without_libaio_it_is_said():
    """A compiler that always fails finds no library."""
    assert "`disk_offload` needs libaio" in refused(WITHOUT_LOCKS, CC="/bin/false")


def test_memory_that_cannot_be_locked_is_said():
    """DeepSpeed would end the process."""
    may_always = ["setpriv", "--bounding-set=-ipc_lock", "--inh-caps=-ipc_lock"] if os.geteuid() == 0 else []
    said = refused(WITHOUT_RIGHTS, prefix=may_always)
    assert "`disk_offload` needs locked memory" in said
    assert "IPC_LOCK" in said
