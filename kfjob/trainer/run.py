"""Runs one rank: joins the process group, trains and reports the outcome."""

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
from torch._C._distributed_c10d import Store

from kfjob.errors import KfjobError
from kfjob.spec.train import TrainSpec
from kfjob.trainer.distributed import PeerError, Ranks
from kfjob.trainer.dry_run import print_dry_run
from kfjob.trainer.metrics import Outcome, StartupTimer, log, start_logging
from kfjob.trainer.progress import Progress
from kfjob.trainer.redact import redact, write_error
from kfjob.trainer.stop_request import SIGNAL_REASON, StopRequest, end_on_signal
from kfjob.trainer.storage import Storage, open_storage
from kfjob.trainer.train import train


def run_rank(spec: TrainSpec, startup: StartupTimer, store: Store | None = None) -> int:
    """Train, and return the exit code: 0 finished or out of time, 1 failed, 128 + n stopped by signal n.

    The environment variables set the rendezvous of the ranks, unless `store` is given.

    A run that a signal stopped must not return 0: when one pod of an elastic job is evicted, the other pods would count as
    completed. torchrun restarts them instead, and they resume from the checkpoint that was just written.
    """
    startup.lap("imports")
    start_logging(verbose=os.environ.get("RANK", "0") == str(spec.log_rank))
    if spec.deterministic:
        _use_deterministic_algorithms()
    storage = open_storage(spec.checkpoint_dir) if spec.checkpoint_dir else None
    stop, progress = StopRequest(spec.max_minutes), Progress()
    try:
        if spec.dry_run:
            return print_dry_run(spec)
        with end_on_signal(_stop_waiting):
            ranks = Ranks.join(store)
        startup.lap("process group")
        outcome = train(spec, ranks, stop, startup, progress)
        if ranks.is_rank_zero and storage:
            outcome.write(storage, overwrite=True)
        log.info(outcome.line())
        ranks.leave()
    except PeerError:
        return 1
    except Exception as error:  # noqa: BLE001 -- the outermost frame reports every error
        _report_failure(error, progress, storage, debug=spec.debug)
        return 1
    if outcome.reason == SIGNAL_REASON:  # perhaps another rank's signal
        return 128 + (stop.signal or signal.SIGTERM)
    return 0


def _stop_waiting(number: int) -> None:
    """End this process, which waits for the other ranks and has nothing to save."""
    log.warning(Outcome(outcome="stopped", reason=SIGNAL_REASON).line())
    sys.stdout.flush()
    os._exit(128 + number)


def _use_deterministic_algorithms() -> None:
    """Make torch use only bit-exact algorithms; an operator without one raises an error that names it."""
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # cuBLAS reads it at its first use
    torch.use_deterministic_algorithms(True)


def _report_failure(error: Exception, progress: Progress, storage: Storage | None, *, debug: bool) -> None:
    """Print the error and record the outcome. The first rank's record stays: the other ranks fail because of it."""
    expected = isinstance(error, KfjobError)
    trace = "".join(traceback.format_exception(error))
    if debug or not expected:
        write_error(trace)
    if expected:
        write_error(error)
    _write_error_file(redact(str(error) if expected else trace))
    reason = error.title if isinstance(error, KfjobError) else f"{type(error).__name__}: {error}"
    outcome = progress.make_outcome("failed", reason)
    is_first = True
    if storage:
        with suppress(KfjobError, OSError):  # the failure itself may be that the storage is not writable
            is_first = outcome.write(storage, overwrite=False)
    if is_first:
        log.error(outcome.line())


def _write_error_file(message: str) -> None:
    """Make torchrun show `message` as the root cause, in the format of its `record` decorator (torch 2.15 errors/)."""
    if path := os.environ.get("TORCHELASTIC_ERROR_FILE"):
        extra_info = {"py_callstack": message, "timestamp": str(int(time.time()))}
        Path(path).write_text(json.dumps({"message": {"message": message, "extraInfo": extra_info}}))
