"""Run a command beside the training in a pod of this machine."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

from kfjob.backends.base import CommandStreams
from kfjob.base.errors import Refused
from kfjob.joblog.events import PodChanged
from kfjob.local.launch_spec import AgentSpec
from kfjob.local.proc import has_proc, read_environment
from kfjob.local.processes import MARK
from kfjob.local.volume_mounts import mount_volumes


def run_command(agent: AgentSpec, pod: PodChanged, command: Sequence[str], streams: CommandStreams) -> int:
    """Run a command with environment, folder and volumes of the pod's agent, and return its exit code.

    It ends with the pod, as a process in a container does. Systems without /proc lack the environment of the supervisor: there
    the command gets that of this process.

    Raises:
        Refused: the agent does not run, or the command cannot be started.
    """
    run, _, pid = pod.container_id.removeprefix("local://").rpartition("/")
    mark = run.rpartition("/")[0]
    environment = {**os.environ, **agent.env, MARK: mark}
    if has_proc():
        pairs = read_environment(int(pid or 0)).decode(errors="surrogateescape").split("\0")
        environment = dict(pair.split("=", 1) for pair in pairs if "=" in pair)
        if environment.get(MARK) != mark:
            cause = pod.reason or "its agent has ended"
            raise Refused(f"pod `{pod.pod}` does not run, so no command can run in it", cause=cause)
    folder = agent.working_dir or None
    with suppress(OSError):
        folder = folder or str(Path(f"/proc/{pid}/cwd").readlink())
    try:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL if streams.stdin is None else streams.stdin,
            stdout=streams.stdout,
            stderr=streams.stderr,
            preexec_fn=partial(mount_volumes, agent.mounts) if agent.mounts else None,  # noqa: PLW1509 - only system calls
        )
    except (OSError, ValueError, subprocess.SubprocessError) as err:
        cause = (err.strerror if isinstance(err, OSError) else None) or str(err)
        raise Refused(f"`{command[0]}` cannot be started in pod `{pod.pod}`", cause=cause) from err
    before = signal.signal(signal.SIGINT, signal.SIG_IGN) if streams.terminal else None  # Ctrl-C is for the command
    try:
        code = process.wait()
    finally:
        if before is not None:
            signal.signal(signal.SIGINT, before)
    return code if code >= 0 else 128 - code
