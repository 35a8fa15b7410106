"""The overhead of the local backend: the wall time of a tiny program with two agents, compared with two plain torchrun agents.

    python benchmarks/local_overhead.py [ROUNDS]

Both run the same program in the same environment, alternating. The result is the ratio of the medians (goal: at most 1.1). The
backend's time is from the submit call to the event for the end of the job. On a busy machine only the seconds before and after
the agents are meaningful.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from kfjob.joblog.events import JobChanged, JobPhase
from kfjob.local import machine
from kfjob.local.backend import LocalBackend
from kfjob.plan import Context, JobPlan, resolve
from kfjob.plan.agent import operator_environment
from kfjob.spec.job import JobSpec

PROGRAM = """
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
total = torch.ones(1)
dist.all_reduce(total)
print("world", int(total.item()), flush=True)
dist.destroy_process_group()
"""


def plan(program: Path, number: int) -> JobPlan:
    spec = JobSpec.model_validate({"name": f"tiny-{number}", "nodes": 2, "command": ["torchrun", str(program)]})
    return resolve(spec, Context(backend="local", launch=f"{number}"))


def run_in_backend(backend: LocalBackend, program: Path, number: int) -> tuple[float, float, float]:
    """Return the total seconds, those before the last agent starts, and those after the last agent ends."""
    start, start_ns = time.perf_counter(), time.time_ns()
    ref = backend.submit(plan(program, number))
    last_event = [event for event in backend.watch(ref) if isinstance(event, JobChanged)][-1]
    duration, ended_ns = time.perf_counter() - start, time.time_ns()
    assert last_event.phase is JobPhase.SUCCEEDED, last_event
    pods = backend.get(ref.name, namespace=ref.namespace).pods
    backend.stop(ref, timeout=60)
    startup_ns = max(pod.started or 0 for pod in pods) - start_ns
    return duration, startup_ns / 1e9, (ended_ns - max(pod.time or 0 for pod in pods)) / 1e9


def run_agents_directly(program: Path, number: int) -> float:
    start = time.perf_counter()
    threads = str(max(1, machine.cores() // 2))
    env = os.environ | operator_environment(plan(program, number)) | {"LOGLEVEL": "INFO", "OMP_NUM_THREADS": threads}
    env |= {"PET_RDZV_ENDPOINT": f"127.0.0.1:{machine.free_port()}", "GLOO_SOCKET_IFNAME": machine.loopback_interface()}
    env |= {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
    torchrun = str(Path(sys.executable).parent / "torchrun")
    agents = []
    for index in range(2):
        conf = f"{env['PET_RDZV_CONF']},is_host={'true' if index == 0 else 'false'}"
        argv = [torchrun, f"--local-addr=127.0.0.{index + 2}", f"--rdzv-conf={conf}", str(program)]
        agents.append(subprocess.Popen(argv, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
    codes = [agent.wait() for agent in agents]
    duration = time.perf_counter() - start
    assert codes == [0, 0], codes
    return duration


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    baseline_seconds: list[float] = []
    backend_seconds: list[float] = []
    startup_seconds: list[float] = []
    shutdown_seconds: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "tiny.py"
        program.write_text(PROGRAM, encoding="utf-8")
        backend = LocalBackend(state=Path(folder) / "state")
        run_agents_directly(program, 0)  # this fills the file cache
        for number in range(1, rounds + 1):
            baseline_seconds.append(run_agents_directly(program, number))
            for values, value in zip(
                (backend_seconds, startup_seconds, shutdown_seconds), run_in_backend(backend, program, number), strict=True
            ):
                values.append(value)
            print(
                f"round {number}: by hand {baseline_seconds[-1]:.2f} s, through the backend {backend_seconds[-1]:.2f} s",
                flush=True,
            )
    base, backend_median = statistics.median(baseline_seconds), statistics.median(backend_seconds)
    ratio = backend_median / base
    print(f"median of {rounds}: by hand {base:.2f} s, through the backend {backend_median:.2f} s")
    startup, shutdown = statistics.median(startup_seconds), statistics.median(shutdown_seconds)
    print(f"of that {startup:.2f} s before the agents run, {shutdown:.2f} s after they have ended")
    print(f"ratio {ratio:.3f} (goal: at most 1.1)")
    sys.exit(ratio > 1.1)


if __name__ == "__main__":
    main()
