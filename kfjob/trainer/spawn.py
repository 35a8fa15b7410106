"""Starts the ranks of this node as child processes with `torch.multiprocessing.spawn`, without a launcher.

The launcher `python` of a job starts one such process per node; it also works by hand on one machine. A signal is passed on to
the ranks, and the first rank that fails ends the others. Unlike torchrun, it does not restart ranks.
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
from pathlib import Path
from types import FrameType

from torch._C._distributed_c10d import FileStore, Store
from torch.multiprocessing.spawn import ProcessExitedException, spawn

from kfjob.trainer.distributed import use_loopback
from kfjob.trainer.environment import read_place
from kfjob.trainer.metrics import StartupTimer
from kfjob.trainer.run import run_rank
from kfjob.trainspec.train_spec import TrainSpec

GRACE_PERIOD = 60.0
"""Seconds that the other ranks have to exit after one has failed."""


def spawn_ranks(spec: TrainSpec, processes: int) -> int:
    """Run `processes` ranks, and return the exit code as `run_rank` does.

    RANK, WORLD_SIZE and MASTER_ADDR describe the nodes; without them there is one node.
    """
    forwarded = (signal.SIGTERM, signal.SIGINT)
    previous_handlers = {number: signal.getsignal(number) for number in forwarded}
    with tempfile.TemporaryDirectory(prefix="kfjob-") as folder:
        arguments = (spec, processes, str(Path(folder, "store")))
        context = spawn(_run_child, arguments, nprocs=processes, join=False)  # type: ignore[no-untyped-call]
        children = list(context.processes)

        def terminate_children(number: int, frame: FrameType | None) -> None:
            del number, frame
            for child in children:
                if child.is_alive():  # not SIGINT: a terminal has sent it already, and a second one would end the child at once
                    child.terminate()

        try:
            for number in forwarded:
                signal.signal(number, terminate_children)
            while not context.join(grace_period=GRACE_PERIOD):
                pass
        except ProcessExitedException as error:
            return int(error.exit_code) if error.exit_code >= 0 else 128 - int(error.exit_code)
        finally:
            for number, handler in previous_handlers.items():
                signal.signal(number, handler)
    return 0


def _run_child(local_rank: int, spec: TrainSpec, local_world_size: int, store_path: str) -> None:
    """Run one rank in its own process."""
    place = read_place()
    nodes, node_rank = place["WORLD_SIZE"], place["RANK"]
    rank, world_size = node_rank * local_world_size + local_rank, nodes * local_world_size
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(world_size))
    os.environ.update(LOCAL_RANK=str(local_rank), LOCAL_WORLD_SIZE=str(local_world_size))
    store: Store | None = None
    if "MASTER_ADDR" not in os.environ:
        use_loopback()
        store = FileStore(store_path, world_size)
    code = run_rank(spec, StartupTimer(), store)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # as __main__ does, and for the same reason
