"""Data parallelism: every rank has the whole model and its own part of the samples. There are three ways to start it.

    python ddp.py                                                           # start --processes N processes (spawn)
    torchrun --nproc-per-node 4 ddp.py
    python -m torch.distributed.launch --use-env --nproc-per-node 4 ddp.py

    kfjob submit ddp.yaml --follow                 # run it as a job

Each rank prints `GPU:R | Epoch: E | Batchsize: B | Steps: S`; B x S x ranks is the number of samples. Without GPUs the ranks
are CPU processes, and `GPU_Count` is their number.
"""

from __future__ import annotations

import argparse
import gc
import os
import socket

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

SAMPLES, FEATURES, BATCH, EPOCHS = 4096, 20, 32, 2


def train(device: torch.device) -> None:
    """Fit a line, so that the loss falls."""
    torch.manual_seed(0)  # the same samples and the same first weights on every rank
    inputs = torch.randn(SAMPLES, FEATURES)
    data = TensorDataset(inputs, inputs.sum(1, keepdim=True))
    sampler: DistributedSampler[tuple[torch.Tensor, ...]] = DistributedSampler(data)
    loader = DataLoader(data, batch_size=BATCH, sampler=sampler)
    model = DistributedDataParallel(nn.Linear(FEATURES, 1).to(device))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for epoch in range(EPOCHS):
        sampler.set_epoch(epoch)  # otherwise every epoch has the same order
        size = len(next(iter(loader))[0])
        say(f"GPU:{dist.get_rank()} | Epoch: {epoch} | Batchsize: {size} | Steps: {len(loader)}")
        for batch, target in loader:
            loss = nn.functional.mse_loss(model(batch.to(device)), target.to(device))
            optimizer.zero_grad()
            loss.backward()  # DDP averages the gradients of all ranks here
            optimizer.step()
    samples = torch.tensor([size * len(loader)], device=device)
    dist.all_reduce(samples)
    if dist.get_rank() == 0:
        say(f"Samples: {int(samples)} | Loss: {loss.item():.4g}")


def say(line: str) -> None:
    """Print a line in one write, because the ranks share a terminal."""
    os.write(1, f"{line}\n".encode())


def run(local_rank: int, rank: int | None = None, ranks: int | None = None) -> None:
    """Run one process. torchrun and launch pass rank and world size in the environment, spawn passes them as arguments."""
    cuda = torch.cuda.is_available()
    ranks_of_spawn = {} if rank is None or ranks is None else {"rank": rank, "world_size": ranks}
    dist.init_process_group("nccl" if cuda else "gloo", **ranks_of_spawn)
    if cuda:
        torch.cuda.set_device(local_rank)
    if dist.get_rank() == 0:
        say(f"GPU_Count: {dist.get_world_size()}")
    dist.barrier()
    train(torch.device("cuda", local_rank) if cuda else torch.device("cpu"))
    gc.collect()  # DDP is in reference cycles and holds the group, whose threads must end before the interpreter does
    dist.destroy_process_group()


def run_spawned(local_rank: int, processes: int, node: int, nodes: int) -> None:
    """Run one process of `spawn`."""
    run(local_rank, node * processes + local_rank, nodes * processes)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument(
        "--processes",
        type=int,
        default=torch.cuda.device_count() or 4,
        help="number of processes on each node without torchrun",
    )
    options = parser.parse_args()
    if "LOCAL_RANK" in os.environ:
        run(int(os.environ["LOCAL_RANK"]))
    else:  # if the operator sets RANK and WORLD_SIZE, they count nodes
        node, nodes = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
        os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
        if "MASTER_PORT" not in os.environ:
            with socket.create_server(("127.0.0.1", 0)) as probe:
                os.environ["MASTER_PORT"] = str(probe.getsockname()[1])
        mp.spawn(run_spawned, args=(options.processes, node, nodes), nprocs=options.processes)
