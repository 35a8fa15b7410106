"""ZeRO-3 with parameters and optimiser state on disk."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.trainer import forked

# DeepSpeed keeps tensors below 1 MiB per rank in memory; the matrices' halves on two ranks are larger.
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
"""Ranks, precision, and the number of matrices above 1 MiB on a rank."""


def losses(result):
    return list(result["losses"].values())


@pytest.mark.long
@pytest.mark.timeout(4000)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_disk_offload_is_bit_exact_and_resumes(workers, tiny, tmp_path, case):
    """Clipping is off, because DeepSpeed sums the norm in another order when it offloads.

    At the first run DeepSpeed compiles its I/O code, which takes minutes, and 20 of them on two busy processors.
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
    second = workers.run("run_training", {"spec": disk}, world_size=ranks)[0]
    assert losses(first) + losses(second) == in_memory
    assert len(losses(first)) == 2


WITHOUT_LOCK_TRIAL = "from kfjob.trainer.strategies import zero; zero.LOCK_TRIAL_BYTES = 0; "
WITH_LOW_LOCK_LIMIT = "import resource; resource.setrlimit(resource.RLIMIT_MEMLOCK, (2**20, 2**20)); "
PROGRAM = """
from kfjob.base.errors import KfjobError
from kfjob.trainspec.train_spec import TrainSpec
from kfjob.trainer.distributed import Ranks
from kfjob.trainer.strategies import make_strategy

try:
    make_strategy(
        TrainSpec(model="tiny-llama", data="-", max_steps=1, strategy="deepspeed", disk_offload="/nowhere"), Ranks.join()
    )
except KfjobError as error:
    print(error)
"""


def test_missing_libaio_is_an_error():
    """A compiler that always fails cannot find the library."""
    program = forked.Program(WITHOUT_LOCK_TRIAL + PROGRAM, DS_ACCELERATOR="cpu", CC="/bin/false")
    assert "`disk_offload` needs libaio" in program.communicate(120)


def test_low_lock_limit_is_an_error():
    """DeepSpeed itself would end the process."""
    drop_ipc_lock = ["setpriv", "--bounding-set=-ipc_lock", "--inh-caps=-ipc_lock"] if os.geteuid() == 0 else []
    command = [*drop_ipc_lock, sys.executable, "-c", WITH_LOW_LOCK_LIMIT + PROGRAM]
    environment = os.environ | {"DS_ACCELERATOR": "cpu"}
    message = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=True).stdout
    assert "`disk_offload` needs locked memory" in message
    assert "IPC_LOCK" in message
