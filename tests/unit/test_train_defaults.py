"""The trainer's defaults that depend on the device."""

from __future__ import annotations

import pytest

from kfjob.base.units import GIB
from kfjob.trainspec.command_line import from_argv, to_argv
from kfjob.trainspec.defaults import USABLE, Device, choose_defaults, predict_choices
from kfjob.trainspec.memory import RESERVED, estimate_memory
from kfjob.trainspec.memory_setup import make_setup
from kfjob.trainspec.model_shapes import PRESETS
from kfjob.trainspec.train_spec import TrainSpec

GPU = Device(kind="cuda", memory=80 * GIB)


def make_spec(**changes):
    common = {"model": "llama-3.2-1b", "data": "/data", "max_steps": 10, "sequence_length": 2048}
    return TrainSpec(**common | changes)


def choose(spec, device=GPU, ranks=8, **arguments):
    return choose_defaults(spec, device, world_size=ranks, local_world_size=ranks, **arguments)


def values(spec):
    return spec.compile, spec.activation_checkpointing, spec.micro_batch_size


def test_cpu_has_plain_defaults_without_a_line():
    defaults = choose(make_spec(gradient_accumulation_steps=16), Device())
    assert values(defaults.spec) == (False, False, 1)
    assert defaults.spec.gradient_accumulation_steps == 16
    assert not defaults.choices


def test_gpu_compiles_and_fills_the_memory_with_the_samples_of_a_step():
    defaults = choose(make_spec(gradient_accumulation_steps=16))
    assert values(defaults.spec) == (True, False, 16)
    assert defaults.spec.gradient_accumulation_steps == 1
    assert [choice.field for choice in defaults.choices] == ["compile", "activation_checkpointing", "micro_batch_size"]
    assert defaults.choices[0].reason == "the device is a GPU"


@pytest.mark.parametrize(
    ("changes", "device", "reason"),
    [
        ({"context_parallel": 2}, GPU, "`context_parallel` does not support it"),
        ({"strategy": "deepspeed"}, GPU, "strategy `deepspeed`"),
        ({"activation_offload": True}, GPU, "`activation_offload` copies"),
        ({"debug": True}, GPU, "`debug` shows"),
        ({}, Device(kind="cuda", memory=80 * GIB, obstacle="triton is not installed"), "triton is not installed"),
    ],
    ids=["context", "deepspeed", "offload", "debug", "no-triton"],
)
def test_layers_are_not_compiled_where_that_is_not_supported(changes, device, reason):
    defaults = choose(make_spec(**changes), device)
    assert defaults.spec.compile is False
    assert reason in defaults.choices[0].reason


def test_settings_of_the_spec_stay():
    spec = make_spec(
        compile=False, activation_checkpointing=False, micro_batch_size=2, gradient_accumulation_steps=4, precision="bf16"
    )
    assert choose(spec, Device(kind="cuda", memory=GIB)) == choose(spec, Device())


@pytest.mark.parametrize("gib", [12, 16, 24, 40, 80])
def test_choices_fit_by_the_formula_wherever_a_choice_fits(gib):
    device = Device(kind="cuda", memory=gib * GIB)
    spec = make_spec(gradient_accumulation_steps=12, sequence_length=8192)
    chosen = choose(spec, device).spec
    assert chosen.micro_batch_size * chosen.gradient_accumulation_steps == 12

    def fits(**changes):
        setup = make_setup(chosen.model_copy(update=changes), world_size=8, local_world_size=8)
        assert setup
        return estimate_memory(setup).peak + RESERVED <= device.memory * USABLE

    assert fits() or not fits(activation_checkpointing=True, recompute="all", micro_batch_size=1)
    larger = next((size for size in (1, 2, 3, 4, 6, 12) if size > chosen.micro_batch_size), None)
    assert larger is None or not fits(micro_batch_size=larger, gradient_accumulation_steps=12 // larger)
    if chosen.activation_checkpointing:
        assert not fits(activation_checkpointing=False, micro_batch_size=1, gradient_accumulation_steps=12)
        assert chosen.recompute == "cheap" or not fits(recompute="cheap")


def test_recomputation_is_chosen_only_for_a_model_that_needs_it():
    spec = make_spec(model="llama-3-8b", sequence_length=8192)
    assert choose(spec, Device(kind="cuda", memory=140 * GIB)).spec.activation_checkpointing is False
    defaults = choose(spec, Device(kind="cuda", memory=40 * GIB))
    assert defaults.spec.activation_checkpointing is True
    assert "without it, and" in defaults.choices[1].reason


def test_model_without_a_known_shape_uses_the_shape_of_its_files():
    spec = make_spec(model="org/model", gradient_accumulation_steps=4)
    unknown = choose(spec)
    assert values(unknown.spec) == (True, False, 1)
    assert unknown.choices[1].reason == "the memory that the model needs is unknown"
    known = choose(spec, shape=PRESETS["llama-3.2-1b"])
    assert values(known.spec) == (True, False, 4)
    assert known.spec.model == "org/model"


def test_resumed_run_divides_the_samples_that_it_keeps():
    chosen = choose(make_spec(gradient_accumulation_steps=16), samples=6).spec
    assert (chosen.micro_batch_size, chosen.gradient_accumulation_steps) == (6, 1)


@pytest.mark.parametrize("changes", [{"model": "qwen3-30b-a3b"}, {"strategy": "deepspeed"}], ids=["experts", "deepspeed"])
def test_micro_batch_stays_one_where_it_changes_the_loss_or_the_strategy_fixes_it(changes):
    chosen = choose(make_spec(gradient_accumulation_steps=4, **changes)).spec
    assert (chosen.micro_batch_size, chosen.gradient_accumulation_steps) == (1, 4)


def test_word_auto_is_the_default():
    assert make_spec(compile="auto", micro_batch_size="auto", activation_checkpointing="auto") == make_spec()
    argv = [*to_argv(make_spec()), "--micro-batch-size=auto", "--no-compile"]
    spec = from_argv(argv)
    assert values(spec) == (False, None, None)
    assert from_argv(to_argv(spec)) == spec


def predict(spec, device=GPU, ranks=8):
    choices = predict_choices(spec, device, world_size=ranks, local_world_size=ranks)
    return {choice.field: (choice.value, choice.reason) for choice in choices}


def test_prediction_for_a_known_gpu_is_the_choice_of_the_run():
    spec = make_spec(gradient_accumulation_steps=16)
    assert predict(spec) == {choice.field: (choice.value, choice.reason) for choice in choose(spec).choices}


@pytest.mark.parametrize(
    ("changes", "device", "ranks", "reason"),
    [
        ({}, Device(kind="cuda"), 8, "the memory of the GPU is unknown"),
        ({"model": "org/model"}, GPU, 8, "the shape of the model is in its folder or on the hub"),
        ({}, GPU, 0, "the number of processes is unknown"),
    ],
    ids=["memory", "shape", "processes"],
)
def test_prediction_leaves_to_the_run_what_needs_the_memory_formula(changes, device, ranks, reason):
    predicted = predict(make_spec(gradient_accumulation_steps=4, **changes), device, ranks)
    assert predicted["compile"] == ("true", "the device is a GPU")
    for field in ("activation_checkpointing", "micro_batch_size"):
        assert predicted[field][0] == "auto"
        assert predicted[field][1].startswith(reason)


def test_prediction_without_a_known_device_leaves_everything_to_the_run():
    assert [value for value, _ in predict(make_spec(gradient_accumulation_steps=4), None).values()] == ["auto"] * 3
    assert predict(make_spec(compile=True, activation_checkpointing=False), None) == {}


def test_prediction_for_a_job_without_gpus_is_plain():
    reason = "the job requests no GPU"
    assert predict(make_spec(gradient_accumulation_steps=4), Device()) == {
        "compile": ("false", reason),
        "activation_checkpointing": ("false", reason),
        "micro_batch_size": ("1", reason),
        "precision": ("fp32", reason),
    }


def test_a_cpu_computes_in_fp32_unless_the_spec_sets_the_precision():
    cpu = Device()
    assert choose(make_spec(), cpu).spec.precision == "fp32"
    assert choose(from_argv(to_argv(make_spec(precision="bf16"))), cpu).spec.precision == "bf16"
    assert choose(from_argv(to_argv(make_spec()))).spec.precision == "bf16"
    assert "--precision=bf16" not in to_argv(make_spec())
    assert {choice.field: choice.value for choice in predict_choices(make_spec(), cpu, world_size=1, local_world_size=1)}[
        "precision"
    ] == "fp32"


@pytest.mark.parametrize("model", PRESETS)
def test_every_preset_trains_without_a_sequence_length(model: str):
    TrainSpec(model=model, data="synthetic", max_steps=1)
