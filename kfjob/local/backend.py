"""The local backend: jobs as processes of this machine.

    <state>/local/<namespace>/<job>/<launch>/    jobs that run or have ended (kfjob.backends.folder has the layout)
    <state>/archive/…                            the same for jobs that were stopped
    <state>/volumes/<claim>/                     the folder that stands for a PersistentVolumeClaim

A submit takes a name by renaming a complete folder, so of two submitters one wins and no reader sees an incomplete job. A
supervisor holds a lock as long as it runs; the kernel releases it when the supervisor dies.
"""

from __future__ import annotations

import builtins
import os
import shutil
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from msgspec.structs import replace

from kfjob.backends import folder, log_file
from kfjob.backends.base import CommandStreams, JobRef, LineFilterFactory, LogEvent, LogRange, Requirement
from kfjob.base.capabilities import BackendName
from kfjob.base.errors import AlreadyExists, BackendError, NotFound, Refused
from kfjob.base.text import plural
from kfjob.joblog.events import (
    JobChanged,
    JobPhase,
    JobSnapshot,
    KubernetesEvent,
    LogGap,
    LogLine,
    PodChanged,
    WorkloadStatus,
)
from kfjob.local import etcd, launch_spec, machine, placement
from kfjob.local.followed_log import FollowedLog, to_log_line
from kfjob.local.interpreter import Interpreter, check_packages
from kfjob.local.launch import start_guard, start_supervisor, write_launch_folder
from kfjob.local.launch_spec import LaunchSpec
from kfjob.local.pod_command import run_command
from kfjob.local.staging import open_staging, remove_stale
from kfjob.local.state import read_pod_state, read_state
from kfjob.local.stop import end_processes
from kfjob.objects import names

if TYPE_CHECKING:  # reading a job needs no plan, and importing pydantic takes longer than the rest of such a command
    from kfjob.plan import JobPlan

BACKOFF_SECONDS = 10.0
"""Time before the second restart of a failed pod, as the kubelet's (v1.34 kubelet.go `backOffPeriod`)."""
_POLL_SECONDS = 0.1


class LocalBackend:
    """Implements `MachineBackend` with processes, and files under one state folder."""

    name: ClassVar[BackendName] = "local"

    def __init__(
        self,
        *,
        state: Path,
        backoff_seconds: float = BACKOFF_SECONDS,
        failure_check: tuple[str, ...] = (),
        guard: tuple[str, ...] = (),
        python: Path | None = None,
    ) -> None:
        """`backoff_seconds` is the first delay of the restart policies `OnFailure` and `Always`.

        `failure_check` are the arguments of a Python that prints why a restart of a job is futile, and `guard` those of one
        that guards a job with `recovery`; each gets the folder of the launch. `python` is the Python, or its virtual
        environment, that runs the jobs; None: the first on PATH.

        Raises:
            Refused: other users can change the state folder.
        """
        folder.check_state_folder(state, "local")
        self._jobs = state.absolute() / "local"
        self._archive = state.absolute() / "archive"
        self._volumes = state.absolute() / "volumes"
        self._backoff_seconds = backoff_seconds
        self._failure_check = failure_check
        self._guard = guard
        self._python = python
        self._interpreter = Interpreter(chosen=python)

    def submit(self, plan: JobPlan) -> JobRef:
        """Start the job. It does not depend on the process that submits it."""
        launch = folder.launch_folder(self._jobs, plan.namespace, plan.name, plan.launch)
        if launch.parent.is_dir() and any(launch.parent.iterdir()):
            raise _make_taken(plan.name)
        uid = str(uuid.uuid4())
        spec, addresses = placement.build_launch_spec(
            plan,
            uid=uid,
            launch=launch,
            volumes=self._volumes,
            backoff_seconds=self._backoff_seconds,
            failure_check=self._failure_check,
            interpreter=self._interpreter,
        )
        try:
            self._start(plan, launch, spec, addresses)
        except OSError as err:
            raise BackendError(
                f"the state folder `{self._jobs.parent}` cannot be used",
                cause=str(err),
                hint="KFJOB_STATE=FOLDER chooses another, on a file system that has locks",
            ) from err
        return JobRef(backend="local", namespace=plan.namespace, name=plan.name, uid=uid, launch=plan.launch)

    def _start(self, plan: JobPlan, launch: Path, spec: LaunchSpec, addresses: tuple[str, ...]) -> None:
        """Create the complete launch folder, and start its supervisor."""
        namespace = folder.make_private(launch.parent.parent)
        remove_stale(namespace)
        with open_staging(namespace) as staging:
            staged = folder.make_private(staging / plan.name / plan.launch)
            placement.make_volumes(plan, staged, self._volumes)
            lock = write_launch_folder(staged, plan, spec, addresses)
            try:
                _take_name(staged.parent, launch.parent)
                _supervise(launch, lock)
            finally:
                os.close(lock)
        if self._guard and plan.observe_config.recovery:
            start_guard(launch, self._guard, python=self._python)

    def count_gpus(self) -> int:
        """Return the number of GPUs of this machine that this process may use."""
        return len(machine.gpus())

    def check_requirements(self, plan: JobPlan) -> builtins.list[Requirement]:
        """Return what the plan needs from this machine, and whether it is there; nothing is started."""
        requirements = [_check_requirement("resources", lambda: _check_capacity(plan)), self._check_program(plan)]
        if plan.own_etcd_image:
            requirements.append(_check_requirement("rendezvous", lambda: _check_etcd(plan, self._jobs)))
        return [*requirements, *check_packages(plan, requirements[1].program)]

    def _check_program(self, plan: JobPlan) -> Requirement:
        try:
            program = self.find_first_pod(plan).find_program()
        except Refused as err:
            return Requirement(path="command", problem=err)
        return Requirement(path="command", summary=f"program {program}", program=program)

    def find_first_pod(self, plan: JobPlan) -> placement.FirstPod:
        """Return how this machine would run the first pod of the plan; nothing is started."""
        launch = folder.launch_folder(self._jobs, plan.namespace, plan.name, plan.launch)
        return placement.FirstPod(plan=plan, launch=launch, volumes=self._volumes, interpreter=self._interpreter)

    def apply(self, plan: JobPlan) -> JobRef:
        """Refuse the change: command and environment of a running process cannot change."""
        self.get(plan.name, namespace=plan.namespace)
        raise Refused(
            f"job `{plan.name}` runs on this machine and cannot be changed in place",
            hint=f"`kfjob relaunch {plan.name} --spec FILE` stops it and starts the new spec",
        )

    def record_decision(self, ref: JobRef, reason: str) -> None:
        """Write the reason into the state of the launch; its supervisor writes no more."""
        launch = self._find_launch_of(ref)
        snapshot = launch and read_state(launch)
        if not launch or not snapshot:
            raise _make_not_found(ref.name, ref.namespace)
        folder.write_snapshot(launch, replace(snapshot, guard_decision=reason))

    def get(self, name: str, *, namespace: str) -> JobSnapshot:
        """Return the job and its pods as they are now."""
        if (launch := self._find_launch(name, namespace)) and (snapshot := read_state(launch)):
            return snapshot
        raise _make_not_found(name, namespace)

    def list(self, *, namespace: str | None) -> list[JobSnapshot]:
        """Return all jobs of a namespace, or of all namespaces, oldest first, without their pods."""
        namespaces = folder.list_folders(self._jobs) if namespace is None else [self._jobs / namespace]
        for place in namespaces:
            remove_stale(place)
        jobs = (job for place in namespaces for job in folder.list_folders(place))
        launches = [launch for job in jobs for launch in folder.list_folders(job)]
        snapshots = [replace(snapshot, pods=()) for launch in launches if (snapshot := read_state(launch))]
        return sorted(snapshots, key=lambda snapshot: (snapshot.job.created or 0, snapshot.name))

    def watch(self, ref: JobRef) -> Iterator[JobChanged | PodChanged]:
        """Yield the present state, then every change that lasts longer than the poll interval."""
        reported: dict[str, JobChanged | PodChanged] = {}
        launch = self._find_launch_of(ref)
        while launch is not None and (snapshot := read_state(launch)) is not None:
            pods = {pod.pod: pod for pod in snapshot.pods}
            job = {"": snapshot.job}
            now: dict[str, JobChanged | PodChanged] = {**pods, **job} if snapshot.job.phase.ended else {**job, **pods}
            yield from (event for key, event in now.items() if reported.get(key) != event)
            if snapshot.job.phase.ended:
                return
            reported = now
            time.sleep(_POLL_SECONDS)
        now_ns = time.time_ns()
        yield JobChanged(phase=JobPhase.STOPPED, reason="Stopped", message="the job was removed", ended=now_ns, time=now_ns)

    def events(self, ref: JobRef) -> builtins.list[KubernetesEvent | WorkloadStatus]:
        """Return no events: the states contain everything that the supervisor knows."""
        self.get(ref.name, namespace=ref.namespace)
        return []

    def filtered_logs(
        self,
        ref: JobRef,
        pod: str,
        log_range: LogRange,
        line_filter: LineFilterFactory,  # noqa: ARG002 - reading a file is fast
    ) -> Iterator[LogEvent]:
        """Yield all lines of one pod's process, oldest first."""
        return self.logs(ref, pod, log_range)

    def logs(
        self,
        ref: JobRef,
        pod: str,
        log_range: LogRange,
        *,
        pod_state: PodChanged | None = None,  # noqa: ARG002 - the state is read from a file
    ) -> Iterator[LogLine | LogGap]:
        """Yield the lines of one pod's process, oldest first. The job's own etcd has pod `<job>-etcd` and container `etcd`."""
        launch = self._find_launch_of(ref)
        if launch is None:
            raise _make_not_found(ref.name, ref.namespace)
        if pod not in {entry.name for entry in folder.list_folders(launch)}:
            raise NotFound(f"job `{ref.name}` has no pod `{pod}`")
        path = folder.log_path(launch, pod, log_range.container, previous=log_range.previous)
        if log_range.follow and not log_range.previous:
            return FollowedLog(launch, pod, log_range).lines()
        if not path.is_file():
            name = "log of the process before its last restart" if log_range.previous else f"log file `{path.name}`"
            raise NotFound(f"pod `{pod}` has no {name}", cause=f"`{path}` does not exist")
        state = None if log_range.previous else read_pod_state(launch, pod)
        return (
            to_log_line(pod, log_range, line, state.container_id if state else "")
            for line in log_file.read_lines(path, log_range)
        )

    def execute(self, ref: JobRef, pod: PodChanged, command: Sequence[str], streams: CommandStreams) -> int:
        """Run a command with the environment and the folder of a pod's agent, and return its exit code."""
        launch = self._find_launch_of(ref)
        agent = launch and next((agent for agent in launch_spec.read(launch).agents if agent.pod == pod.pod), None)
        if not agent:
            raise NotFound(f"job `{ref.name}` has no pod `{pod.pod}` in which a command can run")
        return run_command(agent, pod, command, streams)

    def stop(self, ref: JobRef, *, timeout: float) -> None:
        """End the job if it runs, and move its folder to the archive. `timeout` (seconds) should exceed the grace time."""
        launch = self._find_launch_of(ref)
        if launch is None:
            raise _make_not_found(ref.name, ref.namespace)
        remaining = end_processes(launch, ref, timeout=timeout)
        target = folder.launch_folder(self._archive, ref.namespace, ref.name, launch.name)
        if target.exists():
            target = target.with_name(f"{target.name}-{uuid.uuid4().hex[:8]}")
        folder.make_private(target.parent)
        try:
            launch.rename(target)
        except FileNotFoundError as err:
            raise _make_not_found(ref.name, ref.namespace) from err
        _free_name(launch)
        shutil.rmtree(target / folder.RUN, ignore_errors=True)
        if remaining:
            raise BackendError(
                f"job `{ref.name}` is stopped and archived, but not all of its processes have ended",
                cause=remaining,
                hint="it usually waits for a device or a network file system; `ps -o pid,stat,wchan,cmd -p PID` shows more",
            )

    def _find_launch(self, name: str, namespace: str) -> Path | None:
        if not names.DNS_1123.fullmatch(name) or not names.DNS_1123.fullmatch(namespace):
            return None
        remove_stale(self._jobs / namespace)
        return next(iter(folder.list_folders(self._jobs / namespace / name)), None)

    def _find_launch_of(self, ref: JobRef) -> Path | None:
        """Return the folder of this launch."""
        launch = self._find_launch(ref.name, ref.namespace)
        snapshot = launch and read_state(launch)
        return launch if snapshot and snapshot.uid == ref.uid else None


def _check_requirement(path: str, check: Callable[[], str]) -> Requirement:
    try:
        return Requirement(path=path, summary=check())
    except Refused as err:
        return Requirement(path=path, problem=err)


def _check_capacity(plan: JobPlan) -> str:
    machine.check_capacity(plan)
    return f"{plural(machine.cores(), 'core')} and {plural(len(machine.gpus()), 'GPU')} are enough"


def _check_etcd(plan: JobPlan, folder: Path) -> str:
    etcd.etcd_spec(plan, folder)
    return "etcd is on PATH"


def _take_name(staged: Path, job: Path) -> None:
    """Rename the staged folder to the job's, unless that exists; a rename replaces an empty folder, which a stop leaves."""
    try:
        staged.rename(job)
    except OSError as err:
        if job.is_dir():
            raise _make_taken(job.name) from err
        raise


def _supervise(launch: Path, lock: int) -> None:
    """Start the supervisor. If that fails, delete the folder."""
    try:
        start_supervisor(launch, lock)
    except (BackendError, OSError):
        shutil.rmtree(launch, ignore_errors=True)
        _free_name(launch)
        raise


def _free_name(launch: Path) -> None:
    """Delete the job's folder after its launch is gone, unless another job has taken the name."""
    with suppress(OSError):
        launch.parent.rmdir()


def _make_taken(name: str) -> AlreadyExists:
    return AlreadyExists(
        f"job `{name}` exists already on this machine",
        hint=f"`kfjob stop {name}` removes it, `kfjob relaunch {name}` starts it again",
    )


def _make_not_found(name: str, namespace: str) -> NotFound:
    return NotFound(f"there is no job `{name}` in namespace `{namespace}` on this machine", hint="`kfjob list` shows the jobs")
