"""The device of a run, for the defaults of the trainer that depend on it (`kfjob.trainspec.defaults`)."""

from __future__ import annotations

import os
import shutil
import sysconfig
from importlib.util import find_spec
from pathlib import Path

import torch

from kfjob.trainer.distributed import Ranks
from kfjob.trainer.model import build_meta_model, read_shape
from kfjob.trainer.strategies.base import COMPUTE_DTYPES
from kfjob.trainspec.defaults import Defaults, Device, choose_defaults
from kfjob.trainspec.train_spec import TrainSpec, get_shape


def choose_device_defaults(spec: TrainSpec, ranks: Ranks, *, samples: int) -> Defaults:
    """Return the spec without open fields, and what was chosen for these; every rank chooses the same.

    `samples` are those of a rank in a step.
    """
    device = find_device(ranks)
    shape = get_shape(spec)
    if device.kind == "cuda" and shape is None:
        shape = read_shape(build_meta_model(spec))
    return choose_defaults(
        spec, device, world_size=ranks.world_size, local_world_size=ranks.local_world_size, shape=shape, samples=samples
    )


def find_device(ranks: Ranks) -> Device:
    """Return the kind of the devices, the memory of the smallest one, and the first obstacle to a compilation."""
    own = find_own_device(ranks.device)
    if own.kind == "cpu":
        return own
    memories, obstacles = zip(*ranks.all_gather((own.memory, own.obstacle)), strict=True)
    return Device(kind="cuda", memory=min(memories), obstacle=next(filter(None, obstacles), ""))


def find_own_device(device: torch.device) -> Device:
    """Return the kind and the memory of this rank's device, and the first obstacle to a compilation."""
    if device.type != "cuda":
        return Device()
    return Device(kind="cuda", memory=torch.cuda.get_device_properties(device).total_memory, obstacle=find_obstacle())


def find_obstacle() -> str:
    """Return why this machine cannot compile for a GPU; empty if it can (triton 3.9, runtime/build.py)."""
    if find_spec("triton") is None:
        return "the package triton is not installed"
    if "CC" not in os.environ and not (shutil.which("gcc") or shutil.which("clang")):
        return "triton needs gcc or clang, which is not installed"
    if not (Path(sysconfig.get_path("include")) / "Python.h").exists():
        return "triton needs the headers of Python, which are not installed"
    return ""


def find_slow_precision(spec: TrainSpec, device: torch.device) -> str | None:
    """Return a warning if this CPU has no fast matrix products in the precision (torch 2.15, aten mkldnn/Utils.cpp)."""
    dtype, checks = COMPUTE_DTYPES[spec.precision], torch.ops.mkldnn
    if device.type != "cpu" or dtype == torch.float32 or not torch._C._has_mkldnn:  # noqa: SLF001 -- no public names
        return None
    is_fast = checks._is_mkldnn_bf16_supported() if dtype == torch.bfloat16 else checks._is_mkldnn_fp16_supported()  # noqa: SLF001
    warning = f"Precision {spec.precision} is many times slower than fp32 on this CPU; use `precision: fp32` here"
    return None if is_fast else warning
