"""Where the figures of a run go beside its log: a file of JSON lines, TensorBoard, Weights & Biases. On the log rank only.

A run that goes on after a kill may tell the same steps once more: of two lines with one step the later counts.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

from kfjob.errors import KfjobError
from kfjob.spec.train import TrainSpec
from kfjob.trainer.checkpoint import Checkpoint
from kfjob.trainer.storage import Folder


class Report(Protocol):
    """One place."""

    def figures(self, step: int, values: Mapping[str, float]) -> None:
        """Numbers of a step, by name."""

    def checkpoint(self, saved: Checkpoint) -> None:
        """One is complete; called in the thread that wrote it."""

    def close(self) -> None:
        """There is nothing more to come."""


class Reports:
    """All places that a spec names; a context manager."""

    def __init__(self, places: list[Report]) -> None:
        """Tell all of these."""
        self._places = places

    def figures(self, step: int, **values: float | None) -> None:
        """Tell the numbers that are known."""
        known = {name: value for name, value in values.items() if value is not None}
        for place in self._places:
            place.figures(step, known)

    def checkpoint(self, saved: Checkpoint) -> None:
        """Tell of a complete checkpoint."""
        for place in self._places:
            place.checkpoint(saved)

    def __enter__(self) -> Self:
        """Nothing to do."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Close all."""
        for place in self._places:
            place.close()


def open_reports(spec: TrainSpec, *, log_rank: bool) -> Reports:
    """The places that the spec names, none on other ranks.

    Raises:
        KfjobError: a package is missing, or a place cannot be opened.
    """
    makers: list[tuple[str | None, Callable[[TrainSpec], Report]]] = [
        (spec.metrics_file, JsonLines),
        (spec.tensorboard_dir, TensorBoard),
        (spec.wandb_project, WeightsAndBiases),
    ]
    return Reports([make(spec) for wanted, make in makers if wanted and log_rank])


class JsonLines:
    """A line for each step that is told, `{"step": 7, "loss": 5.4, …}`, whole as soon as it is there."""

    def __init__(self, spec: TrainSpec) -> None:
        """Append to the file."""
        path = Path(str(spec.metrics_file)).expanduser()
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        except OSError as error:
            raise KfjobError(f"cannot write to `{path}`", location="metrics_file", cause=str(error)) from error

    def figures(self, step: int, values: Mapping[str, float]) -> None:
        """One write for a line: readers and kills see all of it or nothing."""
        os.write(self._file, (json.dumps({"step": step, "time": round(time.time(), 3), **values}) + "\n").encode())

    def checkpoint(self, saved: Checkpoint) -> None:
        """Say where it is."""
        line = {"step": saved.manifest.step, "time": round(time.time(), 3), "checkpoint": saved.path}
        os.write(self._file, (json.dumps(line) + "\n").encode())

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)


class TensorBoard:
    """Scalars."""

    def __init__(self, spec: TrainSpec) -> None:
        """Begin an events file in the folder."""
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise _missing("tensorboard_dir", "tensorboard") from error
        self._writer = SummaryWriter(str(Path(str(spec.tensorboard_dir)).expanduser()))

    def figures(self, step: int, values: Mapping[str, float]) -> None:
        """One scalar each."""
        for name, value in values.items():
            self._writer.add_scalar(name, value, step)

    def checkpoint(self, saved: Checkpoint) -> None:
        """It has no place for them."""

    def close(self) -> None:
        """Flush."""
        self._writer.close()


class WeightsAndBiases:
    """A run of Weights & Biases; its key and mode come from the environment (WANDB_API_KEY, WANDB_MODE).

    Restarts with one checkpoint_dir are one run there.
    """

    def __init__(self, spec: TrainSpec) -> None:
        """Begin or go on."""
        try:
            import wandb
        except ImportError as error:
            raise _missing("wandb_project", "wandb") from error
        self._wandb, self._log_model = wandb, spec.wandb_log_model
        self._last: Checkpoint | None = None
        same = hashlib.sha256(f"{spec.wandb_project} {spec.checkpoint_dir}".encode()).hexdigest()[:12]
        try:
            self._run = wandb.init(
                project=spec.wandb_project,
                entity=spec.wandb_entity,
                id=same if spec.checkpoint_dir else None,
                resume="allow" if spec.checkpoint_dir else None,
                config=spec.model_dump(mode="json"),
                settings=wandb.Settings(console="off", silent=True),
            )
        except (wandb.Error, OSError) as error:
            hint = "set WANDB_API_KEY from a secret (`wandb_key` of the spec), or WANDB_MODE=offline"
            raise KfjobError(
                "cannot start a Weights & Biases run", location="wandb_project", cause=str(error), hint=hint
            ) from error
        self._run.define_metric("*", step_metric="step")  # a run that was rolled back tells smaller steps again

    def figures(self, step: int, values: Mapping[str, float]) -> None:
        """One row."""
        self._run.log({"step": step, **values})

    def checkpoint(self, saved: Checkpoint) -> None:
        """Make it an artifact, or remember it for the end."""
        self._last = saved
        if self._log_model == "all":
            self._artifact(saved)

    def close(self) -> None:
        """The last checkpoint, then the end."""
        if self._log_model == "end" and self._last:
            self._artifact(self._last)
        self._run.finish()

    def _artifact(self, saved: Checkpoint) -> None:
        assert isinstance(saved.storage, Folder)  # noqa: S101 -- the spec's own check
        artifact = self._wandb.Artifact(f"checkpoint-{self._run.id}", type="model", metadata={"step": saved.manifest.step})
        artifact.add_dir(saved.path)
        self._run.log_artifact(artifact, aliases=[saved.name, "latest"])


def _missing(field: str, package: str) -> KfjobError:
    return KfjobError(
        f"`{field}` needs the package {package}", location=field, hint="pip install 'kfjob[tracking]' in the image"
    )
