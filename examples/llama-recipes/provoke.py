"""Make a library print one of the warnings of the guide: `kfjob run -- python provoke.py NAME`.

rendezvous       the store of the rendezvous has a host name that nothing resolves
libcuda          the driver library of CUDA is not on the path of libraries
old-import       a module of torch is imported under its old name
forward-order    a wrapped module is called in another order than in the first iteration; start it with torchrun
"""

from __future__ import annotations

import ctypes
import importlib
import os
import sys
from datetime import timedelta
from typing import Any


def find_rendezvous() -> None:
    """Look for a store that does not exist."""
    from torch.distributed import TCPStore

    TCPStore("finetune-master-0", 29400, is_master=False, timeout=timedelta(seconds=5))


def load_libcuda() -> None:
    """Load the driver library, as Triton and bitsandbytes do."""
    ctypes.CDLL("libcuda.so")


def import_old_module() -> None:
    """Import the checkpoints of torch under their old name, as earlier llama-recipes do."""
    importlib.import_module("torch.distributed._shard.checkpoint")


def change_order() -> None:
    """Call two units of FSDP in the other order in the second iteration."""
    os.environ["TORCH_DISTRIBUTED_DEBUG"] = "DETAIL"  # FSDP compares the order only then
    import torch
    from torch import distributed as dist
    from torch.distributed.fsdp import FullyShardedDataParallel

    class Both(torch.nn.Module):
        def __init__(self, layers: Any) -> None:
            super().__init__()
            self.layers = torch.nn.ModuleList(layers)

        def forward(self, inputs: Any, order: tuple[int, ...]) -> Any:
            for index in order:
                inputs = self.layers[index](inputs)
            return inputs

    dist.init_process_group("gloo")
    cpu = torch.device("cpu")
    layers = [FullyShardedDataParallel(torch.nn.Linear(8, 8), device_id=cpu) for _ in range(2)]
    model = FullyShardedDataParallel(Both(layers), device_id=cpu)
    for order in ((0, 1), (1, 0), (1, 0)):
        model(torch.ones(1, 8), order).sum().backward()
    dist.destroy_process_group()


NOTES = {"rendezvous": find_rendezvous, "libcuda": load_libcuda, "old-import": import_old_module, "forward-order": change_order}

if __name__ == "__main__":
    NOTES[sys.argv[1]]()
