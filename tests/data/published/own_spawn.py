"""The shape of a program that starts the processes of its node itself, and counts ranks from the rank of the node."""

import argparse
import os
from pathlib import Path

import tiny
import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def work(local, options):
    rank = int(os.environ["RANK"]) * options.gpus + local
    world = int(os.environ["WORLD_SIZE"]) * options.gpus
    dist.init_process_group("gloo", init_method="env://", rank=rank, world_size=world)
    print(f"| distributed init (rank {rank}): env://", flush=True)
    model, optimizer = tiny.make_parts()
    path, start = Path("model.pt"), 0
    if path.exists():
        state = torch.load(path)
        model.load_state_dict(state["model"])
        start = state["step"]
    for step in range(start + 1, options.steps + 1):
        loss = tiny.fit(model, optimizer, *tiny.draw_batch(step))
        if rank == 0:
            tiny.save({"model": model.state_dict(), "step": step}, path)
            print(f"Step [{step}/{options.steps}], Loss: {loss:.4f}", flush=True)
        tiny.show(step=step, loss=loss)
    dist.destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--gpus", type=int, default=1)
    parser.add_argument("--steps", type=int, default=8)
    options = parser.parse_args()
    mp.spawn(work, args=(options,), nprocs=options.gpus)
