"""torchrun's agents whose ranks die, are told to stop, or are joined by others: what the training makes of it.

`python agents.py WHAT SPEC FOLDER COUNT` (SPEC as JSON) prints a JSON line a happening; WHAT is `deaths`, `stops` or `elastic`.
Each agent is torchrun's own program in a forked process and forks its ranks (`--run-path --start-method=fork`), so that torch
is imported once. A rank runs `python agents.py rank SPEC FOLDER NUMBER`, which says what it does in a file.
"""

from __future__ import annotations

import json
import os
import random
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

from torch.distributed import run as torchrun

from kfjob.spec.train import TrainSpec
from kfjob.trainer import metrics
from kfjob.trainer.model import meta_model
from kfjob.trainer.run import run

PATIENCE = 300.0
HEARTBEATS = "last_call_timeout=1,keep_alive_interval=1,keep_alive_max_attempt=3"


class Agents:
    """torchrun on pretended nodes of one process each; what their ranks say of themselves, in the order of saying."""

    def __init__(self, spec: dict[str, Any], folder: Path, nodes: str, *, restarts: int) -> None:
        folder.mkdir(parents=True)
        self.spec, self.folder, self.said = spec, folder, folder / "said"
        self.said.touch()
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        self._options = [f"--nnodes={nodes}", "--nproc-per-node=1", f"--max-restarts={restarts}", "--rdzv-backend=c10d"]
        self._options += [f"--rdzv-endpoint=127.0.0.1:{port}", f"--rdzv-id={folder.name}", f"--rdzv-conf={HEARTBEATS}"]
        self._options += ["--monitor-interval=0.1", "--start-method=fork", "--run-path", str(Path(__file__)), "rank"]
        self.running: dict[int, int] = {}
        self.codes: dict[int, int] = {}

    def start(self, number: int) -> None:
        child = os.fork()
        if child:
            self.running[number] = child
            return
        try:
            os.setsid()
            log = os.open(self.folder / f"{number}.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            os.dup2(log, 1)
            os.dup2(log, 2)
            os.environ.update(PET_LOCAL_ADDR=f"127.0.0.{number + 2}", TORCH_DISABLE_SHARE_RDZV_TCP_STORE="1")
            torchrun.main([*self._options, json.dumps(self.spec), str(self.folder), str(number)])
            os._exit(0)
        except BaseException:  # noqa: BLE001 -- nothing above may run in a child
            traceback.print_exc()
        finally:
            os._exit(1)

    def heard(self, kind: str) -> list[dict[str, Any]]:
        lines = (json.loads(line) for line in self.said.read_text().splitlines())
        return [line for line in lines if line["kind"] == kind]

    def losses(self) -> dict[int, str]:
        """Of every step; one that was computed again must have been the same."""
        found: dict[int, str] = {}
        for line in self.heard("loss"):
            assert found.setdefault(line["step"], line["loss"]) == line["loss"], line
        return found

    def step(self) -> int:
        return max((line["step"] for line in self.heard("loss")), default=0)

    def wait(self, until: Callable[[], Any], what: str) -> Any:
        deadline = time.monotonic() + PATIENCE
        while not (found := until()):
            self._reap()
            if time.monotonic() > deadline:
                logs = "\n".join(log.read_text()[-3000:] for log in sorted(self.folder.glob("*.log")))
                raise AssertionError(f"waited for {what}\n{self.said.read_text()[-1000:]}\n{logs}")
            time.sleep(0.005)
        return found

    def wait_for_step(self, step: int, world_size: int = 0) -> None:
        """A step that is told by so many ranks."""

        def told() -> bool:
            return any(line["step"] >= step and world_size in (0, line["world size"]) for line in self.heard("loss"))

        self.wait(told, f"step {step} of {world_size or 'any'} ranks")

    def end(self) -> dict[int, int]:
        """The exit codes, when all have ended."""
        self.wait(lambda: not self.running, "the end")
        return self.codes

    def stop(self) -> None:
        """SIGTERM to all, and wait for them."""
        for child in self.running.values():
            os.kill(child, signal.SIGTERM)
        self.end()

    def kill(self, number: int) -> None:
        """A node that is gone: the agent and its rank."""
        pids = [line["pid"] for line in self.heard("start") if line["agent"] == number]
        for pid in (self.running[number], *pids[-1:]):
            os.kill(pid, signal.SIGKILL)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Leave nobody behind, whatever has happened."""
        pids = {line["pid"] for line in self.heard("start")} if self.running else set()
        for pid in (*self.running.values(), *pids):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def _reap(self) -> None:
        for number, child in list(self.running.items()):
            if (status := os.waitpid(child, os.WNOHANG))[0]:
                self.codes[number] = os.waitstatus_to_exitcode(status[1])
                del self.running[number]


def rank(spec: dict[str, Any], folder: Path, agent: int) -> int:
    """One life of one rank, which says when it starts, where it goes on, its losses and its checkpoints."""
    into = os.open(folder / "said", os.O_WRONLY | os.O_APPEND)
    number, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    about = {"agent": agent, "rank": number, "world size": world_size, "pid": os.getpid()}

    def tell(kind: str, **more: Any) -> None:
        os.write(into, (json.dumps({"kind": kind, **about, **more}) + "\n").encode())

    progress, resume, checkpoint = metrics.progress, metrics.resume, metrics.checkpoint

    def heard(step: int, **figures: Any) -> str:
        if number == 0:
            tell("loss", step=step, loss=float(figures["loss"]).hex())
        return progress(step, **figures)

    def resumed(name: str | None, path: str | None) -> str:
        tell("resume", name=name)
        return resume(name, path)

    def kept(name: str, path: str, seconds: float) -> str:
        tell("checkpoint", name=name)
        return checkpoint(name, path, seconds)

    metrics.progress, metrics.resume, metrics.checkpoint = heard, resumed, kept
    tell("start")
    return run(TrainSpec(**spec), metrics.Startup())


def deaths(spec: dict[str, Any], folder: Path, count: int) -> None:
    """So many kills of one rank or the other; torchrun may restart them just as often. Then as many steps without any."""
    draw = random.Random(3)  # noqa: S311 -- moments of kills
    spec |= {"max_steps": 10**6}
    kept = {"checkpoint_dir": str(folder / "checkpoints"), "checkpoint_every": 1}
    with Agents(spec | kept, folder / "killed", "2", restarts=count) as agents:
        agents.start(0)
        agents.start(1)
        seen = 0
        for number in range(count):
            agents.wait_for_step(seen + draw.randint(1, 5))
            time.sleep(draw.random() * 0.05)  # the moment is the test
            result = one_death(agents, draw.randrange(2))
            say({"number": number, **result})
            seen = int((result["resumed"] or "step-0").removeprefix("step-"))
        agents.wait_for_step(seen + 3)
        agents.stop()
        starts = [sum(line["agent"] == agent for line in agents.heard("start")) for agent in range(2)]
        losses = agents.losses()
    with Agents(spec, folder / "whole", "2", restarts=0) as agents:
        agents.start(0)
        agents.start(1)
        agents.wait_for_step(max(losses))
        agents.stop()
        say({"starts": starts, "steps": len(losses), "same curve": losses.items() <= agents.losses().items()})


def one_death(agents: Agents, victim: int) -> dict[str, Any]:
    """Kill a rank, and wait until both are back."""
    pid, lives = [line["pid"] for line in agents.heard("start") if line["agent"] == victim][-1], len(agents.heard("resume"))
    os.kill(pid, signal.SIGKILL)
    began, seen = time.monotonic(), agents.step()
    agents.wait(lambda: len(agents.heard("resume")) >= lives + 2, "both ranks")
    name = agents.heard("resume")[-1]["name"]
    return {"victim": victim, "step": seen, "resumed": name, "seconds": time.monotonic() - began}


def stops(spec: dict[str, Any], folder: Path, count: int) -> None:
    """SIGTERM to one agent, as when its pod is taken away; then the same launch once more."""
    draw = random.Random(4)  # noqa: S311 -- moments of signals
    spec |= {"checkpoint_dir": str(folder / "checkpoints"), "checkpoint_every": 0, "max_steps": 10**6}
    seen = 0
    for number in range(count):
        with Agents(spec, folder / f"stopped-{number}", "2", restarts=0) as agents:
            agents.start(0)
            agents.start(1)
            agents.wait_for_step(seen + draw.randint(2, 10))
            time.sleep(draw.random() * 0.05)
            began = time.monotonic()
            os.kill(agents.running[draw.randrange(2)], signal.SIGTERM)
            codes = agents.end()
            outcome = json.loads((folder / "checkpoints" / "outcome.json").read_text())
            seconds, begun = time.monotonic() - began, agents.heard("resume")[-1]["name"]
            say({"codes": codes, "seconds": seconds, "last": agents.step(), "resumed": begun, "due": seen, "outcome": outcome})
            seen = outcome["step"]


def elastic(spec: dict[str, Any], folder: Path, count: int) -> None:
    """Two nodes, then one, then two again, so many times; the rendezvous lives on the first."""
    spec |= {"checkpoint_dir": str(folder / "checkpoints"), "checkpoint_every": 1, "max_steps": 10**6}
    with Agents(spec, folder / "elastic", "1:2", restarts=4 * count) as agents:
        agents.start(0)
        agents.start(1)
        agents.wait_for_step(3, world_size=2)
        for _ in range(count):
            agents.kill(1)
            agents.wait_for_step(agents.step() + 3, world_size=1)
            agents.start(1)
            agents.wait_for_step(agents.step() + 3, world_size=2)
        agents.stop()
        resumes = [(line["world size"], line["name"]) for line in agents.heard("resume") if line["rank"] == 0]
        losses = [(line["world size"], line["step"], line["loss"]) for line in agents.heard("loss")]
        say({"resumes": resumes, "losses": losses})


def say(result: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(result) + "\n")
    sys.stdout.flush()


def main(what: str, spec: dict[str, Any], folder: Path, number: int) -> None:
    if what != "rank":
        meta_model(TrainSpec(**spec))  # imports what the ranks would each import for themselves
        {"deaths": deaths, "stops": stops, "elastic": elastic}[what](spec, folder, number)
    elif code := rank(spec, folder, number):
        sys.stdout.flush()
        os._exit(code)  # as the trainer ends; after a success torchrun waits for a return


if __name__ == "__main__":
    main(sys.argv[1], json.loads(sys.argv[2]), Path(sys.argv[3]), int(sys.argv[4]))
