"""The programs of examples/data-parallel with every launcher. tests/local/test_system_examples.py runs them as jobs."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BIN = Path(sys.executable).parent
LAUNCHER_VARIABLE = re.compile(r"(RANK|LOCAL_RANK|WORLD_SIZE|MASTER_ADDR|MASTER_PORT|PET_.*|KFJOB_.*)")


def launchers(ranks: int) -> dict[str, list[str]]:
    count = ["--nproc-per-node", str(ranks)]
    return {
        "spawn": [sys.executable, "{program}", "--processes", str(ranks)],
        "torchrun": [str(BIN / "torchrun"), "--standalone", *count, "{program}"],
        "torchrun that forks": [
            str(BIN / "torchrun"),
            "--standalone",
            *count,
            "--start-method=fork",
            "--run-path",
            "{program}",
        ],
        "launch": [sys.executable, "-m", "torch.distributed.launch", "--use-env", "--standalone", *count, "{program}"],
    }


def run(arguments: list[str], program: str) -> list[str]:
    env = {key: value for key, value in os.environ.items() if not LAUNCHER_VARIABLE.fullmatch(key)}
    env |= {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    command = [word.format(program=ROOT / "examples" / "data-parallel" / program) for word in arguments]
    process = subprocess.run(command, env=env, capture_output=True, text=True, timeout=180, check=False, cwd=ROOT)
    assert process.returncode == 0, process.stdout + process.stderr
    return process.stdout.splitlines()


@pytest.mark.long  # tests/local/test_system_examples.py always runs it as a job
@pytest.mark.parametrize(
    ("launcher", "ranks"),
    [
        ("torchrun that forks", 3),
        *((name, 2) for name in ("spawn", "torchrun", "launch")),
    ],
)
def test_collectives_example(launcher: str, ranks: int):
    lines = run(launchers(ranks)[launcher], "collectives.py")
    shown = {line.partition(":")[0].partition(" = ")[0] for line in lines if line and not line.startswith(" ")}
    nine = {"send and recv", "broadcast", "reduce", "scatter", "gather", "all_reduce", "all_gather", "reduce_scatter"}
    assert nine <= shown
    assert sum(line.startswith("  rank ") for line in lines) == 8 * ranks
    assert f"all nine collectives are correct, on {ranks} ranks with gloo" in lines
    sums = lines[lines.index("all_reduce = reduce + broadcast: all ranks get the sum") + 1 :][:ranks]
    total = [ranks * (element + 1) + 10 * sum(range(ranks)) for element in range(ranks)]
    assert all(line.endswith("-> " + " ".join(map(str, total))) for line in sums), sums


def check_ddp(lines: list[str], ranks: int) -> None:
    matches = [re.fullmatch(r"GPU:(\d+) \| Epoch: (\d+) \| Batchsize: (\d+) \| Steps: (\d+)", line) for line in lines]
    rows = sorted(tuple(map(int, match.groups())) for match in matches if match)
    assert lines.count(f"GPU_Count: {ranks}") == 1
    assert rows == sorted((rank, epoch, 32, 4096 // 32 // ranks) for rank in range(ranks) for epoch in range(2))


@pytest.mark.parametrize(
    ("names", "ranks"),
    [
        # tests/local/test_system_examples.py always runs it under torchrun
        pytest.param(["spawn", "torchrun that forks"], 2, marks=pytest.mark.long),
        pytest.param(["spawn", "torchrun", "launch"], 4, marks=pytest.mark.long),  # `launch` is another name of torchrun
    ],
)
def test_ddp_example_prints_the_same_with_every_launcher(names: list[str], ranks: int):
    outputs = []
    for name in names:
        lines = run(launchers(ranks)[name], "ddp.py")
        check_ddp(lines, ranks)
        outputs.append(sorted(line for line in lines if line.startswith(("GPU", "Samples"))))
    assert all(output == outputs[0] for output in outputs)
    beginning, _, loss = outputs[0][-1].rpartition(" ")
    assert beginning == "Samples: 4096 | Loss:"
    assert 0 < float(loss) < 1e-4
