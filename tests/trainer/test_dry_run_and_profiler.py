"""Dry runs, the step profiler, out-of-memory errors and deterministic mode."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import torch

from kfjob.base.errors import KfjobError
from kfjob.base.units import GIB
from kfjob.trainer import dry_run
from kfjob.trainer.__main__ import main
from kfjob.trainer.distributed import Ranks
from kfjob.trainer.dry_run import describe_modules, print_dry_run
from kfjob.trainer.model import build_meta_model
from kfjob.trainer.profiler import explain_out_of_memory, suggest_changes
from kfjob.trainspec.defaults import Device
from kfjob.trainspec.memory_table import describe_memory
from kfjob.trainspec.train_spec import TrainSpec
from tests.trainer.forked import Program


def test_dry_run_needs_neither_data_nor_ranks(capsys):
    assert main(["--model=llama-2-70b", "--data=nowhere", "--max-steps=5", "--dry-run"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "LlamaForCausalLM with 68976648192 parameters, 82 wrap units and the root"
    assert any("0 … 79 (80): LlamaDecoderLayer, 855654400 parameters  <- unit" in line for line in lines)
    assert "embedding and head are in units of their own" in lines


def test_tied_embeddings_are_in_the_root_unit():
    spec = TrainSpec(model="qwen2-1.5b", data="-", max_steps=1)
    lines = list(describe_modules(build_meta_model(spec), spec))
    assert lines[0] == "Qwen2ForCausalLM with 1543714304 parameters, 28 wrap units and the root"
    assert lines[-1] == "embedding and head are in the root unit, because they are tied"


@pytest.mark.parametrize("preset", ["llama-3.2-1b", "mistral-7b", "qwen2-1.5b", "gpt-neox-small"])
def test_model_folder_has_the_same_dry_run_as_its_preset(tmp_path, capsys, preset):
    outputs = []
    build_meta_model(TrainSpec(model=preset, data="-", max_steps=1)).config.save_pretrained(tmp_path)
    for model in (preset, str(tmp_path)):
        print_dry_run(TrainSpec(model=model, data="-", max_steps=1))
        outputs.append(capsys.readouterr().out)
    assert outputs[0] == outputs[1]
    assert "  <- this one" in outputs[0]


def test_dry_run_on_a_gpu_has_the_defaults_of_a_run_there(capsys, monkeypatch):
    monkeypatch.setattr(dry_run, "find_own_device", lambda _: Device(kind="cuda", memory=20 * GIB))
    print_dry_run(TrainSpec(model="llama-3.2-1b", data="-", max_steps=1, gradient_accumulation_steps=4))
    output = capsys.readouterr().out
    assert "\nDefault compile: true, because the device is a GPU\n" in output
    assert "\nDefault activation_checkpointing: true, recompute: all, because the estimate is " in output
    assert "\nDefault micro_batch_size: 1, gradient_accumulation_steps: 4, because" in output
    assert "no GPU" not in output


def test_dry_run_without_a_gpu_says_that_a_run_on_gpus_differs(capsys):
    spec = TrainSpec(model="micro-llama", data="-", max_steps=1, sequence_length=16)
    print_dry_run(spec)
    message = "a run on GPUs chooses `compile`, `activation_checkpointing`, `micro_batch_size`"
    assert message in capsys.readouterr().out
    print_dry_run(spec.model_copy(update={"compile": False, "activation_checkpointing": False, "micro_batch_size": 1}))
    assert "no GPU" not in capsys.readouterr().out


def test_memory_table_ignores_disk_offload(tmp_path):
    deepspeed = {"model": "llama-3-8b", "data": "-", "max_steps": 1, "strategy": "deepspeed", "zero_stage": 3}
    table = list(describe_memory(TrainSpec.model_validate(deepspeed | {"disk_offload": str(tmp_path)}), 16, 8))
    assert table == [line.removesuffix("  <- this one") for line in describe_memory(TrainSpec.model_validate(deepspeed), 16, 8)]
    assert len(table) > 16


def test_profiled_steps_are_a_chrome_trace(workers, tiny, tmp_path):
    spec = tiny | {"strategy": "fsdp", "profile_from": 3, "profile_steps": 2, "profile_dir": str(tmp_path / "p")}
    workers.run("run_training", {"spec": spec}, world_size=2)
    assert sorted(path.name for path in (tmp_path / "p").iterdir()) == ["steps-3-4-rank-0.json", "steps-3-4-rank-1.json"]
    trace = json.loads((tmp_path / "p" / "steps-3-4-rank-0.json").read_text())
    optimizer_steps = [event for event in trace["traceEvents"] if event.get("name") == "Optimizer.step#AdamW.step"]
    assert len(optimizer_steps) == 2


def test_trace_is_written_if_the_run_ends_early(workers, tiny, tmp_path):
    spec = tiny | {"strategy": "none", "profile_from": 5, "profile_steps": 9, "profile_dir": str(tmp_path)}
    workers.run("run_training", {"spec": spec})
    assert [path.name for path in tmp_path.iterdir()] == ["steps-5-end-rank-0.json"]


def test_out_of_memory_error_has_numbers(workers, tiny, tmp_path):
    """The program raises the allocator's error itself, because there is no GPU."""
    spec = tiny | {"strategy": "ddp", "profile_dir": str(tmp_path)}
    (message,) = workers.run("train_out_of_memory", {"spec": spec})
    lines = message.splitlines()
    assert lines[0] == "error: the GPU is out of memory"
    assert lines[1] == "  cause: CUDA out of memory. Tried to allocate 20.00 GiB."
    assert lines[2].strip().startswith("needs about 0.00 GiB on each of 1 ranks: ")
    assert re.match(r"hint: try `.*: .*` \(\d+\.\d\d -> \d+\.\d\d GiB\)", lines[-1])


def test_out_of_memory_on_a_mocked_gpu_writes_a_snapshot(tmp_path, monkeypatch):
    """Only torch's calls for the GPU are mocked."""
    ranks = Ranks(rank=1, world_size=2, local_rank=1, local_world_size=2, device=torch.device("cuda"), run_id="")
    spec = TrainSpec(model="llama-3-8b", data="-", max_steps=1, profile_dir=str(tmp_path / "p"))
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (2**30, 80 * 2**30))
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda: 70 * 2**30)
    monkeypatch.setattr(torch.cuda.memory, "_dump_snapshot", lambda path: Path(path).write_text("snapshot"))
    with pytest.raises(KfjobError) as raised, explain_out_of_memory(spec, ranks):
        raise torch.OutOfMemoryError("CUDA out of memory.\nmore")
    snapshot = tmp_path / "p" / "memory-rank-1.pickle"
    assert snapshot.read_text() == "snapshot"
    cause = str(raised.value.cause)
    assert "the device has 80.00 GiB, 1.00 free; this rank uses 70.00" in cause
    assert cause.endswith(f"snapshot for https://pytorch.org/memory_viz: {snapshot}")


def test_hint_names_what_helps():
    """Whole gradients in fp32 are the largest part of an 8B model on eight ranks; a node more is named, not counted here."""
    ranks = Ranks(rank=0, world_size=8, local_rank=0, local_world_size=8, device=torch.device("cpu"), run_id="")
    spec = TrainSpec(
        model="llama-3-8b",
        data="-",
        max_steps=1,
        accumulate="whole",
        gradient_accumulation_steps=8,
        activation_checkpointing=True,
    )
    hint = suggest_changes(spec, ranks)
    ((peak, smaller),) = re.findall(r"try `accumulate: sharded` \((\d+\.\d+) -> (\d+\.\d+) GiB\)", hint)
    assert float(peak) - float(smaller) == pytest.approx(8.03e9 * 4 * 7 / 8 / 2**30, rel=0.05)
    assert "activation_checkpointing" not in hint
    assert "loss_chunk" not in hint
    assert "`cpu_offload: true` (" in hint
    everything = spec.model_copy(update={"accumulate": "sharded", "cpu_offload": True})
    assert "accumulate" not in suggest_changes(everything, ranks)
    assert "cpu_offload" not in suggest_changes(everything, ranks)
    unknown = spec.model_copy(update={"model": "some/folder"})
    assert suggest_changes(unknown, ranks).startswith("try `activation_checkpointing: true`, a smaller")


def test_deterministic_mode_enables_torchs():
    program = "import torch\nfrom kfjob.trainer import run\nrun._use_deterministic_algorithms()\nimport os\n"
    program += "print(torch.are_deterministic_algorithms_enabled(), os.environ['CUBLAS_WORKSPACE_CONFIG'])"
    assert Program(program).communicate(timeout=120).split() == ["True", ":4096:8"]
