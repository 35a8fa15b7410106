"""LoRA: adapters of a frozen base, in checkpoints, in PEFT's files, and merged; test_equal.py compares losses with PEFT's."""

from __future__ import annotations

import json
import shutil
import sys
import warnings
from pathlib import Path
from typing import Any

import peft
import pytest
import torch
import transformers
from safetensors.torch import load_file
from torch.distributed.checkpoint.filesystem import FileSystemReader

from kfjob.base.errors import KfjobError
from kfjob.trainer.dry_run import describe_modules
from kfjob.trainer.export import main
from kfjob.trainer.lora import add_adapters, base_name, is_adapter
from kfjob.trainer.model import build_meta_model
from kfjob.trainspec.linear_layers import count_adapters, count_trained, list_linear_layers
from kfjob.trainspec.model_shapes import PRESETS, ModelShape, count_parameters
from kfjob.trainspec.train_fields import LoraSpec
from kfjob.trainspec.train_spec import TrainSpec
from tests.trainer.conftest import SHAPE, save_tiny_llama
from tests.trainer.test_model import build
from tests.trainer.test_pretrained import make_config, save_model
from tests.trainer.test_run import have_same_state, losses, run_in_stages

FAMILIES: dict[str, dict[str, Any]] = {
    "llama": SHAPE | {"num_key_value_heads": 2},
    "mistral": SHAPE | {"architecture": "mistral", "num_key_value_heads": 2},
    "qwen2": SHAPE | {"architecture": "qwen2", "num_key_value_heads": 2, "tie_word_embeddings": True},
    "gpt_neox": SHAPE | {"architecture": "gpt_neox"},
}
LORA: dict[str, Any] = {"r": 4, "lora_alpha": 8}
LONG_RESUMES: list[dict[str, object]] = [
    {"strategy": "ddp", "precision": "bf16-true"},
    {"strategy": "ddp", "precision": "fp16"},
    {"strategy": "fsdp", "sharding": "hybrid", "shard_size": 2},
    {"strategy": "fsdp", "cpu_offload": True},
    {"strategy": "fsdp", "activation_checkpointing": True, "recompute": "cheap"},
    {"strategy": "fsdp", "activation_offload": True},
    {"strategy": "fsdp", "compile": True},
    {"strategy": "deepspeed", "zero_stage": 0},
    {"strategy": "deepspeed", "zero_stage": 1, "precision": "bf16"},
    {"strategy": "deepspeed", "zero_stage": 2},
    {"strategy": "deepspeed", "zero_stage": 3, "cpu_offload": True},
]
IDS = torch.arange(32).reshape(2, 16)


def make_spec(**changes):
    return TrainSpec(**{"model": "micro-llama", "data": "-", "max_steps": 1, "sequence_length": 8, "lora": LORA} | changes)


def compute_logits(model):
    with torch.no_grad():
        return model.eval()(input_ids=IDS).logits


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    """The folder of a Llama with pretrained weights."""
    return save_tiny_llama(tmp_path_factory.mktemp("base") / "model")


@pytest.fixture(scope="module")
def spec(tiny, base):
    return tiny | {"model": base, "vocab_size": None, "lora": LORA, "strategy": "none"}


@pytest.fixture(scope="module")
def checkpoint(workers, spec, tmp_path_factory):
    """A checkpoint of adapters from two ranks with shards."""
    folder = tmp_path_factory.mktemp("adapted")
    changes = {"strategy": "fsdp", "max_steps": 3, "checkpoint_dir": str(folder)}
    workers.run("run_training", {"spec": spec | changes}, world_size=2)
    return folder / "step-000003"


@pytest.mark.parametrize("bias", ["none", "lora_only", "all"])
@pytest.mark.parametrize("architecture", FAMILIES)
def test_counts_equal_those_of_peft(architecture, bias):
    shape = ModelShape(**FAMILIES[architecture])
    first, *_, last = [layer.name for layer in list_linear_layers(shape)]
    for settings in ({}, {"target_modules": [first.rpartition(".")[2]]}, {"exclude_modules": [last]}):
        spec = make_spec(model=shape, lora=LORA | {"bias": bias} | settings)
        model = build_meta_model(spec)
        add_adapters(model, spec)
        assert sum(p.numel() for p in model.parameters() if p.requires_grad) == count_trained(shape, spec.lora)
        assert sum(p.numel() for p in model.parameters()) == count_parameters(shape) + count_adapters(shape, spec.lora)


def test_adapters_of_a_new_base_leave_its_weights_unchanged():
    """The base has the weights that the same seed gives without adapters, and every adapter begins with B = 0."""
    adapted, plain = (build(make_spec(lora=lora, precision="fp32")).state_dict() for lora in (LORA, None))
    names = {base_name(name): tensor for name, tensor in adapted.items() if not is_adapter(name)}
    assert names.keys() == plain.keys()
    assert all(torch.equal(tensor, plain[name]) for name, tensor in names.items())
    adapters = {name: tensor for name, tensor in adapted.items() if is_adapter(name)}
    assert len(adapters) == 2 * 7 * 2
    for name, tensor in adapters.items():
        assert bool(tensor.any()) is (".lora_A." in name), name


@pytest.mark.parametrize(
    ("precision", "frozen", "trained"),
    [
        ("fp32", "float32", "float32"),
        ("bf16", "bfloat16", "float32"),
        ("fp16", "float16", "float32"),
        ("bf16-true", "bfloat16", "bfloat16"),
    ],
)
def test_base_has_the_type_of_the_arithmetic(precision, frozen, trained):
    for name, parameter in build(make_spec(precision=precision)).named_parameters():
        assert parameter.requires_grad is is_adapter(name)
        assert parameter.dtype is getattr(torch, trained if is_adapter(name) else frozen)


def test_module_tree_shows_adapters():
    spec = make_spec()
    model = build_meta_model(spec)
    add_adapters(model, spec)
    lines = [line.strip() for line in describe_modules(model, spec)]
    trained = count_trained(PRESETS["micro-llama"], spec.lora)
    count = count_parameters(PRESETS["micro-llama"]) + trained
    assert lines[0] == f"LlamaForCausalLM with {count} parameters, {trained} of them trained (lora), 4 wrap units and the root"
    assert "q_proj: Linear with an adapter, 1280 parameters" in lines


@pytest.mark.parametrize(
    ("lora", "message"),
    [
        (
            {"target_modules": ["qproj"]},
            "LlamaForCausalLM has no linear layer `qproj` in its decoder\n  --> lora.target_modules",
        ),
        ({"exclude_modules": ["head"]}, "has no linear layer `head` in its decoder\n  --> lora.exclude_modules"),
        ({"target_modules": ["q_proj"], "exclude_modules": ["self_attn.q_proj"]}, "PEFT cannot add the adapters"),
    ],
)
def test_wrong_names_for_a_model_in_a_folder(base, lora, message):
    with pytest.raises(KfjobError) as caught:
        build(make_spec(model=base, lora=lora))
    assert message in str(caught.value)


def test_missing_peft_is_one_message(monkeypatch):
    monkeypatch.setitem(sys.modules, "peft", None)
    with pytest.raises(KfjobError, match="`lora` needs the package peft"):
        build(make_spec())


def test_checkpoint_holds_adapters_only(checkpoint):
    manifest = json.loads((checkpoint / "manifest.json").read_text())
    trained = count_trained(ModelShape(**FAMILIES["llama"]), LoraSpec(**manifest["spec"]["lora"]))
    names = FileSystemReader(checkpoint).read_metadata().state_dict_metadata
    assert sum(".lora_" in name for name in names) == 28 * 4  # each adapter, its two moments and its step
    assert all(".lora_" in name or "param_groups" in name for name in names)
    stored: list[Any] = [tensor for name, tensor in names.items() if name.startswith("model.")]
    assert sum(tensor.size.numel() for tensor in stored) == trained


@pytest.mark.parametrize(
    "change",
    [
        {"strategy": "fsdp", "precision": "bf16"},
        {"strategy": "deepspeed", "zero_stage": 3},
        *(pytest.param(change, marks=pytest.mark.long) for change in LONG_RESUMES),
    ],
    ids=str,
)
def test_resume_of_adapters_is_bit_exact(workers, spec, chat_folder, tmp_path, change):
    """With dropout, and packed conversations."""
    ranks = 4 if "shard_size" in change else 2
    chat = {"data": str(chat_folder), "data_format": "chat", "sequence_length": 128}
    spec = spec | chat | change | {"lora": LORA | {"lora_dropout": 0.1}, "micro_batch_size": 8 // ranks, "max_steps": 4}
    expected, all_batches, end = run_in_stages(workers, spec, [(ranks, None)], folder=tmp_path / "whole")
    resumed, batches, outcome = run_in_stages(workers, spec, [(ranks, 2), (ranks, None)], folder=tmp_path / "parts")
    assert (resumed, batches) == (expected, all_batches)
    assert have_same_state(end["checkpoint"], outcome["checkpoint"], tmp_path)


def test_adapters_resume_with_other_strategies(workers, spec, tmp_path):
    """none -> fsdp on two ranks -> ddp on two ranks, with a base that has moved."""
    spec = spec | {"micro_batch_size": 4, "gradient_accumulation_steps": 2, "max_steps": 6}
    (expected,) = workers.run("run_training", {"spec": spec})
    moved = shutil.copytree(spec["model"], tmp_path / "moved")
    chain: dict[str, float] = {}
    for change, ranks, steps in (({}, 1, 2), ({"strategy": "fsdp"}, 2, 2), ({"strategy": "ddp", "model": str(moved)}, 2, None)):
        part, _, outcome = run_in_stages(workers, spec | change, [(ranks, steps)], folder=tmp_path / "c")
        chain |= part
    assert outcome["step"] == 6
    assert list(chain.values()) == pytest.approx(losses(expected), abs=2e-6, rel=0)


def test_other_base_is_refused(workers, spec, checkpoint, tmp_path):
    resume = spec | {"resume": str(checkpoint), "max_steps": 4}
    other = Path(shutil.copytree(spec["model"], tmp_path / "other"))
    model = transformers.AutoModelForCausalLM.from_pretrained(other)
    with torch.no_grad():
        model.lm_head.weight[0, 0] += 1e-3
    model.save_pretrained(other)
    (message,) = workers.run("error_of_training", {"spec": resume | {"model": str(other)}})
    assert (
        f"error: step-000003 holds adapters of another base model\n  --> {checkpoint}\n  cause: its base is `{spec['model']}`"
        in message
    )
    (message,) = workers.run("error_of_training", {"spec": resume | {"lora": None}})
    assert "error: step-000003 holds adapters, and this run trains all weights" in message
    assert main([str(checkpoint), str(tmp_path / "merged"), "--merge", f"--base={other}"]) == 1


def test_checkpoint_of_all_weights_is_refused(workers, tiny, tmp_path):
    """And so are new weights of another seed."""
    spec = tiny | {"strategy": "none", "max_steps": 1, "checkpoint_dir": str(tmp_path / "full")}
    workers.run("run_training", {"spec": spec})
    (message,) = workers.run("error_of_training", {"spec": spec | {"lora": LORA}})
    assert "error: step-000001 holds all weights, and this run trains adapters (`lora`)" in message
    assert main([str(tmp_path / "full"), str(tmp_path / "merged"), "--merge"]) == 1
    spec |= {"checkpoint_dir": str(tmp_path / "adapters"), "lora": LORA}
    workers.run("run_training", {"spec": spec})
    (message,) = workers.run("error_of_training", {"spec": spec | {"seed": 5, "max_steps": 2}})
    assert "holds adapters of another base model" in message


def load_with_peft(folder, base=None):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # of transformers about PEFT
        if base is None:
            return peft.AutoPeftModelForCausalLM.from_pretrained(folder)
        return peft.PeftModel.from_pretrained(base, folder)


def test_exported_adapters_load_with_peft(workers, spec, checkpoint, tmp_path):
    assert main([str(checkpoint), str(tmp_path / "peft")]) == 0
    config = json.loads((tmp_path / "peft" / "adapter_config.json").read_text())
    assert (config["base_model_name_or_path"], config["r"], config["lora_alpha"]) == (spec["model"], 4, 8)
    assert {"adapter_model.safetensors", "tokenizer.json"} <= {path.name for path in (tmp_path / "peft").iterdir()}
    expected = compute_logits(load_with_peft(tmp_path / "peft"))
    (actual,) = workers.run("compute_logits", {"spec": spec | {"resume": str(checkpoint)}})
    assert torch.equal(torch.tensor(actual), expected)
    base = transformers.AutoModelForCausalLM.from_pretrained(spec["model"])
    assert not torch.allclose(compute_logits(base), expected, atol=1e-2)
    assert main([str(checkpoint), str(tmp_path / "bf16"), "--dtype=bf16"]) == 0
    tensors = load_file(tmp_path / "bf16" / "adapter_model.safetensors")
    assert (len(tensors), {tensor.dtype for tensor in tensors.values()}) == (28, {torch.bfloat16})


def test_merged_weights_have_the_logits_of_the_adapters(workers, spec, checkpoint, tmp_path):
    moved = shutil.copytree(spec["model"], tmp_path / "moved")
    assert main([str(checkpoint), str(tmp_path / "merged"), "--merge", f"--base={moved}"]) == 0
    merged = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "merged")
    (expected,) = workers.run("compute_logits", {"spec": spec | {"resume": str(checkpoint)}})
    assert torch.allclose(compute_logits(merged), torch.tensor(expected), rtol=0, atol=1e-5)
    assert not any("lora" in name for name in merged.state_dict())
    assert main([str(checkpoint), str(tmp_path / "merged.pt"), "--merge", "--format=torch"]) == 0
    state = torch.load(tmp_path / "merged.pt", weights_only=True)
    assert all(torch.equal(state[name], tensor) for name, tensor in merged.state_dict().items())


@pytest.mark.parametrize(("family", "targets"), [("GPT2", "all-linear"), ("Mixtral", "q_proj,v_proj")])
def test_adapters_of_other_families_are_merged(workers, tiny, tmp_path, family, targets):
    """GPT-2 has Conv1D instead of linear layers, and Mixtral is a mixture of experts."""
    base = save_model(transformers.AutoModelForCausalLM.from_config(make_config(family)), tmp_path / "model")
    spec = tiny | {"model": base, "vocab_size": None, "lora": LORA | {"target_modules": targets}, "strategy": "none"}
    folder = tmp_path / "c"
    workers.run("run_training", {"spec": spec | {"max_steps": 2, "checkpoint_dir": str(folder)}})
    (expected,) = workers.run("compute_logits", {"spec": spec | {"resume": str(folder / "step-000002")}})
    assert main([str(folder), str(tmp_path / "merged"), "--merge"]) == 0
    merged = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "merged")
    assert torch.allclose(compute_logits(merged), torch.tensor(expected), rtol=0, atol=1e-5)


def test_adapters_of_experts_are_refused(tmp_path):
    make_config("Mixtral").save_pretrained(tmp_path)
    with pytest.raises(KfjobError, match="adapters of the experts of MixtralForCausalLM are not supported"):
        build(make_spec(model=str(tmp_path)))


@pytest.mark.parametrize("architecture", ["qwen2", "gpt_neox"])
def test_trained_biases_are_exported(workers, tiny, tmp_path, architecture):
    """The base has new weights, tied embeddings (qwen2) and biases."""
    spec = tiny | {"model": FAMILIES[architecture], "vocab_size": None, "lora": LORA | {"bias": "all"}, "strategy": "none"}
    folder = tmp_path / "c"
    workers.run("run_training", {"spec": spec | {"max_steps": 2, "checkpoint_dir": str(folder)}})
    (expected,) = workers.run("compute_logits", {"spec": spec | {"resume": str(folder / "step-000002")}})
    assert main([str(folder), str(tmp_path / "peft")]) == 0
    assert any("bias" in name for name in load_file(tmp_path / "peft" / "adapter_model.safetensors"))
    assert main([str(folder), str(tmp_path / "merged"), "--merge"]) == 0
    merged = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "merged")
    assert torch.allclose(compute_logits(merged), torch.tensor(expected), rtol=0, atol=1e-5)
    plain = build(TrainSpec(**spec | {"lora": None, "precision": "fp32"}))
    assert torch.allclose(compute_logits(load_with_peft(tmp_path / "peft", plain)), torch.tensor(expected), rtol=0, atol=1e-5)
