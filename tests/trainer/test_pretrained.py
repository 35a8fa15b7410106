"""Pretrained weights under every strategy: the losses equal those of transformers, and no rank holds the full model."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import transformers

from kfjob.base.errors import KfjobError
from kfjob.trainer.model import make_config_arguments
from kfjob.trainer.weights import INDEX, PretrainedWeights
from kfjob.trainspec.memory import count_layer_parameters
from kfjob.trainspec.model_shapes import ModelShape, count_parameters
from tests.trainer.fake_hub import FakeHub
from tests.trainer.test_run import losses

SHAPE = {"vocab_size": 320, "hidden_size": 48, "intermediate_size": 96, "num_hidden_layers": 10, "num_attention_heads": 4}
SMALL = {"vocab_size": 320, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
WIDE = SMALL | {"intermediate_size": 64, "num_key_value_heads": 2, "head_dim": 8, "pad_token_id": 0}
FAMILIES = {
    "GPT2": SMALL,
    "Phi3": WIDE,
    "Qwen3": WIDE,
    "Gemma2": WIDE,
    "Olmo2": WIDE,
    "Mixtral": WIDE | {"num_local_experts": 4},
}
"""Families without a preset; the last one is a mixture of experts."""


def save_model(model, folder):
    """Save with the model's own names; those of the original files differ for mixtures of experts."""
    model.save_pretrained(folder, max_shard_size="60KB", save_original_format=False)
    assert (folder / "model.safetensors.index.json").exists()
    return str(folder)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    torch.manual_seed(3)
    config = transformers.LlamaConfig(**make_config_arguments(ModelShape(**SHAPE)))
    return save_model(transformers.LlamaForCausalLM(config), tmp_path_factory.mktemp("llama") / "model")


def make_config(family):
    config = getattr(transformers, f"{family}Config")(**FAMILIES[family])
    for name in vars(config):
        if "drop" in name and isinstance(getattr(config, name), float):
            setattr(config, name, 0.0)
    return config


@pytest.fixture(scope="module")
def reference(workers, tiny, folder):
    spec = tiny | {"model": folder, "vocab_size": None, "strategy": "none", "micro_batch_size": 8, "max_steps": 3}
    (result,) = workers.run("run_training", {"spec": spec})
    return losses(result)


@pytest.mark.parametrize(
    "change",
    [
        {"strategy": "ddp"},
        {"strategy": "fsdp"},
        {"strategy": "fsdp", "cpu_offload": True},
        {"strategy": "deepspeed", "zero_stage": 1},
        {"strategy": "deepspeed", "zero_stage": 3},
    ],
    ids=lambda change: "-".join(map(str, change.values())),
)
def test_two_ranks_train_pretrained_weights(workers, tiny, folder, reference, change):
    spec = tiny | {"model": folder, "vocab_size": None, "max_steps": 3} | change
    for result in workers.run("run_training", {"spec": spec}, world_size=2):
        assert losses(result) == pytest.approx(reference, abs=2e-6, rel=0)


def test_build_needs_at_most_a_shard_and_two_units(workers, tiny, folder):
    """Half of the model and two units: a full unit, and its shard or the tensors just read."""
    spec = tiny | {"model": folder, "vocab_size": None, "strategy": "fsdp"}
    shape = ModelShape(**SHAPE)
    model_bytes, unit_bytes = (
        4 * count_parameters(shape),
        4 * max(count_layer_parameters(shape), SHAPE["vocab_size"] * SHAPE["hidden_size"]),
    )
    for peak in workers.run("measure_build_peak", {"spec": spec}, world_size=2):
        assert model_bytes / 2 <= peak <= model_bytes / 2 + 2 * unit_bytes < model_bytes


def test_sharded_ranks_read_each_weight_once_and_a_resume_reads_none(workers, tiny, folder, tmp_path):
    spec = tiny | {"model": folder, "vocab_size": None, "max_steps": 1, "checkpoint_dir": str(tmp_path)}
    whole = count_parameters(ModelShape(**SHAPE))
    fsdp = {"spec": spec | {"strategy": "fsdp"}}
    assert sum(workers.run("count_read_weights", fsdp, world_size=2)) == whole
    assert workers.run("count_read_weights", fsdp, world_size=2) == [0, 0]
    fresh = {"spec": spec | {"strategy": "ddp", "checkpoint_dir": None}}
    assert workers.run("count_read_weights", fresh, world_size=2) == [whole, whole]


@pytest.mark.parametrize("family", FAMILIES)
def test_families_without_a_preset_have_transformers_losses(workers, tiny, tmp_path, family):
    """The first loss equals that of transformers' own model, and two ranks have the losses of one."""
    torch.manual_seed(3)
    config = make_config(family)
    spec = tiny | {"model": save_model(transformers.AutoModelForCausalLM.from_config(config), tmp_path / "model")}
    spec |= {"vocab_size": None, "max_steps": 2, "router_aux_loss_coef": 0}  # which depends on the size of micro-batches
    (single,) = workers.run("run_training", {"spec": spec | {"strategy": "none", "micro_batch_size": 8}})
    for result in workers.run("run_training", {"spec": spec | {"strategy": "fsdp"}}, world_size=2):
        assert losses(result) == pytest.approx(losses(single), abs=2e-6, rel=0)
    (expected,) = workers.run("compute_transformers_loss", {"spec": spec | {"micro_batch_size": 8}})
    assert losses(single)[0] == pytest.approx(expected, abs=1e-5)


FROM_THE_HUB = """
import sys
from kfjob.base.errors import KfjobError
from kfjob.trainspec.train_spec import TrainSpec
from kfjob.trainer.distributed import Ranks
from kfjob.trainer.dry_run import print_dry_run
from kfjob.trainer.model import build_model
from kfjob.trainer.strategies import make_strategy

def build(**model):
    spec = TrainSpec(data="-", max_steps=1, strategy="none", **model)
    return build_model(spec, make_strategy(spec, ranks), ranks.device)

ranks = Ranks.join()
print_dry_run(TrainSpec(model="someone/llama", data="-", max_steps=1))
actual, reference = build(model="someone/llama", model_revision="main").state_dict(), build(model=sys.argv[1]).state_dict()
print(all((actual[name] == reference[name]).all() for name in reference), len(actual) == len(reference))
try:
    build(model="someone/nothing")
except KfjobError as error:
    print(error)
"""


def test_model_from_the_hub(folder, tmp_path):
    files = {path.name: path.read_bytes() for path in Path(folder).iterdir()}
    unneeded = {
        "consolidated.safetensors": b"twice",
        "original/consolidated.safetensors": b"thrice",
        "pytorch_model.bin": b"old",
    }
    with FakeHub({"models/someone/llama": files | unneeded}) as hub:
        process = subprocess.run(
            [sys.executable, "-c", FROM_THE_HUB, folder],
            env=os.environ | {"HF_ENDPOINT": hub.endpoint, "HF_HOME": str(tmp_path)},
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
    assert process.returncode == 0, process.stderr
    assert process.stdout.startswith("LlamaForCausalLM with ")
    assert "\nTrue True\nerror: no model at `someone/nothing`\n  --> model\n" in process.stdout
    downloaded = {path.name for path in tmp_path.rglob("snapshots/*/*")}
    assert downloaded == {"config.json", *json.loads(files["model.safetensors.index.json"])["weight_map"].values()} | {
        "model.safetensors.index.json"
    }


def test_hint_for_files_with_other_names(workers, tiny, folder, tmp_path):
    copy = shutil.copytree(folder, tmp_path / "model")
    index = json.loads((copy / INDEX).read_text())
    index["weight_map"]["model.other.weight"] = index["weight_map"].pop("model.norm.weight")
    (copy / INDEX).write_text(json.dumps(index))
    spec = tiny | {"model": str(copy), "vocab_size": None}
    (message,) = workers.run("error_of_training", {"spec": spec})
    assert "the pretrained weights have no `model.norm.weight`" in message
    assert "save_original_format=False" in message


@pytest.mark.parametrize("name", ["../x.safetensors", "/etc/hostname", "pipe", ".", "absent.safetensors"])
def test_index_names_only_files_in_its_folder(tmp_path, name):
    folder = tmp_path / "model"
    folder.mkdir()
    (tmp_path / "x.safetensors").touch()
    os.mkfifo(folder / "pipe")
    (folder / INDEX).write_text(json.dumps({"weight_map": {"model.norm.weight": name}}))
    with pytest.raises(KfjobError) as caught:
        PretrainedWeights.open(folder)
    assert caught.value.cause == f"`{name}` is not the name of a file in the folder"
