"""Metrics of the guarded jobs for Prometheus. A scrape reads the views that the guard has at that moment: nothing is stored."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from kfjob.base.errors import UsageError
from kfjob.guard.facts import read_history
from kfjob.guard.notifications import INSTALL
from kfjob.joblog.events import JobPhase
from kfjob.joblog.view.job_view import JobView

if TYPE_CHECKING:
    from wsgiref.simple_server import WSGIServer

    from prometheus_client.core import GaugeMetricFamily

PORT = 9090
"""The port of an installed guard."""
_LABELS = ("namespace", "job")

_FIGURES: Mapping[str, tuple[str, Callable[[JobView], float | None]]] = {
    "step": ("Newest step of the training", lambda view: view.training.run_step),
    "loss": ("Newest loss, as printed", lambda view: view.training.loss),
    "seconds_since_progress": ("Seconds since the newest progress line", lambda view: view.seconds_since_progress),
    "restarts": (
        "Restarts of the training processes by torchrun in this launch",
        lambda view: view.restarts.done if view.restarts else 0,
    ),
    "relaunches": ("Relaunches by the guard that the job remembers", lambda view: len(read_history(view.relaunches))),
}


class JobCollector:
    """Collects the metrics of the jobs in a namespace."""

    def __init__(self, namespace: str, list_views: Callable[[], Mapping[str, JobView]]) -> None:
        """`list_views` returns the current view of each guarded job by its name."""
        self._namespace = namespace
        self._list_views = list_views

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Yield each metric with its values for all jobs; a value that is unknown is left out."""
        from prometheus_client.core import GaugeMetricFamily

        views = self._list_views()
        phases = GaugeMetricFamily(
            "kfjob_job_phase", "1 for the phase of the job, 0 for the others", labels=[*_LABELS, "phase"]
        )
        for name, view in views.items():
            for phase in JobPhase:
                phases.add_metric([self._namespace, name, phase], float(phase is (view.phase or JobPhase.PENDING)))
        yield phases
        for suffix, (text, read) in _FIGURES.items():
            figures = GaugeMetricFamily(f"kfjob_job_{suffix}", text, labels=_LABELS)
            for name, view in views.items():
                if (figure := read(view)) is not None:
                    figures.add_metric([self._namespace, name], figure)
            yield figures

    def describe(self) -> Iterable[GaugeMetricFamily]:
        """Return nothing: the names need no check, because no other collector is registered."""
        return ()


def serve_metrics(port: int, collector: JobCollector) -> WSGIServer:
    """Serve the metrics at `/metrics` of a port of all addresses of this machine, in a thread; return the server.

    Raises:
        UsageError: the port is not free, or the package `prometheus-client` is missing.
    """
    try:
        from prometheus_client import CollectorRegistry, start_http_server
    except ImportError:
        raise UsageError("`--metrics-port` needs the package `prometheus-client`", hint=f"{INSTALL} installs it") from None
    registry = CollectorRegistry()
    registry.register(collector)
    address = "::" if socket.has_dualstack_ipv6() else "0.0.0.0"  # noqa: S104 - Prometheus is another machine
    try:
        server, _ = start_http_server(port, address, registry)
    except OSError as err:
        raise UsageError(f"the metrics cannot use port {port}", cause=err.strerror) from None
    return server
