"""Pretrained weights under every strategy: what transformers computes with them, and no rank ever holds all of them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import transformers

from kfjob.spec.memory import count_layer_parameters
from kfjob.spec.models import ModelShape, count_parameters
from kfjob.trainer.model import make_config_arguments
from tests.trainer.fake_hub import FakeHub

SHAPE = {"vocab_size": 320, "hidden_size": 48, "intermediate_size": 96, "num_hidden_layers": 10, "num_attention_heads": 4}
SMALL = {"vocab_size": 320, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
WIDE = SMALL | {"intermediate_size": 64, "num_key_value_heads": 2, "head_dim": 8, "pad_token_id": 0}
OTHERS = {
    "GPT2": SMALL,
    "Phi3": WIDE,
    "Qwen3": WIDE,
    "Gemma2": WIDE,
    "Olmo2": WIDE,
    "Mixtral": WIDE | {"num_local_experts": 4},
}
"""Families that have no preset, the last a mixture of experts."""


def saved(model, folder):
    """Names as the model has them, which for mixtures of experts are not those of the original files."""
    model.save_pretrained(folder, max_shard_size="60KB", save_original_format=False)
    assert (folder / "model.safetensors.index.json").exists()
    return str(folder)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    torch.manual_seed(3)
    config = transformers.LlamaConfig(**make_config_arguments(ModelShape(**SHAPE)))
    return saved(transformers.LlamaForCausalLM(config), tmp_path_factory.mktemp("llama") / "model")


def configured(family):
    config = getattr(transformers, f"{family}Config")(**OTHERS[family])
    for name in vars(config):
        if "drop" in name and isinstance(getattr(config, name), float):
            setattr(config, name, 0.0)
    return config


def losses(results):
    return [list(result["losses"].values()) for result in results]


@pytest.fixture(scope="module")
def alone(workers, tiny, folder):
    spec = tiny | {"model": folder, "vocab_size": None, "strategy": "none", "micro_batch_size": 8, "max_steps": 3}
    return losses(workers.run("run_training", {"spec": spec}))[0]


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
def test_two_ranks_go_on_from_them(workers, tiny, folder, alone, change):
    spec = tiny | {"model": folder, "vocab_size": None, "max_steps": 3} | change
    for found in losses(workers.run("run_training", {"spec": spec}, world_size=2)):
        assert found == pytest.approx(alone, abs=2e-6, rel=0)


def test_no_rank_ever_holds_more_than_its_part_and_a_unit(workers, tiny, folder):
    """Half of the model, and twice a unit: whole, and its shard or what is just read."""
    spec = tiny | {"model": folder, "vocab_size": None, "strategy": "fsdp"}
    shape = ModelShape(**SHAPE)
    whole, unit = (
        4 * count_parameters(shape),
        4 * max(count_layer_parameters(shape), SHAPE["vocab_size"] * SHAPE["hidden_size"]),
    )
    for peak in workers.run("measure_build_peak", {"spec": spec}, world_size=2):
        assert whole / 2 <= peak <= whole / 2 + 2 * unit < whole


@pytest.mark.parametrize("family", OTHERS)
def test_families_without_a_preset_train_as_transformers_has_them(workers, tiny, tmp_path, family):
    """The first loss is that of transformers' own model on the same samples, and two ranks have the losses of one."""
    torch.manual_seed(3)
    config = configured(family)
    spec = tiny | {"model": saved(transformers.AutoModelForCausalLM.from_config(config), tmp_path / "model")}
    spec |= {"vocab_size": None, "max_steps": 2}
    (whole,) = losses(workers.run("run_training", {"spec": spec | {"strategy": "none", "micro_batch_size": 8}}))
    for found in losses(workers.run("run_training", {"spec": spec | {"strategy": "fsdp"}}, world_size=2)):
        assert found == pytest.approx(whole, abs=2e-6, rel=0)
    (theirs,) = workers.run("compute_transformers_loss", {"spec": spec | {"micro_batch_size": 8}})
    assert whole[0] == pytest.approx(theirs, abs=1e-5)


FROM_THE_HUB = """
import sys
from kfjob.errors import KfjobError
from kfjob.spec.train import TrainSpec
from kfjob.trainer.distributed import Ranks
from kfjob.trainer.dry_run import print_dry_run
from kfjob.trainer.model import build_model
from kfjob.trainer.strategies import make_strategy

def built(**model):
    spec = TrainSpec(data="-", max_steps=1, strategy="none", **model)
    return build_model(spec, make_strategy(spec, ranks), ranks.device)

ranks = Ranks.join()
print_dry_run(TrainSpec(model="someone/llama", data="-", max_steps=1))
ours, theirs = built(model="someone/llama", model_revision="main").state_dict(), built(model=sys.argv[1]).state_dict()
print(all((ours[name] == theirs[name]).all() for name in theirs), len(ours) == len(theirs))
try:
    built(model="someone/nothing")
except KfjobError as error:
    print(error)
"""


def test_a_model_of_the_hub(folder, tmp_path):
    files = {path.name: path.read_bytes() for path in Path(folder).iterdir()}
    besides = {
        "consolidated.safetensors": b"twice",
        "original/consolidated.safetensors": b"thrice",
        "pytorch_model.bin": b"old",
    }
    with FakeHub({"models/someone/llama": files | besides}) as hub:
        done = subprocess.run(
            [sys.executable, "-c", FROM_THE_HUB, folder],
            env=os.environ | {"HF_ENDPOINT": hub.endpoint, "HF_HOME": str(tmp_path)},
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("LlamaForCausalLM with ")
    assert "\nTrue True\nerror: no model at `someone/nothing`\n  --> model\n" in done.stdout
    brought = {path.name for path in tmp_path.rglob("snapshots/*/*")}
    assert brought == {"config.json", *json.loads(files["model.safetensors.index.json"])["weight_map"].values()} | {
        "model.safetensors.index.json"
    }


def test_files_with_other_names_are_pointed_out(workers, tiny, tmp_path):
    config = configured("Mixtral")
    transformers.AutoModelForCausalLM.from_config(config).save_pretrained(tmp_path / "model")
    spec = tiny | {"model": str(tmp_path / "model"), "vocab_size": None}
    (said,) = workers.run("error_of_training", {"spec": spec})
    assert "the pretrained weights have no `model.layers.0." in said
    assert "save_original_format=False" in said
