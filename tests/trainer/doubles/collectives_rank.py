"""A rank of kfjob/trainer/collectives.py with a fault: the first argument names the fault, the second the rank."""

from __future__ import annotations

import importlib.util
import os
import sys
import threading
from pathlib import Path

import torch.distributed as dist

FILE = Path(__file__).resolve().parents[3] / "kfjob" / "trainer" / "collectives.py"
fault, rank = sys.argv[1], sys.argv[2]
spec = importlib.util.spec_from_file_location("collectives", FILE)
assert spec
assert spec.loader
collectives = importlib.util.module_from_spec(spec)
spec.loader.exec_module(collectives)


def corrupt_result(buffer, *arguments: object, **options):
    """Return a wrong result, as a faulty GPU does."""
    work = real(buffer, *arguments, **options)
    buffer[-1] += 1
    return work


def corrupt_contribution(buffer, *arguments: object, **options):
    """Send a wrong contribution."""
    buffer[0] += 1
    return real(buffer, *arguments, **options)


def hang(*_arguments: object, **_options):
    threading.Event().wait()


def raise_unsupported(*_arguments: object, **_options):
    raise RuntimeError("ProcessGroupGloo does not support reduce_scatter")


DOUBLES = {
    "result": ("all_reduce", corrupt_result),
    "contribution": ("all_reduce", corrupt_contribution),
    "hang": ("reduce", hang),
    "old-torch": ("reduce_scatter_tensor", raise_unsupported),
}
name, double = DOUBLES[fault]
real = getattr(dist, name)
if rank in ("all", os.environ["RANK"]):
    setattr(dist, name, double)
sys.exit(collectives.main(sys.argv[3:]))
