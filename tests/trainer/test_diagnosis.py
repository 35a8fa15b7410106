"""Dry runs, the profiler's window, memory that does not suffice, deterministic mode."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from kfjob.errors import KfjobError
from kfjob.spec.train import TrainSpec
from kfjob.trainer.distributed import Ranks
from kfjob.trainer.dry_run import dry_run, memory, parts
from kfjob.trainer.model import meta_model
from kfjob.trainer.profile import advice, out_of_memory


def test_a_dry_run_needs_neither_data_nor_ranks(monkeypatch):
    command = [sys.executable, "-m", "kfjob.trainer", "--model=llama-2-70b", "--data=nowhere", "--max-steps=5", "--dry-run"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    lines = done.stdout.splitlines()
    assert lines[0] == "LlamaForCausalLM with 68976648192 parameters, 82 wrap units and the root"
    assert any("0 … 79 (80): LlamaDecoderLayer, 855654400 parameters  <- unit" in line for line in lines)
    assert "embedding and head stand in units of their own" in lines


def test_tied_ones_stand_in_the_root():
    spec = TrainSpec(model="qwen2-1.5b", data="-", max_steps=1)
    lines = list(parts(meta_model(spec), spec))
    assert lines[0] == "Qwen2ForCausalLM with 1543714304 parameters, 28 wrap units and the root"
    assert lines[-1] == "embedding and head stand in the root unit, for they are one parameter"


@pytest.mark.parametrize("preset", ["llama-3.2-1b", "mistral-7b", "qwen2-1.5b", "gpt-neox-small"])
def test_a_folder_has_the_memory_of_the_shape_in_it(tmp_path, capsys, preset):
    said = []
    meta_model(TrainSpec(model=preset, data="-", max_steps=1)).config.save_pretrained(tmp_path)
    for model in (preset, str(tmp_path)):
        dry_run(TrainSpec(model=model, data="-", max_steps=1))
        said.append(capsys.readouterr().out)
    assert said[0] == said[1]
    assert "  <- this one" in said[0]


def test_the_memory_table_has_every_strategy():
    spec = TrainSpec(model="llama-3-8b", data="-", max_steps=1, sharding="hybrid")
    rows = {line.split()[0]: line.split() for line in memory(spec, 16, 8) if line.startswith("  ")}
    table = {line.split()[0]: line for line in list(memory(spec, 16, 8))[:10] if line.startswith("  ")}
    assert "<- this one" in table["hybrid"]
    parameters = {scheme: float(line.split()[1]) for scheme, line in table.items() if scheme != "strategy"}
    assert set(parameters) == {"ddp", "full", "shard_grad_op", "hybrid", "zero-0", "zero-1", "zero-2", "zero-3"}
    assert parameters["full"] == pytest.approx(parameters["ddp"] / 16, abs=1e-3)
    assert parameters["hybrid"] == pytest.approx(parameters["ddp"] / 8, abs=1e-3)
    assert len(rows["full"]) == 9  # the last table: a name and eight world sizes


def test_strategies_are_compared_for_a_run_on_disk_too(tmp_path):
    deepspeed = {"model": "llama-3-8b", "data": "-", "max_steps": 1, "strategy": "deepspeed", "zero_stage": 3}
    table = list(memory(TrainSpec.model_validate(deepspeed | {"disk_offload": str(tmp_path)}), 16, 8))
    assert table == [line.removesuffix("  <- this one") for line in memory(TrainSpec.model_validate(deepspeed), 16, 8)]
    assert len(table) > 16


def test_the_profilers_window_is_a_chrome_trace(workers, tiny, tmp_path):
    spec = tiny | {"strategy": "fsdp", "profile_from": 3, "profile_steps": 2, "profile_dir": str(tmp_path / "p")}
    workers.run("trained", {"spec": spec}, world_size=2)
    assert sorted(path.name for path in (tmp_path / "p").iterdir()) == ["steps-3-4-rank-0.json", "steps-3-4-rank-1.json"]
    trace = json.loads((tmp_path / "p" / "steps-3-4-rank-0.json").read_text())
    updates = [event for event in trace["traceEvents"] if event.get("name") == "Optimizer.step#AdamW.step"]
    assert len(updates) == 2


def test_a_window_that_the_run_does_not_fill(workers, tiny, tmp_path):
    spec = tiny | {"strategy": "none", "profile_from": 5, "profile_steps": 9, "profile_dir": str(tmp_path)}
    workers.run("trained", {"spec": spec})
    assert [path.name for path in tmp_path.iterdir()] == ["steps-5-end-rank-0.json"]


def test_memory_that_does_not_suffice_is_told_in_numbers(workers, tiny, tmp_path):
    """The allocator's error is thrown by the test: there is no GPU whose memory could run out."""
    spec = tiny | {"strategy": "ddp", "profile_dir": str(tmp_path)}
    (said,) = workers.run("without_memory", {"spec": spec})
    lines = said.splitlines()
    assert lines[0] == "error: the GPU's memory does not suffice"
    assert lines[1] == "  cause: CUDA out of memory. Tried to allocate 20.00 GiB."
    assert lines[2].strip().startswith("needs about 0.00 GiB on each of 1 ranks: ")
    assert lines[-1].startswith("hint: try `activation_checkpointing: true`, then `micro_batch_size: 2` with ")


def test_a_pretended_gpu_keeps_a_snapshot(tmp_path, monkeypatch):
    """What torch writes on a GPU is a mock's here; that it is written, and where it is told, is not."""
    ranks = Ranks(rank=1, world_size=2, local_rank=1, local_world_size=2, device=torch.device("cuda"), run_id="")
    spec = TrainSpec(model="llama-3-8b", data="-", max_steps=1, profile_dir=str(tmp_path / "p"))
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (2**30, 80 * 2**30))
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda: 70 * 2**30)
    monkeypatch.setattr(torch.cuda.memory, "_dump_snapshot", lambda path: Path(path).write_text("snapshot"))
    with pytest.raises(KfjobError) as raised, out_of_memory(spec, ranks):
        raise torch.OutOfMemoryError("CUDA out of memory.\nmore")
    kept = tmp_path / "p" / "memory-rank-1.pickle"
    assert kept.read_text() == "snapshot"
    cause = str(raised.value.cause)
    assert "the device has 80.00 GiB, 1.00 free; this rank holds 70.00" in cause
    assert cause.endswith(f"snapshot for https://pytorch.org/memory_viz: {kept}")


def test_advice_does_not_repeat_what_is_done():
    spec = TrainSpec(model="llama-3-8b", data="-", max_steps=1, activation_checkpointing=True, cpu_offload=True)
    assert advice(spec) == "try more ranks or a shorter `sequence_length`"


def test_deterministic_mode_is_torchs_own(tmp_path):
    program = "import torch\nfrom kfjob.trainer import run\nrun._be_deterministic()\nimport os\n"
    program += "print(torch.are_deterministic_algorithms_enabled(), os.environ['CUBLAS_WORKSPACE_CONFIG'])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=120)
    assert done.stdout.split() == ["True", ":4096:8"]
