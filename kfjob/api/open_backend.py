"""Open a backend. Each import happens where it is used: the HTTP client and its TLS take 0.1 s."""

from __future__ import annotations

from pathlib import Path

from kfjob.backends.base import ClusterBackend, MachineBackend


def open_cluster(*, context: str | None = None) -> ClusterBackend:
    """Return the cluster of a kubeconfig context (default: the current one), or in a pod its own cluster; nothing is sent yet.

    Raises:
        Unreachable: no cluster is configured, or the kubeconfig cannot be read.
        UsageError: the kubeconfig has no such context.
        Forbidden: the kubeconfig's credential plugin gave no credentials.
    """
    from kfjob.cluster.backend import KubernetesBackend

    return KubernetesBackend.from_kubeconfig(context=context)


def open_machine(
    *, state: Path, failure_check: tuple[str, ...] = (), guard: tuple[str, ...] = (), python: Path | None = None
) -> MachineBackend:
    """Return this machine, with its jobs under the folder `state`.

    `failure_check` are the arguments of a Python that prints why a restart of a job is futile, and `guard` those of one that
    guards a job with `recovery`. `python` runs the jobs; None: the first on PATH.
    """
    from kfjob.local.backend import LocalBackend

    return LocalBackend(state=state, failure_check=failure_check, guard=guard, python=python)
