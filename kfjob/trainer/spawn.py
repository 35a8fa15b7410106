"""The ranks of this node as children of this process, started with `torch.multiprocessing.spawn`: no launcher is needed.

One process a node, as the launcher `python` of a job starts it, or by hand on one machine. A signal goes on to the ranks; the
first rank that fails ends the others. torchrun does more: it restarts.
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
from pathlib import Path
from types import FrameType

from torch._C._distributed_c10d import FileStore, Store
from torch.multiprocessing.spawn import ProcessExitedException
from torch.multiprocessing.spawn import spawn as start

from kfjob.spec.train import TrainSpec
from kfjob.trainer.distributed import keep_to_this_machine
from kfjob.trainer.metrics import Startup
from kfjob.trainer.run import run

LAST_WORDS = 60.0
"""Seconds that the other ranks have to end by themselves when one has failed."""


def spawn(spec: TrainSpec) -> int:
    """Run `spec.spawn` ranks, and return the exit code as `run` does.

    Nodes are told apart by RANK, WORLD_SIZE and MASTER_ADDR, which then count nodes; without them there is this one.
    """
    assert spec.spawn  # noqa: S101 -- the caller has looked
    ended = (signal.SIGTERM, signal.SIGINT)
    before = {number: signal.getsignal(number) for number in ended}
    with tempfile.TemporaryDirectory(prefix="kfjob-") as folder:
        context = start(_rank, (spec, str(Path(folder, "store"))), nprocs=spec.spawn, join=False)  # type: ignore[no-untyped-call]
        children = list(context.processes)

        def pass_on(number: int, frame: FrameType | None) -> None:
            del number, frame
            for child in children:
                if child.is_alive():  # a terminal has told it already: a second SIGINT would end it at once
                    child.terminate()

        try:
            for number in ended:
                signal.signal(number, pass_on)
            while not context.join(grace_period=LAST_WORDS):
                pass
        except ProcessExitedException as error:
            return int(error.exit_code) if error.exit_code >= 0 else 128 - int(error.exit_code)
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
    return 0


def _rank(local_rank: int, spec: TrainSpec, store: str) -> None:
    """One of them, in its own process."""
    nodes, node = int(os.environ.get("WORLD_SIZE", "1")), int(os.environ.get("RANK", "0"))
    each = spec.spawn or 1
    rank, world_size = node * each + local_rank, nodes * each
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(world_size), LOCAL_RANK=str(local_rank), LOCAL_WORLD_SIZE=str(each))
    meeting: Store | None = None
    if "MASTER_ADDR" not in os.environ:
        keep_to_this_machine()
        meeting = FileStore(store, world_size)
    code = run(spec, Startup(), meeting)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # as the program's own end, and for the same reason
