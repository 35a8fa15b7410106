"""Checks whether the ranks of a job can communicate, whether the values are correct, and the bandwidth.

It is one file, although it is long: `kfjob preflight --run` sends its text compressed in a variable of the pods
(`kfjob/api/preflight/trial.py`). So it runs in any image that has torch, without kfjob, and a trial needs no right to create
config maps. It imports only the standard library and torch.

    torchrun --nproc-per-node 4 collectives.py                  run the nine collectives and print a table
    python3 collectives.py node --peers a,b -- torchrun …       check names, port and /dev/shm, and start the agent

Every collective runs at every size on all ranks, its result is compared with the expected value, and then it is timed. Time and
bandwidth are defined as in nccl-tests (doc/PERFORMANCE.md, src/gather.cu, src/scatter.cu): t is the mean of a timed loop,
averaged over the ranks; algbw = S / t, where S is the size of the full array in bytes (of all ranks together, if each has a
part); busbw = algbw times 2(n-1)/n for all_reduce, (n-1)/n for all_gather, reduce_scatter, gather and scatter, else 1.

`send` and `recv` use the links of a ring in turns, so that each link is timed alone. A rank is an outlier if its time exceeds
OUTLIER_RATIO times the median of the other ranks; links inside a node and links between nodes are compared separately.
Operations with a root are not compared, because the root is always slower. Results are exchanged through the store, not
through a collective under test.

With `--output json` each fact is a line that begins with `{"kfjob":`. The exit code is 0, 1 (a value is wrong), 2 (cannot run)
or 3 (deadline exceeded). Works with Python 3.8 and torch 2.0 and newer.
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

if TYPE_CHECKING:  # annotations are not evaluated, so Python 3.8 accepts them
    from collections.abc import Callable, Collection, Sequence

    Fact = dict[str, Any]

OUTLIER_RATIO = 1.5
SIZES = {"gloo": "8K,1M,16M", "nccl": "8K,1M,64M,256M"}
TIMED_PARTS = 3  # of a timed loop: outliers are detected by the best part, so that a short delay does not count
MAX_ROUNDS = 100
"""Repetitions of one measured collective."""
CONNECT_SECONDS = 5.0
"""Timeout of one attempt to connect to another rank."""
WRONG, UNUSABLE, LATE = 1, 2, 3
IDENTITIES = (
    ("all_reduce", "reduce", "broadcast"),
    ("all_gather", "gather", "broadcast"),
    ("reduce_scatter", "reduce", "scatter"),
)
SYMMETRIC = ("send", "recv", "all_reduce", "all_gather", "reduce_scatter")
_print_lock = threading.Lock()


def emit(kind: str, **fact: Any) -> None:
    """Print one fact on a line, with one write, because several processes share a pod's output."""
    with _print_lock:
        os.write(1, (json.dumps({"kfjob": kind, **fact}) + "\n").encode())


# ---------------------------------------------------------------------------------------------------------- one node


def node(arguments: Sequence[str]) -> int:
    """Start the agent, and check in the meantime whether it can reach its peers and the rendezvous."""
    parser = argparse.ArgumentParser(prog="collectives.py node")
    parser.add_argument("--peers", default="", help="names that must resolve")
    parser.add_argument("--patience", type=float, default=120.0, help="seconds to wait for the peers")
    parser.add_argument("agent", nargs=argparse.REMAINDER)
    options = parser.parse_args(arguments)
    command = options.agent[1:] if options.agent[:1] == ["--"] else options.agent
    emit("node", host=socket.gethostname(), **shared_memory())
    agent = subprocess.Popen(command)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda received, _: agent.send_signal(received))
    deadline = time.monotonic() + options.patience
    checks: list[tuple[Any, str]] = [(resolve_name, name) for name in options.peers.split(",") if name]
    checks += [(connect, endpoint) for endpoint in [rendezvous_endpoint()] if endpoint]
    threads = [threading.Thread(target=_retry_check, args=(agent, deadline, *check), daemon=True) for check in checks]
    for thread in threads:
        thread.start()
    code = agent.wait()
    for thread in threads:
        thread.join(CONNECT_SECONDS)
    return code


def _retry_check(agent: Any, deadline: float, check: Callable[[str], str], name: str) -> None:
    """Retry a check until it succeeds. An agent that has succeeded has reached its peers, whose services may be gone then."""
    began = time.monotonic()
    while True:
        try:
            address, problem = check(name), ""
        except OSError as err:
            address, problem = "", str(err)
        waited = round(time.monotonic() - began, 3)
        expired = time.monotonic() > deadline
        if address or expired or agent.poll() is not None:
            break
        time.sleep(0.2)
    ok = bool(address) or agent.poll() == 0
    kind = "dns" if check is resolve_name else "port"
    emit(kind, what=name, ok=ok, seconds=waited, found=address, why="" if ok else problem)
    if expired and not ok:
        agent.terminate()


def resolve_name(name: str) -> str:
    """Return the address of a peer."""
    return str(socket.getaddrinfo(name, None)[0][4][0])


def connect(endpoint: str) -> str:
    """Connect to the endpoint like `nc -zv host port`, and return its address."""
    host, _, port = endpoint.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=CONNECT_SECONDS) as connection:
        return str(connection.getpeername()[0])


def rendezvous_endpoint() -> str:
    """Return the rendezvous endpoint as torchrun reads it; empty without one."""
    host, port = os.environ.get("MASTER_ADDR"), os.environ.get("MASTER_PORT")
    return os.environ.get("PET_RDZV_ENDPOINT") or (f"{host}:{port}" if host and port else "")


def shared_memory() -> Fact:
    """Return the size of /dev/shm in bytes: NCCL and data loaders need more than a container's default of 64 MiB."""
    try:
        status = os.statvfs("/dev/shm")  # noqa: S108 - the C library uses this path
    except OSError:
        return {"shm": 0}
    return {"shm": status.f_frsize * status.f_blocks}


# ---------------------------------------------------------------------------------------------------------- all ranks


class Case:
    """One collective at one size on this rank: a function that runs it, its result, and the expected one (None: no result)."""

    def __init__(self, run: Callable[[], Any], buffers: Sequence[Any], result: Any, expected: Any) -> None:
        self.run, self.buffers, self.result, self.expected = run, buffers, result, expected

    def find_mismatch(self) -> str:
        """Return how the result differs from the expected one; empty if it does not."""
        if self.expected is None:
            return ""
        mismatches = (self.result != self.expected).nonzero()
        if not len(mismatches):
            return ""
        first = int(mismatches[0])
        return (
            f"{len(mismatches)} of {len(self.expected)} elements, the first at {first}: "
            f"{self.result[first]:g}, not {self.expected[first]:g}"
        )


class World:
    """This rank: its device, its data, and the store that exchanges results."""

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
        """Return the contribution of a rank: small integers, so that sums are exact in fp32."""
        pattern = self.torch.arange(count, device=self.device, dtype=self.torch.float32) % 13 + 1
        return pattern * (rank + 1)

    def zeros(self, count: int) -> Any:
        """Return a buffer for a result."""
        return self.torch.zeros(count, device=self.device)

    def total(self, count: int) -> Any:
        """Return the sum of all contributions."""
        return self.data(self.size * (self.size + 1) // 2 - 1, count)

    def concatenated(self, count: int) -> Any:
        """Return the parts of all ranks, concatenated."""
        return self.torch.cat([self.data(rank, count) for rank in range(self.size)])

    def synchronize(self) -> None:
        """Wait for the device."""
        if self.backend == "nccl":
            self.torch.cuda.synchronize()

    def barrier(self) -> None:
        """Wait for all ranks."""
        self.dist.barrier()
        self.synchronize()

    def publish(self, key: str, fact: Any) -> None:
        """Store a fact for all ranks."""
        self.store.set(f"kfjob/{key}", json.dumps(fact))

    def wait_for(self, key: str) -> Any:
        """Wait for a fact, and return it."""
        return json.loads(self.store.get(f"kfjob/{key}"))


def all_reduce(world: World, count: int) -> Case:
    """All ranks get the sum."""
    buffer = world.data(world.rank, count)
    return Case(lambda: world.dist.all_reduce(buffer), [buffer], buffer, world.total(count))


def reduce(world: World, count: int) -> Case:
    """Rank 0 gets the sum."""
    buffer = world.data(world.rank, count)
    expected = world.total(count) if world.rank == 0 else None
    return Case(lambda: world.dist.reduce(buffer, 0), [buffer], buffer, expected)


def broadcast(world: World, count: int) -> Case:
    """All ranks get the array of rank 0."""
    buffer = world.data(world.rank, count)
    return Case(lambda: world.dist.broadcast(buffer, 0), [buffer], buffer, world.data(0, count))


def gather(world: World, count: int) -> Case:
    """Rank 0 gets the parts of all ranks."""
    part = world.data(world.rank, count // world.size)
    full = world.zeros(count) if world.rank == 0 else None
    parts = list(full.chunk(world.size)) if full is not None else None
    expected = world.concatenated(count // world.size) if full is not None else None
    return Case(lambda: world.dist.gather(part, parts, 0), [part], full, expected)


def scatter(world: World, count: int) -> Case:
    """Each rank gets its part of the array of rank 0."""
    part = world.zeros(count // world.size)
    whole = world.concatenated(count // world.size) if world.rank == 0 else None
    parts = list(whole.chunk(world.size)) if whole is not None else None
    buffers = [part] if whole is None else [part, whole]
    return Case(lambda: world.dist.scatter(part, parts, 0), buffers, part, world.data(world.rank, count // world.size))


def all_gather(world: World, count: int) -> Case:
    """All ranks get the parts of all ranks."""
    part, whole = world.data(world.rank, count // world.size), world.zeros(count)
    expected = world.concatenated(count // world.size)
    return Case(lambda: world.dist.all_gather_into_tensor(whole, part), [part, whole], whole, expected)


def reduce_scatter(world: World, count: int) -> Case:
    """Each rank gets its part of the sum."""
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
    """Return the factor of nccl-tests between algorithm bandwidth and bus bandwidth."""
    if operation == "all_reduce":
        return 2 * (ranks - 1) / ranks
    return (ranks - 1) / ranks if operation in ("all_gather", "reduce_scatter", "gather", "scatter") else 1.0


def time_runs(world: World, key: str, run: Callable[[], Any], *, leader: int = 0) -> Fact:
    """Return the seconds of one run: the mean of a loop, whose length the leader sets, and that of its best part."""
    began = time.perf_counter()
    run()
    world.synchronize()
    if world.rank == leader:
        single_run = max(time.perf_counter() - began, 1e-6)
        world.publish(key, max(1, min(MAX_ROUNDS, int(world.seconds / single_run)) // TIMED_PARTS))
    rounds, parts = int(world.wait_for(key)), []
    for _ in range(TIMED_PARTS):
        began = time.perf_counter()
        for _ in range(rounds):
            run()
        world.synchronize()
        parts.append((time.perf_counter() - began) / rounds)
    return {"seconds": statistics.fmean(parts), "best": min(parts)}


def measure(world: World, operation: str, count: int) -> Fact:
    """Check and time one collective at one size."""
    case = OPERATIONS[operation](world, count)
    case.run()
    world.synchronize()
    wrong = case.find_mismatch()
    for buffer in case.buffers:
        buffer.zero_()  # repeated sums would overflow
    return {"bytes": count * 4, "wrong": wrong, **time_runs(world, f"{operation}/{count}", case.run)}


def links(size: int) -> list[list[int]]:
    """Return the links rank -> rank + 1 of the ring in turns; no rank has two links in one turn."""
    turns = [list(range(0, size - 1, 2)), list(range(1, size - size % 2, 2))]
    return [*turns, [size - 1]] if size % 2 else [turn for turn in turns if turn]


def point_to_point(world: World, count: int) -> tuple[Fact, Fact]:
    """Check and time `send` to the next rank and `recv` from the previous one."""
    following, previous = (world.rank + 1) % world.size, (world.rank - 1) % world.size
    data, buffer = world.data(world.rank, count), world.zeros(count)
    sent: Fact = {"bytes": count * 4, "wrong": ""}
    received: Fact = {"bytes": count * 4, "wrong": ""}
    for turn, links_now in enumerate(links(world.size)):
        link = world.rank if world.rank in links_now else previous
        key = f"link/{count}/{turn}/{link}"
        world.barrier()
        if world.rank in links_now:
            world.dist.send(data, following)
            sent.update(time_runs(world, key, lambda: world.dist.send(data, following), leader=link))
        elif previous in links_now:
            world.dist.recv(buffer, previous)
            received["wrong"] = Case(lambda: None, [], buffer, world.data(previous, count)).find_mismatch()
            received.update(time_runs(world, key, lambda: world.dist.recv(buffer, previous), leader=link))
    return sent, received


def check_identities(world: World, missing: Collection[str] = ()) -> list[Fact]:
    """Check that a collective equals the two that compose it, and that the mean is the sum divided by the number of ranks."""
    count = 1024 * world.size
    facts = []
    for combined, first, second in IDENTITIES:
        if combined in missing:
            continue
        combined_case, first_case = OPERATIONS[combined](world, count), OPERATIONS[first](world, count)
        combined_case.run()
        first_case.run()
        buffer = world.zeros(count if second == "broadcast" else count // world.size)
        if second == "broadcast":
            if world.rank == 0:
                buffer.copy_(first_case.result)
            world.dist.broadcast(buffer, 0)
        else:
            world.dist.scatter(buffer, list(first_case.result.chunk(world.size)) if world.rank == 0 else None, 0)
        world.synchronize()
        holds = bool(world.torch.equal(combined_case.result, buffer))
        facts.append({"identity": f"{combined} = {first} + {second}", "holds": holds})
    return [*facts, _check_mean(world, count)]


def _check_mean(world: World, count: int) -> Fact:
    buffer = world.data(world.rank, count)
    average = getattr(world.dist.ReduceOp, "AVG", None) if world.backend == "nccl" else None  # gloo has no AVG
    world.dist.all_reduce(buffer, **({"op": average} if average is not None else {}))
    mean = buffer if average is not None else buffer / world.size
    expected = world.total(count) / world.size
    method = "AVG" if average is not None else "SUM / ranks"
    return {"identity": f"mean = sum / ranks ({method})", "holds": bool(world.torch.allclose(mean, expected))}


# ---------------------------------------------------------------------------------------------------------- the result


def find_outliers(times: dict[int, float]) -> list[int]:
    """Return the ranks that are much slower than the others."""
    outliers = []
    for rank, seconds in times.items():
        other_times = [other for key, other in times.items() if key != rank]
        if other_times and seconds > OUTLIER_RATIO * statistics.median(other_times):
            outliers.append(rank)
    return outliers


def summarize(reports: list[Fact]) -> list[Fact]:
    """Return a row for every operation and size; `reports` are in the order of ranks."""
    ranks, rows = len(reports), []
    for operation, cases in reports[0]["cases"].items():
        for index, case in enumerate(cases):
            times = {rank: report["cases"][operation][index]["seconds"] for rank, report in enumerate(reports)}
            mean = statistics.fmean(times.values())
            algbw = case["bytes"] / mean / 1e9
            slowest = max(times, key=lambda rank: times[rank])
            best = {rank: report["cases"][operation][index]["best"] for rank, report in enumerate(reports)}
            rows.append(
                {
                    "op": operation,
                    "bytes": case["bytes"],
                    "seconds": mean,
                    "algbw": algbw,
                    "busbw": algbw * bus_factor(operation, ranks),
                    "slowest": slowest,
                    "most": times[slowest],
                    "wrong": [rank for rank, report in enumerate(reports) if report["cases"][operation][index]["wrong"]],
                    "outliers": _find_link_outliers(reports, operation, best) if operation in SYMMETRIC else [],
                }
            )
    return rows


def _find_link_outliers(reports: list[Fact], operation: str, times: dict[int, float]) -> list[int]:
    """Return the outliers; links inside nodes and links between nodes are compared separately."""
    if operation not in ("send", "recv"):
        return find_outliers(times)
    step = 1 if operation == "send" else -1
    inside_nodes: dict[int, float] = {}
    between_nodes: dict[int, float] = {}
    for rank, seconds in times.items():
        same_node = reports[rank]["group"] == reports[(rank + step) % len(reports)]["group"]
        (inside_nodes if same_node else between_nodes)[rank] = seconds
    return sorted(find_outliers(inside_nodes) + find_outliers(between_nodes))


def format_table(rows: list[Fact], reports: list[Fact]) -> list[str]:
    """Return the lines of the table."""
    nodes = sorted({(report["group"], report["node"]) for report in reports})
    first = reports[0]
    ranks_and_nodes = f"{_plural(len(reports), 'rank')} on {_plural(len(nodes), 'node')}"
    lines = [f"{ranks_and_nodes}, {first['backend']}, torch {first['torch']}; 1 GB/s is 1e9 bytes per second"]
    cells: list[tuple[str, ...]] = [("OPERATION", "SIZE", "TIME", "ALGBW", "BUSBW", "SLOWEST", "VALUES", "OUTLIERS")]
    for row in rows:
        slowest = f"rank {row['slowest']} x{row['most'] / row['seconds']:.2f}"
        wrong = f"WRONG on {_format_ranks(row['wrong'])}" if row["wrong"] else "ok"
        numbers = (f"{row['seconds'] * 1e6:.1f} us", f"{row['algbw']:.3f}", f"{row['busbw']:.3f}")
        cells.append(
            (row["op"], _format_size(row["bytes"]), *numbers, slowest, wrong, _format_outliers(row["outliers"], reports))
        )
    lines += _align_columns(cells)
    cells = [("NODE", "RANKS", *(f"{name.upper()} GB/s" for name in SYMMETRIC))]
    for group, name in nodes:
        ranks = [rank for rank, report in enumerate(reports) if report["group"] == group]
        bandwidths = (_format_node_bandwidth(operation, ranks, rows, reports) for operation in SYMMETRIC)
        cells.append((name, _format_ranks(ranks), *bandwidths))
    largest = max((row["bytes"] for row in rows), default=0)
    return [
        *lines,
        "",
        f"algorithm bandwidth of each node's slowest rank at {_format_size(largest)}; * is an outlier",
        *_align_columns(cells),
    ]


def _format_node_bandwidth(operation: str, ranks: list[int], rows: list[Fact], reports: list[Fact]) -> str:
    operation_rows = [row for row in rows if row["op"] == operation]
    if not operation_rows:
        return "-"
    largest = operation_rows[-1]
    slowest = max(reports[rank]["cases"][operation][-1]["seconds"] for rank in ranks)
    mark = "*" if set(largest["outliers"]) & set(ranks) else ""
    return f"{largest['bytes'] / slowest / 1e9:.3f}{mark}"


def _plural(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _format_outliers(ranks: list[int], reports: list[Fact]) -> str:
    return ", ".join(f"* rank {rank} ({reports[rank]['node']})" for rank in ranks) or "-"


def _format_ranks(ranks: list[int]) -> str:
    shown = (
        f"{ranks[0]}-{ranks[-1]}" if len(ranks) > 1 and ranks[-1] - ranks[0] == len(ranks) - 1 else ",".join(map(str, ranks))
    )
    return f"rank{'s' if len(ranks) > 1 else ''} {shown}"


def _format_size(count: int) -> str:
    for unit, scale in (("MiB", 2**20), ("KiB", 2**10)):
        if count >= scale:
            return f"{count / scale:.4g} {unit}"
    return f"{count} B"


def _align_columns(rows: list[tuple[str, ...]]) -> list[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return ["  ".join(cell.ljust(widths[column]) for column, cell in enumerate(row)).rstrip() for row in rows]


# ---------------------------------------------------------------------------------------------------------- main


def parse_size(text: str) -> int:
    """Parse `8K`, `16M`, `1G` or a number of bytes."""
    scale = {"K": 2**10, "M": 2**20, "G": 2**30}.get(text[-1:].upper(), 1)
    return int(text[:-1] if scale > 1 else text) * scale


def start_watchdog(seconds: float, phases: list[str], rank: str) -> None:
    """End this process at the deadline: a collective that a peer never joins would wait for half an hour."""

    def on_deadline() -> None:
        emit("late", rank=int(rank), doing=phases[-1], seconds=seconds)
        os._exit(LATE)

    timer = threading.Timer(seconds, on_deadline)
    timer.daemon = True
    timer.start()


def check_rank(world: World, sizes: Sequence[int], phases: list[str]) -> Fact:
    """Check and time everything on this rank."""
    counts = [-(-size // (4 * world.size)) * world.size for size in sizes]
    cases: dict[str, list[Fact]] = {}
    if world.size > 1:
        phases.append("send and recv")
        results = [point_to_point(world, count) for count in counts]
        cases = {"send": [sent for sent, _ in results], "recv": [received for _, received in results]}
    missing = {}
    for operation in OPERATIONS:
        phases.append(operation)
        try:
            cases[operation] = [measure(world, operation, count) for count in counts]
        except (RuntimeError, NotImplementedError) as err:
            if "support" not in str(err):
                raise
            missing[operation] = str(err).splitlines()[0]  # gloo of an older torch lacks some operations
    phases.append("the identities")
    return {
        "rank": world.rank,
        "group": world.group,
        "node": world.node,
        "backend": world.backend,
        "torch": str(world.torch.__version__),
        "cases": cases,
        "missing": missing,
        "identities": check_identities(world, missing),
    }


def check_ranks(arguments: Sequence[str]) -> int:
    """Run the checks on this rank; rank 0 prints the summary."""
    parser = argparse.ArgumentParser(prog="collectives.py")
    parser.add_argument("--backend", choices=["auto", "gloo", "nccl"], default="auto")
    parser.add_argument("--sizes", help="bytes of the full array, for example 8K,1M,16M")
    parser.add_argument("--seconds", type=float, default=0.25, help="approximate time per operation and size")
    parser.add_argument("--deadline", type=float, default=120.0, help="seconds until a rank gives up")
    parser.add_argument("--output", choices=["table", "json"], default="table")
    options = parser.parse_args(arguments)
    rank = os.environ.get("RANK", "0")
    phases = ["the rendezvous"]
    start_watchdog(options.deadline, phases, rank)
    try:
        world = World(options.backend, options.seconds)
        emit_if(options, "rank", rank=world.rank, group=world.group, node=world.node, gpus=world.gpus, device=_device(world))
        sizes = [parse_size(size) for size in (options.sizes or SIZES[world.backend]).split(",")]
        report = check_rank(world, sizes, phases)
    except Exception as err:  # noqa: BLE001 - the user must see every error of torch
        emit("error", rank=int(rank), doing=phases[-1], why=f"{type(err).__name__}: {err}"[:1500])
        return UNUSABLE
    for operation, measured in report["cases"].items():
        rounded = [{**case, "seconds": round(case["seconds"], 9), "best": round(case["best"], 9)} for case in measured]
        emit_if(options, "collective", rank=world.rank, op=operation, sizes=rounded)
    phases.append("collecting the results")
    world.publish(f"report/{world.rank}", report)
    if world.rank == 0:
        reports = [world.wait_for(f"report/{number}") for number in range(world.size)]
        world.publish("exit code", _print_summary(reports, options))
    code = int(world.wait_for("exit code"))
    world.barrier()  # rank 0 may host the store and must leave last
    world.dist.destroy_process_group()
    return code


def _print_summary(reports: list[Fact], options: Any) -> int:
    """Print the results of all ranks, and return the exit code."""
    rows = summarize(reports)
    broken = [
        (report["rank"], identity["identity"])
        for report in reports
        for identity in report["identities"]
        if not identity["holds"]
    ]
    lines = format_table(rows, reports)
    broken_names = {name for _, name in broken}
    names = [identity["identity"] for identity in reports[0]["identities"]]
    lines += [
        "",
        *(f"{name}: holds" for name in names if name not in broken_names),
        *(f"{name}: BROKEN on rank {rank}" for rank, name in broken),
    ]
    lines += [f"{name}: not supported: {reason}" for name, reason in reports[0]["missing"].items()]
    for report in reports:
        for operation, measured in report["cases"].items():
            for case in measured:
                if case["wrong"]:
                    lines.append(f"rank {report['rank']}: {operation} of {_format_size(case['bytes'])}: {case['wrong']}")
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
    """Call `emit` with `--output json`."""
    if options.output == "json":
        emit(kind, **fact)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run `node …`, or the checks of a rank."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    return node(words[1:]) if words[:1] == ["node"] else check_ranks(words)


if __name__ == "__main__":
    if Path(sys.path[0]).resolve() == Path(sys.argv[0]).resolve().parent:
        del sys.path[0]  # this file's folder has a `tokenize.py`, which would hide Python's own module from torch
    sys.exit(main())
