"""CPU time of light kfjob commands, compared with a bare interpreter with the same libraries, alternating in one run.

The baseline is `python -c "from pydantic import BaseModel; import click, yaml"`. A ratio past its goal has a mark, and the exit
code is then 1.

Usage: python benchmarks/startup.py [rounds] [root of another checkout]
"""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

SPEC = "name: tiny\nimage: registry.example/train:1\nnodes: 4\nresources: {gpus: 8}\ncommand: torchrun train.py\n"
ROOT = Path(__file__).parents[1]


class Program(NamedTuple):
    """Python code, with the arguments of the command line."""

    code: str
    words: tuple[str, ...] = ()
    goal: float | None = None
    """The highest ratio to the baseline that is fine."""


KFJOB = "from kfjob.cli.main import main; main()"
PROGRAMS = {
    "baseline": Program("from pydantic import BaseModel; import click, yaml"),
    "kfjob --help": Program(KFJOB, ("--help",), goal=0.45),
    "kfjob render": Program(KFJOB, ("render", "job.yaml"), goal=2.0),
    "kfjob validate": Program(KFJOB, ("validate", "job.yaml"), goal=2.0),
    "kfjob list": Program(KFJOB, ("list", "--backend", "local"), goal=1.0),
    "kfjob.submit": Program("import kfjob; kfjob.submit", goal=2.2),
}


def measure(program: Program, folder: str, env: dict[str, str]) -> float:
    """Return the CPU seconds of one run."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    argv = [sys.executable, "-P", "-c", program.code, *program.words]
    subprocess.run(argv, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=folder, env=env)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 15
    root = Path(sys.argv[2]).resolve() if len(sys.argv) > 2 else ROOT
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "job.yaml").write_text(SPEC, encoding="utf-8")
        # cache byte code for all programs, as in an installed package
        env = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        env |= {"PYTHONPYCACHEPREFIX": f"{folder}/cache", "PYTHONPATH": str(root), "HOME": folder}
        for program in PROGRAMS.values():
            measure(program, folder, env)
        seconds: dict[str, list[float]] = {name: [] for name in PROGRAMS}
        for _ in range(rounds):
            for name, program in PROGRAMS.items():
                seconds[name].append(measure(program, folder, env))
    means = {name: statistics.fmean(values) for name, values in seconds.items()}
    print(f"{'PROGRAM':16} {'CPU':>7} {'RATIO':>6} {'GOAL':>5}   (mean of {rounds}, {root})")
    is_slow = False
    for name, program in PROGRAMS.items():
        ratio = means[name] / means["baseline"]
        is_past = program.goal is not None and ratio > program.goal
        is_slow = is_slow or is_past
        print(f"{name:16} {means[name]:5.3f} s {ratio:6.2f} {program.goal or '':>5} {'  << past its goal' if is_past else ''}")
    sys.exit(is_slow)


if __name__ == "__main__":
    main()
