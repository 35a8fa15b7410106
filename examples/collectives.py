"""The nine collectives, one after the other: what every rank has before, what it has after, and a check that it is so.

    python examples/collectives.py                                          starts its own processes (spawn), --processes N
    torchrun --nproc-per-node 4 examples/collectives.py
    python -m torch.distributed.launch --use-env --nproc-per-node 4 examples/collectives.py

The same on GPUs (nccl) and without (gloo). How fast they are over a job's own nodes tells `kfjob preflight job.yaml --run`.
"""

from __future__ import annotations

import argparse
import os
import socket

import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def lesson() -> None:
    """Every collective once. `mine` is what a rank begins with: ten times its rank, and one, two … for its elements."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    numbers = torch.arange(1.0, ranks + 1, device=device())
    mine = numbers + 10 * rank
    all_of_them = torch.stack([numbers + 10 * one for one in range(ranks)])
    total = all_of_them.sum(0)

    # one rank sends, another receives: 0 -> 1 -> 2 … -> 0
    got = torch.zeros_like(mine)
    turns = [lambda: dist.send(mine, (rank + 1) % ranks), lambda: dist.recv(got, (rank - 1) % ranks)]
    for turn in turns if rank % 2 == 0 else reversed(turns):  # if all sent first, nobody would receive
        turn()
    show("send and recv: to the next rank", mine, got, all_of_them[rank - 1])

    # from one to all, from all to one
    got = mine.clone()
    dist.broadcast(got, src=0)
    show("broadcast: all have what rank 0 had", mine, got, all_of_them[0])

    got = mine.clone()
    dist.reduce(got, dst=0)
    show("reduce: rank 0 has the sum", mine, got, total if rank == 0 else None)

    got = torch.zeros_like(mine[:1])
    dist.scatter(got, list(mine.split(1)) if rank == 0 else None, src=0)
    show("scatter: each has its part of what rank 0 had", mine, got, all_of_them[0, rank : rank + 1])

    parts = [torch.zeros_like(mine) for _ in range(ranks)]
    dist.gather(mine, parts if rank == 0 else None, dst=0)
    gathered = torch.cat(parts)
    show("gather: rank 0 has what all have", mine, gathered, all_of_them.flatten() if rank == 0 else None)

    # from all to all: each is two of those above
    summed = mine.clone()
    dist.all_reduce(summed)
    show("all_reduce = reduce + broadcast: all have the sum", mine, summed, total)
    check(torch.equal(summed / ranks, all_of_them.mean(0)), "the mean is the sum by the number of ranks")

    got = torch.zeros(ranks * ranks, device=device())
    dist.all_gather_into_tensor(got, mine)
    show("all_gather = gather + broadcast: all have what all have", mine, got, all_of_them.flatten())
    dist.broadcast(gathered, src=0)
    check(torch.equal(got, gathered), "all_gather is gather and broadcast")

    got = torch.zeros_like(mine[:1])
    dist.reduce_scatter_tensor(got, mine.clone())
    show("reduce_scatter = reduce + scatter: each has its part of the sum", mine, got, total[rank : rank + 1])
    check(torch.equal(got, summed[rank : rank + 1]), "reduce_scatter is a part of all_reduce")


def show(what: str, before: torch.Tensor, after: torch.Tensor, expected: torch.Tensor | None) -> None:
    """What all ranks had and have; `expected` is None where a rank's result means nothing."""
    check(expected is None or torch.equal(after, expected), what)
    line = f"  rank {dist.get_rank()}  {numbers_of(before)} -> {numbers_of(after) if expected is not None else '-'}"
    lines: list[str] = [""] * dist.get_world_size()
    dist.all_gather_object(lines, line)
    if dist.get_rank() == 0:
        print("\n".join([what, *lines]), flush=True)


def check(holds: bool, what: str) -> None:  # noqa: FBT001 - as assert has it
    """End the lesson with an error where something is not as it was said to be."""
    if not holds:
        raise SystemExit(f"rank {dist.get_rank()}: not so: {what}")


def numbers_of(tensor: torch.Tensor) -> str:
    """`10 11 12 13`."""
    return " ".join(f"{number:g}" for number in tensor.tolist())


def device() -> torch.device:
    """This process' GPU, or the CPU."""
    return torch.device("cuda", torch.cuda.current_device()) if torch.cuda.is_available() else torch.device("cpu")


def run(local_rank: int, rank: int | None = None, ranks: int | None = None) -> None:
    """One process. torchrun and launch say rank and world size in the environment; spawn tells us."""
    if torch.cuda.is_available():
        torch.cuda.set_device(local_rank)
    backend = "nccl" if torch.cuda.is_available() else "gloo"
    dist.init_process_group(backend, **({} if rank is None or ranks is None else {"rank": rank, "world_size": ranks}))
    lesson()
    if dist.get_rank() == 0:
        print(f"all nine are as they should be, on {dist.get_world_size()} ranks with {backend}", flush=True)
    dist.destroy_process_group()


def spawned(local_rank: int, ranks: int) -> None:
    """One process of `spawn`."""
    run(local_rank, local_rank, ranks)


def free_port() -> str:
    """For the meeting of processes that only this machine has."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return str(probe.getsockname()[1])


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--processes", type=int, default=torch.cuda.device_count() or 4, help="started here, without torchrun")
    options = parser.parse_args()
    if "LOCAL_RANK" in os.environ:
        run(int(os.environ["LOCAL_RANK"]))
    else:
        os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free_port()}
        mp.spawn(spawned, args=(options.processes,), nprocs=options.processes)
