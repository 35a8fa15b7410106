"""The guard of one launch on this machine, which `kfjob.guard.__main__` runs as a process beside its supervisor."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable
from pathlib import Path

from kfjob.api.settings import load_current_settings
from kfjob.api.target import make_target
from kfjob.guard.notifications import Notifier
from kfjob.guard.relaunch import retry
from kfjob.guard.run import is_guarded
from kfjob.guard.supervision import Supervision


def guard_launch(folder: Path, say: Callable[[str], None]) -> None:
    """Guard the launch in a folder of the local backend until it has succeeded, is gone, was replaced or was given up."""
    launch, name, namespace = folder.name, folder.parent.name, folder.parents[1].name
    settings = dataclasses.replace(load_current_settings(), state=folder.parents[3], backend="local", namespace=namespace)
    target = make_target(settings, "local")
    notifier = Notifier(os.environ, say)

    def supervise() -> None:
        job = target.get_job(name)
        if job.launch == launch and is_guarded(job):
            Supervision(target, job, notifier, say).run()

    retry(supervise, name, say)
    notifier.join()
