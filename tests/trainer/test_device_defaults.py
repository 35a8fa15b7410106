"""The defaults of a run on a GPU, on a machine that has none."""

from __future__ import annotations

import os
import shutil
import sysconfig
from importlib import util
from types import SimpleNamespace

import pytest
import torch

from kfjob.base.units import GIB
from kfjob.trainer import device_defaults
from kfjob.trainer.device_defaults import find_device, find_obstacle, find_slow_precision
from kfjob.trainspec.train_spec import TrainSpec
from tests.trainer.test_run import global_batches, losses


def test_smallest_memory_and_any_obstacle_count(monkeypatch):
    ranks = SimpleNamespace(device=torch.device("cuda", 0), all_gather=lambda own: [own, (24 * GIB, "no compiler")])
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: SimpleNamespace(total_memory=80 * GIB))
    monkeypatch.setattr(device_defaults, "find_obstacle", lambda: "")
    device = find_device(ranks)  # type: ignore[arg-type]
    assert (device.kind, device.memory, device.obstacle) == ("cuda", 24 * GIB, "no compiler")


@pytest.mark.parametrize("is_fast", [False, True])
@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16", "bf16-true"])
def test_precision_that_a_cpu_emulates_is_named(monkeypatch, precision, is_fast):
    for name in ("_is_mkldnn_bf16_supported", "_is_mkldnn_fp16_supported"):
        monkeypatch.setattr(torch.ops.mkldnn, name, lambda: is_fast)
    spec = TrainSpec(model="micro-llama", data="-", max_steps=1, sequence_length=16, precision=precision)
    warning = find_slow_precision(spec, torch.device("cpu"))
    assert (warning is None) is (is_fast or precision == "fp32")
    assert warning is None or warning.startswith(f"Precision {precision} is many times slower than fp32 on this CPU")
    assert find_slow_precision(spec, torch.device("cuda")) is None


@pytest.mark.parametrize(
    ("missing", "expected"),
    [
        ("triton", "triton is not installed"),
        ("gcc", "needs gcc or clang"),
        ("headers", "needs the headers of Python"),
        ("", ""),
    ],
)
def test_obstacles_to_a_compilation(monkeypatch, tmp_path, missing, expected):
    monkeypatch.setattr(device_defaults, "find_spec", lambda _: None if missing == "triton" else util.find_spec("os"))
    monkeypatch.setattr(shutil, "which", lambda _: None if missing == "gcc" else "/usr/bin/gcc")
    monkeypatch.delitem(os.environ, "CC", raising=False)
    monkeypatch.setattr(sysconfig, "get_path", lambda _: str(tmp_path))
    if missing != "headers":
        (tmp_path / "Python.h").touch()
    assert expected in find_obstacle()
    assert bool(find_obstacle()) == bool(expected)


@pytest.fixture(scope="module")
def spec(tiny):
    return {name: value for name, value in tiny.items() if name != "micro_batch_size"} | {"gradient_accumulation_steps": 8}


def test_other_ranks_and_devices_keep_the_global_batch(workers, spec, tmp_path):
    """From one rank with enough memory to two ranks that need recomputation and micro-batches of one sample."""
    spec |= {"checkpoint_dir": str(tmp_path / "checkpoints")}
    (expected,) = workers.run("run_training", {"spec": spec | {"checkpoint_dir": None}})
    (first,) = workers.run("run_as_on_gpu", {"spec": spec, "memory": 80 * GIB, "stop_after": 3})
    assert [len(batch) for batch in first["batches"][:3]] == [8] * 3
    assert "Default compile: false, because this is a test" in workers.log()
    assert "Default micro_batch_size: 8, gradient_accumulation_steps: 1, because the estimate is" in workers.log()
    results = workers.run("run_as_on_gpu", {"spec": spec, "memory": GIB}, world_size=2)
    assert "Default activation_checkpointing: true, recompute: all, because" in workers.log()
    assert global_batches([first])[:3] + global_batches(results) == global_batches([expected])
    assert losses(first) + losses(results[0]) == pytest.approx(losses(expected), abs=2e-6)
