"""The progress of a TrainJob in its status: posted to the address that Kubeflow Trainer puts into the environment of its pods.

Sources: Kubeflow Trainer, docs/proposals/2779-trainjob-progress (feature gate TrainJobStatus, v2.2 and newer); for the names of
the variables, pkg/runtime/framework/plugins/trainjobstatus of v2.3.
"""

from __future__ import annotations

import json
import ssl
import threading
import time
import urllib.request
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

from kfjob.base.parsing import read_document
from kfjob.trainer.metrics import log
from kfjob.trainer.storage import Checkpoint

URL = "KUBEFLOW_TRAINER_SERVER_URL"
CA_FILE = "KUBEFLOW_TRAINER_SERVER_CA_CERT"
TOKEN_FILE = "KUBEFLOW_TRAINER_SERVER_TOKEN"  # noqa: S105 - the name of a variable with a path
PERIOD_SECONDS = 5.0
"""Time between two posts: the API server stores each of them."""
TIMEOUT_SECONDS = 5.0
SHOWN = ("loss", "eval_loss", "lr", "tokens_per_second", "mfu")
"""The metrics that are posted, beside the step."""


class JobStatusTracker:
    """Posts the newest progress from a thread, so that a slow server does not slow the training."""

    field = URL

    def __init__(self, environ: Mapping[str, str], total_steps: int | None) -> None:
        """Start the thread. `total_steps` is the number of the last step; None if it is unknown."""
        self._url, self._token_file = environ[URL], environ.get(TOKEN_FILE, "")
        self._context = ssl.create_default_context(cafile=environ.get(CA_FILE) or None)
        self._total_steps = total_steps
        self._first: tuple[int, float] | None = None  # the first step, and when it was logged
        self._metrics: dict[str, str] = {}
        self._report: dict[str, object] | None = None  # the newest one, until it is posted
        self._changed = threading.Condition()
        self._closed = False
        self._has_warned = False
        self._thread = threading.Thread(target=self._post_all, name="job-status", daemon=True)
        self._thread.start()

    def log_metrics(self, step: int, values: Mapping[str, float]) -> None:
        """Make the report that is posted next."""
        self._first = self._first or (step, time.monotonic())
        self._metrics |= {name: f"{values[name]:.6g}" for name in SHOWN if name in values} | {"step": str(step)}
        report: dict[str, object] = {
            "lastUpdatedTime": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "metrics": [{"name": name, "value": value} for name, value in self._metrics.items()],
        }
        if self._total_steps:
            report["progressPercentage"] = min(100 * step // self._total_steps, 100)
            if (steps := step - self._first[0]) > 0:
                seconds_per_step = (time.monotonic() - self._first[1]) / steps
                report["estimatedRemainingSeconds"] = round(max(self._total_steps - step, 0) * seconds_per_step)
        with self._changed:
            self._report = report
            self._changed.notify()

    def log_checkpoint(self, checkpoint: Checkpoint) -> None:
        """Do nothing: the status has no checkpoints."""

    def close(self) -> None:
        """Post the last report, if the server answers in time."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join(2 * TIMEOUT_SECONDS)

    def _post_all(self) -> None:
        """Post the newest report in each period, until the tracker is closed."""
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._report or self._closed)
                report, self._report = self._report, None
            if report is None:
                return
            self._post(report)
            with self._changed:
                self._changed.wait_for(lambda: self._closed, PERIOD_SECONDS)

    def _post(self, report: dict[str, object]) -> None:
        try:
            headers = {"Content-Type": "application/json"}
            if self._token_file:
                token = read_document(Path(self._token_file)).decode().strip()  # the kubelet renews it
                headers["Authorization"] = f"Bearer {token}"
            body = json.dumps({"trainerStatus": report}).encode()
            request = urllib.request.Request(self._url, data=body, headers=headers, method="POST")  # noqa: S310 - the pod's own
            context = self._context if self._url.startswith("https:") else None
            urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS, context=context).close()  # noqa: S310
        except (OSError, ValueError) as error:  # OSError has all errors of the request
            if not self._has_warned:
                log.warning("Note the status of the TrainJob does not show the progress: %s", error)
            self._has_warned = True
