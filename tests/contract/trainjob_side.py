"""The Kubernetes backend in the contract suite, with TrainJobs: the names of their pods end in random letters."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kfjob.base.errors import NotFound
from kfjob.cluster.backend import KubernetesBackend
from tests.cluster.facts import PATIENCE, needs_own_cluster, script
from tests.contract.kubernetes_side import open_side
from tests.contract.side import Side


@contextmanager
def side(folder: Path) -> Iterator[Side]:
    """A namespace of its own beside Kubeflow Trainer, which stays installed: it sees TrainJobs only."""
    needs_own_cluster("installs Kubeflow Trainer")
    script("trainer", "up")
    with open_side("TrainJob", find_pod) as ready:
        yield ready


def find_pod(backend: KubernetesBackend, namespace: str, job: str, rank: int) -> str:
    """Return the pod of a node rank, as soon as it exists; for a job that does not exist, a name that no pod has."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        try:
            pods = backend.get(job, namespace=namespace).pods
        except NotFound:
            break
        if found := next((pod.pod for pod in pods if pod.replica_index == rank), ""):
            return found
        if pods and rank >= len(pods):
            break
        time.sleep(0.1)
    return f"{job}-node-0-{rank}-xxxxx"
