"""A program of an elastic job that prints the size of its world, and a look at what it prints."""

from __future__ import annotations

from contextlib import suppress

from tests.cluster.shell import Shell

PROGRAM = """
import os, time
import torch.distributed as dist
dist.init_process_group("gloo")
for step in range(1, 10**6):
    dist.barrier()
    time.sleep(0.1)
    if dist.get_rank() == 0: print(f"world {dist.get_world_size()} step {step} loss {2 + 1 / step:.4f}", flush=True)
"""


def has_world(kfjob: Shell, job: str, size: int) -> bool:
    """Return whether the job of one or two ranks trains with this number of them now."""
    with suppress(AssertionError):  # the pods have printed nothing
        text = kfjob("logs", job, "--all", "--since", "2s", "--include", "^world")
        return f"world {size} " in text and f"world {3 - size} " not in text
    return False
