"""Random faults of jobs with `recovery` that nobody follows: how many come back, how soon, and what they lose.

    python -m benchmarks.survival [--faults N] [--jobs N] [--seed N] [--torchrun] [--cluster]

Jobs of two pods train at the same time: a chaotic sequence, so that one wrong value changes all later ones. Rank 0 writes a
checkpoint every ten steps. A fault strikes a job at a random moment, once it has a newer checkpoint than at its fault before:

- on this machine: SIGKILL of a training process, of an agent (with `--torchrun`), or of the job's supervisor;
- on the test cluster: the pod of rank 0 or of rank 1 is deleted, or a training process in it is killed, or the guard is killed
  right after a pod was deleted. The guard runs with the rights that `kfjob guard install` gives it.

After each fault the next life must begin at the newest complete checkpoint. At the end no two lives of a job may have run at
the same time, and every value of its curve must equal that of an uninterrupted run, bit for bit. The program prints the number
of each, and the seconds from a fault to the first step of the next life. It exits with 1 if a check failed.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import yaml

from kfjob.backends import folder as job_folder
from kfjob.local import processes
from kfjob.local.identity import read_identity
from kfjob.local.launch_spec import IDENTITY

KFJOB = str(Path(sys.executable).with_name("kfjob"))
PATIENCE = 180.0
"""Seconds after which a job counts as lost."""
FIRST = 0.3
"""First value of the sequence."""
RANDOM = random.Random()  # noqa: S311 - chooses faults
PROGRAM = """
import json, os, pathlib, time
rank = int(os.environ.get("RANK") or os.environ["HOSTNAME"].rsplit("-", 1)[1])
folder = pathlib.Path(os.environ["FOLDER"])
folder.mkdir(parents=True, exist_ok=True)
saved = sorted(folder.glob("step-*"))
step, value = json.loads(saved[-1].read_text()) if saved else (0, FIRST)
def say(text): print(time.strftime("%Y-%m-%d %H:%M:%S I [train.py:1]"), text, flush=True)
life = folder / f"life-{time.time_ns()}"
if rank == 0:
    say(f"Resume step-{step:08d} {folder}" if saved else "Resume none")
while True:
    time.sleep(0.05)
    step, value = step + 1, 3.9 * value * (1 - value)
    if rank: continue
    with life.open("a") as curve: curve.write(f"{time.time_ns()} {step} {value!r}\\n")
    print(f"step {step} loss {value:.6f}", flush=True)
    if step % 10 == 0:
        staged = folder / "staged"
        staged.write_text(json.dumps([step, value]))
        staged.rename(folder / f"step-{step:08d}")
        say(f"Checkpoint step-{step:08d} in 0.1 s {folder}/step-{step:08d}")
""".replace("FIRST", repr(FIRST))


@dataclass
class Job:
    """A job of this run, and what is known of its lives."""

    name: str
    folder: Path  # its checkpoints, and a file for each life of rank 0
    struck_at: int = 0  # newest checkpoint at the fault before

    def find_checkpoint(self) -> int:
        """Return the step of the newest complete checkpoint; 0 without one."""
        return max((int(path.name[5:]) for path in self.folder.glob("step-*")), default=0)

    def list_lives(self) -> list[Path]:
        """Return the files of all lives of rank 0 that made a step, oldest first."""
        return sorted(path for path in self.folder.glob("life-*") if path.stat().st_size)


@dataclass
class Result:
    """What the faults did."""

    faults: Counter[str] = field(default_factory=Counter)
    seconds: list[float] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    lost_steps: int = 0


class Place(Protocol):
    """Where the jobs run."""

    faults: dict[str, Callable[[Job], None]]

    def submit(self, name: str) -> Job:
        """Submit a job and return it."""

    def kfjob(self, *argv: str) -> str:
        """Run a command and return its output."""


def run_kfjob(argv: Sequence[str], env: Mapping[str, str], folder: Path) -> str:
    """Run a command of kfjob and return its output."""
    return subprocess.run([KFJOB, *argv], env=env, cwd=folder, capture_output=True, text=True, check=True).stdout


def make_spec(name: str, folder: str, *, torchrun: bool) -> dict[str, Any]:
    """Return the spec of a job; FOLDER is that of its checkpoints, as the pods see it."""
    return {
        "name": name,
        "nodes": 2,
        "command": "torchrun --start-method=fork fit.py" if torchrun else ["python3", "-u", "-c", PROGRAM],
        "env": {"FOLDER": folder},
        "pod": {"grace": 2},
        "recovery": {},
    }


class Machine:
    """This machine, with a state folder of its own."""

    def __init__(self, folder: Path, *, torchrun: bool) -> None:
        self._folder, self._torchrun = folder, torchrun
        (folder / "fit.py").write_text(PROGRAM)
        own = {"KFJOB_BACKEND": "local", "KFJOB_STATE": str(folder / "state")}
        self._env = {key: value for key, value in os.environ.items() if not key.startswith("KFJOB_")} | own
        self.faults: dict[str, Callable[[Job], None]] = {}
        self.faults |= {"supervisor": self._kill_supervisor, "training process": self._kill_worker}
        if torchrun:
            self.faults["agent"] = self._kill_agent

    def submit(self, name: str) -> Job:
        kept = self._folder / "kept" / name
        spec = make_spec(name, str(kept), torchrun=self._torchrun)
        (self._folder / f"{name}.yaml").write_text(yaml.safe_dump(spec))
        self.kfjob("submit", f"{name}.yaml")
        return Job(name, kept)

    def kfjob(self, *argv: str) -> str:
        return run_kfjob(argv, self._env, self._folder)

    def _find_uid(self, job: Job) -> tuple[Path, str]:
        (launch,) = job_folder.list_folders(self._folder / "state" / "local" / "default" / job.name)
        return launch, job_folder.read_snapshot(launch).uid

    def _kill_supervisor(self, job: Job) -> None:
        launch, _ = self._find_uid(job)
        identity = read_identity(launch / job_folder.RUN / IDENTITY)
        assert identity
        identity.send(signal.SIGKILL)

    def _kill_worker(self, job: Job) -> None:
        self._kill(job, agents=False)

    def _kill_agent(self, job: Job) -> None:
        self._kill(job, agents=True)

    def _kill(self, job: Job, *, agents: bool) -> None:
        """Kill a random agent, or a random process that an agent has started."""
        _, uid = self._find_uid(job)

        def kill() -> bool:
            with suppress(OSError):  # a process has just ended
                pids = processes.find_marked(f"{uid}/")
                parents = {int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1]) for pid in pids}
                chosen = [pid for pid in pids if (pid in parents) == agents] if self._torchrun else pids
                if chosen:
                    os.kill(RANDOM.choice(chosen), signal.SIGKILL)
                    return True
            return False

        wait_until(kill)


class Cluster:
    """A namespace of the test cluster, and a guard."""

    def __init__(self, folder: Path, space: Any) -> None:
        from tests.cluster.facts import script

        self._folder, self._space, self._script = folder, space, script
        own = {"KUBECONFIG": space.facts.kubeconfig, "KFJOB_NAMESPACE": space.name, "KFJOB_STATE": str(folder / "state")}
        self._env = {key: value for key, value in os.environ.items() if not key.startswith("KFJOB_")} | own
        self._shared = Path("/var/lib/kfjob-cluster/volumes/shared") / space.name
        self.kfjob("guard", "install", "--image", "registry.kfjob.test/no-such-image:1")
        config = yaml.safe_load(Path(space.facts.kubeconfig).read_text())
        token = script("kubectl", "-n", space.name, "create", "token", "kfjob-guard", "--duration=4h")
        config["users"] = [{"name": user["name"], "user": {"token": token}} for user in config["users"]]
        (folder / "kubeconfig").write_text(yaml.safe_dump(config))
        self._lock = threading.Lock()  # jobs are attacked from several threads
        self._guard = self._start_guard()
        self.faults: dict[str, Callable[[Job], None]] = {
            "pod of rank 0 deleted": lambda job: self._delete(job, 0),
            "pod of rank 1 deleted": lambda job: self._delete(job, 1),
            "training process": self._kill_worker,
            "guard, and a pod": self._kill_guard,
        }

    def _start_guard(self) -> subprocess.Popen[bytes]:
        env = self._env | {"KUBECONFIG": str(self._folder / "kubeconfig"), "KFJOB_IMAGE_CHECK": "false"}
        with (self._folder / "guard.log").open("ab") as log:
            return subprocess.Popen([KFJOB, "guard", "run"], env=env, cwd=self._folder, stdout=log, stderr=log)

    def submit(self, name: str) -> Job:
        spec = make_spec(name, f"/data/{self._space.name}/{name}", torchrun=False)
        spec |= {"image": self._space.facts.image}
        spec["volumes"] = [{"name": "data", "host_path": "/run/kfjob/shared", "mount_path": "/data"}]
        (self._folder / f"{name}.yaml").write_text(yaml.safe_dump(spec))
        self.kfjob("submit", f"{name}.yaml")
        return Job(name, self._shared / name)

    def kfjob(self, *argv: str) -> str:
        return run_kfjob(argv, self._env, self._folder)

    def _delete(self, job: Job, rank: int) -> None:
        pod = f"{job.name}-worker-{rank}"
        wait_until(lambda: find_program(pod) is not None)  # it may start later than rank 0
        self._script("kubectl", "-n", self._space.name, "delete", "pod", pod, "--wait=false")

    def _kill_worker(self, job: Job) -> None:
        pod = f"{job.name}-worker-{RANDOM.randrange(2)}"
        wait_until(lambda: kill_program(pod))

    def _kill_guard(self, job: Job) -> None:
        self._delete(job, RANDOM.randrange(2))
        time.sleep(RANDOM.uniform(0, 3))
        with self._lock:
            self._guard.kill()
            self._guard.wait()
            self._guard = self._start_guard()

    def close(self) -> None:
        """End the guard, and delete the checkpoints."""
        self._guard.terminate()
        self._guard.wait()
        shutil.rmtree(self._shared, ignore_errors=True)


def find_program(pod: str) -> int | None:
    """Return the process of a pod that runs the program of the jobs; None without one."""
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            is_program = b"3.9 * value" in (path / "cmdline").read_bytes()
            if is_program and f"HOSTNAME={pod}".encode() in (path / "environ").read_bytes().split(b"\0"):
                return int(path.name)
    return None


def kill_program(pod: str) -> bool:
    """Kill the program of a pod, and return whether it runs."""
    pid = find_program(pod)
    if pid is None:
        return False
    os.kill(pid, signal.SIGKILL)
    return True


def wait_until(condition: Callable[[], bool]) -> bool:
    """Return whether the condition came true in time."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def strike(place: Place, job: Job, kind: str, result: Result) -> None:
    """Cause one fault, and wait until the job has made a step in its next life."""
    if not wait_until(lambda: job.find_checkpoint() > job.struck_at):
        result.failures.append(f"{job.name}: no newer checkpoint before a fault")
        return
    time.sleep(RANDOM.uniform(0, 1))
    before, newest = len(job.list_lives()), job.find_checkpoint()
    job.struck_at = newest
    result.faults[kind] += 1
    start = time.time()
    try:
        place.faults[kind](job)
    except AssertionError as err:  # there is nothing to strike: the job did not come back
        result.failures.append(f"{job.name}: {kind}: {err}: {place.kfjob('status', job.name)}")
        return
    if not wait_until(lambda: len(job.list_lives()) > before):
        result.failures.append(f"{job.name}: not resumed after the fault `{kind}`: {place.kfjob('status', job.name)}")
        return
    first = job.list_lives()[before].read_text().split()
    result.seconds.append(int(first[0]) / 1e9 - start)
    lost = newest - (int(first[1]) - 1)
    if lost > 0:
        result.lost_steps += lost
        result.failures.append(f"{job.name}: {lost} steps before the newest checkpoint are lost after `{kind}`")


def check_curve(job: Job, result: Result) -> None:
    """Check that all lives have the values of an uninterrupted run, and that no two ran at the same time."""
    values, value = [FIRST], FIRST
    end_before = 0
    for life in job.list_lives():
        rows = [line.split() for line in life.read_text().splitlines(keepends=True) if line.endswith("\n")]
        if rows and int(rows[0][0]) < end_before:
            result.failures.append(f"{job.name}: two launches ran at the same time: {life.name}")
        for moment, step, number in rows:
            while len(values) <= int(step):
                value = 3.9 * values[-1] * (1 - values[-1])
                values.append(value)
            if float(number) != values[int(step)]:
                result.failures.append(f"{job.name}: step {step} is {number}, uninterrupted it is {values[int(step)]!r}")
                return
            end_before = int(moment)


def run(place: Place, *, faults: int, count: int) -> Result:
    """Let `count` jobs run until `faults` faults have struck them."""
    result = Result()
    jobs = [place.submit(f"survivor-{index}") for index in range(count)]
    kinds = list(place.faults)
    plan = [(number % count, RANDOM.choice(kinds)) for number in range(faults)]

    def attack(index: int) -> None:
        for number, (target, kind) in enumerate(plan):
            if target == index:
                strike(place, jobs[index], kind, result)
                if number % 10 == 0:
                    print(f"fault {number}: {len(result.failures)} failures", flush=True)

    threads = [threading.Thread(target=attack, args=[index]) for index in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for job in jobs:
        status = json.loads(place.kfjob("status", job.name, "-o", "json"))
        print(f"{job.name}: {len(job.list_lives())} lives, checkpoint {job.find_checkpoint()}, {status['phase']}")
        check_curve(job, result)
        place.kfjob("stop", job.name, "--no-archive")
    return result


@contextmanager
def open_place(folder: Path, *, cluster: bool, torchrun: bool) -> Iterator[Place]:
    """Open the place where the jobs run."""
    if not cluster:
        yield Machine(folder, torchrun=torchrun)
        return
    from tests.cluster.facts import space

    with space() as opened:
        place = Cluster(folder, opened)
        try:
            yield place
        finally:
            place.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--faults", type=int, default=20)
    parser.add_argument("--jobs", type=int, default=2, help="jobs that run at the same time")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--torchrun", action="store_true", help="start the program with torchrun (on this machine)")
    parser.add_argument("--cluster", action="store_true", help="on the test cluster")
    options = parser.parse_args()
    RANDOM.seed(options.seed)
    with (
        tempfile.TemporaryDirectory(prefix="kfjob-survival-") as folder,
        open_place(Path(folder), cluster=options.cluster, torchrun=options.torchrun) as place,
    ):
        result = run(place, faults=options.faults, count=options.jobs)
    for failure in result.failures:
        print(failure)
    print(f"{sum(result.faults.values())} faults {dict(result.faults)}")
    lost = f"{result.lost_steps} steps before a checkpoint lost"
    print(f"{len(result.seconds)} resumed, {lost}, {len(result.failures)} failed checks")
    if result.seconds:
        seconds = sorted(result.seconds)
        print(f"fault to the first step of the next life: median {statistics.median(seconds):.1f} s, most {seconds[-1]:.1f} s")
    sys.exit(bool(result.failures))


if __name__ == "__main__":
    main()
