"""The local backend in the contract suite."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from kfjob.backends.base import JobRef
from kfjob.base.errors import NotFound
from kfjob.local.backend import LocalBackend
from kfjob.plan import Context, JobPlan, resolve
from kfjob.spec.job import JobSpec
from tests.contract.side import Side

NAMESPACE = "contract"
PROGRAMS = Path(__file__).parent / "programs"


@contextmanager
def side(folder: Path) -> Iterator[Side]:
    """A state folder of its own."""
    backend, again = LocalBackend(state=folder / "state"), LocalBackend(state=folder / "state")
    launches = itertools.count(1)

    def plan(name: str, command: list[str], **spec: Any) -> JobPlan:
        job = JobSpec.model_validate({"name": name, "command": command, **spec})
        launch = f"launch-{next(launches)}"
        return resolve(job, Context(backend="local", launch=launch, namespace=NAMESPACE, start_folder=str(Path.cwd())))

    scripts = {program.name: str(program) for program in PROGRAMS.iterdir()}
    try:
        yield Side(
            backend=backend,
            again=again,
            namespace=NAMESPACE,
            plan=plan,
            submit=backend.submit,
            submit_again=again.submit,
            apply=backend.apply,
            scripts=scripts,
            find_pod="{}-worker-{}".format,
            patience=60,
        )
    finally:
        for job in backend.list(namespace=NAMESPACE):
            with suppress(NotFound):
                backend.stop(JobRef(backend="local", namespace=NAMESPACE, name=job.name, uid=job.uid), timeout=30)
