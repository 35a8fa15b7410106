"""Assign addresses, ports, folders, GPUs and programs of this machine to the agents of a plan."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from kfjob.backends import folder
from kfjob.base.errors import Refused
from kfjob.local import etcd, machine
from kfjob.local.interpreter import Interpreter
from kfjob.local.launch_spec import AgentSpec, EtcdSpec, LaunchSpec
from kfjob.local.volume_mounts import can_mount, locate, select_mounts
from kfjob.shell.commands import starts_workers

if TYPE_CHECKING:  # reading a job needs no plan, and importing pydantic takes longer than the rest of such a command
    from kfjob.plan import JobPlan
    from kfjob.plan.agent import AgentProcess
    from kfjob.spec.volumes import Volume


def build_launch_spec(
    plan: JobPlan,
    *,
    uid: str,
    launch: Path,
    volumes: Path,
    backoff_seconds: float,
    failure_check: tuple[str, ...] = (),
    interpreter: Interpreter,
) -> tuple[LaunchSpec, tuple[str, ...]]:
    """Return the launch spec for the supervisor, and the address of every agent. `launch` is the future launch folder.

    Raises:
        Refused: this machine lacks something that the job needs.
    """
    from kfjob.plan.agent import AgentPlace, make_local_agent

    machine.check_capacity(plan)
    own_etcd = etcd.etcd_spec(plan, launch) if plan.own_etcd_image else None
    addresses = _addresses(plan)
    endpoint = _endpoint(plan, addresses[0], own_etcd)
    interface = machine.loopback_interface()
    agents = []
    for index, pod in enumerate(plan.pods):
        role = plan.get_role(index)
        folders = _find_folders(role, pod, launch, volumes)
        placement = AgentPlace(addresses=addresses, endpoint=endpoint, interface=interface, folders=folders)
        agents.append(_make_agent_spec(plan, index, make_local_agent(role, index, placement), interpreter, folders))
    spec = LaunchSpec(
        uid=uid,
        agents=tuple(agents),
        etcd=own_etcd,
        restart_policy=plan.restarts.policy,
        backoff_seconds=backoff_seconds,
        grace_seconds=plan.grace_seconds,
        failure_check=() if plan.restarts.always else failure_check,
    )
    return spec, addresses


def _addresses(plan: JobPlan) -> tuple[str, ...]:
    """Return addresses that sort like the pod names: torch ranks agents by address (on a cluster: pod name)."""
    by_name = dict(zip(sorted(plan.pods), sorted(machine.loopback_addresses(plan.spec.nodes)), strict=True))
    return tuple(by_name[pod] for pod in plan.pods)


def _endpoint(plan: JobPlan, first: str, own_etcd: EtcdSpec | None) -> str:
    if own_etcd:
        return f"127.0.0.1:{own_etcd.port}"
    if plan.rendezvous.backend in ("c10d", "static"):
        return f"{first}:{machine.free_port()}"
    return f"{plan.rendezvous.host}:{plan.rendezvous.port}"


def _find_folders(plan: JobPlan, pod: str, launch: Path, volumes: Path) -> dict[str, str]:
    """Return the folder that each mount path maps to."""
    return {volume.mount_path: str(_find_source(volume, pod, launch, volumes)) for volume in plan.volumes}


def _find_source(volume: Volume, pod: str, launch: Path, volumes: Path) -> Path:
    """Return the folder of a volume in a pod. That of a ConfigMap or a secret never exists."""
    if volume.host_path is not None:
        root = Path(volume.host_path)
    elif volume.claim is not None:
        root = volumes / volume.claim
    else:
        root = launch / folder.RUN / "empty" / pod / volume.name
    return root / (volume.sub_path or "")


def make_volumes(plan: JobPlan, staged: Path, volumes: Path) -> None:
    """Create the folders that `build_launch_spec` names; `staged` is the launch folder before it is renamed.

    Raises:
        Refused: a `host_path` does not exist.
    """
    for volume in (volume for role in plan.roles for volume in role.volumes):
        if volume.host_path is not None and not Path(volume.host_path).exists():
            raise Refused(
                f"volume `{volume.name}`: `{volume.host_path}` is not on this machine",
                hint=f"`mkdir -p {volume.host_path}`, or use `pvc`, which is a folder that kfjob makes",
            )
        for pod in plan.pods if not (volume.config_map or volume.secret) else ():
            folder.make_private(_find_source(volume, pod, staged, volumes))


def _make_agent_spec(
    plan: JobPlan, index: int, agent: AgentProcess, interpreter: Interpreter, folders: Mapping[str, str]
) -> AgentSpec:
    env = dict(agent.env)
    for name, value in (_gpus(plan, index) | _threads(plan)).items():
        env.setdefault(name, value)
    role = plan.get_role(index)
    mounts = _select_mounts(role, agent, interpreter, folders)
    program = _find_agent_program(role, agent, interpreter, mounts)
    env["PATH"] = interpreter.search_path(_search_path(env), agent.argv)
    return AgentSpec(
        pod=agent.name,
        argv=(program, *agent.argv[1:]),
        env=env,
        working_dir=agent.working_dir,
        starts_workers=starts_workers(agent.argv),
        mounts=mounts,
    )


class FirstPod(Struct, frozen=True, kw_only=True, dict=True):
    """The first pod of a plan, as `build_launch_spec` would place it on this machine with the same arguments."""

    plan: JobPlan
    launch: Path
    volumes: Path
    interpreter: Interpreter

    @cached_property
    def folders(self) -> dict[str, str]:
        """The folder of this machine for each mount path."""
        return _find_folders(self.plan, self.plan.pods[0], self.launch, self.volumes)

    @cached_property
    def mounts(self) -> dict[str, str]:
        """Those of `folders` that the pod has at the mount path itself, also for paths in its code."""
        with suppress(Refused):  # the chosen Python is not on this machine
            return _select_mounts(self.plan, self._agent, self.interpreter, self.folders)
        return {}

    @property
    def script(self) -> Path | None:
        """The file of the Python script that the pod runs, also one in a volume; None without one."""
        from kfjob.plan.job_scripts import find_job_script

        script = find_job_script(self._agent.argv)
        return locate(Path(self._agent.working_dir, script), self.mounts) if script else None

    def find_program(self) -> str:
        """Return the file of the program that the pod starts.

        Raises:
            Refused: this machine does not have the program, its script or the folder where it starts.
        """
        mounts = _select_mounts(self.plan, self._agent, self.interpreter, self.folders)
        return _find_agent_program(self.plan, self._agent, self.interpreter, mounts)

    @cached_property
    def _agent(self) -> AgentProcess:
        from kfjob.plan.agent import AgentPlace, make_local_agent

        addresses = ("127.0.0.1",) * self.plan.spec.nodes
        placement = AgentPlace(addresses=addresses, endpoint="127.0.0.1:0", interface="lo", folders=self.folders)
        return make_local_agent(self.plan, 0, placement)


def _select_mounts(plan: JobPlan, agent: AgentProcess, interpreter: Interpreter, folders: Mapping[str, str]) -> dict[str, str]:
    """Return the folders of an agent that can be mounted at their paths: they hide no path that the agent uses.

    A ConfigMap or a secret has no folder.
    """
    mounted = {volume.mount_path for volume in plan.volumes if not (volume.config_map or volume.secret)}
    paths = _list_used_paths(agent, interpreter) if mounted else ()
    used = [path for path in paths if not (path.rstrip("/") in mounted and _is_empty_folder(path))]
    mounts = select_mounts({path: folder for path, folder in folders.items() if path in mounted}, used)
    return mounts if can_mount(tuple(mounts)) else {}


def _is_empty_folder(path: str) -> bool:
    """Return whether a path may be a mount point that an earlier job left."""
    with suppress(OSError), os.scandir(path) as entries:
        return next(entries, None) is None
    return False


def _list_used_paths(agent: AgentProcess, interpreter: Interpreter) -> Iterator[str]:
    """Yield paths of this machine that an agent uses: its folders and programs, and what arguments and variables name."""
    env = {**machine.environment(os.environ), **agent.env, "PWD": "", "OLDPWD": ""}
    path = interpreter.search_path(_search_path(agent.env), agent.argv)
    programs = [Path(file) for name in (agent.argv[0], "python", "python3") if (file := shutil.which(name, path=path))]
    words = (word for value in (path, *env.values()) for word in value.split(os.pathsep))
    yield from (agent.working_dir, tempfile.gettempdir())
    for program in programs:
        yield from map(str, (program, program.with_name("python"), program.parent.parent / "lib"))
    yield from (
        word for word in (*agent.argv, *words) if word.startswith("/") and "\0" not in word and os.access(word, os.F_OK)
    )


def _find_agent_program(plan: JobPlan, agent: AgentProcess, interpreter: Interpreter, mounts: Mapping[str, str]) -> str:
    if not machine.is_in_volume(plan, plan.spec.pod.working_dir or plan.start_folder):  # else `make_volumes` creates the folder
        machine.check_start_folder(plan)
    machine.check_script(agent.argv, folder=agent.working_dir, mounts=mounts)
    return interpreter.find_program(agent.argv, _search_path(agent.env), folder=agent.working_dir)


def _search_path(env: Mapping[str, str]) -> str:
    """Return the PATH of an agent before that of its interpreter is added."""
    return env.get("PATH", os.environ.get("PATH", os.defpath))


def _gpus(plan: JobPlan, index: int) -> dict[str, str]:
    """Return the GPUs that an agent sees: as on a cluster the requested ones; without a request it uses the CPU."""
    each = plan.get_role(index).resources.gpus
    first = sum(plan.get_role(earlier).resources.gpus for earlier in range(index))
    if not each and not plan.processes_per_node.isdecimal():  # `auto` and `gpu` use all GPUs
        return {}
    return {"CUDA_VISIBLE_DEVICES": ",".join(machine.gpus()[first : first + each]) if each else ""}


def _threads(plan: JobPlan) -> dict[str, str]:
    """Return the number of threads per process: the cores divided by the processes; torchrun's default is one thread."""
    if "OMP_NUM_THREADS" in os.environ:
        return {}
    return {"OMP_NUM_THREADS": str(max(1, machine.cores() // (plan.spec.nodes * machine.processes(plan.processes_per_node))))}
