"""The collectives check under real torchrun, with correct ranks and with faulty ones."""

from __future__ import annotations

import importlib.util
import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kfjob.trainer import collectives
from tests.trainer.forked import Program

FILE = Path(collectives.__file__)
DOUBLE = Path(__file__).parent / "doubles" / "collectives_rank.py"
TORCHRUN = "import sys; from torch.distributed.run import main; main(sys.argv[1:])"
FORK = ("--start-method=fork", "--run-path")
"""The agent is torchrun's own program in a forked process, and forks its ranks: none of them imports torch again."""
RUN_FILE = "import runpy, sys; sys.argv[:1] = []; runpy.run_path(sys.argv[0], run_name='__main__')"
NINE = {"send", "recv", "all_reduce", "scatter", "gather", "broadcast", "reduce", "all_gather", "reduce_scatter"}
SMALL = ("--sizes", "1K,64K", "--seconds", "0.02")


def torchrun(*arguments: str, ranks: int, code: int = 0) -> tuple[dict[str, list[dict[str, Any]]], str]:
    """Run the check, and return the printed facts by kind, and the whole output."""
    options = ("--standalone", "--nproc-per-node", str(ranks), *FORK)
    program = Program(TORCHRUN, *options, *arguments, GLOO_SOCKET_IFNAME="lo")
    output = program.communicate(timeout=120)
    assert (program.returncode != 0) == (code != 0), output
    return parse_facts(output), output


def parse_facts(text: str) -> dict[str, list[dict[str, Any]]]:
    facts: dict[str, list[dict[str, Any]]] = {}
    for line in text.splitlines():
        if line.startswith('{"kfjob":'):
            fact = json.loads(line)
            facts.setdefault(fact["kfjob"], []).append(fact)
    return facts


def check_bandwidth(facts, ranks):
    # nccl-tests' definitions
    n = ranks
    factors = dict.fromkeys(("all_gather", "reduce_scatter", "gather", "scatter"), (n - 1) / n) | {
        "all_reduce": 2 * (n - 1) / n
    }
    for row in facts["summary"]:
        assert row["algbw"] == pytest.approx(row["bytes"] / row["seconds"] / 1e9)
        assert row["busbw"] == pytest.approx(row["algbw"] * factors.get(row["op"], 1.0))
        times = [
            size["seconds"]
            for case in facts["collective"]
            if case["op"] == row["op"]
            for size in case["sizes"]
            if size["bytes"] == row["bytes"]
        ]
        assert len(times) == n
        assert row["seconds"] == pytest.approx(sum(times) / n, abs=1e-8)
        assert row["most"] == pytest.approx(max(times), abs=1e-8)


@pytest.mark.parametrize("ranks", [pytest.param(2, marks=pytest.mark.long), 4])  # other tests here have two ranks
def test_nine_collectives_are_correct(ranks: int):
    facts, output = torchrun(str(FILE), *SMALL, "--output", "json", ranks=ranks)
    assert {row["op"] for row in facts["summary"]} == NINE
    assert {row["bytes"] for row in facts["summary"]} == {1024, 65536}
    assert not any(row["wrong"] for row in facts["summary"])
    assert {(case["rank"], case["op"]) for case in facts["collective"]} == {(rank, op) for rank in range(ranks) for op in NINE}
    assert all(len(line) < 4096 for line in output.splitlines())  # a pipe transfers such a line atomically
    assert facts["done"] == [{"kfjob": "done", "ranks": ranks, "wrong": False}]
    table = "\n".join(fact["line"] for fact in facts["table"])
    for name in ("all_reduce = reduce + broadcast", "all_gather = gather + broadcast", "reduce_scatter = reduce + scatter"):
        assert f"{name}: holds" in table
    assert "mean = sum / ranks (SUM / ranks): holds" in table
    check_bandwidth(facts, ranks)


@pytest.mark.parametrize(
    ("fault", "operation", "ranks_wrong", "broken"),
    [
        ("result", "all_reduce", [1], "all_reduce = reduce + broadcast: BROKEN on rank 1"),
        pytest.param(
            "contribution", "all_reduce", [0, 1], "all_reduce = reduce + broadcast: BROKEN on rank 0", marks=pytest.mark.long
        ),
    ],
)
def test_wrong_result_or_contribution_is_detected(fault, operation, ranks_wrong, broken):
    facts, output = torchrun(str(DOUBLE), fault, "1", *SMALL, "--output", "json", ranks=2, code=1)
    for row in facts["summary"]:
        assert row["wrong"] == (ranks_wrong if row["op"] == operation else []), row
    assert facts["done"][0]["wrong"] is True
    table = "\n".join(fact["line"] for fact in facts["table"])
    assert broken in table
    assert "all_gather = gather + broadcast: holds" in table
    assert "rank 1: all_reduce of 1 KiB: 1 of 256 elements" in table, output


def test_rank_that_never_joins_is_reported_at_the_deadline():
    """The deadline counts from the start of the check, so a busy machine must reach `reduce` before it."""
    facts, _ = torchrun(str(DOUBLE), "hang", "1", *SMALL, "--deadline", "12", "--output", "json", ranks=2, code=3)
    assert {(late["doing"], late["seconds"]) for late in facts["late"]} == {("reduce", 12.0)}


@pytest.mark.long
def test_unsupported_operation_is_reported_and_skipped():
    facts, _ = torchrun(str(DOUBLE), "old-torch", "all", *SMALL, "--output", "json", ranks=2)
    assert {row["op"] for row in facts["summary"]} == NINE - {"reduce_scatter"}
    table = "\n".join(fact["line"] for fact in facts["table"])
    assert "reduce_scatter: not supported: ProcessGroupGloo does not support reduce_scatter" in table


def test_nccl_without_a_gpu_is_an_error():
    program = Program(RUN_FILE, str(FILE), "--backend", "nccl", RANK="0", LOCAL_RANK="0", CUDA_VISIBLE_DEVICES="")
    output = program.communicate(timeout=120)
    assert program.returncode == collectives.UNUSABLE
    assert "local rank 0 has no GPU" in parse_facts(output)["error"][0]["why"]


def test_file_imports_only_torch():
    names = {
        line.split()[1].partition(".")[0] for line in FILE.read_text().splitlines() if line.startswith(("import ", "from "))
    }
    assert names <= {*sys.stdlib_module_names, "__future__"}


def run_node(*arguments: str, agent: str, **env: str) -> dict[str, list[dict[str, Any]]]:
    command = [sys.executable, str(FILE), "node", *arguments, "--", sys.executable, "-c", agent]
    environment = {
        key: value for key, value in os.environ.items() if key not in ("MASTER_ADDR", "MASTER_PORT", "PET_RDZV_ENDPOINT")
    }
    process = subprocess.run(command, env=environment | env, capture_output=True, text=True, timeout=60, check=False)
    return parse_facts(process.stdout) | {"code": [{"code": process.returncode}]}


def test_node_finds_its_peers_and_the_rendezvous_port():
    with socket.create_server(("127.0.0.1", 0)) as store:
        endpoint = f"127.0.0.1:{store.getsockname()[1]}"
        facts = run_node("--peers", "localhost", agent="import time; time.sleep(3)", PET_RDZV_ENDPOINT=endpoint)
    assert [(fact["what"], fact["ok"]) for fact in facts["dns"]] == [("localhost", True)]
    assert [(fact["what"], fact["ok"], fact["found"]) for fact in facts["port"]] == [(endpoint, True, "127.0.0.1")]
    assert facts["node"][0]["shm"] > 0
    assert facts["code"][0]["code"] == 0


def test_missing_peer_or_port_ends_the_agent():
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))  # bound, but not listening: connections are refused
        endpoint = f"127.0.0.1:{unused.getsockname()[1]}"
        facts = run_node(
            "--peers", "nobody.invalid", "--patience", "1", agent="import time; time.sleep(60)", PET_RDZV_ENDPOINT=endpoint
        )
    assert (facts["dns"][0]["what"], facts["dns"][0]["ok"]) == ("nobody.invalid", False)
    assert "refused" in facts["port"][0]["why"]
    assert facts["code"][0]["code"] != 0


def test_outliers_are_far_above_the_other_ranks():
    assert collectives.find_outliers({0: 1.0, 1: 1.1, 2: 0.9, 3: 1.0}) == []
    assert collectives.find_outliers({0: 1.0, 1: 1.1, 2: 2.0, 3: 1.0}) == [2]
    assert collectives.find_outliers({0: 1.0, 1: 1.6}) == [1]
    assert collectives.find_outliers({0: 1.0}) == []


def test_links_inside_and_between_nodes_are_compared_separately():
    group = [0, 0, 1, 1, 2, 2]
    between = {1: 10.0, 3: 10.0, 5: 10.0}  # rank -> the first rank of the next node

    def report(rank: int, seconds: float) -> dict[str, Any]:
        return {
            "group": group[rank],
            "node": f"n{group[rank]}",
            "cases": {"send": [{"bytes": 8, "seconds": seconds, "best": seconds, "wrong": ""}]},
        }

    reports = [report(rank, between.get(rank, 1.0)) for rank in range(6)]
    assert collectives.summarize(reports)[0]["outliers"] == []
    reports[3] = report(3, 30.0)
    row = collectives.summarize(reports)[0]
    assert (row["outliers"], row["slowest"]) == ([3], 3)
    lines = collectives.format_table([row], [{**report, "backend": "nccl", "torch": "2"} for report in reports])
    assert any(line.startswith("n1 ") and "*" in line for line in lines)
    assert not any(line.startswith("n0 ") and "*" in line for line in lines)


@pytest.mark.parametrize("size", range(2, 9))
def test_every_link_has_one_turn_without_conflicts(size: int):
    turns = collectives.links(size)
    assert sorted(link for turn in turns for link in turn) == list(range(size))
    for turn in turns:
        ends = [end for link in turn for end in (link, (link + 1) % size)]
        assert len(set(ends)) == len(ends)


def test_file_is_valid_python_3_8():
    assert importlib.util.find_spec("kfjob.trainer.collectives")
    compile(FILE.read_text(), str(FILE), "exec", flags=0, dont_inherit=True)
    import ast

    ast.parse(FILE.read_text(), feature_version=(3, 8))
