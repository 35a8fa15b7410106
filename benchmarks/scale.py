"""`kfjob master` on many simulated pods (KWOK, on the test cluster), compared with one `kubectl logs` call in the same run.

    scripts/cluster up; PYTHONPATH=. python benchmarks/scale.py [WORKERS] [pytorchjob|trainjob]

TrainJobs need `scripts/cluster trainer up` too. The program also measures the same task without kfjob: `kubectl logs -l …
--prefix | grep master_addr=`.
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

from benchmarks.kwok import CACHE, kwok, name_pod, training
from kfjob.kinds.registry import find_kind
from tests.cluster.facts import space

ROUNDS = 5
BY_HAND = 256
"""The largest number of workers for the measurement without kfjob, which takes 0.2 s for each."""
OLD = 75.0
"""Seconds after which a progress line is too old, so that `master` reads every pod."""
KUBECTL = str(CACHE / "bin" / "kubectl")


def seconds(argv: Sequence[str], env: dict[str, str]) -> float:
    """Run a command and return its duration."""
    start = time.perf_counter()
    subprocess.run(argv, env=env, check=True, capture_output=True)
    return time.perf_counter() - start


def most_connections(argv: Sequence[str], env: dict[str, str]) -> int:
    """Run a command and return its highest number of open sockets."""
    maximum = 0
    with subprocess.Popen(argv, env=env, stdout=subprocess.DEVNULL) as child:
        while child.poll() is None:
            with suppress(OSError):  # the process has just ended
                links = [str(entry.readlink()) for entry in Path(f"/proc/{child.pid}/fd").iterdir()]
                maximum = max(maximum, sum(link.startswith("socket:") for link in links))
            time.sleep(0.002)
    return maximum


def main() -> None:
    """Measure, and print the figures."""
    workers = next((int(word) for word in sys.argv[1:] if word.isdecimal()), 256)
    kind = find_kind("TrainJob" if "trainjob" in sys.argv else "PyTorchJob")
    printer = workers * 2 // 3
    pod = name_pod(kind.name, "many", printer)
    with (
        tempfile.TemporaryDirectory() as name,
        space() as namespace,
        kwok(namespace, Path(name), [("many", workers)], kind=kind.name) as cluster,
    ):
        cluster.job("many", workers, training("many", workers, printer=printer, kind=kind.name), kind=kind.name)
        submitted = time.monotonic()
        env = os.environ | {"KUBECONFIG": namespace.facts.kubeconfig, "KFJOB_STATE": f"{name}/state"}
        commands = {
            "kubectl logs": [KUBECTL, "logs", "-n", namespace.name, name_pod(kind.name, "many", 0)],
            "kfjob master": ["kfjob", "master", "many", "-n", namespace.name, "--fresh", "-o", "name"],
            "again": ["kfjob", "master", "many", "-n", namespace.name, "-o", "name"],
        }
        answer = subprocess.run(commands["kfjob master"], env=env, check=True, capture_output=True, text=True).stdout
        assert answer == f"pod/{pod}\n", answer
        durations: dict[str, list[float]] = {command: [] for command in commands}
        for _ in range(ROUNDS):
            for command, argv in commands.items():
                durations[command].append(seconds(argv, env))
        base = median(durations["kubectl logs"])
        for command, values in durations.items():
            print(
                f"{workers} workers, {command:13}: {median(values):.2f} s, {median(values) / base:.1f} times one `kubectl logs`"
            )
        time.sleep(max(0.0, OLD - (time.monotonic() - submitted)))
        all_logs, sockets = seconds(commands["kfjob master"], env), most_connections(commands["kfjob master"], env)
        memory = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
        print(f"{workers} workers, every log is read: {all_logs:.2f} s, at most {sockets} sockets and {memory:.0f} MB")
        if workers > BY_HAND:
            return
        by_hand = f"{KUBECTL} logs -n {namespace.name} -l {kind.select_pods('many')} --prefix --tail -1"
        by_hand += f" --max-log-requests {workers} | grep master_addr="
        print(f"{workers} workers, by hand      : {seconds(['bash', '-c', by_hand], env):.2f} s")


if __name__ == "__main__":
    main()
