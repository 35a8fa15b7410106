"""The collectives check: really run under torchrun, with right ranks and with wrong ones."""

from __future__ import annotations

import importlib.util
import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from kfjob.trainer import collectives

FILE = Path(collectives.__file__)
DOUBLE = Path(__file__).parent / "doubles" / "collectives_rank.py"
TORCHRUN = str(Path(sys.executable).with_name("torchrun"))
NINE = {"send", "recv", "all_reduce", "scatter", "gather", "broadcast", "reduce", "all_gather", "reduce_scatter"}
SMALL = ("--sizes", "1K,64K", "--seconds", "0.02")


def torchrun(*words: str, ranks: int, code: int = 0) -> tuple[dict[str, list[dict[str, Any]]], str]:
    """The facts that were printed, by their kind, and all of the output."""
    env = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    command = [TORCHRUN, "--standalone", "--nproc-per-node", str(ranks), *words]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=120, check=False)
    said = done.stdout + done.stderr
    assert (done.returncode != 0) == (code != 0), said
    return facts(done.stdout), said


def facts(text: str) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = {}
    for line in text.splitlines():
        if line.startswith('{"kfjob":'):
            fact = json.loads(line)
            found.setdefault(fact["kfjob"], []).append(fact)
    return found


def check_bandwidth(found, ranks):
    # nccl-tests' definitions
    n = ranks
    factors = dict.fromkeys(("all_gather", "reduce_scatter", "gather", "scatter"), (n - 1) / n) | {
        "all_reduce": 2 * (n - 1) / n
    }
    for row in found["summary"]:
        assert row["algbw"] == pytest.approx(row["bytes"] / row["seconds"] / 1e9)
        assert row["busbw"] == pytest.approx(row["algbw"] * factors.get(row["op"], 1.0))
        times = [
            size["seconds"]
            for one in found["collective"]
            if one["op"] == row["op"]
            for size in one["sizes"]
            if size["bytes"] == row["bytes"]
        ]
        assert len(times) == n
        assert row["seconds"] == pytest.approx(sum(times) / n, abs=1e-8)
        assert row["most"] == pytest.approx(max(times), abs=1e-8)


@pytest.mark.parametrize("ranks", [2, 4])
def test_the_nine_collectives_are_right(ranks: int):
    found, said = torchrun(str(FILE), *SMALL, "--output", "json", ranks=ranks)
    assert {row["op"] for row in found["summary"]} == NINE
    assert {row["bytes"] for row in found["summary"]} == {1024, 65536}
    assert not any(row["wrong"] for row in found["summary"])
    assert {(one["rank"], one["op"]) for one in found["collective"]} == {(rank, op) for rank in range(ranks) for op in NINE}
    assert all(len(line) < 4096 for line in said.splitlines())  # what a pipe takes in one piece
    assert found["done"] == [{"kfjob": "done", "ranks": ranks, "wrong": False}]
    table = "\n".join(fact["line"] for fact in found["table"])
    for name in ("all_reduce = reduce + broadcast", "all_gather = gather + broadcast", "reduce_scatter = reduce + scatter"):
        assert f"{name}: holds" in table
    assert "mean = sum / ranks (SUM / ranks): holds" in table
    check_bandwidth(found, ranks)


@pytest.mark.parametrize(
    ("what", "operation", "ranks_wrong", "broken"),
    [
        ("result", "all_reduce", [1], "all_reduce = reduce + broadcast: BROKEN on rank 1"),
        pytest.param(
            "contribution", "all_reduce", [0, 1], "all_reduce = reduce + broadcast: BROKEN on rank 0", marks=pytest.mark.long
        ),
    ],
)
def test_a_rank_that_computes_or_sends_something_else_is_caught(what, operation, ranks_wrong, broken):
    found, said = torchrun(str(DOUBLE), what, "1", *SMALL, "--output", "json", ranks=2, code=1)
    for row in found["summary"]:
        assert row["wrong"] == (ranks_wrong if row["op"] == operation else []), row
    assert found["done"][0]["wrong"] is True
    table = "\n".join(fact["line"] for fact in found["table"])
    assert broken in table
    assert "all_gather = gather + broadcast: holds" in table
    assert "rank 1: all_reduce of 1 KiB: 1 of 256 elements" in table, said


def test_a_rank_that_does_not_join_is_told_in_bounded_time():
    began = time.monotonic()
    found, _ = torchrun(str(DOUBLE), "hang", "1", *SMALL, "--deadline", "6", "--output", "json", ranks=2, code=3)
    assert {(late["doing"]) for late in found["late"]} == {"reduce"}
    assert time.monotonic() - began < 60


@pytest.mark.long
def test_what_an_older_gloo_lacks_is_said_and_the_rest_is_done():
    found, _ = torchrun(str(DOUBLE), "old-torch", "all", *SMALL, "--output", "json", ranks=2)
    assert {row["op"] for row in found["summary"]} == NINE - {"reduce_scatter"}
    table = "\n".join(fact["line"] for fact in found["table"])
    assert "reduce_scatter: not here: ProcessGroupGloo does not support reduce_scatter" in table


def test_a_rank_without_a_gpu_is_an_error_that_says_so():
    words = [sys.executable, str(FILE), "--backend", "nccl"]
    hidden = os.environ | {"RANK": "0", "LOCAL_RANK": "0", "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(words, env=hidden, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == collectives.UNUSABLE
    assert "local rank 0 has no GPU" in facts(done.stdout)["error"][0]["why"]


def test_it_needs_nothing_but_torch_runs_as_text_and_tells_people():
    names = {
        line.split()[1].partition(".")[0] for line in FILE.read_text().splitlines() if line.startswith(("import ", "from "))
    }
    assert names <= {*sys.stdlib_module_names, "__future__"}
    found, said = torchrun("--no-python", sys.executable, "-c", FILE.read_text(), "--sizes", "1K", "--seconds", "0.02", ranks=2)
    assert not found  # this is for people
    assert "2 ranks on 1 nodes, gloo, torch " in said
    assert "OPERATION" in said


def alone(*words: str, agent: str, **env: str) -> dict[str, list[dict[str, Any]]]:
    command = [sys.executable, str(FILE), "node", *words, "--", sys.executable, "-c", agent]
    kept = {key: value for key, value in os.environ.items() if key not in ("MASTER_ADDR", "MASTER_PORT", "PET_RDZV_ENDPOINT")}
    done = subprocess.run(command, env=kept | env, capture_output=True, text=True, timeout=60, check=False)
    return facts(done.stdout) | {"code": [{"code": done.returncode}]}


def test_a_node_finds_its_peers_and_the_rendezvous_port():
    with socket.create_server(("127.0.0.1", 0)) as store:
        endpoint = f"127.0.0.1:{store.getsockname()[1]}"
        found = alone("--peers", "localhost", agent="import time; time.sleep(3)", PET_RDZV_ENDPOINT=endpoint)
    assert [(fact["what"], fact["ok"]) for fact in found["dns"]] == [("localhost", True)]
    assert [(fact["what"], fact["ok"], fact["found"]) for fact in found["port"]] == [(endpoint, True, "127.0.0.1")]
    assert found["node"][0]["shm"] > 0
    assert found["code"][0]["code"] == 0


def test_a_peer_or_a_port_that_never_comes_ends_the_agent():
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))  # bound, not listening: refused
        endpoint = f"127.0.0.1:{nobody.getsockname()[1]}"
        found = alone(
            "--peers", "nobody.invalid", "--patience", "1", agent="import time; time.sleep(60)", PET_RDZV_ENDPOINT=endpoint
        )
    assert (found["dns"][0]["what"], found["dns"][0]["ok"]) == ("nobody.invalid", False)
    assert "refused" in found["port"][0]["why"]
    assert found["code"][0]["code"] != 0


def test_outliers_are_those_far_above_the_others():
    assert collectives.outliers({0: 1.0, 1: 1.1, 2: 0.9, 3: 1.0}) == []
    assert collectives.outliers({0: 1.0, 1: 1.1, 2: 2.0, 3: 1.0}) == [2]
    assert collectives.outliers({0: 1.0, 1: 1.6}) == [1]
    assert collectives.outliers({0: 1.0}) == []


def test_links_inside_a_node_are_not_compared_with_those_between_nodes():
    group = [0, 0, 1, 1, 2, 2]
    between = {1: 10.0, 3: 10.0, 5: 10.0}  # rank -> the first rank of the next node

    def report(rank: int, seconds: float) -> dict[str, Any]:
        return {
            "group": group[rank],
            "node": f"n{group[rank]}",
            "cases": {"send": [{"bytes": 8, "seconds": seconds, "best": seconds, "wrong": ""}]},
        }

    reports = [report(rank, between.get(rank, 1.0)) for rank in range(6)]
    assert collectives.summary(reports)[0]["outliers"] == []
    reports[3] = report(3, 30.0)
    row = collectives.summary(reports)[0]
    assert (row["outliers"], row["slowest"]) == ([3], 3)
    lines = collectives.table([row], [{**one, "backend": "nccl", "torch": "2"} for one in reports])
    assert any(line.startswith("n1 ") and "*" in line for line in lines)
    assert not any(line.startswith("n0 ") and "*" in line for line in lines)


@pytest.mark.parametrize("size", range(2, 9))
def test_every_link_of_the_ring_has_its_turn_and_no_rank_two_at_once(size: int):
    turns = collectives.links(size)
    assert sorted(link for turn in turns for link in turn) == list(range(size))
    for turn in turns:
        ends = [end for link in turn for end in (link, (link + 1) % size)]
        assert len(set(ends)) == len(ends)


def test_the_file_is_python_3_8():
    assert importlib.util.find_spec("kfjob.trainer.collectives")
    compile(FILE.read_text(), str(FILE), "exec", flags=0, dont_inherit=True)
    import ast

    ast.parse(FILE.read_text(), feature_version=(3, 8))
