"""Runs torchrun agents whose ranks are killed or stopped, or that leave and join.

`python torchrun_agents.py SCENARIO SPEC FOLDER COUNT` (SPEC as JSON) prints a JSON line for each event; SCENARIO is `kills`,
`stops` or `elastic`. Each agent is torchrun's own program in a forked process and forks its ranks (`--run-path
--start-method=fork`), so that torch is imported once. A rank runs `python torchrun_agents.py rank SPEC FOLDER NUMBER`, which
writes its events to a file.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

from torch.distributed import run as torchrun

from kfjob.local.machine import free_port
from kfjob.trainer import metrics
from kfjob.trainer.model import build_meta_model
from kfjob.trainer.run import run_rank
from kfjob.trainspec.train_spec import TrainSpec
from tests.trainer.forked import fork, print_result
from tests.trainer.rank_programs import observe

TIMEOUT = 300.0
STEP_SECONDS = 0.05
"""The least time of a step: agents take seconds to meet again, and a rank without a peer computes meanwhile."""
RENDEZVOUS = "last_call_timeout=5,keep_alive_interval=1,keep_alive_max_attempt=10"
"""The first node waits five seconds for the second: alone it would decide the global batch, which two ranks cannot keep.
After ten seconds without a heartbeat a node counts as lost. On a busy machine a living node may miss several."""


class Agents:
    """torchrun agents on simulated nodes with one process each, and the events of their ranks in order."""

    def __init__(self, spec: dict[str, Any], folder: Path, nodes: str, *, restarts: int) -> None:
        folder.mkdir(parents=True)
        self.spec, self.folder, self.events = spec, folder, folder / "events"
        self.events.touch()
        port = free_port()
        self._options = [f"--nnodes={nodes}", "--nproc-per-node=1", f"--max-restarts={restarts}", "--rdzv-backend=c10d"]
        self._options += [f"--rdzv-endpoint=127.0.0.1:{port}", f"--rdzv-id={folder.name}", f"--rdzv-conf={RENDEZVOUS}"]
        self._options += ["--monitor-interval=0.1", "--start-method=fork", "--run-path", str(Path(__file__)), "rank"]
        self.running: dict[int, int] = {}
        self.codes: dict[int, int] = {}

    def start(self, number: int) -> None:
        def run() -> None:
            os.setsid()
            os.environ.update(PET_LOCAL_ADDR=f"127.0.0.{number + 2}", TORCH_DISABLE_SHARE_RDZV_TCP_STORE="1")
            torchrun.main([*self._options, json.dumps(self.spec), str(self.folder), str(number)])

        self.running[number] = fork(run, self.folder / f"{number}.log")

    def read_events(self, kind: str) -> list[dict[str, Any]]:
        lines = (json.loads(line) for line in self.events.read_text().splitlines())
        return [line for line in lines if line["kind"] == kind]

    def losses(self) -> dict[int, str]:
        """Return the loss of every step; a repeated step must have the same loss."""
        losses: dict[int, str] = {}
        for line in self.read_events("loss"):
            assert losses.setdefault(line["step"], line["loss"]) == line["loss"], line
        return losses

    def step(self) -> int:
        return max((line["step"] for line in self.read_events("loss")), default=0)

    def wait(self, condition: Callable[[], Any], description: str) -> Any:
        deadline = time.monotonic() + TIMEOUT
        while True:
            self._reap()
            if result := condition():
                return result
            if time.monotonic() > deadline or not self.running:
                logs = "\n".join(log.read_text()[-3000:] for log in sorted(self.folder.glob("*.log")))
                raise AssertionError(f"waited for {description}\n{self.events.read_text()[-1000:]}\n{logs}")
            time.sleep(0.02)

    def wait_for_step(self, step: int, world_size: int = 0) -> None:
        """Wait for a step that `world_size` ranks have logged; 0 means any number."""

        def is_logged() -> bool:
            return any(line["step"] >= step and world_size in (0, line["world size"]) for line in self.read_events("loss"))

        self.wait(is_logged, f"step {step} of {world_size or 'any'} ranks")

    def end(self) -> dict[int, int]:
        """Wait for all agents, and return their exit codes."""
        self.wait(lambda: not self.running, "all agents to exit")
        return self.codes

    def stop(self) -> None:
        """Send SIGTERM to all agents, and wait for them."""
        for child in self.running.values():
            os.kill(child, signal.SIGTERM)
        self.end()

    def kill(self, number: int) -> None:
        """Kill an agent and its rank, as when a node is lost."""
        pids = [line["pid"] for line in self.read_events("start") if line["agent"] == number]
        for pid in (self.running[number], *pids[-1:]):
            os.kill(pid, signal.SIGKILL)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Kill all remaining agents and ranks."""
        pids = {line["pid"] for line in self.read_events("start")} if self.running else set()
        for pid in (*self.running.values(), *pids):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def _reap(self) -> None:
        for number, child in list(self.running.items()):
            if (status := os.waitpid(child, os.WNOHANG))[0]:
                self.codes[number] = os.waitstatus_to_exitcode(status[1])
                del self.running[number]


def rank(spec: dict[str, Any], folder: Path, agent: int) -> int:
    """Run one rank, and write its start, the checkpoint it resumes from, and its losses."""
    events = os.open(folder / "events", os.O_WRONLY | os.O_APPEND)
    number, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    identity = {"agent": agent, "rank": number, "world size": world_size, "pid": os.getpid()}

    def record(kind: str, **values: Any) -> None:
        os.write(events, (json.dumps({"kind": kind, **identity, **values}) + "\n").encode())

    def record_loss(step: int, **values: Any) -> None:
        if number == 0:
            record("loss", step=step, loss=float(values["loss"]).hex())
        time.sleep(STEP_SECONDS)

    record("start")
    resume = observe(metrics, "resume_line", lambda name, _: record("resume", name=name))
    with observe(metrics, "progress_line", record_loss), resume:
        return run_rank(TrainSpec(**spec), metrics.StartupTimer())


def kills(spec: dict[str, Any], folder: Path, count: int) -> None:
    """Kill a random rank `count` times, with as many restarts allowed. Then train the same steps without a kill."""
    draw = random.Random(3)  # noqa: S311 -- moments of kills
    spec |= {"max_steps": 10**6}
    checkpoint_options = {"checkpoint_dir": str(folder / "checkpoints"), "checkpoint_every": 1}
    with Agents(spec | checkpoint_options, folder / "killed", "2", restarts=count) as agents:
        agents.start(0)
        agents.start(1)
        last_step = 0
        for number in range(count):
            agents.wait_for_step(last_step + draw.randint(1, 5))
            time.sleep(draw.random() * 0.05)  # the random moment is the test
            result = kill_one_rank(agents, draw.randrange(2))
            print_result({"number": number, **result})
            last_step = int((result["resumed"] or "step-0").removeprefix("step-"))
        agents.wait_for_step(last_step + 3)
        agents.stop()
        starts = [sum(line["agent"] == agent for line in agents.read_events("start")) for agent in range(2)]
        losses = agents.losses()
    with Agents(spec, folder / "whole", "2", restarts=0) as agents:
        agents.start(0)
        agents.start(1)
        agents.wait_for_step(max(losses))
        agents.stop()
        print_result({"starts": starts, "steps": len(losses), "same curve": losses.items() <= agents.losses().items()})


def kill_one_rank(agents: Agents, victim: int) -> dict[str, Any]:
    """Kill a rank, and wait until both ranks have resumed."""
    pid = [line["pid"] for line in agents.read_events("start") if line["agent"] == victim][-1]
    resumes = len(agents.read_events("resume"))
    os.kill(pid, signal.SIGKILL)
    began, last_step = time.monotonic(), agents.step()
    agents.wait(lambda: len(agents.read_events("resume")) >= resumes + 2, "both ranks to resume")
    name = agents.read_events("resume")[-1]["name"]
    return {"victim": victim, "step": last_step, "resumed": name, "seconds": time.monotonic() - began}


def stops(spec: dict[str, Any], folder: Path, count: int) -> None:
    """Send SIGTERM to one agent, as when its pod is evicted; then start the same launch again, `count` times."""
    draw = random.Random(4)  # noqa: S311 -- moments of signals
    spec |= {"checkpoint_dir": str(folder / "checkpoints"), "checkpoint_every": 0, "max_steps": 10**6}
    last_step = 0
    for number in range(count):
        with Agents(spec, folder / f"stopped-{number}", "2", restarts=0) as agents:
            agents.start(0)
            agents.start(1)
            agents.wait_for_step(last_step + draw.randint(2, 10))
            time.sleep(draw.random() * 0.05)
            began = time.monotonic()
            os.kill(agents.running[draw.randrange(2)], signal.SIGTERM)
            codes = agents.end()
            outcome = json.loads((folder / "checkpoints" / "outcome.json").read_text())
            seconds, resumed = time.monotonic() - began, agents.read_events("resume")[-1]["name"]
            print_result(
                {
                    "codes": codes,
                    "seconds": seconds,
                    "last": agents.step(),
                    "resumed": resumed,
                    "due": last_step,
                    "outcome": outcome,
                }
            )
            last_step = outcome["step"]


def elastic(spec: dict[str, Any], folder: Path, count: int) -> None:
    """Run two nodes, then one, then two again, `count` times; the rendezvous is on the first node."""
    spec |= {"checkpoint_dir": str(folder / "checkpoints"), "checkpoint_every": 1, "max_steps": 10**6}
    # A busy machine may need several rounds until both ranks have joined, and each costs a restart, so any number is allowed.
    with Agents(spec, folder / "elastic", "1:2", restarts=1000) as agents:
        agents.start(0)
        agents.start(1)
        agents.wait_for_step(3, world_size=2)
        for _ in range(count):
            agents.kill(1)
            agents.wait_for_step(agents.step() + 3, world_size=1)
            agents.start(1)
            agents.wait_for_step(agents.step() + 3, world_size=2)
        agents.stop()
        resumes = [(line["world size"], line["name"]) for line in agents.read_events("resume") if line["rank"] == 0]
        losses = [(line["world size"], line["step"], line["loss"]) for line in agents.read_events("loss")]
        print_result({"resumes": resumes, "losses": losses})


def main(scenario: str, spec: dict[str, Any], folder: Path, number: int) -> None:
    if scenario != "rank":
        build_meta_model(TrainSpec(**spec))  # so that the ranks need not import transformers again
        {"kills": kills, "stops": stops, "elastic": elastic}[scenario](spec, folder, number)
    elif code := rank(spec, folder, number):
        sys.stdout.flush()
        os._exit(code)  # as the trainer exits; after a success torchrun waits for the function to return


if __name__ == "__main__":
    main(sys.argv[1], json.loads(sys.argv[2]), Path(sys.argv[3]), int(sys.argv[4]))
