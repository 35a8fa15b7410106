"""The Kubernetes backend in the contract suite."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from kfjob.plan import JobPlan
from tests.cluster.facts import IN_POD, PATIENCE, PROGRAMS, apply, space, submit
from tests.contract.side import Side


@contextmanager
def side(folder: Path) -> Iterator[Side]:
    """A namespace of its own, which takes every job with it when it goes."""
    launches = itertools.count(1)
    with space() as own, own.open() as backend, own.open() as again:

        def plan(name: str, command: list[str], **spec: Any) -> JobPlan:
            return own.plan(name, command, launch=f"launch-{next(launches)}", **spec)

        scripts = {program.name: f"{IN_POD}/{program.name}" for program in PROGRAMS.iterdir()}
        yield Side(
            backend=backend,
            again=again,
            namespace=own.name,
            plan=plan,
            submit=partial(submit, backend),
            submit_again=partial(submit, again),
            apply=partial(apply, backend),
            scripts=scripts,
            patience=PATIENCE,
        )
