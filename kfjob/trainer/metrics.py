"""The log lines of a run, which people read and programs parse. Every line goes to stdout, in UTC.

The functions below write the lines that have figures; a warning is written where its reason is found.

    2024-06-12 00:08:25 I [train.py:102] Batch 979 Loss: 5.63272, Speed: 0.43 samples/sec, lr: 0.000091

This is the format of the reference sample; the number after `Batch` is the optimiser step. Other texts after the brackets:

    Start MODEL with N parameters, strategy S, world size W, global batch G samples, N steps
    Default FIELD: VALUE, because REASON                             of a field that the spec leaves open
    Note TEXT                                                       of the arguments, a tracker or an earlier checkpoint
    Adapters N parameters of base NAME (SHA-256 …)                   if the spec has `lora`
    Loss is cross-entropy + X x load balance of the router           of a model with experts; evaluations have no second part
    Resume none | Resume step-000050 PATH
    Changed since step-000050: max_steps 50 -> 100, …                if the spec differs from that of the checkpoint's run
    Step N tokens/s: N, grad norm: X, peak memory: X GiB, tokens/s/device: N[, MFU: X %]    after each progress line
    Step N skipped: REASON | Step N rolled back to step-000050: REASON    level W, instead of both
    Trace PATH                                                      a trace of the profiler
    Startup X s: imports X, process group X, …                      once, after the first step
    Evaluation step N loss X, perplexity X, N tokens
    Communication X MiB in N calls                                  last but one, with `comms_logger`
    Global batch stays N samples, as in step-000050: …              after a resume on another number of ranks
    Checkpoint step-000050 in X s PATH                              logged when the checkpoint is complete
    Checkpoint step-000050 is damaged: REASON                       level W
    Checkpoint step-000050 passed over: REASON                      level W, before a roll-back
    Checkpoint step-000050 renamed to NAME                          level W, after it was passed over, or with `--resume=none`
    Checkpoint step-000050 not written: REASON                      level E, with `on_save_error: continue`
    Waiting up to N s to see whether the owner of PATH/lease.json is alive
    Data differs from what step-000050 was trained on: …            level W
    Outcome finished|stopped|failed step N|none loss X|none checkpoint PATH|none[[ permanent] reason "JSON"]
                                                                    last; failed: level E; no restart cures a permanent failure
"""

from __future__ import annotations

import json
import logging
import math
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Literal

from kfjob.base.text import format_decimal, plural
from kfjob.base.units import GIB, MIB
from kfjob.trainer.redact import redact, redact_urls
from kfjob.trainer.storage import Storage
from kfjob.trainspec.defaults import TrainerChoice

OUTCOME_FILE = "outcome.json"
log = logging.getLogger("kfjob.trainer")


class _Formatter(logging.Formatter):
    """Formats lines without the secrets in them."""

    def format(self, record: logging.LogRecord) -> str:
        return redact(super().format(record))


def start_logging(*, verbose: bool) -> None:
    """Log to stdout: everything if `verbose` (rank 0), else warnings and errors."""
    formatter = _Formatter("%(asctime)s %(levelname).1s [%(filename)s:%(lineno)d] %(message)s", "%Y-%m-%d %H:%M:%S")
    formatter.converter = time.gmtime
    handler = logging.StreamHandler(sys.stdout)
    handler.setFormatter(formatter)
    log.handlers[:] = [handler]
    log.setLevel(logging.INFO if verbose else logging.WARNING)
    log.propagate = False


def progress_line(step: int, *, loss: float, speed: float, lr: float) -> str:
    """Return the reference sample's progress line; `speed` is in samples of all ranks per second."""
    rate = f"{format_decimal(speed, 2)} samples/sec"
    return f"Batch {step} Loss: {format_decimal(loss, 5)}, Speed: {rate}, lr: {format_decimal(lr, 6)}"


@dataclass(frozen=True, kw_only=True)
class StepMetrics:
    """The metrics of a logged step."""

    loss: float
    lr: float
    grad_norm: float
    samples_per_second: float
    """Of all ranks together."""
    tokens_per_second: float
    tokens_per_second_per_device: float
    mfu: float | None
    """Model FLOPs utilisation (flops.py); None if the device's peak is unknown."""
    peak_memory: float
    """Bytes: the device's peak, on CPU the process's."""


def metrics_line(step: int, values: StepMetrics) -> str:
    """Return the line after the progress line."""
    mfu = "" if values.mfu is None else f", MFU: {100 * values.mfu:.1f} %"
    return (
        f"Step {step} tokens/s: {format_decimal(values.tokens_per_second, 0)}, "
        f"grad norm: {format_decimal(values.grad_norm, 4)}, peak memory: {values.peak_memory / GIB:.2f} GiB, "
        f"tokens/s/device: {format_decimal(values.tokens_per_second_per_device, 0)}{mfu}"
    )


def start_line(*, model: str, parameters: int, strategy: str, world_size: int, global_batch: int, total_steps: int) -> str:
    """Return the first line of a run."""
    return (
        f"Start {model} with {parameters} parameters, strategy {strategy}, world size {world_size}, "
        f"global batch {global_batch} samples, {total_steps} steps"
    )


def default_line(choice: TrainerChoice) -> str:
    """Return the line about the value of a field that the spec leaves open."""
    return f"Default {choice.text}"


def adapters_line(parameters: int, base: str) -> str:
    """Return the line about the trained parameters and the frozen base model."""
    return f"Adapters {parameters} parameters of base {base}"


def router_line(factor: float) -> str:
    """Return the line about the parts of a loss with a router's loss."""
    return f"Loss is cross-entropy + {factor:g} x load balance of the router"


def resume_line(name: str | None, path: str | None) -> str:
    """Return the line that names the checkpoint of the start."""
    return f"Resume {name} {path}" if name else "Resume none"


def changes_line(name: str, changes: str) -> str:
    """Return the line about settings that differ from those of the checkpoint's run."""
    return f"Changed since {name}: {changes}"


def kept_batch_line(name: str, samples: int, accumulation: int, asked: int) -> str:
    """Return the line about a global batch that a resume on another number of ranks keeps."""
    batches = f"{plural(accumulation, 'micro-batch', 'micro-batches')} a step on each rank instead of {asked}"
    return f"Global batch stays {plural(samples, 'sample')}, as in {name}: {batches}"


def checkpoint_line(name: str, path: str, seconds: float) -> str:
    """Return the line of a complete checkpoint."""
    return f"Checkpoint {name} in {seconds:.2f} s {path}"


def communication_line(size: int, calls: int) -> str:
    """Return the line about the bytes that one rank passed to collectives, from start to end."""
    return f"Communication {size / MIB:.1f} MiB in {plural(calls, 'call')}"


def evaluation_line(step: int, *, loss: float, tokens: int) -> str:
    """Return the line of an evaluation."""
    return f"Evaluation step {step} loss {format_decimal(loss, 5)}, perplexity {math.exp(min(loss, 700)):.2f}, {tokens} tokens"


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """How a run ended; stored next to the checkpoints, because torchrun returns 1 for every exit code of a worker."""

    outcome: Literal["finished", "stopped", "failed"]
    step: int | None = None
    """The last step; None if the run ended before its first one."""
    loss: float | None = None
    """The loss of that step; None if the run took none, or failed before the loss was read."""
    checkpoint: str | None = None
    """The newest complete checkpoint."""
    reason: str | None = None
    permanent: bool = False
    """Whether every restart would fail in the same way, before its first step."""

    def line(self) -> str:
        """Return the last line of a run."""
        loss = "none" if self.loss is None else format_decimal(self.loss, 5)
        step = "none" if self.step is None else str(self.step)
        reason = f"{' permanent' * self.permanent} reason {json.dumps(self.reason)}" if self.reason else ""
        return f"Outcome {self.outcome} step {step} loss {loss} checkpoint {self.checkpoint or 'none'}{reason}"

    def write(self, storage: Storage, *, overwrite: bool) -> bool:
        """Write `outcome.json` next to the checkpoints, atomically; return False if it exists and `overwrite` is not set."""
        fields = {name: value for name, value in asdict(self).items() if name != "permanent" or value}
        return storage.write_file(OUTCOME_FILE, json.dumps(redact_urls(fields), indent=2) + "\n", overwrite=overwrite)


class Throughput:
    """Measures samples per second since the last progress line, and derives the other rates."""

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        *,
        sequence_length: int = 1,
        devices: int = 1,
        flops_per_token: float = 0,
        peak_flops: float | None = None,
    ) -> None:
        """Start the clock."""
        self._clock, self._since, self._samples = clock, clock(), 0
        self._sequence_length, self._devices = sequence_length, devices
        self._flops_per_token, self._peak_flops = flops_per_token, peak_flops

    def step_metrics(self, *, loss: float, lr: float, grad_norm: float | None) -> StepMetrics:
        """Return the metrics of the steps since the last call."""
        samples = self.measure()
        tokens = samples * self._sequence_length
        flops = tokens / self._devices * self._flops_per_token
        return StepMetrics(
            loss=loss,
            lr=lr,
            grad_norm=math.nan if grad_norm is None else grad_norm,
            samples_per_second=samples,
            tokens_per_second=tokens,
            tokens_per_second_per_device=tokens / self._devices,
            mfu=flops / self._peak_flops if self._peak_flops else None,
            peak_memory=peak_memory(),
        )

    def add_samples(self, samples: int) -> None:
        """Add the samples of a step."""
        self._samples += samples

    @contextmanager
    def excluded(self) -> Iterator[None]:
        """Exclude the time of the block, in which an evaluation or a checkpoint runs."""
        began = self._clock()
        yield
        self._since += self._clock() - began

    def measure(self) -> float:
        """Return samples per second since the last call."""
        now = self._clock()
        speed = self._samples / max(now - self._since, 1e-9)
        self._since, self._samples = now, 0
        return speed


def peak_memory() -> float:
    """Return the peak of the GPU's allocator in bytes, without a GPU the largest resident set of the process."""
    import resource

    import torch

    if torch.cuda.is_available():
        return float(torch.cuda.max_memory_allocated())
    unit = 1 if sys.platform == "darwin" else 1024
    return float(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit)


class StartupTimer:
    """Measures the parts of the time from process start to the first step."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """Start the clock."""
        self._clock = clock
        self._laps = [("", clock())]
        self.running = True

    def lap(self, name: str) -> None:
        """Record that the part `name` has just ended."""
        self._laps.append((name, self._clock()))

    def line(self) -> str:
        """End the part `first step`, and return the line `Startup 9.8 s: imports 6.1, …`."""
        self.lap("first step")
        self.running = False
        parts = [f"{name} {after - before:.1f}" for (_, before), (name, after) in pairwise(self._laps)]
        return f"Startup {self._laps[-1][1] - self._laps[0][1]:.1f} s: {', '.join(parts)}"
