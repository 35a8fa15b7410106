"""Data parallelism: every rank has the whole model, and its own part of the samples. Started in three ways, the same each time.

    python examples/ddp.py                                                  starts its own processes (spawn), --processes N
    torchrun --nproc-per-node 4 examples/ddp.py
    python -m torch.distributed.launch --use-env --nproc-per-node 4 examples/ddp.py

    kfjob submit examples/ddp.yaml --follow --backend local                 as a job

Each rank prints `GPU:R | Epoch: E | Batchsize: B | Steps: S`, and B x S x ranks is the number of samples. Without GPUs the
ranks are processes on the CPU, and are counted as if they were.
"""

from __future__ import annotations

import argparse
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
    """Fit a line, so that a loss can be seen to fall."""
    torch.manual_seed(0)  # the same samples and the same first weights on every rank
    inputs = torch.randn(SAMPLES, FEATURES)
    data = TensorDataset(inputs, inputs.sum(1, keepdim=True))
    sampler: DistributedSampler[tuple[torch.Tensor, ...]] = DistributedSampler(data)
    loader = DataLoader(data, batch_size=BATCH, sampler=sampler)
    model = DistributedDataParallel(nn.Linear(FEATURES, 1).to(device))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for epoch in range(EPOCHS):
        sampler.set_epoch(epoch)  # or every epoch would have the same order
        size = len(next(iter(loader))[0])
        say(f"GPU:{dist.get_rank()} | Epoch: {epoch} | Batchsize: {size} | Steps: {len(loader)}")
        for part, wanted in loader:
            loss = nn.functional.mse_loss(model(part.to(device)), wanted.to(device))
            optimizer.zero_grad()
            loss.backward()  # DDP makes the mean of all ranks' gradients here
            optimizer.step()
    seen = torch.tensor([size * len(loader)], device=device)
    dist.all_reduce(seen)
    if dist.get_rank() == 0:
        say(f"Samples: {int(seen)} | Loss: {loss.item():.5f}")


def say(line: str) -> None:
    """In one write, line end and all: the ranks share a terminal."""
    os.write(1, f"{line}\n".encode())


def run(local_rank: int, rank: int | None = None, ranks: int | None = None) -> None:
    """One process. torchrun and launch say rank and world size in the environment; spawn tells us."""
    cuda = torch.cuda.is_available()
    said = {} if rank is None or ranks is None else {"rank": rank, "world_size": ranks}
    dist.init_process_group("nccl" if cuda else "gloo", **said)
    if cuda:
        torch.cuda.set_device(local_rank)
    if dist.get_rank() == 0:
        say(f"GPU_Count: {dist.get_world_size()}")
    dist.barrier()
    train(torch.device("cuda", local_rank) if cuda else torch.device("cpu"))
    dist.destroy_process_group()


def spawned(local_rank: int, each: int, node: int, nodes: int) -> None:
    """One process of `spawn`."""
    run(local_rank, node * each + local_rank, nodes * each)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--processes", type=int, default=torch.cuda.device_count() or 4, help="on each node, without torchrun")
    options = parser.parse_args()
    if "LOCAL_RANK" in os.environ:
        run(int(os.environ["LOCAL_RANK"]))
    else:  # RANK and WORLD_SIZE, where the operator has set them, count nodes
        node, nodes = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
        os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
        if "MASTER_PORT" not in os.environ:
            with socket.create_server(("127.0.0.1", 0)) as probe:
                os.environ["MASTER_PORT"] = str(probe.getsockname()[1])
        mp.spawn(spawned, args=(options.processes, node, nodes), nprocs=options.processes)
