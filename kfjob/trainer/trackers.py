"""Trackers of a run's metrics: a file of JSON lines, TensorBoard, Weights & Biases, and the status of a TrainJob.

Only the log rank opens them.

A run that resumes after a kill may log the same step again: the later of two lines with one step counts.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

from kfjob.base.errors import KfjobError
from kfjob.trainer import job_status
from kfjob.trainer.metrics import log
from kfjob.trainer.redact import redact_urls
from kfjob.trainer.storage import Checkpoint
from kfjob.trainspec.packages import Package
from kfjob.trainspec.train_spec import TrainSpec

_WRITE_HINT = "use a path in a folder that this user can write to"


class Tracker(Protocol):
    """Records the metrics of a run."""

    field: str
    """The field of the spec that asks for it."""

    def log_metrics(self, step: int, values: Mapping[str, float]) -> None:
        """Record the metrics of a step by name."""

    def log_checkpoint(self, checkpoint: Checkpoint) -> None:
        """Record a complete checkpoint; the thread that wrote it calls this."""

    def close(self) -> None:
        """Flush and close."""


class Trackers:
    """All trackers of a spec; a context manager that closes them."""

    def __init__(self, trackers: list[Tracker]) -> None:
        """Use these trackers."""
        self._trackers = trackers

    def log_metrics(self, step: int, **values: float | None) -> None:
        """Record the metrics that are not None."""
        available = {name: value for name, value in values.items() if value is not None}
        self._call(lambda tracker: tracker.log_metrics(step, available))

    def log_checkpoint(self, checkpoint: Checkpoint) -> None:
        """Record a complete checkpoint."""
        self._call(lambda tracker: tracker.log_checkpoint(checkpoint))

    def __enter__(self) -> Self:
        """Return the trackers."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Close all trackers."""
        self._call(lambda tracker: tracker.close())

    def _call(self, action: Callable[[Tracker], None]) -> None:
        """Call `action` for each tracker. One that fails is left out from then on: training does not end for it."""
        for tracker in self._trackers:
            try:
                action(tracker)
            except Exception as error:  # noqa: BLE001 -- the libraries share no base class
                self._trackers = [other for other in self._trackers if other is not tracker]
                log.warning("Note %s records no more metrics: %s", tracker.field, error or type(error).__name__)


def open_trackers(spec: TrainSpec, *, log_rank: bool, total_steps: int | None = None) -> Trackers:
    """Open the trackers of the spec and of the environment on the log rank, none on the other ranks.

    Raises:
        KfjobError: a package is missing, or a tracker cannot be opened.
    """
    choices: list[tuple[str | None, Callable[[TrainSpec], Tracker]]] = [
        (spec.metrics_file, JsonLinesTracker),
        (spec.tensorboard_dir, TensorBoardTracker),
        (spec.wandb_project, WandbTracker),
    ]
    trackers = [open_tracker(spec) for setting, open_tracker in choices if setting and log_rank]
    if log_rank and os.environ.get(job_status.URL):
        trackers.append(job_status.JobStatusTracker(os.environ, total_steps))
    return Trackers(trackers)


class JsonLinesTracker:
    """Appends a line for each logged step, `{"step": 7, "loss": 5.4, …}`; every line is written atomically."""

    field = "metrics_file"

    def __init__(self, spec: TrainSpec) -> None:
        """Open the file for appending."""
        path = Path(str(spec.metrics_file)).expanduser()
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        except OSError as error:
            raise KfjobError(
                f"cannot write to `{path}`", location="metrics_file", cause=str(error), hint=_WRITE_HINT
            ) from error

    def log_metrics(self, step: int, values: Mapping[str, float]) -> None:
        """Write the line with one call, so that readers and kills never see a part of it."""
        self._write({"step": step, "time": round(time.time(), 3), **values})

    def log_checkpoint(self, checkpoint: Checkpoint) -> None:
        """Write a line with the checkpoint's path."""
        line = {"step": checkpoint.manifest.step, "time": round(time.time(), 3), "checkpoint": checkpoint.path}
        self._write(redact_urls(line))

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)

    def _write(self, values: Mapping[str, object]) -> None:
        line = (json.dumps(values) + "\n").encode()
        if os.write(self._file, line) < len(line):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


class TensorBoardTracker:
    """Writes scalars for TensorBoard."""

    field = "tensorboard_dir"

    def __init__(self, spec: TrainSpec) -> None:
        """Create an events file in the folder."""
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise Package("tensorboard", "tensorboard_dir").make_missing() from error
        folder = Path(str(spec.tensorboard_dir)).expanduser()
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._writer = SummaryWriter(str(folder))
            self._writer.flush()
        except OSError as error:
            raise KfjobError(f"cannot write to `{folder}`", location=self.field, cause=str(error), hint=_WRITE_HINT) from error

    def log_metrics(self, step: int, values: Mapping[str, float]) -> None:
        """Write one scalar for each metric."""
        for name, value in values.items():
            self._writer.add_scalar(name, value, step)

    def log_checkpoint(self, checkpoint: Checkpoint) -> None:
        """Do nothing: TensorBoard has no checkpoints."""

    def close(self) -> None:
        """Flush and close."""
        self._writer.close()


class WandbTracker:
    """A run of Weights & Biases; its key and mode come from the environment (WANDB_API_KEY, WANDB_MODE).

    Restarts with the same checkpoint_dir continue one run.
    """

    field = "wandb_project"

    def __init__(self, spec: TrainSpec) -> None:
        """Start or resume the run."""
        try:
            import wandb
        except ImportError as error:
            raise Package("wandb", "wandb_project").make_missing() from error
        self._wandb, self._log_model = wandb, spec.wandb_log_model
        self._last: Checkpoint | None = None
        run_id = hashlib.sha256(f"{spec.wandb_project} {spec.checkpoint_dir}".encode()).hexdigest()[:12]
        try:
            self._run = wandb.init(
                project=spec.wandb_project,
                entity=spec.wandb_entity,
                id=run_id if spec.checkpoint_dir else None,
                resume="allow" if spec.checkpoint_dir else None,
                config=redact_urls(spec.model_dump(mode="json")),
                settings=wandb.Settings(console="off", silent=True),
            )
        except (wandb.Error, OSError) as error:
            hint = "set WANDB_API_KEY from a secret (`wandb_key` of the spec), or WANDB_MODE=offline"
            raise KfjobError(
                "cannot start a Weights & Biases run", location="wandb_project", cause=str(error), hint=hint
            ) from error
        self._run.define_metric("*", step_metric="step")  # a run that was rolled back logs smaller steps again

    def log_metrics(self, step: int, values: Mapping[str, float]) -> None:
        """Log one row."""
        self._run.log({"step": step, **values})

    def log_checkpoint(self, checkpoint: Checkpoint) -> None:
        """Log the checkpoint as an artifact, now or at the end of the run."""
        self._last = checkpoint
        if self._log_model == "all":
            self._log_artifact(checkpoint)

    def close(self) -> None:
        """Log the last checkpoint if required, and finish the run."""
        if self._log_model == "end" and self._last:
            self._log_artifact(self._last)
        self._run.finish()

    def _log_artifact(self, checkpoint: Checkpoint) -> None:
        artifact = self._wandb.Artifact(f"checkpoint-{self._run.id}", type="model", metadata={"step": checkpoint.manifest.step})
        artifact.add_dir(checkpoint.path)  # a folder: the spec allows wandb_log_model with no other storage
        self._run.log_artifact(artifact, aliases=[checkpoint.name, "latest"])
