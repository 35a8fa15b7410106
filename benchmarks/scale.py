"""`kfjob master` on many pods that run nowhere (KWOK, on the test cluster), over one `kubectl logs` call in the same run.

    scripts/cluster up; PYTHONPATH=. python benchmarks/scale.py [WORKERS]

For contrast: what one does without kfjob, `kubectl logs -l … --prefix | grep master_addr=`.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from statistics import median

from tests.cluster.facts import space
from tests.cluster.kwok import CACHE, kwok, training

ROUNDS = 5
BY_HAND = 256
"""Workers up to which the contrast is measured: it takes a fifth of a second for each."""
OLD = 75.0
"""Seconds after which a progress line is too old for an answer from it alone, so that every pod is asked."""
KUBECTL = str(CACHE / "bin" / "kubectl")


def seconds(argv: Sequence[str], env: dict[str, str]) -> float:
    """How long a command takes."""
    began = time.perf_counter()
    subprocess.run(argv, env=env, check=True, capture_output=True)
    return time.perf_counter() - began


def most_connections(argv: Sequence[str], env: dict[str, str]) -> int:
    """How many sockets a command has at once, at most."""
    most = 0
    with subprocess.Popen(argv, env=env, stdout=subprocess.DEVNULL) as child:
        while child.poll() is None:
            with suppress(OSError):  # it has ended in between
                links = [str(entry.readlink()) for entry in Path(f"/proc/{child.pid}/fd").iterdir()]
                most = max(most, sum(link.startswith("socket:") for link in links))
            time.sleep(0.002)
    return most


def main() -> None:
    """Print the figures."""
    workers = int(sys.argv[1]) if len(sys.argv) > 1 else 256
    printer = workers * 2 // 3
    with tempfile.TemporaryDirectory() as name, space() as own, kwok(own, Path(name), [("many", workers)]) as fake:
        fake.job("many", workers, training("many", workers, printer=printer))
        printed = time.monotonic()
        env = os.environ | {"KUBECONFIG": own.facts.kubeconfig, "KFJOB_STATE": f"{name}/state"}
        commands = {
            "kubectl logs": [KUBECTL, "logs", "-n", own.name, "many-worker-0"],
            "kfjob master": ["kfjob", "master", "many", "-n", own.name, "--fresh", "-o", "name"],
            "again": ["kfjob", "master", "many", "-n", own.name, "-o", "name"],
        }
        answer = subprocess.run(commands["kfjob master"], env=env, check=True, capture_output=True, text=True).stdout
        assert answer == f"many-worker-{printer}\n", answer
        took: dict[str, list[float]] = {which: [] for which in commands}
        for _ in range(ROUNDS):
            for which, argv in commands.items():
                took[which].append(seconds(argv, env))
        base = median(took["kubectl logs"])
        for which, values in took.items():
            print(
                f"{workers} workers, {which:13}: {median(values):.2f} s, {median(values) / base:.1f} times one `kubectl logs`"
            )
        time.sleep(max(0.0, OLD - (time.monotonic() - printed)))
        took_all, sockets = seconds(commands["kfjob master"], env), most_connections(commands["kfjob master"], env)
        memory = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
        print(f"{workers} workers, every log is read: {took_all:.2f} s, at most {sockets} sockets and {memory:.0f} MB")
        if workers > BY_HAND:
            return
        by_hand = f"{KUBECTL} logs -n {own.name} -l training.kubeflow.org/job-name=many --prefix --tail -1"
        by_hand += f" --max-log-requests {workers} | grep master_addr="
        print(f"{workers} workers, by hand      : {seconds(['bash', '-c', by_hand], env):.2f} s")


if __name__ == "__main__":
    main()
