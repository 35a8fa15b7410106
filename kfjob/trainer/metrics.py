"""What a run says, in lines that programs read too. All forms are here; every line goes to stdout, in UTC.

    2024-06-12 00:08:25 I [train.py:102] Batch 979 Loss: 5.63272, Speed: 0.43 samples/sec, lr: 0.000091

is the reference sample's own line, with N the optimiser step. What else follows the brackets:

    Start MODEL with N parameters, strategy S, world size W, global batch G samples, N steps
    Resume none | Resume step-000050 PATH
    Step N tokens/s: N, grad norm: X, peak memory: X GiB, tokens/s/device: N[, MFU: X %]    after each progress line
    Step N skipped: WHY | Step N rolled back to step-000050: WHY    level W, instead of both
    Trace PATH                                                      of the profiler
    Startup X s: imports X, process group X, …                      once, after the first step
    Evaluation step N loss X, perplexity X, N tokens
    Checkpoint step-000050 in X s PATH                              complete when it is said
    Checkpoint step-000050 is damaged: WHY                          level W
    Data differs from what step-000050 was trained on: …            level W
    Outcome finished|stopped|failed step N|none loss X|none checkpoint PATH|none[ reason "JSON"]    last; failed: level E
"""

from __future__ import annotations

import json
import logging
import math
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any, Literal

from kfjob.trainer.storage import Storage

OUTCOME = "outcome.json"
log = logging.getLogger("kfjob.trainer")


def start_logging(*, verbose: bool) -> None:
    """Write the trainer's lines to stdout: all of them on rank 0 (`verbose`), warnings and errors on others."""
    formatter = logging.Formatter("%(asctime)s %(levelname).1s [%(filename)s:%(lineno)d] %(message)s", "%Y-%m-%d %H:%M:%S")
    formatter.converter = time.gmtime
    lines = logging.StreamHandler(sys.stdout)
    lines.setFormatter(formatter)
    log.handlers[:] = [lines]
    log.setLevel(logging.INFO if verbose else logging.WARNING)
    log.propagate = False


def progress(step: int, *, loss: float, speed: float, lr: float) -> str:
    """The reference's progress line; `speed` in samples of all ranks a second."""
    return f"Batch {step} Loss: {loss:.5f}, Speed: {speed:.2f} samples/sec, lr: {lr:.6f}"


@dataclass(frozen=True, kw_only=True)
class Figures:
    """What is known of a step that is told."""

    loss: float
    lr: float
    grad_norm: float
    samples_per_second: float
    """Of all ranks."""
    tokens_per_second: float
    tokens_per_second_per_device: float
    mfu: float | None
    """Share of the device's arithmetic (flops.py); None where its peak is not known."""
    peak_memory: float
    """Bytes: the largest of the device, on CPU of the process."""


def figures(step: int, told: Figures) -> str:
    """The line after it."""
    mfu = "" if told.mfu is None else f", MFU: {100 * told.mfu:.1f} %"
    return (
        f"Step {step} tokens/s: {told.tokens_per_second:.0f}, grad norm: {told.grad_norm:.4f}, "
        f"peak memory: {told.peak_memory / 2**30:.2f} GiB, tokens/s/device: {told.tokens_per_second_per_device:.0f}{mfu}"
    )


def start(*, model: str, parameters: int, strategy: str, world_size: int, global_batch: int, total_steps: int) -> str:
    """The first line of a run."""
    return (
        f"Start {model} with {parameters} parameters, strategy {strategy}, world size {world_size}, "
        f"global batch {global_batch} samples, {total_steps} steps"
    )


def resume(name: str | None, path: str | None) -> str:
    """Where the run begins."""
    return f"Resume {name} {path}" if name else "Resume none"


def checkpoint(name: str, path: str, seconds: float) -> str:
    """A checkpoint is complete."""
    return f"Checkpoint {name} in {seconds:.2f} s {path}"


def evaluation(step: int, *, loss: float, tokens: int) -> str:
    """The loss on the validation slice."""
    return f"Evaluation step {step} loss {loss:.5f}, perplexity {math.exp(min(loss, 700)):.2f}, {tokens} tokens"


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """How a run ended; kept beside the checkpoints, because torchrun returns 1 whatever exit code a worker has."""

    outcome: Literal["finished", "stopped", "failed"]
    step: int | None = None
    loss: float | None = None
    """Of the last step; None when no step was taken."""
    checkpoint: str | None = None
    reason: str | None = None

    def line(self) -> str:
        """The last line of a run."""
        loss = "none" if self.loss is None else f"{self.loss:.5f}"
        step = "none" if self.step is None else str(self.step)
        why = f" reason {json.dumps(self.reason)}" if self.reason else ""
        return f"Outcome {self.outcome} step {step} loss {loss} checkpoint {self.checkpoint or 'none'}{why}"

    def write(self, storage: Storage, *, overwrite: bool) -> bool:
        """Put `outcome.json` beside the checkpoints, whole or not at all; False if it is there and not to be overwritten."""
        return storage.write(OUTCOME, json.dumps(asdict(self), indent=2) + "\n", overwrite=overwrite)


class Speed:
    """Samples a second since the last line, and what follows from them."""

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        *,
        sequence_length: int = 1,
        devices: int = 1,
        flops_per_token: float = 0,
        peak_flops: float | None = None,
    ) -> None:
        """Begin now."""
        self._clock, self._since, self._samples = clock, clock(), 0
        self._sequence_length, self._devices = sequence_length, devices
        self._flops_per_token, self._peak_flops = flops_per_token, peak_flops

    def figures(self, *, loss: float, lr: float, grad_norm: float) -> Figures:
        """All that is known of the steps since the last call."""
        samples = self.take()
        tokens = samples * self._sequence_length
        arithmetic = tokens / self._devices * self._flops_per_token
        return Figures(
            loss=loss,
            lr=lr,
            grad_norm=grad_norm,
            samples_per_second=samples,
            tokens_per_second=tokens,
            tokens_per_second_per_device=tokens / self._devices,
            mfu=arithmetic / self._peak_flops if self._peak_flops else None,
            peak_memory=peak_memory(),
        )

    def add(self, samples: int) -> None:
        """Count the samples of a step."""
        self._samples += samples

    def leave_out(self, began: float) -> None:
        """Do not count the time since `began`: an evaluation or a checkpoint."""
        self._since += self._clock() - began

    def take(self) -> float:
        """The speed since the last call."""
        now = self._clock()
        speed = self._samples / max(now - self._since, 1e-9)
        self._since, self._samples = now, 0
        return speed


def peak_memory() -> float:
    """Bytes: the most that the GPU's allocator held, without a GPU the largest resident set of the process."""
    import resource

    import torch

    if torch.cuda.is_available():
        return float(torch.cuda.max_memory_allocated())
    unit = 1 if sys.platform == "darwin" else 1024
    return float(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit)


def whole(norm: Any) -> float:
    """A gradient norm as a number, gathered first where it is sharded."""
    return float(norm.full_tensor() if hasattr(norm, "full_tensor") else norm)


class Startup:
    """Where the time from process start to the first step goes."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """Begin now."""
        self._clock = clock
        self._laps = [("", clock())]
        self.running = True

    def lap(self, name: str) -> None:
        """`name` has just ended."""
        self._laps.append((name, self._clock()))

    def line(self) -> str:
        """`Startup 9.8 s: imports 6.1, …`; the first step has just ended."""
        self.lap("first step")
        self.running = False
        parts = [f"{name} {after - before:.1f}" for (_, before), (name, after) in pairwise(self._laps)]
        return f"Startup {self._laps[-1][1] - self._laps[0][1]:.1f} s: {', '.join(parts)}"
