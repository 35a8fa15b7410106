"""Run the nine collectives one after another, print the tensors of every rank before and after, and check the results.

    python collectives.py                                          # start --processes N processes (spawn)
    torchrun --nproc-per-node 4 collectives.py
    python -m torch.distributed.launch --use-env --nproc-per-node 4 collectives.py

It uses nccl with GPUs and gloo without. `kfjob preflight job.yaml --run` measures the collectives between a job's nodes.
"""

from __future__ import annotations

import argparse
import os
import socket

import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def lesson() -> None:
    """Run every collective once. Each rank starts with `mine`: ten times its rank plus 1, 2, … for its elements."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    numbers = torch.arange(1.0, ranks + 1, device=device())
    mine = numbers + 10 * rank
    all_tensors = torch.stack([numbers + 10 * other for other in range(ranks)])
    total = all_tensors.sum(0)

    # one rank sends, another receives: 0 -> 1 -> 2 … -> 0
    result = torch.zeros_like(mine)
    operations = [lambda: dist.send(mine, (rank + 1) % ranks), lambda: dist.recv(result, (rank - 1) % ranks)]
    for operation in operations if rank % 2 == 0 else reversed(operations):  # if all ranks sent first, none would receive
        operation()
    show("send and recv: each rank sends to the next rank", mine, result, all_tensors[rank - 1])

    # from one to all, from all to one
    result = mine.clone()
    dist.broadcast(result, src=0)
    show("broadcast: all ranks get the tensor of rank 0", mine, result, all_tensors[0])

    result = mine.clone()
    dist.reduce(result, dst=0)
    show("reduce: rank 0 gets the sum", mine, result, total if rank == 0 else None)

    result = torch.zeros_like(mine[:1])
    dist.scatter(result, list(mine.split(1)) if rank == 0 else None, src=0)
    show("scatter: each rank gets its part of the tensor of rank 0", mine, result, all_tensors[0, rank : rank + 1])

    parts = [torch.zeros_like(mine) for _ in range(ranks)]
    dist.gather(mine, parts if rank == 0 else None, dst=0)
    gathered = torch.cat(parts)
    show("gather: rank 0 gets the tensors of all ranks", mine, gathered, all_tensors.flatten() if rank == 0 else None)

    # from all to all: each of these combines two of the collectives above
    summed = mine.clone()
    dist.all_reduce(summed)
    show("all_reduce = reduce + broadcast: all ranks get the sum", mine, summed, total)
    check(torch.equal(summed / ranks, all_tensors.mean(0)), "the mean is the sum divided by the number of ranks")

    result = torch.zeros(ranks * ranks, device=device())
    dist.all_gather_into_tensor(result, mine)
    show("all_gather = gather + broadcast: all ranks get the tensors of all ranks", mine, result, all_tensors.flatten())
    dist.broadcast(gathered, src=0)
    check(torch.equal(result, gathered), "all_gather equals gather and broadcast")

    result = torch.zeros_like(mine[:1])
    dist.reduce_scatter_tensor(result, mine.clone())
    show("reduce_scatter = reduce + scatter: each rank gets its part of the sum", mine, result, total[rank : rank + 1])
    check(torch.equal(result, summed[rank : rank + 1]), "reduce_scatter equals a part of all_reduce")


def show(title: str, before: torch.Tensor, after: torch.Tensor, expected: torch.Tensor | None) -> None:
    """Check and print the tensors of all ranks; `expected` is None on ranks without a result."""
    check(expected is None or torch.equal(after, expected), title)
    line = f"  rank {dist.get_rank()}  {numbers_of(before)} -> {numbers_of(after) if expected is not None else '-'}"
    lines: list[str] = [""] * dist.get_world_size()
    dist.all_gather_object(lines, line)
    if dist.get_rank() == 0:
        print("\n".join([title, *lines]), flush=True)


def check(condition: bool, statement: str) -> None:  # noqa: FBT001 - like assert
    """Exit with an error if the condition is false."""
    if not condition:
        raise SystemExit(f"rank {dist.get_rank()}: false: {statement}")


def numbers_of(tensor: torch.Tensor) -> str:
    """Return the elements as text, for example `10 11 12 13`."""
    return " ".join(f"{number:g}" for number in tensor.tolist())


def device() -> torch.device:
    """Return the GPU of this process, or the CPU."""
    return torch.device("cuda", torch.cuda.current_device()) if torch.cuda.is_available() else torch.device("cpu")


def run(local_rank: int, rank: int | None = None, ranks: int | None = None) -> None:
    """Run one process. torchrun and launch pass rank and world size in the environment, spawn passes them as arguments."""
    if torch.cuda.is_available():
        torch.cuda.set_device(local_rank)
    backend = "nccl" if torch.cuda.is_available() else "gloo"
    if int(ranks or os.environ["WORLD_SIZE"]) == 1:
        raise SystemExit(
            "collectives need two processes, and nccl a GPU for each; with one GPU, hide it: CUDA_VISIBLE_DEVICES="
        )
    dist.init_process_group(backend, **({} if rank is None or ranks is None else {"rank": rank, "world_size": ranks}))
    lesson()
    if dist.get_rank() == 0:
        print(f"all nine collectives are correct, on {dist.get_world_size()} ranks with {backend}", flush=True)
    dist.destroy_process_group()


def run_spawned(local_rank: int, ranks: int) -> None:
    """Run one process of `spawn`."""
    run(local_rank, local_rank, ranks)


def free_port() -> str:
    """Return a free port for the rendezvous of local processes."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return str(probe.getsockname()[1])


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument(
        "--processes", type=int, default=torch.cuda.device_count() or 4, help="number of processes without torchrun"
    )
    options = parser.parse_args()
    if "LOCAL_RANK" in os.environ:
        run(int(os.environ["LOCAL_RANK"]))
    else:
        os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free_port()}
        mp.spawn(run_spawned, args=(options.processes,), nprocs=options.processes)
