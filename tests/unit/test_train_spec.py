"""TrainSpec: validation, command line and help."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import get_args

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kfjob.base.errors import SpecError
from kfjob.trainspec.command_line import format_help, from_argv, to_argv
from kfjob.trainspec.linear_layers import count_trained, list_targets
from kfjob.trainspec.model_shapes import PRESETS, ModelShape
from kfjob.trainspec.train_fields import LoraSpec, Precision, Schedule, Sharding, Strategy
from kfjob.trainspec.train_rules import SYNTHETIC
from kfjob.trainspec.train_spec import TrainSpec, get_shape, resolve_final_lr, resolve_warmup_steps

SMALL = {"model": "tiny-llama", "data": "/data", "max_steps": 10, "sequence_length": 128}

shapes = st.builds(
    ModelShape,
    architecture=st.sampled_from(["llama", "mistral", "qwen2"]),
    vocab_size=st.integers(1, 10**6),
    hidden_size=st.just(64),
    intermediate_size=st.integers(1, 10**5),
    num_hidden_layers=st.integers(1, 100),
    num_attention_heads=st.sampled_from([4, 8]),
    num_key_value_heads=st.sampled_from([None, 1, 2, 4]),
    max_position_embeddings=st.integers(4096, 10**6),
    tie_word_embeddings=st.booleans(),
    rope_theta=st.floats(1, 1e7),
)


def is_free(preset):
    """Return whether a preset works with any length up to 1024 and with default adapters."""
    shape = PRESETS[preset]
    return shape.max_position_embeddings >= 1024 and not shape.num_experts


texts = st.text(st.characters(codec="utf-8", exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=20)
texts |= st.sampled_from(["null", "true", "1e5", "none", '"', "[]", "{}", '"null"', "-1", "--debug"])
positive = st.floats(min_value=1e-12, max_value=1e6)
specs = st.builds(
    TrainSpec,
    model=st.one_of(st.sampled_from(list(filter(is_free, PRESETS))), shapes, st.just("/models/a b/llama")),
    vocab_size=st.none() | st.integers(1, 10**6),
    data=texts.filter(lambda text: text != SYNTHETIC and "." not in text),
    validation=st.none() | texts.filter(lambda text: "." not in text),
    tokenizer=st.none() | texts,
    sequence_length=st.integers(1, 1024),
    lanes=st.integers(1, 1000),
    strategy=st.sampled_from(get_args(Strategy)),
    sharding=st.sampled_from(get_args(Sharding)),
    precision=st.sampled_from([name for name in get_args(Precision) if name not in ("bf16-true", "fp8")]),  # not with DeepSpeed
    activation_checkpointing=st.booleans(),
    lora=st.none() | st.builds(LoraSpec, r=st.integers(1, 256), lora_dropout=st.floats(0, 0.5), use_rslora=st.booleans()),
    micro_batch_size=st.integers(1, 1000),
    max_steps=st.integers(1, 10**9),
    epochs=st.none() | st.integers(1, 100),
    max_minutes=st.none() | positive,
    lr=st.floats(min_value=1e-3, max_value=1),
    min_lr=st.none() | st.floats(1e-9, 1e-3),
    schedule=st.sampled_from(get_args(Schedule)),
    warmup_fraction=st.none() | st.floats(0, 1),
    betas=st.tuples(st.floats(0, 0.999), st.floats(0, 0.999)),
    eps=positive,
    grad_clip=st.floats(0, 100),
    checkpoint_dir=st.none() | texts,
    resume=texts.filter(lambda text: text.lower() not in ("true", "false", "1", "0")),
    keep_last=st.integers(0, 100),
    eval_every=st.just(1),
    debug=st.booleans(),
)


def make_spec(text: str) -> TrainSpec:
    resume = text if text not in ("", "true", "1", "0") else "auto"
    return TrainSpec(**SMALL | {"data": text or "/data"}, checkpoint_dir=text or None, resume=resume, wandb_entity=text)


@pytest.mark.parametrize(
    ("argument", "hint"),
    [
        ("--per_device_train_batch_size=2", "did you mean `--micro-batch-size`?"),
        ("--learning_rate=2", "did you mean `--lr`?"),
        ("--foo=2", "`--help` lists all arguments"),
    ],
)
def test_argument_of_another_trainer_gets_its_meaning(argument, hint):
    with pytest.raises(SpecError) as error:
        from_argv([*to_argv(TrainSpec(**SMALL)), argument])
    (problem,) = error.value.problems
    assert problem.title == f"unknown argument `{argument.partition('=')[0]}`"
    assert hint in str(problem.hint)
    assert "train." not in str(problem.hint)


def test_arguments_of_the_hugging_face_trainer_that_have_the_same_name():
    spec = from_argv([*to_argv(TrainSpec(**SMALL)), "--bf16", "--gradient_accumulation_steps", "4"])
    assert (spec.precision, spec.gradient_accumulation_steps) == ("bf16", 4)


def test_missing_argument_is_described():
    with pytest.raises(SpecError) as error:
        from_argv(["--max-steps=3"])
    assert [problem.title for problem in error.value.problems] == ["`--model` is missing", "`--data` is missing"]
    assert str(error.value.problems[1].hint).startswith("Data: a .jsonl, .txt or .parquet file, a folder")


def test_run_without_a_step_gets_an_alternative():
    with pytest.raises(SpecError, match="`--dry-run` checks a run without a step"):
        from_argv(["--model=tiny-llama", "--data=synthetic", "--max-step=0"])


@given(spec=specs)
@example(make_spec(""))
@example(make_spec("null"))
@example(make_spec('"null"'))
@example(make_spec("true"))
@example(make_spec("1e5"))
@example(make_spec("[1]"))
@example(make_spec('{"a":1}'))
@example(make_spec('"'))
@example(make_spec("--seed=1"))
@example(make_spec("ä=\n"))
@settings(max_examples=300, deadline=None)
def test_from_argv_inverts_to_argv(spec):
    assert from_argv(to_argv(spec)) == spec


@given(spec=specs)
@settings(max_examples=100, deadline=None)
def test_json_round_trip(spec):
    assert TrainSpec.model_validate_json(spec.model_dump_json()) == spec


def test_ambiguous_text_is_quoted():
    assert to_argv(make_spec("null"))[1] == '--data="null"'
    assert to_argv(make_spec("true"))[1] == "--data=true"


@pytest.mark.parametrize("switch", ["true", "False", "1", "0"])
def test_resume_is_not_a_switch(switch):
    with pytest.raises(SpecError, match=f"for a folder of that name, write `./{switch}`"):
        TrainSpec(**SMALL, resume=switch)
    assert from_argv([*to_argv(TrainSpec(**SMALL)), f"--resume={switch}"]).resume in (
        "auto",
        "none",
    )  # another script has such a switch


def test_default_values_are_omitted():
    spec = TrainSpec(**SMALL, lr=3e-4, betas=(0.9, 0.99), activation_checkpointing=True)
    assert to_argv(spec) == [
        "--model=tiny-llama",
        "--data=/data",
        "--sequence-length=128",
        "--activation-checkpointing=true",
        "--max-steps=10",
        "--lr=0.0003",
        "--betas=[0.9,0.99]",
    ]


def test_forms_of_an_argument():
    words = [
        "--model",
        "tiny-llama",
        "--data=/d",
        "--max_steps",
        "7",
        "--sequence-length=64",
        "--debug",
        "--no-activation-checkpointing",
    ]
    assert from_argv(words) == TrainSpec(
        model="tiny-llama", data="/d", max_steps=7, sequence_length=64, debug=True, activation_checkpointing=False
    )


def test_switch_may_have_a_value():
    assert from_argv([*to_argv(TrainSpec(**SMALL)), "--debug=False"]).debug is False


def test_all_problems_are_reported_at_once():
    with pytest.raises(SpecError) as caught:
        from_argv(["--modl=x", "--lr=-3", "--max-steps=many", "stray", "--seed", "--lr=2", "--betas=[0.9,2]"])
    message = str(caught.value)
    for part in (
        "unknown argument `--modl`\nhint: did you mean `--model`?",
        "`--model` is missing",
        "`--data` is missing",
        "`--lr` must be more than 0, not `-3`",
        "`--max-steps` must be a whole number, not `many`",
        "unexpected `stray`",
        "`--seed` needs a value",
        "duplicate argument `--lr`",
        "each value of `betas` must be at least 0 and below 1\n  --> --betas",
    ):
        assert part in message


QLORA = {"quantize": "nf4"}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"max_steps": None}, "the training has no end"),
        ({"lr": 1e-4, "min_lr": 1e-3}, "`min_lr` 0.001 is above `lr` 0.0001"),
        ({"warmup_steps": 5, "warmup_fraction": 0.1}, "exclude each other"),
        ({"model": "llama-tiny"}, "no preset `llama-tiny`(?s:.*)did you mean `tiny-llama`"),
        ({"model": "something"}, "the presets are tiny-llama, "),
        ({"sequence_length": 4096}, "4096 is above the model's 1024 positions(?s:.*)use at most 1024, or a model with more"),
        *(
            ({f"{kind}_parallel": 2}, "kfjob does not support tensor, pipeline or expert parallelism")
            for kind in ("tensor", "pipeline", "expert")
        ),
        ({"lr": float("nan")}, "`lr` must be a finite number"),
        ({"learning_rate": 1}, "unknown field `learning_rate`"),
        ({"strategy": "ddp", "cpu_offload": True}, "`cpu_offload` needs strategy fsdp, or deepspeed with zero_stage 1"),
        ({"disk_offload": "/scratch"}, "`disk_offload` needs strategy deepspeed with zero_stage 3"),
        ({"strategy": "deepspeed", "zero_stage": 2, "disk_offload": "/scratch"}, "`disk_offload` needs strategy deepspeed"),
        ({"strategy": "deepspeed", "cpu_offload": True, "disk_offload": "/scratch"}, "excludes `cpu_offload`"),
        ({"strategy": "deepspeed", "on_nan": "skip"}, "cannot skip steps or roll back"),
        ({"strategy": "deepspeed", "precision": "bf16-true"}, "DeepSpeed keeps fp32 copies of bf16 parameters"),
        ({"strategy": "deepspeed", "precision": "fp8"}, "DeepSpeed does not support `precision: fp8`"),
        ({"lora": {}, "precision": "fp8"}, "`lora` does not support `precision: fp8`"),
        ({"activation_offload": True, "precision": "fp8"}, "`activation_offload` does not support `precision: fp8`"),
        ({"sequence_length": 100, "precision": "fp8"}, "a multiple of 16 tokens on each rank, and a micro-batch has 100"),
        ({"fp8_recipe": "rowwise"}, "`fp8_recipe` has no effect with `precision: bf16`"),
        ({"strategy": "deepspeed", "zero_stage": 0, "precision": "fp16"}, "stage 0 is not supported in fp16"),
        ({"data": "/data/a.jsonl"}, "text needs a tokenizer"),
        ({"data": "/data/a.csv"}, "the trainer cannot read `.csv` files"),
        ({"data": "a.txt", "tokenizer": "/t", "validation": "b.json"}, "cannot read `.json` files(?s:.*)--> validation"),
        ({"data": "a.txt", "tokenizer": "/t", "eval_every": 1}, "`eval_every` needs validation data"),
        ({"data": "a.txt", "tokenizer": "/t", "epochs": 1}, "`epochs` needs tokenised data"),
        ({"data": "synthetic", "evals_per_epoch": 1}, "`evals_per_epoch` needs tokenised data: synthetic data has no end"),
        ({"schedule": "plateau"}, "`schedule: plateau` needs evaluations"),
        ({"schedule": "exponential", "min_lr": 0}, "`schedule: exponential` never reaches 0"),
        ({"data_format": "chat", "packing": "stream"}, "`packing: stream` splits conversations"),
        ({"lora": {"r": 0}}, "`lora.r` must be more than 0"),
        ({"lora": {"load_in_4bit": True}}, r"unknown field `load_in_4bit`(?s:.*)use `lora.quantize`"),
        ({"lora": {"quantize": "int8"}}, "`lora.quantize`(?s:.*)nf4"),
        ({"lora": QLORA, "strategy": "deepspeed"}, "`strategy: deepspeed` does not support `lora.quantize`"),
        ({"lora": QLORA, "cpu_offload": True}, "`cpu_offload` does not support `lora.quantize`"),
        ({"lora": QLORA, "model": "micro-llama"}, "no linear layer of the llama model can be quantised"),
        ({"lora": {"target_modules": ["all-linear", "q_proj"]}}, "`all-linear` includes every other name"),
        ({"lora": {"target_modules": "q_proj,lm_head"}}, "names `lm_head`(?s:.*)--> lora.target_modules"),
        (
            {"lora": {"target_modules": ["query"]}},
            "no linear layer `query`(?s:.*)are q_proj, k_proj, v_proj, o_proj, gate_proj",
        ),
        ({"lora": {"exclude_modules": ["self_attn"]}}, "no linear layer `self_attn`(?s:.*)--> lora.exclude_modules"),
        ({"lora": {"target_modules": "q_proj", "exclude_modules": "q_proj"}}, "no layer is left for an adapter"),
        ({"lora": {}, "full_state_dict": True}, "a checkpoint with `lora` holds adapters only"),
        (
            {"wandb_log_model": "all", "checkpoint_dir": "s3://bucket/runs"},
            "`wandb_log_model` copies checkpoints from a folder",
        ),
    ],
)
def test_invalid_fields_are_an_error(change, message):
    with pytest.raises(SpecError, match=message):
        TrainSpec(**{**SMALL, **change})


def test_bare_name_of_a_folder_gets_its_path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "base").mkdir()
    with pytest.raises(SpecError, match=r"did you mean the folder `\./base`\?"):
        TrainSpec(**{**SMALL, "model": "base"})


def test_all_rules_across_fields_are_checked_at_once():
    fields = {"strategy": "ddp", "cpu_offload": True, "schedule": "plateau", "sequence_length": 4096, "data": "/d/a.jsonl"}
    with pytest.raises(SpecError) as caught:
        TrainSpec(**{**SMALL, **fields})
    assert {problem.path for problem in caught.value.problems} == {"cpu_offload", "schedule", "sequence_length", "data"}


@pytest.mark.parametrize(
    "change",
    [
        {"data": "/data/a.jsonl", "tokenizer": "/t"},
        {"data": "/data/a.jsonl", "model": "org/model"},
        {"data": "/data/folder", "epochs": 1, "eval_every": 5},
        {"data": "/data/v1.5"},
        {"data": "synthetic", "eval_every": 5},
    ],
)
def test_data_that_the_trainer_may_accept_is_no_error(change):
    assert TrainSpec(**{**SMALL, **change})


@pytest.mark.parametrize(
    ("lora", "matrices"),
    [
        ({}, 7),
        ({"target_modules": "q_proj,mlp.up_proj"}, 2),
        ({"target_modules": ["all-linear"], "exclude_modules": ["down_proj"]}, 6),
    ],
)
def test_target_modules_are_ends_of_paths(lora, matrices):
    spec = TrainSpec(**SMALL, lora=lora)
    assert spec.lora is not None
    assert len(list_targets(PRESETS["tiny-llama"], spec.lora)) == matrices


def test_adapters_of_a_published_model_have_their_published_number():
    """PEFT 0.21 adds this number to Llama 3 8B."""
    assert count_trained(PRESETS["llama-3-8b"], LoraSpec()) == 41943040


def test_adapters_of_experts_are_an_error():
    with pytest.raises(SpecError, match="adapters of the experts of a mixtral model are not supported"):
        TrainSpec(**SMALL | {"model": "mixtral-8x7b"}, lora={})
    spec = TrainSpec(**SMALL | {"model": "mixtral-8x7b"}, lora={"target_modules": ["q_proj", "v_proj"]})
    assert spec.lora is not None
    assert [layer.name for layer in list_targets(PRESETS["mixtral-8x7b"], spec.lora)] == [
        "self_attn.q_proj",
        "self_attn.v_proj",
    ]


def test_factor_of_a_router_needs_one():
    with pytest.raises(SpecError, match="a llama model has no router"):
        TrainSpec(**SMALL, router_aux_loss_coef=0.1)
    assert TrainSpec(**SMALL, router_aux_loss_coef=0).router_aux_loss_coef == 0


def test_names_for_a_model_in_a_folder_are_checked_by_the_trainer():
    assert TrainSpec(**SMALL | {"model": "./here"}, lora={"target_modules": ["Wqkv"]})


def test_vocab_size_overrides_the_preset():
    shape = get_shape(TrainSpec(**{**SMALL, "model": "llama-2-7b"}, vocab_size=50432))
    assert shape is not None
    assert shape.vocab_size == 50432
    assert get_shape(TrainSpec(**{**SMALL, "model": "./here"})) is None


def test_resolved_defaults():
    spec = TrainSpec(**SMALL, lr=1e-3)
    assert resolve_final_lr(spec) == 1e-4
    assert resolve_final_lr(spec.model_copy(update={"min_lr": 0.0})) == 0.0
    assert resolve_warmup_steps(spec, 1000) == 0
    assert resolve_warmup_steps(spec.model_copy(update={"warmup_steps": 7}), 1000) == 7
    assert resolve_warmup_steps(spec.model_copy(update={"warmup_fraction": 0.0032}), 5000) == 16


def test_help_describes_every_field():
    text = format_help()
    for name, field in TrainSpec.model_fields.items():
        assert f"--{name.replace('_', '-')}" in text
        assert field.description
        assert field.description in text


def test_help_imports_no_torch():
    program = (
        "import sys; from kfjob.trainer.__main__ import main; code = main(['--help']);"
        "print(code, [name for name in ('torch', 'transformers', 'tokenizers', 'numpy') if name in sys.modules])"
    )
    process = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert process.stdout.splitlines()[-1] == "0 []"
    assert process.stderr == ""


def test_shape_is_passed_as_json():
    shape = ModelShape(vocab_size=8, hidden_size=4, intermediate_size=8, num_hidden_layers=1, num_attention_heads=2)
    argument = to_argv(TrainSpec(**{**SMALL, "model": shape}))[0]
    assert json.loads(argument.removeprefix("--model=")) == {
        "vocab_size": 8,
        "hidden_size": 4,
        "intermediate_size": 8,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
    }
