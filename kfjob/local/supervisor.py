"""The process that runs one job on this machine, from submit to its end, independent of the submitter's terminal.

    python -P -m kfjob.local.supervisor FOLDER READY_FD LOCK_FD

It writes a line to READY_FD when it is ready. It holds a lock (flock) on LOCK_FD as long as it runs, so other processes see
whether it runs. SIGTERM ends the job. It imports little (no Pydantic, no client of Kubernetes), because the job waits for it.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from kfjob.backends import folder
from kfjob.joblog.events import ETCD_CONTAINER, NOT_RESTARTED, JobChanged, JobPhase, JobSnapshot, PodPhase
from kfjob.local import launch_spec, reserved_state, temporary
from kfjob.local.agent import Agent
from kfjob.local.check_runner import CheckRunner
from kfjob.local.child import ExitWatcher
from kfjob.local.etcd_server import EtcdServer
from kfjob.local.identity import identify_process, write_identity
from kfjob.local.launch_spec import IDENTITY, READY, REMAINING, STOP, STOPPED_BY_COMMAND, AgentSpec, LaunchSpec
from kfjob.local.processes import Reaper, describe_remaining, kill_all, resume
from kfjob.local.subreaper import become_subreaper
from kfjob.local.volume_mounts import enter_user_namespace

IDLE_GRACE_SECONDS = 3.0
"""Time between SIGTERM and SIGKILL of agents of which none has a worker: they have nothing to save."""
_IDLE_CHECK_SECONDS = 0.5
"""Time between two looks for workers of a job that ends."""
_FOLDER_CHECK_SECONDS = 1.0
"""Time between two looks whether the job's folder still exists."""
_FIRST_RETRY_SECONDS, _LAST_RETRY_SECONDS = 0.1, 5.0
"""Time until the final state is written again on a full disk; it doubles."""


def main() -> None:
    """Detach from the submitter, then supervise."""
    folder_path, ready, lock = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    if os.fork():
        os._exit(0)
    for fd in (ready, lock):
        os.set_inheritable(fd, False)
    spec = launch_spec.read(folder_path)
    reaper = Reaper(f"{spec.uid}/", grace_seconds=spec.grace_seconds, close=[ready, lock])
    write_identity(folder_path / folder.RUN / IDENTITY, identify_process())
    become_subreaper()
    if any(agent.mounts for agent in spec.agents):  # one for all: agents may share memory
        with suppress(OSError):  # then no agent can mount, and each says so in its log
            enter_user_namespace()
    asyncio.run(_supervise(folder_path, spec, reaper, ready))
    reaper.dismiss()


async def _supervise(folder_path: Path, spec: LaunchSpec, reaper: Reaper, ready: int) -> None:
    supervisor = Supervisor(folder_path, spec, reaper)
    os.write(ready, READY)
    os.close(ready)
    await supervisor.run()


class Supervisor:
    """One launch of one job."""

    def __init__(self, folder_path: Path, spec: LaunchSpec, reaper: Reaper) -> None:
        self._folder = folder_path
        self._spec = spec
        self._reaper = reaper
        self._exits = ExitWatcher()
        self._snapshot = folder.read_snapshot(folder_path)
        self._check = CheckRunner(
            spec.failure_check,
            folder_path,
            exits=self._exits,
            on_answer=lambda reason: self._fail(NOT_RESTARTED, reason),
        )
        self._temporary = temporary.make_folders(folder_path, [agent.pod for agent in spec.agents], uid=spec.uid)
        self._agents = [
            Agent(
                self._with_temporary_folder(agent),
                spec,
                pod,
                folder_path=folder_path,
                exits=self._exits,
                reaper=reaper,
                on_failure=self._check.start,
            )
            for agent, pod in zip(spec.agents, self._snapshot.pods, strict=True)
        ]
        self._ending = False
        self._stopped = asyncio.Event()
        self._is_disk_full = False
        self._end = JobChanged(phase=JobPhase.SUCCEEDED)  # the final state
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            asyncio.get_running_loop().add_signal_handler(number, self._stop)

    def _with_temporary_folder(self, agent: AgentSpec) -> AgentSpec:
        """Return the agent with its folder for temporary files, if the disk had space for that."""
        path = self._temporary.get(agent.pod)
        return replace(agent, env={"TMPDIR": path, **agent.env}) if path else agent

    async def run(self) -> None:
        """Start all processes, wait until they have ended, and write the final state."""
        asyncio.get_running_loop().call_later(_FOLDER_CHECK_SECONDS, self._check_folder)
        etcd = await self._start_etcd()
        tasks = {asyncio.create_task(agent.run(self._report)): agent for agent in self._agents}
        watched: set[asyncio.Task[Any]] = {*tasks}
        if etcd is not None:
            watched.add(etcd.ended)
        while any(not task.done() for task in tasks):
            done, watched = await asyncio.wait(watched, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
                if (agent := tasks.get(task)) is None:
                    self._fail("EtcdFailed", "the job's own etcd has ended")
                elif agent.state.phase is PodPhase.FAILED:
                    self._fail("PodFailed", f"pod `{agent.state.pod}` has failed with exit code {agent.state.exit_code}")
        if etcd is not None:
            await etcd.stop()
        remaining = kill_all()
        temporary.remove_folders(self._folder, uid=self._spec.uid, folders=self._temporary.values())
        await self._finish(remaining=remaining)

    async def _start_etcd(self) -> EtcdServer | None:
        """Start the job's own etcd, if it has one, and wait until it answers: agents that start earlier give up."""
        spec = self._spec.etcd
        if spec is None:
            return None
        try:
            etcd = EtcdServer(
                spec,
                uid=self._spec.uid,
                folder_path=self._folder,
                exits=self._exits,
                reaper=self._reaper,
            )
        except OSError as err:
            self._fail("EtcdFailed", f"`{spec.argv[0]}` cannot be started: {err.strerror}")
            return None
        if not await etcd.wait_until_healthy(lambda: self._ending):
            self._fail("EtcdFailed", f"the job's own etcd does not serve; its log is {spec.pod}/{ETCD_CONTAINER}.log")
        return etcd

    def _stop(self) -> None:
        """Handle SIGTERM. If all agents have ended already, their result counts."""
        self._stopped.set()
        if not all(agent.state.phase.ended for agent in self._agents):
            by_command = (self._folder / folder.RUN / STOP).exists()
            message = STOPPED_BY_COMMAND if by_command else "a signal to its supervisor ended the job"
            self._end_agents(JobChanged(phase=JobPhase.STOPPED, reason="Stopped", message=message))

    def _check_folder(self, *, was_missing: bool = False) -> None:
        """End the job if its folder has been deleted: no command finds the job any more."""
        is_missing = _is_missing(self._folder / folder.RUN)
        if is_missing and was_missing:
            self._stopped.set()  # the final state cannot be written
            self._end_agents(JobChanged(phase=JobPhase.STOPPED, reason="Stopped", message="its state folder was deleted"))
        else:
            again = partial(self._check_folder, was_missing=is_missing)
            asyncio.get_running_loop().call_later(_FOLDER_CHECK_SECONDS, again)

    def _fail(self, reason: str, message: str) -> None:
        self._end_agents(JobChanged(phase=JobPhase.FAILED, reason=reason, message=message))

    def _end_agents(self, end: JobChanged) -> None:
        """End all agents that still run. Only the first reason counts: later failures are its consequences."""
        if self._ending:
            return
        self._ending = True
        self._end = end
        self._check.cancel()
        for agent in self._agents:
            agent.end(f"ended, because {end.message}")
        resume(filter(None, (agent.pid for agent in self._agents)), f"{self._spec.uid}/")
        self._report()
        asyncio.get_running_loop().call_later(self._spec.grace_seconds, self._kill_agents)
        asyncio.get_running_loop().call_later(_IDLE_CHECK_SECONDS, self._kill_idle, 0.0)

    def _kill_idle(self, idle_seconds: float) -> None:
        """Kill the agents once none of them has had a worker for a while: an agent in a rendezvous may never see SIGTERM.

        As long as one worker runs, all agents keep the whole grace time: one of them may hold the store of the others.
        """
        running = [agent for agent in self._agents if not agent.state.phase.ended]
        if not running:
            return
        idle_seconds = 0.0 if any(agent.works for agent in running) else idle_seconds + _IDLE_CHECK_SECONDS
        if idle_seconds >= IDLE_GRACE_SECONDS:
            self._kill_agents()
        else:
            asyncio.get_running_loop().call_later(_IDLE_CHECK_SECONDS, self._kill_idle, idle_seconds)

    def _kill_agents(self) -> None:
        for agent in self._agents:
            agent.kill()

    def _report(self) -> None:
        """Write the state of the pods and of the job."""
        job = self._snapshot.job
        pods = tuple(agent.state for agent in self._agents)
        if job.started is None and any(pod.started for pod in pods):
            job = replace(job, phase=JobPhase.RUNNING, started=time.time_ns(), time=time.time_ns())
        self._write(replace(self._snapshot, job=job, pods=pods))

    async def _finish(self, *, remaining: list[int]) -> None:
        """Write the final state, and try again until the disk has space for it or the job is stopped."""
        now = time.time_ns()
        end = replace(self._end, created=self._snapshot.job.created, started=self._snapshot.job.started, ended=now, time=now)
        if remaining:
            end = replace(end, message="; ".join(filter(None, (end.message, describe_remaining(remaining)))))
            with suppress(OSError):  # the disk is full
                folder.replace_file(self._folder / folder.RUN / REMAINING, describe_remaining(remaining))
        delay = _FIRST_RETRY_SECONDS
        while not self._write(replace(self._snapshot, job=end)) and not self._stopped.is_set():
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stopped.wait(), delay)
            delay = min(delay * 2, _LAST_RETRY_SECONDS)

    def _write(self, snapshot: JobSnapshot) -> bool:
        """Write the snapshot; return False if the disk is full. That does not end the job: each change writes the whole."""
        self._snapshot = snapshot
        try:
            folder.write_snapshot(self._folder, snapshot)
        except OSError as err:
            self._is_disk_full = True
            with suppress(OSError):
                reserved_state.write(self._folder, snapshot)
            with suppress(OSError):  # the supervisor's log is on the same disk
                print(f"{folder.STATUS}: {err}", file=sys.stderr, flush=True)  # noqa: T201 - goes to the supervisor's log
            return False
        if self._is_disk_full:
            with suppress(OSError):
                reserved_state.clear(self._folder)
                self._is_disk_full = False
        return True


def _is_missing(path: Path) -> bool:
    """Return whether nothing has this path; False if the file system does not say."""
    try:
        path.stat()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return False


if __name__ == "__main__":
    main()
