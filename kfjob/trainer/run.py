"""One run as a process of torchrun: join, train, say how it ended."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
import traceback
from contextlib import suppress
from pathlib import Path

import torch

from kfjob.errors import KfjobError
from kfjob.spec.train import TrainSpec
from kfjob.trainer.distributed import FailedElsewhere, Ranks
from kfjob.trainer.dry_run import dry_run
from kfjob.trainer.metrics import Outcome, Startup, log, start_logging
from kfjob.trainer.stopping import SIGNALLED, StopRequest
from kfjob.trainer.storage import Storage, storage_of
from kfjob.trainer.train import train


def run(spec: TrainSpec, startup: Startup) -> int:
    """Train, and return the exit code: 0 finished or out of time, 1 failed, 128 + n stopped by signal n.

    A run that was stopped by a signal must not return 0: of an elastic job whose one pod is taken away the others would count
    as having finished. They are restarted by torchrun instead, and go on from the checkpoint just written.
    """
    startup.lap("imports")
    start_logging(verbose=os.environ.get("RANK", "0") == str(spec.log_rank))
    if spec.deterministic:
        _be_deterministic()
    storage = storage_of(spec.checkpoint_dir) if spec.checkpoint_dir else None
    stop = StopRequest(spec.max_minutes)
    try:
        if spec.dry_run:
            return dry_run(spec)
        ranks = Ranks.join()
        startup.lap("process group")
        outcome = train(spec, ranks, stop, startup)
        if ranks.first and storage:
            outcome.write(storage, overwrite=True)
        log.info(outcome.line())
        ranks.leave()
    except FailedElsewhere:
        return 1
    except Exception as error:  # noqa: BLE001 -- the outermost frame: it is reported in full
        _report(error, storage, debug=spec.debug)
        return 1
    if outcome.reason == SIGNALLED:  # perhaps not this rank but another one
        return 128 + (stop.signal or signal.SIGTERM)
    return 0


def _be_deterministic() -> None:
    """Have torch use only algorithms that give the same bits each time; one that has none is an error that names it."""
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # cuBLAS reads it when it is first used
    torch.use_deterministic_algorithms(True)


def _report(error: Exception, storage: Storage | None, *, debug: bool) -> None:
    """Say and record why this rank failed. The first rank to record it is right: the others fail because it did."""
    expected = isinstance(error, KfjobError)
    trace = "".join(traceback.format_exception(error))
    if debug or not expected:
        sys.stderr.write(trace)
    if expected:
        sys.stderr.write(f"{error}\n")
    _tell_torchrun(str(error) if expected else trace)
    reason = error.title if isinstance(error, KfjobError) else f"{type(error).__name__}: {error}"
    outcome = Outcome(outcome="failed", reason=reason)
    recorded = True
    if storage:
        with suppress(KfjobError, OSError):  # a place that cannot be written may be the very reason
            recorded = outcome.write(storage, overwrite=False)
    if recorded:
        log.error(outcome.line())


def _tell_torchrun(message: str) -> None:
    """Have torchrun show `message` as the root cause, in the form that its `record` decorator writes (torch 2.15 errors/)."""
    if path := os.environ.get("TORCHELASTIC_ERROR_FILE"):
        about = {"py_callstack": message, "timestamp": str(int(time.time()))}
        Path(path).write_text(json.dumps({"message": {"message": message, "extraInfo": about}}))
