"""Do the ranks of a job reach each other, are the values right, and how fast is it?

One file that needs nothing but torch, so that it can be handed to any image as text.

    torchrun --nproc-per-node 4 collectives.py                  the nine collectives, and a table
    python3 collectives.py node --peers a,b -- torchrun …       first what an agent needs (names, port, /dev/shm), and the agent

Every collective runs at every size over all ranks, the result is compared with the value that it must have, and then it is
timed. Time and bandwidth are those of nccl-tests (doc/PERFORMANCE.md, src/gather.cu, src/scatter.cu): t is the mean of a timed
loop, averaged over the ranks; algbw = S / t, with S the bytes of the whole array (of all ranks together, if each has a part);
busbw = algbw times 2(n-1)/n for all_reduce, (n-1)/n for all_gather, reduce_scatter, gather and scatter, 1 for the others.

`send` and `recv` go round the ring, the links in turns, so that each is timed alone. A rank is marked as an outlier where its
time is OUTLIER times the median of the others'; links inside a node are compared with each other, and so are those between
nodes. Operations with a root are not compared: the root is slower by nature. Results meet in the store, not through a
collective that is being tested.

With `--output json` facts are printed as lines that begin with `{"kfjob":`. The exit code is 0, 1 (a value is wrong), 2 (it
cannot be run here) or 3 (not finished in time). Written for Python 3.8 and torch 2.0 and newer.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # annotations are not evaluated, so that Python 3.8 takes them
    from collections.abc import Callable, Collection, Sequence

    Fact = dict[str, Any]

OUTLIER = 1.5
SIZES = {"gloo": "8K,1M,16M", "nccl": "8K,1M,64M,256M"}
PARTS = 3  # of a timed loop: the best of them is compared with that of other ranks, so that a hiccup makes no outlier
MOST_ROUNDS = 100
LOOK_SECONDS = 5.0  # for one try of a connection
WRONG, UNUSABLE, LATE = 1, 2, 3
IDENTITIES = (
    ("all_reduce", "reduce", "broadcast"),
    ("all_gather", "gather", "broadcast"),
    ("reduce_scatter", "reduce", "scatter"),
)
SYMMETRIC = ("send", "recv", "all_reduce", "all_gather", "reduce_scatter")
_print_lock = threading.Lock()


def emit(kind: str, **fact: Any) -> None:
    """One fact on a line of its own, in one write: several processes share a pod's output."""
    with _print_lock:
        os.write(1, (json.dumps({"kfjob": kind, **fact}) + "\n").encode())


# ---------------------------------------------------------------------------------------------------------- one node


def node(arguments: Sequence[str]) -> int:
    """Start the agent, and look meanwhile whether it can meet the others."""
    parser = argparse.ArgumentParser(prog="collectives.py node")
    parser.add_argument("--peers", default="", help="names that must resolve")
    parser.add_argument("--patience", type=float, default=120.0, help="seconds for the others to come up")
    parser.add_argument("agent", nargs=argparse.REMAINDER)
    options = parser.parse_args(arguments)
    words = options.agent[1:] if options.agent[:1] == ["--"] else options.agent
    emit("node", host=socket.gethostname(), **shared_memory())
    agent = subprocess.Popen(words)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda got, _: agent.send_signal(got))
    deadline = time.monotonic() + options.patience
    looks: list[tuple[Any, str]] = [(look_up, name) for name in options.peers.split(",") if name]
    looks += [(reach, endpoint) for endpoint in [rendezvous_endpoint()] if endpoint]
    threads = [threading.Thread(target=_until, args=(agent, deadline, *look), daemon=True) for look in looks]
    for thread in threads:
        thread.start()
    code = agent.wait()
    for thread in threads:
        thread.join(LOOK_SECONDS)
    return code


def _until(agent: Any, deadline: float, look: Callable[[str], str], what: str) -> None:
    """Look until it is there. An agent that has ended well has met the others, and takes its services with it."""
    began = time.monotonic()
    while True:
        try:
            found, why = look(what), ""
        except OSError as err:
            found, why = "", str(err)
        waited = round(time.monotonic() - began, 3)
        over = time.monotonic() > deadline
        if found or over or agent.poll() is not None:
            break
        time.sleep(0.2)
    fine = bool(found) or agent.poll() == 0
    emit("dns" if look is look_up else "port", what=what, ok=fine, seconds=waited, found=found, why="" if fine else why)
    if over and not fine:
        agent.terminate()


def look_up(name: str) -> str:
    """The address of a peer."""
    return str(socket.getaddrinfo(name, None)[0][4][0])


def reach(endpoint: str) -> str:
    """What `nc -zv host port` does."""
    host, _, port = endpoint.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=LOOK_SECONDS) as connection:
        return str(connection.getpeername()[0])


def rendezvous_endpoint() -> str:
    """Where the agents meet, as torchrun reads it."""
    host, port = os.environ.get("MASTER_ADDR"), os.environ.get("MASTER_PORT")
    return os.environ.get("PET_RDZV_ENDPOINT") or (f"{host}:{port}" if host and port else "")


def shared_memory() -> Fact:
    """Size of /dev/shm, bytes: NCCL and data loaders need more than the 64 MiB of a container runtime."""
    try:
        there = os.statvfs("/dev/shm")  # noqa: S108 - where the C library keeps it
    except OSError:
        return {"shm": 0}
    return {"shm": there.f_frsize * there.f_blocks}


# ---------------------------------------------------------------------------------------------------------- all ranks


class Case:
    """One collective at one size on this rank: how to run it, what it makes, what that must be (None: nothing here)."""

    def __init__(self, run: Callable[[], Any], buffers: Sequence[Any], result: Any, expected: Any) -> None:
        self.run, self.buffers, self.result, self.expected = run, buffers, result, expected

    def wrong(self) -> str:
        """What is wrong with the result, or nothing."""
        if self.expected is None:
            return ""
        there = (self.result != self.expected).nonzero()
        if not len(there):
            return ""
        at = int(there[0])
        return (
            f"{len(there)} of {len(self.expected)} elements, the first at {at}: {self.result[at]:g}, not {self.expected[at]:g}"
        )


class World:
    """This rank among the others: its device, its data, and the store through which results meet."""

    def __init__(self, backend: str, seconds: float) -> None:
        import torch
        import torch.distributed as dist
        from torch.distributed import distributed_c10d

        self.torch, self.dist, self.seconds = torch, dist, seconds
        self.local = int(os.environ.get("LOCAL_RANK", "0"))
        gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
        self.backend = backend if backend != "auto" else "nccl" if gpus else "gloo"
        self.gpus = gpus
        if self.backend == "nccl" and self.local >= gpus:
            raise RuntimeError(f"local rank {self.local} has no GPU: torch {torch.__version__} sees {gpus} on this node")
        self.device = torch.device("cuda", self.local) if self.backend == "nccl" else torch.device("cpu")
        if self.backend == "nccl":
            torch.cuda.set_device(self.device)
        dist.init_process_group(self.backend)
        self.rank, self.size = dist.get_rank(), dist.get_world_size()
        self.store = distributed_c10d._get_default_store()  # type: ignore[no-untyped-call,unused-ignore]  # noqa: SLF001 - it has no public name
        self.node = " on ".join(
            filter(None, [os.environ.get("HOSTNAME") or socket.gethostname(), os.environ.get("KFJOB_NODE_NAME")])
        )
        self.group = int(os.environ.get("GROUP_RANK", "0"))

    def data(self, rank: int, count: int) -> Any:
        """What that rank contributes: small whole numbers, so that sums are exact in fp32."""
        pattern = self.torch.arange(count, device=self.device, dtype=self.torch.float32) % 13 + 1
        return pattern * (rank + 1)

    def zeros(self, count: int) -> Any:
        """Room for a result."""
        return self.torch.zeros(count, device=self.device)

    def total(self, count: int) -> Any:
        """The sum over all ranks."""
        return self.data(self.size * (self.size + 1) // 2 - 1, count)

    def every(self, count: int) -> Any:
        """The parts of all ranks, one after the other."""
        return self.torch.cat([self.data(rank, count) for rank in range(self.size)])

    def settle(self) -> None:
        """Wait until the device has done all."""
        if self.backend == "nccl":
            self.torch.cuda.synchronize()

    def barrier(self) -> None:
        """Wait for all ranks."""
        self.dist.barrier()
        self.settle()

    def share(self, key: str, fact: Any) -> None:
        """Tell all ranks."""
        self.store.set(f"kfjob/{key}", json.dumps(fact))

    def ask(self, key: str) -> Any:
        """What was told; waits for it."""
        return json.loads(self.store.get(f"kfjob/{key}"))


def all_reduce(world: World, count: int) -> Case:
    """Everybody has the sum."""
    buffer = world.data(world.rank, count)
    return Case(lambda: world.dist.all_reduce(buffer), [buffer], buffer, world.total(count))


def reduce(world: World, count: int) -> Case:
    """Rank 0 has the sum."""
    buffer = world.data(world.rank, count)
    expected = world.total(count) if world.rank == 0 else None
    return Case(lambda: world.dist.reduce(buffer, 0), [buffer], buffer, expected)


def broadcast(world: World, count: int) -> Case:
    """Everybody has what rank 0 had."""
    buffer = world.data(world.rank, count)
    return Case(lambda: world.dist.broadcast(buffer, 0), [buffer], buffer, world.data(0, count))


def gather(world: World, count: int) -> Case:
    """Rank 0 has the parts of all."""
    part = world.data(world.rank, count // world.size)
    there = world.zeros(count) if world.rank == 0 else None
    parts = list(there.chunk(world.size)) if there is not None else None
    expected = world.every(count // world.size) if there is not None else None
    return Case(lambda: world.dist.gather(part, parts, 0), [part], there, expected)


def scatter(world: World, count: int) -> Case:
    """Everybody has its part of what rank 0 had."""
    part = world.zeros(count // world.size)
    whole = world.every(count // world.size) if world.rank == 0 else None
    parts = list(whole.chunk(world.size)) if whole is not None else None
    buffers = [part] if whole is None else [part, whole]
    return Case(lambda: world.dist.scatter(part, parts, 0), buffers, part, world.data(world.rank, count // world.size))


def all_gather(world: World, count: int) -> Case:
    """Everybody has the parts of all."""
    part, whole = world.data(world.rank, count // world.size), world.zeros(count)
    expected = world.every(count // world.size)
    return Case(lambda: world.dist.all_gather_into_tensor(whole, part), [part, whole], whole, expected)


def reduce_scatter(world: World, count: int) -> Case:
    """Everybody has its part of the sum."""
    whole, part = world.data(world.rank, count), world.zeros(count // world.size)
    expected = world.total(count).chunk(world.size)[world.rank]
    return Case(lambda: world.dist.reduce_scatter_tensor(part, whole), [whole, part], part, expected)


OPERATIONS: dict[str, Callable[[World, int], Case]] = {
    "broadcast": broadcast,
    "reduce": reduce,
    "all_reduce": all_reduce,
    "scatter": scatter,
    "gather": gather,
    "all_gather": all_gather,
    "reduce_scatter": reduce_scatter,
}


def bus_factor(operation: str, ranks: int) -> float:
    """By what nccl-tests multiplies the algorithm bandwidth."""
    if operation == "all_reduce":
        return 2 * (ranks - 1) / ranks
    return (ranks - 1) / ranks if operation in ("all_gather", "reduce_scatter", "gather", "scatter") else 1.0


def timed(world: World, key: str, run: Callable[[], Any], *, leader: int = 0) -> Fact:
    """Seconds of one run: the mean of a loop, which is as long on every rank as its leader says, and of its best part."""
    began = time.perf_counter()
    run()
    world.settle()
    if world.rank == leader:
        once = max(time.perf_counter() - began, 1e-6)
        world.share(key, max(1, min(MOST_ROUNDS, int(world.seconds / once)) // PARTS))
    rounds, parts = int(world.ask(key)), []
    for _ in range(PARTS):
        began = time.perf_counter()
        for _ in range(rounds):
            run()
        world.settle()
        parts.append((time.perf_counter() - began) / rounds)
    return {"seconds": statistics.fmean(parts), "best": min(parts)}


def measure(world: World, operation: str, count: int) -> Fact:
    """One collective at one size: whether its values are right, and its time."""
    case = OPERATIONS[operation](world, count)
    case.run()
    world.settle()
    wrong = case.wrong()
    for buffer in case.buffers:
        buffer.zero_()  # sums of sums would not stay finite
    return {"bytes": count * 4, "wrong": wrong, **timed(world, f"{operation}/{count}", case.run)}


def links(size: int) -> list[list[int]]:
    """The links rank -> rank + 1 of the ring, in turns in which no rank has two of them."""
    turns = [list(range(0, size - 1, 2)), list(range(1, size - size % 2, 2))]
    return [*turns, [size - 1]] if size % 2 else [turn for turn in turns if turn]


def point_to_point(world: World, count: int) -> tuple[Fact, Fact]:
    """`send` to the next rank and `recv` from the one before."""
    following, before = (world.rank + 1) % world.size, (world.rank - 1) % world.size
    data, room = world.data(world.rank, count), world.zeros(count)
    sent: Fact = {"bytes": count * 4, "wrong": ""}
    received: Fact = {"bytes": count * 4, "wrong": ""}
    for turn, links_now in enumerate(links(world.size)):
        link = world.rank if world.rank in links_now else before
        key = f"link/{count}/{turn}/{link}"
        world.barrier()
        if world.rank in links_now:
            world.dist.send(data, following)
            sent.update(timed(world, key, lambda: world.dist.send(data, following), leader=link))
        elif before in links_now:
            world.dist.recv(room, before)
            received["wrong"] = Case(lambda: None, [], room, world.data(before, count)).wrong()
            received.update(timed(world, key, lambda: world.dist.recv(room, before), leader=link))
    return sent, received


def identities(world: World, missing: Collection[str] = ()) -> list[Fact]:
    """A collective is the two that it is made of; and the mean is the sum by the number of ranks."""
    count = 1024 * world.size
    found = []
    for whole, first, second in IDENTITIES:
        if whole in missing:
            continue
        one, two = OPERATIONS[whole](world, count), OPERATIONS[first](world, count)
        one.run()
        two.run()
        room = world.zeros(count if second == "broadcast" else count // world.size)
        if second == "broadcast":
            if world.rank == 0:
                room.copy_(two.result)
            world.dist.broadcast(room, 0)
        else:
            world.dist.scatter(room, list(two.result.chunk(world.size)) if world.rank == 0 else None, 0)
        world.settle()
        found.append({"identity": f"{whole} = {first} + {second}", "holds": bool(world.torch.equal(one.result, room))})
    return [*found, _mean(world, count)]


def _mean(world: World, count: int) -> Fact:
    buffer = world.data(world.rank, count)
    average = getattr(world.dist.ReduceOp, "AVG", None) if world.backend == "nccl" else None  # gloo has none
    world.dist.all_reduce(buffer, **({"op": average} if average is not None else {}))
    mean = buffer if average is not None else buffer / world.size
    expected = world.total(count) / world.size
    how = "AVG" if average is not None else "SUM / ranks"
    return {"identity": f"mean = sum / ranks ({how})", "holds": bool(world.torch.allclose(mean, expected))}


# ---------------------------------------------------------------------------------------------------------- the verdict


def outliers(times: dict[int, float]) -> list[int]:
    """The ranks that take much longer than the others do."""
    found = []
    for rank, seconds in times.items():
        others = [other for key, other in times.items() if key != rank]
        if others and seconds > OUTLIER * statistics.median(others):
            found.append(rank)
    return found


def summary(reports: list[Fact]) -> list[Fact]:
    """Every operation and size over all ranks; `reports` are the ranks', in their order."""
    ranks, rows = len(reports), []
    for operation, cases in reports[0]["cases"].items():
        for index, case in enumerate(cases):
            times = {rank: one["cases"][operation][index]["seconds"] for rank, one in enumerate(reports)}
            mean = statistics.fmean(times.values())
            algbw = case["bytes"] / mean / 1e9
            slowest = max(times, key=lambda rank: times[rank])
            best = {rank: one["cases"][operation][index]["best"] for rank, one in enumerate(reports)}
            rows.append(
                {
                    "op": operation,
                    "bytes": case["bytes"],
                    "seconds": mean,
                    "algbw": algbw,
                    "busbw": algbw * bus_factor(operation, ranks),
                    "slowest": slowest,
                    "most": times[slowest],
                    "wrong": [rank for rank, one in enumerate(reports) if one["cases"][operation][index]["wrong"]],
                    "outliers": _compared(reports, operation, best) if operation in SYMMETRIC else [],
                }
            )
    return rows


def _compared(reports: list[Fact], operation: str, times: dict[int, float]) -> list[int]:
    """Outliers, the links inside nodes and those between nodes apart."""
    if operation not in ("send", "recv"):
        return outliers(times)
    step = 1 if operation == "send" else -1
    kinds: dict[bool, dict[int, float]] = {True: {}, False: {}}
    for rank, seconds in times.items():
        kinds[reports[rank]["group"] == reports[(rank + step) % len(reports)]["group"]][rank] = seconds
    return sorted(outliers(kinds[True]) + outliers(kinds[False]))


def table(rows: list[Fact], reports: list[Fact]) -> list[str]:
    """The same for people."""
    nodes = sorted({(one["group"], one["node"]) for one in reports})
    first = reports[0]
    lines = [
        f"{len(reports)} ranks on {len(nodes)} nodes, {first['backend']}, torch {first['torch']}; GB/s are 1e9 bytes a second"
    ]
    cells: list[tuple[str, ...]] = [("OPERATION", "SIZE", "TIME", "ALGBW", "BUSBW", "SLOWEST", "VALUES", "OUTLIERS")]
    for row in rows:
        slowest = f"rank {row['slowest']} x{row['most'] / row['seconds']:.2f}"
        wrong = f"WRONG on {_ranks(row['wrong'])}" if row["wrong"] else "ok"
        numbers = (f"{row['seconds'] * 1e6:.1f} us", f"{row['algbw']:.3f}", f"{row['busbw']:.3f}")
        cells.append((row["op"], _size(row["bytes"]), *numbers, slowest, wrong, _marked(row["outliers"], reports)))
    lines += _columns(cells)
    cells = [("NODE", "RANKS", *(f"{name.upper()} GB/s" for name in SYMMETRIC))]
    for group, name in nodes:
        mine = [rank for rank, one in enumerate(reports) if one["group"] == group]
        cells.append((name, _ranks(mine), *(_of_node(operation, mine, rows, reports) for operation in SYMMETRIC)))
    largest = max((row["bytes"] for row in rows), default=0)
    return [
        *lines,
        "",
        f"algorithm bandwidth of each node's slowest rank at {_size(largest)}; * is an outlier",
        *_columns(cells),
    ]


def _of_node(operation: str, ranks: list[int], rows: list[Fact], reports: list[Fact]) -> str:
    if not (mine := [row for row in rows if row["op"] == operation]):
        return "-"
    worst = max(reports[rank]["cases"][operation][-1]["seconds"] for rank in ranks)
    mark = "*" if set(mine[-1]["outliers"]) & set(ranks) else ""
    return f"{mine[-1]['bytes'] / worst / 1e9:.3f}{mark}"


def _marked(ranks: list[int], reports: list[Fact]) -> str:
    return ", ".join(f"* rank {rank} ({reports[rank]['node']})" for rank in ranks) or "-"


def _ranks(ranks: list[int]) -> str:
    shown = (
        f"{ranks[0]}-{ranks[-1]}" if len(ranks) > 1 and ranks[-1] - ranks[0] == len(ranks) - 1 else ",".join(map(str, ranks))
    )
    return f"rank{'s' if len(ranks) > 1 else ''} {shown}"


def _size(count: int) -> str:
    for unit, scale in (("MiB", 2**20), ("KiB", 2**10)):
        if count >= scale:
            return f"{count / scale:.4g} {unit}"
    return f"{count} B"


def _columns(rows: list[tuple[str, ...]]) -> list[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return ["  ".join(cell.ljust(widths[column]) for column, cell in enumerate(row)).rstrip() for row in rows]


# ---------------------------------------------------------------------------------------------------------- main


def parse_size(text: str) -> int:
    """`8K`, `16M`, `1G` or a number of bytes."""
    scale = {"K": 2**10, "M": 2**20, "G": 2**30}.get(text[-1:].upper(), 1)
    return int(text[:-1] if scale > 1 else text) * scale


def watch(seconds: float, doing: list[str], rank: str) -> None:
    """End this process when it is late: a collective that a peer never joined would wait for half an hour."""

    def late() -> None:
        emit("late", rank=int(rank), doing=doing[-1], seconds=seconds)
        os._exit(LATE)

    timer = threading.Timer(seconds, late)
    timer.daemon = True
    timer.start()


def run(world: World, sizes: Sequence[int], doing: list[str]) -> Fact:
    """Everything on this rank."""
    counts = [-(-size // (4 * world.size)) * world.size for size in sizes]
    cases: dict[str, list[Fact]] = {}
    if world.size > 1:
        doing.append("send and recv")
        pairs = [point_to_point(world, count) for count in counts]
        cases = {"send": [sent for sent, _ in pairs], "recv": [received for _, received in pairs]}
    missing = {}
    for operation in OPERATIONS:
        doing.append(operation)
        try:
            cases[operation] = [measure(world, operation, count) for count in counts]
        except (RuntimeError, NotImplementedError) as err:
            if "support" not in str(err):
                raise
            missing[operation] = str(err).splitlines()[0]  # gloo of an older torch lacks some
    doing.append("the identities")
    return {
        "rank": world.rank,
        "group": world.group,
        "node": world.node,
        "backend": world.backend,
        "torch": str(world.torch.__version__),
        "cases": cases,
        "missing": missing,
        "identities": identities(world, missing),
    }


def ranks(arguments: Sequence[str]) -> int:
    """What every rank does; rank 0 sums up."""
    parser = argparse.ArgumentParser(prog="collectives.py")
    parser.add_argument("--backend", choices=["auto", "gloo", "nccl"], default="auto")
    parser.add_argument("--sizes", help="bytes of the whole array, for example 8K,1M,16M")
    parser.add_argument("--seconds", type=float, default=0.25, help="for one operation at one size, about")
    parser.add_argument("--deadline", type=float, default=120.0, help="seconds after which a rank gives up")
    parser.add_argument("--output", choices=["table", "json"], default="table")
    options = parser.parse_args(arguments)
    rank = os.environ.get("RANK", "0")
    doing = ["meeting the others"]
    watch(options.deadline, doing, rank)
    try:
        world = World(options.backend, options.seconds)
        emit_if(options, "rank", rank=world.rank, group=world.group, node=world.node, gpus=world.gpus, device=_device(world))
        sizes = [parse_size(size) for size in (options.sizes or SIZES[world.backend]).split(",")]
        report = run(world, sizes, doing)
    except Exception as err:  # noqa: BLE001 - whatever torch raises is what the user must read
        emit("error", rank=int(rank), doing=doing[-1], why=f"{type(err).__name__}: {err}"[:1500])
        return UNUSABLE
    for operation, measured in report["cases"].items():
        sizes_of = [{**case, "seconds": round(case["seconds"], 9), "best": round(case["best"], 9)} for case in measured]
        emit_if(options, "collective", rank=world.rank, op=operation, sizes=sizes_of)
    doing.append("collecting the results")
    world.share(f"report/{world.rank}", report)
    if world.rank == 0:
        reports = [world.ask(f"report/{one}") for one in range(world.size)]
        world.share("verdict", _verdict(reports, options))
    code = int(world.ask("verdict"))
    world.barrier()  # rank 0 may host the store, and leaves last
    world.dist.destroy_process_group()
    return code


def _verdict(reports: list[Fact], options: Any) -> int:
    """Print what all ranks came to."""
    rows = summary(reports)
    broken = [(one["rank"], each["identity"]) for one in reports for each in one["identities"] if not each["holds"]]
    lines = table(rows, reports)
    held = [each["identity"] for each in reports[0]["identities"] if each["identity"] not in {name for _, name in broken}]
    lines += ["", *(f"{name}: holds" for name in held), *(f"{name}: BROKEN on rank {rank}" for rank, name in broken)]
    lines += [f"{name}: not here: {why}" for name, why in reports[0]["missing"].items()]
    for one in reports:
        for operation, measured in one["cases"].items():
            for case in measured:
                if case["wrong"]:
                    lines.append(f"rank {one['rank']}: {operation} of {_size(case['bytes'])}: {case['wrong']}")
    for row in rows:
        emit_if(options, "summary", **row)
    for line in lines:
        if options.output == "json":
            emit("table", line=line)
        else:
            sys.stdout.write(line + "\n")
    wrong = bool(broken) or any(row["wrong"] for row in rows)
    emit_if(options, "done", ranks=len(reports), wrong=wrong)
    sys.stdout.flush()
    return WRONG if wrong else 0


def _device(world: World) -> str:
    return str(world.torch.cuda.get_device_name(world.device)) if world.backend == "nccl" else "cpu"


def emit_if(options: Any, kind: str, **fact: Any) -> None:
    """`emit`, where machines read."""
    if options.output == "json":
        emit(kind, **fact)


def main(arguments: Sequence[str] | None = None) -> int:
    """`node …`, or what a rank does."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    return node(words[1:]) if words[:1] == ["node"] else ranks(words)


if __name__ == "__main__":
    if Path(sys.path[0]).resolve() == Path(sys.argv[0]).resolve().parent:
        del sys.path[0]  # a neighbour of this file, `tokenize.py` say, would hide Python's own module from torch
    sys.exit(main())
