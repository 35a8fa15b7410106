"""The Kubernetes backend in the contract suite, with PyTorchJobs."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from kfjob.cluster.backend import KubernetesBackend
from kfjob.plan import JobPlan
from tests.cluster.facts import IN_POD, PATIENCE, PROGRAMS, apply, space, submit
from tests.contract.side import Side

FindPod = Callable[[KubernetesBackend, str, str, int], str]
"""Backend, namespace, name of a job and node rank -> name of its pod."""


@contextmanager
def side(folder: Path) -> Iterator[Side]:
    """A namespace of its own, which takes every job with it when it goes."""
    with open_side("", lambda _, __, job, rank: f"{job}-worker-{rank}") as ready:
        yield ready


@contextmanager
def open_side(kind: str, find_pod: FindPod) -> Iterator[Side]:
    """A namespace for jobs of a kind."""
    launches = itertools.count(1)
    with space() as own, own.open() as backend, own.open() as again:

        def plan(name: str, command: list[str], **spec: Any) -> JobPlan:
            return own.plan(name, command, launch=f"launch-{next(launches)}", kind=kind, **spec)

        yield Side(
            backend=backend,
            again=again,
            namespace=own.name,
            plan=plan,
            submit=partial(submit, backend, kind=kind),
            submit_again=partial(submit, again, kind=kind),
            apply=partial(apply, backend, kind=kind),
            scripts={program.name: f"{IN_POD}/{program.name}" for program in PROGRAMS.iterdir()},
            find_pod=partial(find_pod, again, own.name),
            patience=PATIENCE,
        )
