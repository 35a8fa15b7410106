"""The local backend in the contract suite."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from kfjob.local.backend import LocalBackend
from kfjob.plan import JobPlan
from tests.contract.side import Side
from tests.local.conftest import NAMESPACE, Here

PROGRAMS = Path(__file__).parent / "programs"


@contextmanager
def side(folder: Path) -> Iterator[Side]:
    """A state folder of its own."""
    backend, again = LocalBackend(state=folder / "state"), LocalBackend(state=folder / "state")
    here = Here(folder / "state", backend)

    def plan(name: str, command: list[str], **spec: Any) -> JobPlan:
        return here.plan(name=name, command=command, **spec)

    try:
        yield Side(
            backend=backend,
            again=again,
            namespace=NAMESPACE,
            plan=plan,
            submit=backend.submit,
            submit_again=again.submit,
            apply=backend.apply,
            scripts={program.name: str(program) for program in PROGRAMS.iterdir()},
            find_pod="{}-worker-{}".format,
            patience=60,
        )
    finally:
        here.end_all()
