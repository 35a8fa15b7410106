"""CPU time of light kfjob commands, compared with a bare interpreter with the same libraries, alternating in one run.

The baseline is `python -c "from pydantic import BaseModel; import click, yaml"`; the goal is a ratio of at most 2.5.
Usage: python benchmarks/startup.py [rounds]
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

SPEC = "name: tiny\nimage: registry.example/train:1\nnodes: 4\nresources: {gpus: 8}\ncommand: torchrun train.py\n"
BASELINE = "from pydantic import BaseModel; import click, yaml"


def cpu_seconds(argv: list[str], env: dict[str, str]) -> float:
    before = os.times()
    subprocess.run(argv, check=True, stdout=subprocess.DEVNULL, env=env)
    after = os.times()
    return (after.children_user + after.children_system) - (before.children_user + before.children_system)


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 15
    kfjob = str(Path(sys.executable).with_name("kfjob"))
    with tempfile.TemporaryDirectory() as folder:
        spec = Path(folder) / "job.yaml"
        spec.write_text(SPEC, encoding="utf-8")
        # cache byte code for all programs, as in an installed package
        env = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        env["PYTHONPYCACHEPREFIX"] = f"{folder}/cache"
        programs = {
            "baseline": [sys.executable, "-c", BASELINE],
            "kfjob --help": [kfjob, "--help"],
            "kfjob render": [kfjob, "render", str(spec)],
        }
        seconds: dict[str, list[float]] = {name: [] for name in programs}
        for argv in programs.values():
            cpu_seconds(argv, env)
        for _ in range(rounds):
            for name, argv in programs.items():
                seconds[name].append(cpu_seconds(argv, env))
    base = statistics.median(seconds["baseline"])
    for name, values in seconds.items():
        median = statistics.median(values)
        print(f"{name:14} {median:.3f} s CPU, {median / base:.2f} x baseline (median of {rounds})")


if __name__ == "__main__":
    main()
