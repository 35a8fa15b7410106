"""Run one agent of a job as a pod: start it, restart it by the job's policy, end it, and report its state."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from msgspec.structs import replace

from kfjob.backends import folder
from kfjob.base.text import SIGNAL_BASE, describe_exit, plural
from kfjob.joblog.events import TERMINATING, PodChanged, PodPhase
from kfjob.local.child import ChildProcess, ExitWatcher
from kfjob.local.launch_spec import AgentSpec, LaunchSpec
from kfjob.local.proc import count_out_of_memory_kills
from kfjob.local.processes import Reaper

START_ERROR = 128
"""Exit code of an agent that could not be started; containerd reports the same for a container."""
RETRYABLE = 128
"""The lowest exit code after which the operator's policy `ExitCode` restarts (v1.9.3, pkg/util/train/train_util.go)."""


class RestartBackoff:
    """The time before the next restart: 0, then 10 s doubling to 300 s; a long run resets it.

    Mirrors the kubelet (v1.34 kuberuntime_manager.go `doBackOff`, client-go util/flowcontrol/backoff.go).
    """

    MAX_FACTOR = 30

    def __init__(self, base_seconds: float) -> None:
        self._base = base_seconds
        self._next = 0.0

    def after(self, run_seconds: float) -> float:
        """Return the seconds to wait after an agent that ran for `run_seconds`."""
        longest = self._base * self.MAX_FACTOR
        if run_seconds > 2 * longest:
            self._next = 0.0
        delay, self._next = self._next, min(self._next * 2 or self._base, longest)
        return delay


class Agent:
    """One agent, and the state of its pod."""

    def __init__(
        self,
        spec: AgentSpec,
        launch: LaunchSpec,
        state: PodChanged,
        *,
        folder_path: Path,
        exits: ExitWatcher,
        reaper: Reaper,
        on_failure: Callable[[], None],
    ) -> None:
        """`on_failure` is called after a failure of a worker, or of an agent that starts again."""
        self._on_failure = on_failure
        self.state = state
        self._spec = spec
        self._launch = launch
        self._folder = folder_path
        self._exits = exits
        self._reaper = reaper
        self._child: ChildProcess | None = None
        self._ending = asyncio.Event()
        self._end_reason = ""

    async def run(self, report: Callable[[], None]) -> None:
        """Run the agent until it has ended for good. `report` is called after each change of the state."""
        backoff = RestartBackoff(self._launch.backoff_seconds)
        while not self._ending.is_set():
            begun = time.monotonic()
            code = await self._run_once(report)
            if self._ending.is_set() or not self._restarts_after(code):
                break
            if code:
                self._on_failure()
            if delay := backoff.after(time.monotonic() - begun):
                self._change(
                    ready=False, reason="CrashLoopBackOff", message=f"restarts in {delay:g} s, after {describe_exit(code)}"
                )
                report()
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._ending.wait(), delay)
                    self._change(reason=self.state.last_reason, message=self._end_reason)  # it does not restart
        if self.state.exit_code is None:
            self._change(reason="NotStarted", message=self._end_reason)
        self._change(phase=PodPhase.SUCCEEDED if self.state.exit_code == 0 else PodPhase.FAILED, ready=False)
        report()

    def end(self, reason: str) -> None:
        """Send SIGTERM and do not restart; `reason` becomes the message of the pod's state."""
        if not self.state.phase.ended:
            self._end_reason = reason
            self._ending.set()
            if self._child is not None:
                self._child.terminate()
            if self.state.phase is PodPhase.RUNNING and self.state.ready:
                seconds = f"{self._launch.grace_seconds:g} s"
                message = f"it has received SIGTERM, and gets SIGKILL within {seconds}"
                self._change(reason=TERMINATING, message=message, ended_by_kfjob=True)

    @property
    def works(self) -> bool:
        """Whether the agent, or a worker that it has started, may have something to save before it ends."""
        return self._child is not None and (not self._spec.starts_workers or self._child.has_workers)

    @property
    def pid(self) -> int | None:
        """The agent's process, which leads a process group; None while none runs."""
        return self._child.pid if self._child is not None and self._child.is_running else None

    def kill(self) -> None:
        """Send SIGKILL to the agent and its processes, and do not restart."""
        self._ending.set()
        if self._child is not None:
            self._child.kill()

    def _restarts_after(self, code: int) -> bool:
        policy = self._launch.restart_policy
        return policy == "Always" or (policy == "OnFailure" and code != 0) or (policy == "ExitCode" and code >= RETRYABLE)

    async def _run_once(self, report: Callable[[], None]) -> int:
        """Run the agent to its end; return its exit code in a container's form."""
        if self._child is not None:
            with suppress(FileNotFoundError):
                self._log().replace(folder.log_path(self._folder, self._spec.pod, previous=True))
            self._change(restarts=self.state.restarts + 1)
        mark = f"{self._launch.uid}/{self._spec.pod}"
        kills = count_out_of_memory_kills()
        try:
            child = ChildProcess(
                self._spec.argv,
                self._spec.env,
                log=self._log(),
                mark=mark,
                reaper=self._reaper,
                exits=self._exits,
                working_dir=self._spec.working_dir,
                mounts=self._spec.mounts,
                on_failure=self._on_failure,
            )
        except (OSError, ValueError) as err:  # ValueError: an argument or a variable contains NUL
            message = f"`{self._spec.argv[0]}` cannot be started: {err}"
            self._change(exit_code=START_ERROR, reason="StartError", message=message)
            return START_ERROR
        self._child = child
        container_id = f"local://{mark}/{self.state.restarts}/{child.pid}"
        self._change(
            phase=PodPhase.RUNNING, ready=True, container_id=container_id, started=time.time_ns(), reason="", message=""
        )
        report()
        code = await child.end()
        if child.lost_lines:
            self._change(lost_lines=self.state.lost_lines + child.lost_lines, loss_reason=child.loss_reason)
        return self._record_end(code, kills=count_out_of_memory_kills() - kills)

    def _record_end(self, code: int, *, kills: int) -> int:
        """Set the state after the end of the process; return its exit code in a container's form."""
        message = self._end_reason or (f"ended by {_signal_name(-code)}" if code < 0 else "")
        reason = "Completed" if not code else "Stopped" if self._end_reason else f"Signal {-code}" if code < 0 else "Error"
        if code and kills:  # perhaps another process of this user, but this is the most likely cause
            reason = "OOMKilled"
            message = f"this machine ran out of memory at that time; the kernel killed {plural(kills, 'process', 'processes')}"
        exit_code = SIGNAL_BASE - code if code < 0 else code
        self._change(
            exit_code=exit_code,
            reason=reason,
            message=message,
            last_reason=reason,
            last_ended=time.time_ns(),
            ended_by_kfjob=bool(self._end_reason),
        )
        return exit_code

    def _log(self) -> Path:
        return folder.log_path(self._folder, self._spec.pod)

    def _change(self, **fields: object) -> None:
        self.state = replace(self.state, time=time.time_ns(), **fields)


def _signal_name(number: int) -> str:
    with suppress(ValueError):
        return signal.Signals(number).name
    return f"signal {number}"
