"""What the local backend costs: the wall time of a tiny two-agent torchrun program through it, over two plain agents by hand.

    python benchmarks/local_overhead.py [ROUNDS]

Both run the same program in the same environment, alternating; the median of each counts, and their ratio (goal: at most 1.1).
The time through the backend is from the call of submit to the event that says that the job has ended. On a machine that is busy
with other things only the seconds before and after the agents mean something.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from kfjob.backends.local import machine
from kfjob.backends.local.backend import LocalBackend
from kfjob.compile.torchrun import operator_environment
from kfjob.events import JobChanged, JobPhase
from kfjob.plan import Context, JobPlan, resolve
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


def through_the_backend(backend: LocalBackend, program: Path, number: int) -> tuple[float, float, float]:
    """Seconds in all, from submit to the start of the last agent, and from the end of the last agent to its report."""
    begun, begun_ns = time.perf_counter(), time.time_ns()
    ref = backend.submit(plan(program, number))
    last = [event for event in backend.watch(ref) if isinstance(event, JobChanged)][-1]
    took, ended_ns = time.perf_counter() - begun, time.time_ns()
    assert last.phase is JobPhase.SUCCEEDED, last
    pods = backend.get(ref.name, namespace=ref.namespace).pods
    backend.stop(ref, timeout=60)
    before = max(pod.started or 0 for pod in pods) - begun_ns
    return took, before / 1e9, (ended_ns - max(pod.time or 0 for pod in pods)) / 1e9


def by_hand(program: Path, number: int) -> float:
    begun = time.perf_counter()
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
    took = time.perf_counter() - begun
    assert codes == [0, 0], codes
    return took


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    hand: list[float] = []
    ours: list[float] = []
    before: list[float] = []
    after: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "tiny.py"
        program.write_text(PROGRAM, encoding="utf-8")
        backend = LocalBackend(state=Path(folder) / "state")
        by_hand(program, 0)  # fills the file cache
        for number in range(1, rounds + 1):
            hand.append(by_hand(program, number))
            for figures, figure in zip((ours, before, after), through_the_backend(backend, program, number), strict=True):
                figures.append(figure)
            print(f"round {number}: by hand {hand[-1]:.2f} s, through the backend {ours[-1]:.2f} s", flush=True)
    ratio = statistics.median(ours) / statistics.median(hand)
    print(f"median of {rounds}: by hand {statistics.median(hand):.2f} s, through the backend {statistics.median(ours):.2f} s")
    start, finish = statistics.median(before), statistics.median(after)
    print(f"of that {start:.2f} s before the agents run, {finish:.2f} s after they have ended")
    print(f"ratio {ratio:.3f} (goal: at most 1.1)")
    sys.exit(ratio > 1.1)


if __name__ == "__main__":
    main()
