from __future__ import annotations

import pytest
import torch

from kfjob.base.errors import KfjobError
from kfjob.trainer.distributed import Ranks
from kfjob.trainer.model import (
    build_meta_model,
    build_model,
    find_decoder_layers,
    find_wrap_units,
    has_tied_embeddings,
    make_config_arguments,
)
from kfjob.trainer.optim import compute_learning_rate, make_optimizer
from kfjob.trainer.strategies import SingleProcess
from kfjob.trainspec.model_shapes import PRESETS, ModelShape, count_parameters
from kfjob.trainspec.train_spec import TrainSpec

SMALL = {"vocab_size": 64, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 3, "num_attention_heads": 4}
FAMILIES = ["llama", "mistral", "qwen2", "gpt_neox"]


def make_spec(**changes):
    return TrainSpec(
        **{"model": "micro-llama", "data": "-", "max_steps": 10, "sequence_length": 8, "precision": "fp32", **changes}
    )


SINGLE_RANK = Ranks(rank=0, world_size=1, local_rank=0, local_world_size=1, device=torch.device("cpu"), run_id="")


def build(spec):
    return build_model(spec, SingleProcess(spec, SINGLE_RANK), torch.device("cpu"))


@pytest.mark.parametrize("architecture", FAMILIES)
@pytest.mark.parametrize("tie", [False, True])
def test_all_tensors_are_initialised_and_tied_embeddings_stay_tied(architecture, tie):
    model = build(make_spec(model=ModelShape(**SMALL, architecture=architecture, tie_word_embeddings=tie)))
    assert has_tied_embeddings(model) is tie
    for name, value in [*model.named_parameters(), *model.named_buffers()]:
        tensor = value.detach()
        assert not tensor.is_meta, name
        assert torch.isfinite(tensor).all(), name
        deviation = float(tensor.std()) if tensor.ndim >= 2 else None
        assert deviation is None or 0.015 < deviation < 0.025, name
    assert float(model.get_input_embeddings().weight.detach().abs().max()) < 0.2


@pytest.mark.parametrize("name", ["micro-llama", "gpt-neox-small", "llama-3.2-1b"])
def test_rotary_frequencies_equal_those_of_a_plain_model(name):
    small = {"num_hidden_layers": 1, "vocab_size": 64}
    shape = PRESETS[name].model_copy(update=small)
    model = build(make_spec(model=shape))
    plain = type(model)(type(model.config)(**make_config_arguments(shape)))
    actual = {name: buffer for name, buffer in model.named_buffers() if "inv_freq" in name}
    reference = {name: buffer for name, buffer in plain.named_buffers() if "inv_freq" in name}
    assert actual.keys() == reference.keys() != set()
    assert all(torch.equal(actual[name], reference[name]) for name in actual)


def test_weights_depend_only_on_the_seed():
    first, again, other = (dict(build(make_spec(seed=seed)).named_parameters()) for seed in (1, 1, 2))
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not any(torch.equal(first[name], other[name]) for name in first if "norm" not in name)
    layers = [first[f"model.layers.{layer}.self_attn.q_proj.weight"] for layer in (0, 1)]
    assert not torch.equal(*layers)


@pytest.mark.parametrize("architecture", FAMILIES)
def test_units_are_the_layers_and_untied_embeddings(architecture):
    for tie in (False, True):
        model = build_meta_model(make_spec(model=ModelShape(**SMALL, architecture=architecture, tie_word_embeddings=tie)))
        names = [name for name, _ in find_wrap_units(model)]
        assert [name.rsplit(".", 2)[-2:] for name in names[:3]] == [["layers", "0"], ["layers", "1"], ["layers", "2"]]
        assert len(names) == (3 if tie else 5)


def test_layer_classes_can_be_a_list_or_a_set():
    model = build_meta_model(make_spec())
    for kind in (list, set, tuple):
        model._no_split_modules = kind(["LlamaDecoderLayer"])
        assert len(find_decoder_layers(model)) == 2


@pytest.mark.parametrize(("classes", "count"), [(None, 0), (["LlamaMLP", "LlamaDecoderLayer"], 4)])
def test_wrong_number_of_layers_is_an_error(classes, count):
    model = build_meta_model(make_spec())
    model._no_split_modules = classes
    with pytest.raises(KfjobError, match=f"LlamaForCausalLM has {count} decoder layers, its configuration has 2"):
        find_wrap_units(model)


@pytest.mark.parametrize("tie", [False, True])
def test_pretrained_weights_give_the_same_logits_as_transformers(tmp_path, tie):
    from transformers import AutoModelForCausalLM

    source = build(make_spec(model=ModelShape(**SMALL, tie_word_embeddings=tie), seed=3))
    source.save_pretrained(tmp_path / "model", max_shard_size="20KB")
    assert len(list((tmp_path / "model").glob("*.safetensors"))) > 1
    actual = build(make_spec(model=str(tmp_path / "model"), seed=4)).eval()
    reference = AutoModelForCausalLM.from_pretrained(tmp_path / "model").eval()
    tokens = torch.arange(8).reshape(1, 8)
    with torch.no_grad():
        assert torch.equal(actual(input_ids=tokens).logits, reference(input_ids=tokens).logits)
    assert has_tied_embeddings(actual) is tie


def test_folder_without_weights_initialises_new_ones(tmp_path):
    source = build(make_spec(seed=3))
    source.config.save_pretrained(tmp_path / "model")
    fresh = build(make_spec(model=str(tmp_path / "model"), seed=3))
    assert all(torch.equal(a, b) for a, b in zip(fresh.parameters(), source.parameters(), strict=True))


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda folder: (folder / "config.json").unlink(), "no model at"),
        (lambda folder: (folder / "config.json").write_text("{"), "cannot read the model configuration"),
        (lambda folder: (folder / "config.json").write_text("{}"), "cannot read the model configuration"),
        (lambda folder: (folder / "model.safetensors").rename(folder / "pytorch_model.bin"), "cannot read the weights"),
        (lambda folder: (folder / "model.safetensors").write_bytes(b"nothing"), "cannot read the weights"),
    ],
)
def test_invalid_model_folder_is_an_error(tmp_path, damage, message):
    build(make_spec()).save_pretrained(tmp_path / "model")
    damage(tmp_path / "model")
    with pytest.raises(KfjobError, match=message):
        build(make_spec(model=str(tmp_path / "model")))


def test_pretrained_weights_of_another_shape_are_an_error(tmp_path):
    build(make_spec(model=ModelShape(**SMALL))).save_pretrained(tmp_path / "a")
    build(make_spec(model=ModelShape(**SMALL | {"intermediate_size": 96}))).config.save_pretrained(tmp_path / "a")
    with pytest.raises(KfjobError, match=r"the pretrained `.*mlp.* has shape \(64, 32\), the model's is \(96, 32\)"):
        build(make_spec(model=str(tmp_path / "a")))


def test_norms_and_biases_have_no_weight_decay():
    model = build(make_spec(model=ModelShape(**SMALL, architecture="gpt_neox")))
    with_decay, without_decay = make_optimizer(model, make_spec(weight_decay=0.3)).param_groups
    assert with_decay["weight_decay"] == 0.3
    assert without_decay["weight_decay"] == 0
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    assert all("norm" in names[id(p)] or "bias" in names[id(p)] for p in without_decay["params"])
    assert not any("norm" in names[id(p)] or "bias" in names[id(p)] for p in with_decay["params"])
    assert len(with_decay["params"]) + len(without_decay["params"]) == len(names)


@pytest.mark.parametrize(
    ("schedule", "rates"),
    [
        ("cosine", [0.5, 1.0, 1.0, 0.8682, 0.55, 0.2318, 0.1]),
        ("linear", [0.5, 1.0, 1.0, 0.775, 0.55, 0.325, 0.1]),
        ("constant", [0.5, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0]),
    ],
)
def test_learning_rate_schedules(schedule, rates):
    spec = make_spec(lr=1.0, schedule=schedule, warmup_steps=2)
    assert [round(compute_learning_rate(step, 7, spec), 4) for step in range(7)] == rates


def test_learning_rates_of_very_short_runs():
    for steps, warmup in ((1, 0), (1, 1), (2, 5), (3, 3)):
        spec = make_spec(lr=1.0, warmup_steps=warmup)
        assert all(0 < compute_learning_rate(step, steps, spec) <= 1 for step in range(steps))


@pytest.mark.parametrize("name", PRESETS)
def test_counts_equal_those_of_transformers(name):
    model = build_meta_model(TrainSpec(model=name, data="-", max_steps=1, sequence_length=8))
    assert sum(parameter.numel() for parameter in model.parameters()) == count_parameters(PRESETS[name])
    assert has_tied_embeddings(model) == PRESETS[name].tie_word_embeddings
