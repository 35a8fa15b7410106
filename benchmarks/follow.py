"""The cost of following many pods, compared with `kubectl logs -f` of the same pods, and the number of lost lines.

    scripts/cluster up; PYTHONPATH=. python benchmarks/follow.py [PODS [LINES_PER_SECOND]]

Real pods on the test cluster (one node) print numbered lines without end. `kubectl logs -f -l … --prefix`,
`kfjob logs -f --all` and `kfjob watch` follow them in turn, each for the same time after its first output. CPU is the kernel's
count for the process, including start and end. A line is lost or duplicated if the numbers of a pod's lines do not increase by
one, between the first and the last printed line.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median

from benchmarks.kwok import CACHE
from kfjob.backends.base import JobRef
from kfjob.cluster.backend import KubernetesBackend
from kfjob.joblog.events import PodPhase
from tests.cluster.facts import space, submit

SECONDS = 20.0
ROUNDS = 3
PATIENCE = 420.0
KUBECTL = str(CACHE / "bin" / "kubectl")
PRINTER = """
import sys, time
every, number, due = float(sys.argv[1]), 0, time.monotonic()
while True:
    number += 1
    print(f"line {number} of a:312:1 [0] NCCL INFO Channel 03/0 : 1[1] -> 7[7] via P2P/CUMEM", flush=True)
    due += every
    time.sleep(max(due - time.monotonic(), 0))
"""
_LINE = re.compile(r"(\S*?-(?:worker|master)-\d+)\S*\s.*?line (\d+) of ")


@dataclass(frozen=True)
class Cost:
    """The cost of one run of one command."""

    cpu: float
    lines: int = 0
    pods: int = 0
    wrong: int = 0  # lost or duplicated lines


def measure_command(argv: Sequence[str], env: Mapping[str, str], out: Path) -> Cost:
    """Run a command for a fixed time, and return its cost."""
    with out.open("wb") as file, out.with_suffix(".err").open("wb") as err:
        child = subprocess.Popen(argv, env=env, stdout=file, stderr=err)
        deadline = time.monotonic() + PATIENCE
        while not out.stat().st_size + out.with_suffix(".err").stat().st_size:
            assert time.monotonic() < deadline, f"{argv} prints nothing"
            time.sleep(0.1)
        time.sleep(SECONDS)
        child.send_signal(signal.SIGINT)
        _, _, usage = os.wait4(child.pid, 0)
        child.returncode = 0  # wait4 has collected it
    numbers: dict[str, list[int]] = defaultdict(list)
    for line in out.read_text(encoding="utf-8").splitlines()[:-1]:  # the last line may be incomplete
        if match := _LINE.match(line):
            numbers[match[1]].append(int(match[2]))
    wrong = sum(abs(current - previous - 1) for sequence in numbers.values() for previous, current in pairwise(sequence))
    cpu = usage.ru_utime + usage.ru_stime
    return Cost(cpu, lines=sum(map(len, numbers.values())), pods=len(numbers), wrong=wrong)


def wait_until_running(backend: KubernetesBackend, ref: JobRef, pods: int) -> None:
    """Wait until all pods run."""
    deadline = time.monotonic() + PATIENCE
    while True:
        snapshots = backend.get(ref.name, namespace=ref.namespace).pods
        if sum(pod.phase is PodPhase.RUNNING for pod in snapshots) == pods:
            return
        assert time.monotonic() < deadline, [pod.phase for pod in snapshots]
        time.sleep(2)


def main() -> None:
    """Measure, and print the figures."""
    pods = int(sys.argv[1]) if len(sys.argv) > 1 else 64
    rate = float(sys.argv[2]) if len(sys.argv) > 2 else 2000.0
    with tempfile.TemporaryDirectory() as folder, space() as namespace, namespace.open() as backend:
        ref = submit(backend, namespace.plan("many", ["python3", "-c", PRINTER, str(pods / rate)], nodes=pods))
        wait_until_running(backend, ref, pods)
        env = os.environ | {"KUBECONFIG": namespace.facts.kubeconfig, "KFJOB_STATE": f"{folder}/state"}
        by_label = ["-l", "training.kubeflow.org/job-name=many", "--max-log-requests", str(pods)]
        commands = {
            "kubectl logs -f": [KUBECTL, "logs", "-f", "-n", namespace.name, *by_label, "--prefix", "--tail", "0"],
            "kfjob logs -f": ["kfjob", "logs", "many", "-n", namespace.name, "-f", "--all", "--tail", "0"],
            "kfjob watch": ["kfjob", "watch", "many", "-n", namespace.name],
        }
        costs_by_command: dict[str, list[Cost]] = {command: [] for command in commands}
        for number in range(ROUNDS):
            for command, argv in commands.items():
                costs_by_command[command].append(
                    measure_command(argv, env, Path(folder) / f"{number}-{command.replace(' ', '-')}")
                )
                print(command, costs_by_command[command][-1], flush=True)
    base = median(cost.cpu for cost in costs_by_command["kubectl logs -f"])
    for command, costs in costs_by_command.items():
        cpu, lines = median(cost.cpu for cost in costs), median(cost.lines for cost in costs)
        print(
            f"{command:15}: {cpu:5.2f} s CPU in {SECONDS:.0f} s, {cpu / base:4.1f} times `kubectl logs -f`, {lines:6.0f} lines"
        )


if __name__ == "__main__":
    main()
