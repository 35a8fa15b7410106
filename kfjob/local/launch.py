"""Write a launch folder from a plan, and start the supervisor that runs it."""

from __future__ import annotations

import fcntl
import os
import select
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from kfjob.backends import folder
from kfjob.base.concurrency import waiting_for
from kfjob.base.errors import BackendError
from kfjob.base.file_access import open_private
from kfjob.joblog.events import JobChanged, JobPhase, JobSnapshot, PodChanged, PodPhase
from kfjob.joblog.observe_config import encode
from kfjob.local import launch_spec, machine, reserved_state
from kfjob.local.installer import find_installer
from kfjob.local.launch_spec import READY, STOP, LaunchSpec

if TYPE_CHECKING:  # reading a job needs no plan, and importing pydantic takes longer than the rest of such a command
    from kfjob.plan import JobPlan

LOCK = "supervisor.lock"
LOG = "supervisor.log"
_START_SECONDS = 60
"""Time that a supervisor has to report its start."""


def write_launch_folder(staged: Path, plan: JobPlan, spec: LaunchSpec, addresses: tuple[str, ...]) -> int:
    """Write the files that a launch needs before it runs; return a file descriptor that holds the folder's lock."""
    pods = [*plan.pods, *([spec.etcd.pod] if spec.etcd else [])]
    for name in (folder.RUN, *pods):
        folder.make_private(staged / name)
    launch_spec.write(staged, spec)
    folder.write_snapshot(staged, _snapshot(plan, spec, addresses))
    reserved_state.reserve(staged, pods=len(pods))
    lock = os.open(staged / folder.RUN / LOCK, os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)
    return lock


def is_supervised(launch: Path) -> bool:
    """Return whether the supervisor of this launch runs: it, and before it the submitter, holds the lock."""
    try:
        lock = os.open(launch / folder.RUN / LOCK, os.O_RDONLY)
    except (FileNotFoundError, NotADirectoryError):
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(lock)
    return False


def start_supervisor(launch: Path, lock: int) -> None:
    """Start the supervisor in its own session, in the current folder, and wait until it is ready.

    Raises:
        BackendError: the supervisor did not start, or another command has stopped the job.
    """
    reading, writing = os.pipe()
    argv = [sys.executable, "-P", "-m", "kfjob.local.supervisor", str(launch), str(writing), str(lock)]
    try:
        try:
            with open_private(launch / folder.RUN / LOG, "ab") as log:
                starter = subprocess.Popen(
                    argv,
                    env=machine.environment(os.environ),
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                    pass_fds=(writing, lock),
                )
        finally:
            os.close(writing)
        starter.wait()  # it forks the supervisor and ends
        with waiting_for("the job's supervisor to start", _START_SECONDS):
            ready, _, _ = select.select([reading], [], [], _START_SECONDS)
        if not ready or os.read(reading, len(READY)) != READY:
            if (launch / folder.RUN / STOP).exists():
                raise BackendError(f"another command stopped job `{launch.parent.name}` while it started")
            log_lines = (launch / folder.RUN / LOG).read_text(encoding="utf-8", errors="replace").strip().splitlines()
            raise BackendError("the job's supervisor did not start", cause=log_lines[-1] if log_lines else "its log is empty")
    finally:
        os.close(reading)


def start_guard(launch: Path, arguments: tuple[str, ...], *, python: Path | None) -> None:
    """Start the guard of a launch in its own session, with the environment and the folder of this command."""
    log = folder.make_private(launch.parents[3] / "guard" / launch.parents[1].name) / f"{launch.parent.name}.log"
    env = os.environ | ({"KFJOB_LOCAL_PYTHON": str(python)} if python else {})
    with open_private(log, "ab") as out:
        starter = subprocess.Popen(
            [sys.executable, "-P", *arguments, str(launch)],
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            start_new_session=True,
        )
    starter.wait()  # it forks the guard and ends


def _snapshot(plan: JobPlan, spec: LaunchSpec, addresses: tuple[str, ...]) -> JobSnapshot:
    now = time.time_ns()
    agent = spec.agents[0]
    installer = find_installer(Path(agent.working_dir, agent.argv[0]))
    node = os.uname().nodename
    pods = tuple(
        PodChanged(
            pod=pod,
            phase=PodPhase.PENDING,
            uid=f"{spec.uid}-{index}",
            replica_index=index,
            node=node,
            ip=address,
            host_ip="127.0.0.1",
            created=now,
            time=now,
        )
        for index, (pod, address) in enumerate(zip(plan.pods, addresses, strict=True))
    )
    return JobSnapshot(
        name=plan.name,
        namespace=plan.namespace,
        job=JobChanged(phase=JobPhase.PENDING, created=now, time=now),
        pods=pods,
        uid=spec.uid,
        launch=plan.launch,
        backend=plan.backend,
        spec=plan.spec_json,
        observe_config=encode(replace(plan.observe_config, installer=installer)),
        submitted_by=plan.submitted_by,
        spec_file=plan.spec_file,
        relaunches=plan.relaunches,
        start_folder=plan.start_folder,
        labels=dict(sorted(plan.spec.labels.items())),
    )
