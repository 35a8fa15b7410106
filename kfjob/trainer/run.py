"""Runs one rank: joins the process group, trains and reports the outcome."""

from __future__ import annotations

import os
import signal
import sys
import traceback
from functools import partial

import torch
from torch._C._distributed_c10d import Store

from kfjob.base.errors import KfjobError
from kfjob.trainer.distributed import PeerError, Ranks
from kfjob.trainer.dry_run import print_dry_run
from kfjob.trainer.metrics import StartupTimer, log, start_logging
from kfjob.trainer.permanent_failure import write_error_file
from kfjob.trainer.progress import Progress
from kfjob.trainer.redact import redact, write_error
from kfjob.trainer.stop_request import SIGNAL_REASON, StopRequest, end_on_signal
from kfjob.trainer.train import train
from kfjob.trainspec.train_spec import TrainSpec


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
    stop, progress = StopRequest(spec.max_minutes), Progress()
    try:
        if spec.dry_run:
            return print_dry_run(spec)
        with end_on_signal(partial(_end_if_due, stop, progress)):
            ranks = Ranks.join(store)
            startup.lap("process group")
            outcome = train(spec, ranks, stop, startup, progress)
        log.info(outcome.line())
        ranks.leave()
    except PeerError:
        return 1
    except Exception as error:  # noqa: BLE001 -- the outermost frame reports every error
        _report_failure(error, progress, debug=spec.debug)
        return 1
    if outcome.reason == SIGNAL_REASON:  # perhaps another rank's signal
        return 128 + (stop.signal or signal.SIGTERM)
    return 0


def _end_if_due(stop: StopRequest, progress: Progress, number: int) -> None:
    """End this process if the signal requires it; the other ranks need not answer."""
    if not stop.must_end_at_once():
        return
    if stop.has_begun:
        newest = progress.committed.name if progress.committed else "the start of the run"
        log.warning("Note second signal: the run ends at once, and nothing after %s is saved", newest)
    progress.stop_reason = SIGNAL_REASON
    log.warning(progress.make_outcome().line())
    sys.stdout.flush()
    os._exit(128 + number)


def _use_deterministic_algorithms() -> None:
    """Make torch use only bit-exact algorithms; an operator without one raises an error that names it."""
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # cuBLAS reads it at its first use
    torch.use_deterministic_algorithms(True)


def _report_failure(error: Exception, progress: Progress, *, debug: bool) -> None:
    """Print the error, and the outcome unless another rank has failed first."""
    expected = isinstance(error, KfjobError)
    trace = "".join(traceback.format_exception(error))
    if debug or not expected:
        write_error(trace)
    if expected:
        write_error(error)
    outcome = progress.make_outcome(error)
    write_error_file(
        redact(str(error) if expected else trace), permanent_reason=redact(outcome.reason or "") * outcome.permanent
    )
    if not progress.peer_failed_first:
        log.error(outcome.line())
