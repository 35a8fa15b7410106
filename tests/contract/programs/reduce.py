"""Joins the process group, adds up all ranks, and prints a progress line on rank 0. Needs nothing but torch."""

from datetime import datetime, timezone

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
total = torch.ones(1)
dist.all_reduce(total)
if dist.get_rank() == 0:
    now = datetime.now(tz=timezone.utc).strftime("%Y-%m-%d %H:%M:%S")  # noqa: UP017 - any Python
    for step in range(1, 4):
        print(f"{now} I [reduce.py:15] Batch {step} Loss: {6 - step}.00000, Speed: 1.00 samples/sec, lr: 0.000100", flush=True)  # noqa: T201
    print(f"world {int(total.item())}", flush=True)  # noqa: T201
dist.destroy_process_group()
