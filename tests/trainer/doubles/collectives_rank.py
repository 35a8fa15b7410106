"""A rank of kfjob/trainer/collectives.py in which one thing is wrong: the first word says what, the second on which rank."""

from __future__ import annotations

import importlib.util
import os
import sys
import threading
from pathlib import Path

import torch.distributed as dist

FILE = Path(__file__).resolve().parents[3] / "kfjob" / "trainer" / "collectives.py"
what, rank = sys.argv[1], sys.argv[2]
spec = importlib.util.spec_from_file_location("collectives", FILE)
assert spec
assert spec.loader
collectives = importlib.util.module_from_spec(spec)
spec.loader.exec_module(collectives)


def result_is_off(buffer, *arguments: object, **named):
    """A card that computes wrongly."""
    work = real(buffer, *arguments, **named)
    buffer[-1] += 1
    return work


def contribution_is_off(buffer, *arguments: object, **named):
    """A rank that sends something else."""
    buffer[0] += 1
    return real(buffer, *arguments, **named)


def never_joins(*_arguments: object, **_named):
    threading.Event().wait()


def unsupported(*_arguments: object, **_named):
    raise RuntimeError("ProcessGroupGloo does not support reduce_scatter")


DOUBLES = {
    "result": ("all_reduce", result_is_off),
    "contribution": ("all_reduce", contribution_is_off),
    "broadcast": ("broadcast", result_is_off),
    "hang": ("reduce", never_joins),
    "old-torch": ("reduce_scatter_tensor", unsupported),
}
name, double = DOUBLES[what]
real = getattr(dist, name)
if rank in ("all", os.environ["RANK"]):
    setattr(dist, name, double)
sys.exit(collectives.main(sys.argv[3:]))
