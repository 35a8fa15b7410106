"""What the contract suite needs to know of one backend.

A side is made by a context manager `side(folder)` in `local_side.py`, `kubernetes_side.py` or `trainjob_side.py`: it opens the
backend, yields the Side, and on the way out stops every job that a test left behind. `folder` is an empty folder. All tests
use the same side.

The suite says what runs with tiny commands, `[python3, -c, …]` or `[torchrun, …]`; `plan` makes a JobPlan of it and adds what
this backend cannot do without (image, a namespace, volumes that bring torch, a service account). Names are the suite's, unique
for each test.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from kfjob.backends.base import Backend, JobRef
from kfjob.plan import JobPlan


class MakePlan(Protocol):
    """JobPlan of a command; every call is a new launch."""

    def __call__(self, name: str, command: list[str], **spec: Any) -> JobPlan:
        """`spec` are further fields of JobSpec: nodes, env, rendezvous, restarts …"""


@dataclass(frozen=True, kw_only=True)
class Side:
    """One backend, ready for the tests."""

    backend: Backend
    again: Backend  # the same place, opened a second time: what another shell sees
    namespace: str
    plan: MakePlan
    submit: Callable[[JobPlan], JobRef]
    submit_again: Callable[[JobPlan], JobRef]  # through `again`
    apply: Callable[[JobPlan], JobRef]
    scripts: Mapping[str, str]  # name of a file in tests/contract/programs -> its path where the job runs
    find_pod: Callable[[str, int], str]  # name of a job and node rank -> name of its pod, once it is known
    patience: float  # seconds within which a job of one second has surely ended
