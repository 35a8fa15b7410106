"""The guard of one launch on this machine, which `kfjob.guard.__main__` runs as a process beside its supervisor."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from msgspec.structs import replace

from kfjob.api.lifecycle.relaunch import prepare_relaunch
from kfjob.api.lifecycle.start import start
from kfjob.api.lifecycle.stop import stop
from kfjob.api.reader import LiveReader
from kfjob.api.settings import load_current_settings
from kfjob.api.target import Target, make_target
from kfjob.backends.base import JobRef
from kfjob.base.errors import AlreadyExists
from kfjob.guard.decision import Decision
from kfjob.guard.notifications import Notifier
from kfjob.guard.relaunch import retry
from kfjob.guard.run import is_guarded
from kfjob.guard.supervision import Supervision
from kfjob.joblog.events import JobSnapshot


class MachineActions:
    """Implements `Actions` for a job of this machine. A decision is a line in the guard's log."""

    def __init__(self, target: Target, say: Callable[[str], None]) -> None:
        """`say` receives what the guard's log shows."""
        self._target = target
        self._say = say

    def write_decision(self, ref: JobRef, decision: Decision) -> None:
        """Do nothing: the log has the decision already."""

    def relaunch(self, live: JobSnapshot, *, history: str, avoid: Sequence[str]) -> None:  # noqa: ARG002 - there is one node
        """Archive the launch and start the next one.

        A guard that is killed in between leaves a job in the archive, which `kfjob relaunch` starts again.
        """
        prepared = replace(prepare_relaunch(self._target, live), relaunches=history, file_record=live.spec_file)
        retry(partial(stop, self._target, live.name, uid=live.uid), live.name, self._say)

        def start_next() -> None:
            try:
                reader: LiveReader = start(prepared)
                self._say(f"{live.name}: launch {reader.ref.launch} replaces {live.launch}")
            except AlreadyExists:  # a person has started another one in the meantime
                self._say(f"{live.name}: replaced by another")

        retry(start_next, live.name, self._say)

    def remember(self, ref: JobRef, reason: str) -> None:
        """Write the reason into the state of the launch, which has ended."""
        self._target.machine.record_decision(ref, reason)


def guard_launch(folder: Path, say: Callable[[str], None]) -> None:
    """Guard the launch in a folder of the local backend until it has succeeded, is gone, was replaced or was given up."""
    launch, name, namespace = folder.name, folder.parent.name, folder.parents[1].name
    settings = dataclasses.replace(load_current_settings(), state=folder.parents[3], backend="local", namespace=namespace)
    target = make_target(settings, "local")
    notifier = Notifier(os.environ, say)

    def supervise() -> None:
        job = target.get_job(name)
        if job.launch == launch and is_guarded(job):
            Supervision(target, job, MachineActions(target, say), notifier, say).run()

    retry(supervise, name, say)
    notifier.join()
