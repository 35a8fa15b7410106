"""Training with matrix products in fp8. No CPU has them: torchao computes them in a wider type after the same casts."""

from __future__ import annotations

import json
import sys

import pytest
import torch
from torch.distributed.checkpoint.filesystem import FileSystemReader

from kfjob.base.errors import KfjobError
from kfjob.trainer.export import main
from kfjob.trainer.float8 import check_float8, convert_linear_layers, is_converted
from kfjob.trainer.model import build_meta_model
from kfjob.trainspec.linear_layers import count_float8_weights
from kfjob.trainspec.model_shapes import PRESETS
from kfjob.trainspec.train_spec import TrainSpec
from tests.trainer.test_run import losses

NARROW = PRESETS["micro-llama"].model_copy(update={"intermediate_size": 72})


def make_spec(**changes):
    common = {"model": "micro-llama", "data": "synthetic", "max_steps": 1, "sequence_length": 32}
    return TrainSpec(**common | {"precision": "fp8", "fp8_emulate": True} | changes)


def list_converted(**changes):
    spec = make_spec(**changes)
    model = build_meta_model(spec)
    convert_linear_layers(model, spec)
    return {name for name, module in model.named_modules() if is_converted(module)}


ATTENTION = {f"model.layers.{layer}.self_attn.{name}_proj" for layer in (0, 1) for name in "qkvo"}
FEED_FORWARD = {f"model.layers.{layer}.mlp.{name}_proj" for layer in (0, 1) for name in ("gate", "up", "down")}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, ATTENTION | FEED_FORWARD),
        ({"fp8_recipe": "rowwise"}, ATTENTION | FEED_FORWARD),
        ({"model": NARROW}, ATTENTION),
        ({"model": "micro-mixtral"}, ATTENTION),
        ({"precision": "bf16", "fp8_emulate": False}, set()),
    ],
    ids=["all", "rowwise", "narrow", "experts", "bf16"],
)
def test_only_linear_layers_of_the_decoder_with_fitting_widths_are_converted(changes, expected):
    assert list_converted(**changes) == expected


@pytest.mark.parametrize(
    "model", ["micro-llama", NARROW, "micro-mixtral", "micro-qwen3-moe"], ids=["llama", "narrow", "mixtral", "qwen"]
)
def test_formula_counts_the_converted_weights(model):
    spec = make_spec(model=model)
    network = build_meta_model(spec)
    convert_linear_layers(network, spec)
    count = sum(module.weight.numel() for module in network.modules() if is_converted(module))
    shape = PRESETS[model] if isinstance(model, str) else model
    assert count == shape.num_hidden_layers * count_float8_weights(shape)


def test_router_of_a_model_is_not_converted():
    """A router that is a linear layer, as in families that transformers has not changed yet."""
    spec = make_spec()
    model = build_meta_model(spec)
    model.config.num_experts = 16
    layer = model.model.layers[0]
    layer.gate = torch.nn.Linear(32, 16, device="meta")
    layer.experts = torch.nn.ModuleList([torch.nn.Linear(32, 32, device="meta")])
    convert_linear_layers(model, spec)
    assert not is_converted(layer.gate)
    assert not is_converted(layer.experts[0])
    assert is_converted(layer.mlp.up_proj)


def test_device_without_fp8_is_one_error(monkeypatch):
    with pytest.raises(KfjobError, match="`precision: fp8` needs a GPU"):
        check_float8(make_spec(fp8_emulate=False), torch.device("cpu"))
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (8, 0))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: "NVIDIA A100")
    with pytest.raises(KfjobError, match="the GPU NVIDIA A100 cannot compute in fp8"):
        check_float8(make_spec(fp8_emulate=False), torch.device("cuda"))
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (8, 9))
    check_float8(make_spec(fp8_emulate=False), torch.device("cuda"))


def test_missing_torchao_is_one_error(monkeypatch):
    monkeypatch.setitem(sys.modules, "torchao.float8", None)
    with pytest.raises(KfjobError, match="`precision: fp8` needs the package torchao"):
        list_converted()


@pytest.fixture(scope="module")
def spec_of(tiny):
    return lambda **changes: tiny | {"precision": "fp8", "fp8_emulate": True, "lr": 3e-3} | changes


@pytest.mark.parametrize(
    "changes", [{"sharding": "hybrid", "shard_size": 1}, {"fp8_recipe": "rowwise"}, {"cpu_offload": True}], ids=str
)
def test_two_ranks_have_the_losses_of_one(workers, spec_of, changes):
    spec = spec_of(max_steps=8, **changes)
    (one,) = workers.run("run_training", {"spec": spec | {"micro_batch_size": 4}})
    for result in workers.run("run_training", {"spec": spec | {"micro_batch_size": 2}}, world_size=2):
        assert losses(result) == pytest.approx(losses(one), abs=5e-3)


def test_resume_is_bit_exact(workers, spec_of, tmp_path):
    spec = spec_of(max_steps=6)
    whole = workers.run("run_training", {"spec": spec}, world_size=2)
    parts = spec | {"checkpoint_dir": str(tmp_path / "checkpoints")}
    first = workers.run("run_training", {"spec": parts, "stop_after": 3}, world_size=2)
    second = workers.run("run_training", {"spec": parts}, world_size=2)
    assert losses(first[0]) + losses(second[0]) == losses(whole[0])


def test_checkpoint_holds_plain_weights_for_other_precisions_and_export(workers, spec_of, tmp_path):
    folder = tmp_path / "checkpoints"
    spec = spec_of(max_steps=4, checkpoint_dir=str(folder))
    workers.run("run_training", {"spec": spec}, world_size=2)
    metadata = FileSystemReader(folder / "step-000004").read_metadata().state_dict_metadata
    weight = metadata["model.model.layers.0.mlp.up_proj.weight"]
    assert weight.properties.dtype == torch.float32  # type: ignore[union-attr]
    (resumed,) = workers.run("run_training", {"spec": spec | {"precision": "bf16", "max_steps": 6, "fp8_emulate": False}})
    assert sorted(map(int, resumed["losses"])) == [5, 6]
    assert main([str(folder), str(tmp_path / "model")]) == 0
    assert json.loads((tmp_path / "model" / "config.json").read_text())["model_type"] == "llama"


def test_loaded_weights_get_new_scales(workers, spec_of):
    """Scales of other weights would make large values overflow after a roll-back."""
    old, stale, new = workers.run("load_scaled_weights", {"spec": spec_of()})[0]
    assert stale != old
    assert new == old


@pytest.mark.long  # test_strategies compiles layers, and the tests here compute in fp8
@pytest.mark.parametrize("recipe", ["rowwise", "tensorwise"])
def test_compiled_layers_have_the_losses_of_eager_ones(workers, spec_of, recipe):
    spec = spec_of(max_steps=3, fp8_recipe=recipe)
    (eager,) = workers.run("run_training", {"spec": spec})
    (compiled,) = workers.run("run_training", {"spec": spec | {"compile": True}})
    assert losses(compiled) == pytest.approx(losses(eager), abs=1e-2)
