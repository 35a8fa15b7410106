"""A training script that does not know kfjob: plain DDP, its own progress lines, and a checkpoint that it resumes from.

Without kfjob: `torchrun --standalone --nproc-per-node 2 train.py --checkpoints /tmp/own-script`
"""

from __future__ import annotations

import argparse
import gc
import os
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

FEATURES, BATCH = 32, 64


def main() -> None:
    """Train a small network on samples that every step makes anew."""
    options = parse_options()
    cuda = torch.cuda.is_available()
    dist.init_process_group("nccl" if cuda else "gloo")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if cuda else torch.device("cpu")
    torch.manual_seed(0)  # the same first weights and the same task on every rank
    task = torch.randn(FEATURES, device=device) / FEATURES**0.5
    network = nn.Sequential(nn.Linear(FEATURES, 128), nn.GELU(), nn.Linear(128, 1)).to(device)
    model = DistributedDataParallel(network, device_ids=[device.index] if cuda else None)
    optimizer = torch.optim.AdamW(model.parameters(), lr=options.lr)
    checkpoint = options.checkpoints and options.checkpoints / "checkpoint.pt"
    first = load(checkpoint, network, optimizer, device) if checkpoint else 0
    started = time.perf_counter()
    for step in range(first + 1, options.steps + 1):
        generator = torch.Generator(device).manual_seed(step * ranks + rank)  # a resume continues with the next samples
        inputs = torch.randn(BATCH, FEATURES, generator=generator, device=device)
        loss = nn.functional.mse_loss(model(inputs).squeeze(1), torch.sin(inputs @ task))
        optimizer.zero_grad()
        loss.backward()  # DDP averages the gradients of all ranks here
        optimizer.step()
        time.sleep(options.pause)
        if rank == 0 and (step % 10 == 0 or step == options.steps):
            speed = (step - first) * BATCH * ranks / (time.perf_counter() - started)
            print(f"step {step}/{options.steps} | loss {loss.item():.4g} | {speed:.0f} samples/s", flush=True)
            if checkpoint:
                save(checkpoint, step, network, optimizer)
    del model
    gc.collect()  # DDP is in reference cycles and holds the group, whose threads must end before the interpreter does
    dist.destroy_process_group()


def load(file: Path, network: nn.Module, optimizer: torch.optim.Optimizer, device: torch.device) -> int:
    """Load the checkpoint and return its step; return 0 if there is none."""
    if not file.exists():
        return 0
    state = torch.load(file, map_location=device, weights_only=True)
    network.load_state_dict(state["network"])
    optimizer.load_state_dict(state["optimizer"])
    if dist.get_rank() == 0:
        print(f"resuming from step {state['step']} of {file}", flush=True)
    return int(state["step"])


def save(file: Path, step: int, network: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Replace the checkpoint in one step: a process that is killed leaves the previous one."""
    file.parent.mkdir(parents=True, exist_ok=True)
    temporary = file.with_suffix(".new")
    torch.save({"step": step, "network": network.state_dict(), "optimizer": optimizer.state_dict()}, temporary)
    temporary.replace(file)


def parse_options() -> argparse.Namespace:
    """Return the options of the command line."""
    parser = argparse.ArgumentParser(description="Train a small network with DDP.")
    parser.add_argument("--steps", type=int, default=200, help="number of optimiser steps")
    parser.add_argument("--lr", type=float, default=1e-2, help="learning rate")
    parser.add_argument("--pause", type=float, default=0.0, help="seconds between two steps, to watch a run")
    parser.add_argument("--checkpoints", type=Path, help="folder of the checkpoint; all nodes share it")
    return parser.parse_args()


if __name__ == "__main__":
    main()
