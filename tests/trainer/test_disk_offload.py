"""ZeRO-3 with parameters and optimiser state on disk."""

from __future__ import annotations

import pytest

from tests.trainer import forked
from tests.trainer.test_run import losses

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


PROGRAM = """
import ctypes, resource
from kfjob.base.errors import KfjobError
from kfjob.trainspec.train_spec import TrainSpec
from kfjob.trainer.distributed import Ranks
from kfjob.trainer.strategies import make_strategy, zero

def print_error():
    spec = TrainSpec(model="tiny-llama", data="-", max_steps=1, strategy="deepspeed", disk_offload="/nowhere")
    try:
        make_strategy(spec, ranks)
    except KfjobError as error:
        print(error)

def drop_ipc_lock():
    libc, header, sets = ctypes.CDLL(None, use_errno=True), (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()
    assert libc.capget(header, sets) == 0
    sets[0] &= ~(1 << 14)  # the first half of the effective capabilities
    assert libc.capset(header, sets) == 0

ranks = Ranks.join()
resource.setrlimit(resource.RLIMIT_MEMLOCK, (2**20, 2**20))
drop_ipc_lock()
print_error()
zero.LOCK_TRIAL_BYTES = 0
print_error()
"""


def test_low_lock_limit_and_missing_libaio_are_errors():
    """With a low limit DeepSpeed itself would end the process. A compiler that always fails cannot find the library."""
    program = forked.Program(PROGRAM, DS_ACCELERATOR="cpu", CC="/bin/false")
    lock, _, libaio = program.communicate(120).partition("`disk_offload` needs libaio")
    assert "`disk_offload` needs locked memory" in lock
    assert "IPC_LOCK" in lock
    assert "libaio-dev" in libaio
