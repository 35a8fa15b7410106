"""One agent of a job, in the part of a pod: started, restarted as the job's policy says, ended; and its state all the while."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from msgspec.structs import replace

from kfjob.backends import folder
from kfjob.backends.local.child import Child, Exits
from kfjob.backends.local.launch_spec import AgentSpec, LaunchSpec
from kfjob.backends.local.processes import Guard
from kfjob.events import PodChanged, PodPhase

START_ERROR = 128
"""Exit code of a container that could not be started, as containerd reports it."""


RETRYABLE = 128
"""The first exit code that the operator's policy ExitCode takes for passing (v1.9.3, pkg/util/train/train_util.go)."""


class Backoff:
    """How long to wait before the next restart: not at all, then 10 s doubling to 300 s, anew after a long quiet time.

    Mirrors the kubelet (v1.34 kuberuntime_manager.go `doBackOff`, client-go util/flowcontrol/backoff.go).
    """

    LONGEST = 30  # times the base

    def __init__(self, base_seconds: float) -> None:
        self._base = base_seconds
        self._next = 0.0

    def after(self, ran_seconds: float) -> float:
        """Seconds to wait after a container that ran so long."""
        longest = self._base * self.LONGEST
        if ran_seconds > 2 * longest:
            self._next = 0.0
        wait, self._next = self._next, min(self._next * 2 or self._base, longest)
        return wait


class Agent:
    """One agent and the state of the pod that it stands for."""

    def __init__(
        self, spec: AgentSpec, launch: LaunchSpec, state: PodChanged, *, place: Path, exits: Exits, guard: Guard
    ) -> None:
        self.state = state
        self._spec = spec
        self._launch = launch
        self._place = place
        self._exits = exits
        self._guard = guard
        self._child: Child | None = None
        self._ending = asyncio.Event()
        self._why = ""

    async def run(self, report: Callable[[], None]) -> None:
        """Until it has ended for good. `report` is told when the state is another."""
        backoff = Backoff(self._launch.backoff_seconds)
        while not self._ending.is_set():
            begun = time.monotonic()
            code = await self._container(report)
            if self._ending.is_set() or not self._comes_again(code):
                break
            if wait := backoff.after(time.monotonic() - begun):
                self._change(ready=False, reason="CrashLoopBackOff", message=f"waits {wait:g} s before it is started again")
                report()
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._ending.wait(), wait)
        if self.state.exit_code is None:
            self._change(reason="NotStarted", message=self._why)
        self._change(phase=PodPhase.SUCCEEDED if self.state.exit_code == 0 else PodPhase.FAILED, ready=False)
        report()

    def end(self, why: str) -> None:
        """SIGTERM, and no restart; `why` is what the pod's state will say of it."""
        if not self.state.phase.ended:
            self._why = why
            self._ending.set()
            if self._child is not None:
                self._child.terminate()

    def kill(self) -> None:
        """SIGKILL to all of it, and no restart."""
        self._ending.set()
        if self._child is not None:
            self._child.kill()

    def _comes_again(self, code: int) -> bool:
        policy = self._launch.restart_policy
        return policy == "Always" or (policy == "OnFailure" and code != 0) or (policy == "ExitCode" and code >= RETRYABLE)

    async def _container(self, report: Callable[[], None]) -> int:
        """One life of the agent; its exit code, as a container's."""
        if self._child is not None:
            with suppress(FileNotFoundError):
                self._log().replace(folder.log_path(self._place, self._spec.pod, previous=True))
            self._change(restarts=self.state.restarts + 1)
        mark = f"{self._launch.uid}/{self._spec.pod}"
        kills = _out_of_memory_kills()
        try:
            child = Child(self._spec.argv, self._spec.env, log=self._log(), mark=mark, guard=self._guard, exits=self._exits)
        except (OSError, ValueError) as err:  # ValueError: a NUL in a word or a variable
            message = f"`{self._spec.argv[0]}` cannot be started: {err}"
            self._change(exit_code=START_ERROR, reason="StartError", message=message)
            return START_ERROR
        self._child = child
        container_id = f"local://{mark}/{self.state.restarts}/{child.pid}"
        self._change(phase=PodPhase.RUNNING, ready=True, container_id=container_id, started=time.time_ns())
        self._change(reason="", message="", exit_code=None)  # of the container before
        report()
        return self._ended(await child.end(), kills=_out_of_memory_kills() - kills)

    def _ended(self, code: int, *, kills: int) -> int:
        """Note how the process ended; the exit code, as a container's."""
        message = self._why or (f"ended by {_name(-code)}" if code < 0 else "")
        reason = f"Signal {-code}" if code < 0 else "Error" if code else "Completed"
        if code and kills:  # maybe of another's process, but nothing explains a failure in that moment better
            reason, message = (
                "OOMKilled",
                f"meanwhile this machine ran out of memory (processes that the kernel killed: {kills})",
            )
        exit_code = 128 - code if code < 0 else code
        self._change(exit_code=exit_code, reason=reason, message=message)
        return exit_code

    def _log(self) -> Path:
        return folder.log_path(self._place, self._spec.pod)

    def _change(self, **what: object) -> None:
        self.state = replace(self.state, time=time.time_ns(), **what)


def _name(number: int) -> str:
    with suppress(ValueError):
        return signal.Signals(number).name
    return f"signal {number}"


def _out_of_memory_kills() -> int:
    """How many processes the kernel has ended for want of memory so far; 0 where it does not say (Linux 4.13 does)."""
    with suppress(OSError):
        for line in Path("/proc/vmstat").read_text(encoding="ascii").splitlines():
            if line.startswith("oom_kill "):
                return int(line.split()[1])
    return 0
