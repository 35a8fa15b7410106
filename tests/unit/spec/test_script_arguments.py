"""Arguments of two published training scripts, and those that must agree with the rest of a spec."""

from __future__ import annotations

import pytest

from kfjob.base.errors import SpecError
from kfjob.plan import Context, resolve
from kfjob.source.spec_text import load_spec, parse_yaml
from kfjob.trainspec.command_line import from_argv, parse_argv, to_argv
from kfjob.trainspec.model_shapes import count_parameters
from kfjob.trainspec.script_arguments import SCRIPT_ARGUMENTS
from kfjob.trainspec.script_translation import translate_arguments
from kfjob.trainspec.train_spec import TrainSpec, get_shape
from tests.pytorchjobs import lint

FABRIC = """
--tpu=False --train_data_dir=/data --model_name=llama-3-8b --precision=bf16-true --auto_wrap_policy=LlamaDecoderLayer
--sharding_strategy=FULL_SHARD --state_dict_type=full --limit_all_gathers=True --cpu_offload=False --resume=False
--checkpoint=None --number_epochs=2 --micro_batch_size=1 --gradient_accumulation_steps=64 --grad_clip=1.0 --max_step=6145
--lr=2e-5 --min_lr=2e-5 --lr_decay=True --warmup_steps=0 --weight_decay=0.01 --beta1=0.9 --beta2=0.95 --eval_batch_size=1
--eval_iters=1000000 --eval_step_interval=500 --save_step_interval=1000 --entity=gplsi_continual --project=fabric_llama
--log_model=all --checkpoint_dir=/checkpoints
"""
LLAMA_2 = """\
name: llama2
image: i
train:
  max_context_width: 4096
  num_key_value_heads: 32
  intermediate_size: 11008
  hidden_width: 4096
  num_layers: 32
  num_heads: 32
  vocab_size: 50432
  initializer_range: 0.02
  model_type: llama_v2
  rotary_pct: 0.25
  rotary_emb_base: 10000
  tokenizer: /t
  resid_pdrop: 0
  embd_pdrop: 0
  attn_pdrop: 0
  summary_first_pdrop: 0
  train_batch_size: 2
  val_batch_size: 4
  max_steps: 5000
  max_training_steps: 5000
  epochs: 3
  seed: 12345
  same_seed: 0
  bf16: 1
  activation_checkpointing: 1
  offload_activations: 0
  activation_loading_horizon: 2
  limit_all_gathers: 1
  sharding_strategy: full
  cpu_offload: 0
  lr: 1e-4
  min_lr: 1e-5
  lr_decay_style: cosine
  lr_decay_iters: 5000
  warmup: 0.0032
  plateau: 0
  grad_clip: 1.0
  weight_decay: 0.2
  beta1: 0.9
  beta2: 0.95
  dataset: c4
  dataset_config_name: en
  checkpoint_dir: /c
  resume_from_checkpoint: /c
  checkpoint_freq: 1000
  validation_freq: 500
  validation_batches: 10
  logging_freq: 1
  tensorboard_dir: /tb
"""
"""Every argument of the EKS script except `dataset_path`, which has the same result as `dataset`."""
MIXTRAL = "no argument of the script has the number of experts: set `model`, as in `model: mixtral-8x7b`"


def test_table_has_every_argument_of_both_scripts():
    fabric = {word.lstrip("-").partition("=")[0] for word in FABRIC.split()} - {"checkpoint_dir"} | {"devices"}
    assert {name for name, argument in SCRIPT_ARGUMENTS.items() if "fabric" in argument.scripts} == fabric
    eks = {*parse_yaml(LLAMA_2)[0]["train"], "dataset_path"}
    assert {name for name, argument in SCRIPT_ARGUMENTS.items() if "eks" in argument.scripts} == eks


def test_results_of_the_table_are_fields():
    for argument in SCRIPT_ARGUMENTS.values():
        if argument.result.startswith("`"):
            assert argument.result.strip("`").partition(".")[0] in TrainSpec.model_fields


def test_arguments_of_the_fabric_script():
    spec, warnings = parse_argv(FABRIC.split())
    assert spec == TrainSpec(
        model="llama-3-8b",
        data="/data",
        precision="bf16-true",
        wrap=("LlamaDecoderLayer",),
        full_state_dict=True,
        resume="none",
        epochs=2,
        micro_batch_size=1,
        gradient_accumulation_steps=64,
        max_steps=6145,
        lr=2e-5,
        min_lr=2e-5,
        warmup_steps=0,
        weight_decay=0.01,
        eval_batch_size=1,
        eval_batches=1_000_000,
        eval_every=500,
        checkpoint_every=1000,
        checkpoint_dir="/checkpoints",
        wandb_entity="gplsi_continual",
        wandb_project="fabric_llama",
        wandb_log_model="all",
    )
    assert [warning.title.partition(":")[0] for warning in warnings] == ["`limit_all_gathers` has no effect"]


def test_arguments_of_the_eks_script():
    arguments = """
        --max_context_width=4096 --num_key_value_heads=32 --intermediate_size=11008 --hidden_width=4096 --num_layers=32
        --num_heads=32 --model_type=llama_v2 --tokenizer=/tokenizer --checkpoint_freq=50 --validation_freq=500
        --max_steps=5000 --checkpoint_dir=/c --dataset=c4 --dataset_config_name=en --resume_from_checkpoint=/c/
        --train_batch_size=1 --val_batch_size=2 --sharding_strategy=hybrid --offload_activations=1 --bf16=0 --warmup=0.0032
        --lr_decay_style=linear --beta2=0.99 --resid_pdrop=0
    """
    spec = from_argv(arguments.split())
    shape = get_shape(spec)
    assert shape
    assert count_parameters(shape) == 6889410560
    assert (spec.data, spec.data_config, spec.resume) == ("allenai/c4", "en", "auto")
    assert (spec.sequence_length, spec.sharding, spec.precision) == (4096, "hybrid", "fp32")
    assert (spec.betas, spec.schedule, spec.warmup_fraction) == ((0.9, 0.99), "linear", 0.0032)
    assert (spec.checkpoint_every, spec.eval_every, spec.eval_batch_size, spec.activation_offload) == (50, 500, 2, True)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"resume": True}, {"resume": "auto"}),
        ({"resume": True, "checkpoint": "/c/step-5"}, {"resume": "/c/step-5"}),
        ({"resume": False, "checkpoint": "/c/step-5"}, {"resume": "none"}),
        ({"checkpoint": "/c/step-5"}, {"resume": "/c/step-5"}),
        ({"resume": "/c/step-5"}, {"resume": "/c/step-5"}),
        ({"resume_from_checkpoint": "/other", "checkpoint_dir": "/c"}, {"resume": "/other", "checkpoint_dir": "/c"}),
        ({"precision": "16-mixed"}, {"precision": "fp16"}),
        ({"lr_decay": False}, {"schedule": "constant"}),
        ({"beta1": 0.8}, {"betas": [0.8, 0.95]}),
        ({"max_steps": 5, "max_training_steps": 5}, {"max_steps": 5}),
        (
            {"num_layers": 3, "hidden_width": 96},
            {"model": {"num_hidden_layers": 3, "hidden_size": 96, "intermediate_size": 384}},
        ),
    ],
)
def test_combined_arguments(arguments, expected):
    values = translate_arguments(arguments).values
    if "model" in expected:
        assert values["model"].items() >= expected["model"].items()
    else:
        assert values == expected


@pytest.mark.parametrize(
    ("arguments", "title"),
    [
        ({"tpu": True}, "`tpu` is not supported: the trainer has no TPU backend"),
        ({"devices": 4}, "`devices` is not supported: the launcher starts the ranks: set `processes_per_node` of the job"),
        ({"model_type": "mixtral"}, f"`model_type` is not supported: {MIXTRAL}"),
        ({"attn_pdrop": 0.1}, "`attn_pdrop` is not supported: the trainer uses no dropout"),
        ({"plateau": 0.1}, "`plateau` is not supported: `schedule: wsd` holds the learning rate"),
        ({"max_step": 5, "max_steps": 6}, "`max_step` and `max_steps` both set `max_steps`"),
        ({"dataset": "a", "dataset_path": "b"}, "`dataset_path` and `dataset` both set `data`"),
        ({"model": "tiny-llama", "num_layers": 2}, "`num_layers` describes a model by its sizes, and `model` names another"),
        ({"sharding_strategy": "SOME"}, "`sharding_strategy` is not supported: `SOME` is not one of `full_shard`"),
        ({"lr_decay": "perhaps"}, "`lr_decay` is not supported: `perhaps` is neither true nor false"),
    ],
)
def test_unsupported_argument_is_a_problem(arguments, title):
    (problem,) = translate_arguments(arguments).problems
    assert problem.title.startswith(title)


@pytest.mark.parametrize(
    ("argument", "field", "value"),
    [
        ("--offload_activation=1", "activation_offload", True),
        ("--logging-fr=7", "log_every", 7),
        ("--max_steps=9", "max_steps", 9),
        ("--comms", "comms_logger", True),
    ],
)
def test_beginning_of_an_argument_stands_for_it_as_with_argparse(argument, field, value):
    steps = [] if field == "max_steps" else ["--max-steps=5"]
    strategy = ["--strategy=deepspeed"] if field == "comms_logger" else []  # no other strategy has this log
    spec = from_argv(["--model=tiny-llama", "--data=synthetic", *steps, *strategy, argument])
    assert getattr(spec, field) == value


def test_beginning_of_several_arguments_is_unknown():
    with pytest.raises(SpecError, match="unknown argument `--ev`"):
        from_argv(["--model=tiny-llama", "--data=synthetic", "--max-steps=5", "--ev=5"])


@pytest.mark.parametrize(
    ("arguments", "overrides", "expected"),
    [
        ({"max_steps": 5, "max_step": 8}, {"max_step"}, {"max_steps": 8}),
        ({"max_steps": 8, "max_step": 5}, {"max_steps"}, {"max_steps": 8}),
        ({"max_training_steps": 5, "max_step": 8}, {"max_step"}, {"max_steps": 8}),
        ({"max_training_steps": 8, "max_step": 5}, {"max_training_steps"}, {"max_steps": 8}),
        ({"betas": [0.8, 0.9], "beta2": 0.99}, {"beta2"}, {"betas": [0.8, 0.99]}),
        ({"precision": "bf16", "bf16": 0}, {"bf16"}, {"precision": "fp32"}),
        ({"sequence_length": 64, "max_context_width": 32}, {"sequence_length"}, {"sequence_length": 64}),
        ({"model": "tiny-llama", "num_layers": 2}, {"model"}, {"model": "tiny-llama"}),
        ({"model_name": "tiny-llama", "num_layers": 2}, {"model_name"}, {"model": "tiny-llama"}),
        ({"resume": "none", "resume_from_checkpoint": "/c"}, {"resume"}, {"resume": "none"}),
        ({"resume": False, "checkpoint": "/c"}, {"resume"}, {"resume": "none"}),
    ],
)
def test_override_wins_over_every_name_of_its_field(arguments, overrides, expected):
    translation = translate_arguments(arguments, overrides=overrides)
    assert (translation.values, translation.problems) == (expected, ())


def test_assignment_of_a_spec_sets_the_field_of_an_alias():
    text = "name: j\ntrain: {model: tiny-llama, data: synthetic, max_steps: 5}\n"
    loaded = load_spec(text, assignments=["train.max_step=8"])
    assert loaded.spec.train
    assert loaded.spec.train.max_steps == 8


def test_problems_in_a_spec_have_the_position_of_the_argument():
    text = (
        "name: j\ntrain:\n  model_name: tiny-llama\n  dataset_path: /d\n  max_step: many\n  tpu: true\n  limit_all_gathers: 1\n"
    )
    with pytest.raises(SpecError) as raised:
        load_spec(text, file="j.yaml")
    assert [(problem.line, problem.title.partition(":")[0]) for problem in raised.value.problems] == [
        (5, "`train.max_steps` must be a whole number, not `many`"),
        (6, "`tpu` is not supported"),
    ]
    loaded = load_spec(text.replace("many", "5").replace("true", "false"), file="j.yaml")
    assert loaded.spec.train
    assert (loaded.spec.train.model, loaded.spec.train.max_steps) == ("tiny-llama", 5)
    (warning,) = loaded.warnings
    assert warning.lines()[1] == "  --> j.yaml:7:22 (train.limit_all_gathers)"


def test_spec_with_every_argument_of_the_eks_script():
    loaded = load_spec(LLAMA_2, file="job.yaml")
    train = loaded.spec.train
    assert train
    shape = get_shape(train)
    assert shape
    assert count_parameters(shape) == 6889410560
    assert (train.data, train.data_config, train.resume, train.weight_decay) == ("allenai/c4", "en", "auto", 0.2)
    assert (train.micro_batch_size, train.eval_batch_size, train.eval_every) == (2, 4, 500)
    assert from_argv(to_argv(train)) == train
    titles = [warning.title.partition(":")[0] for warning in loaded.warnings]
    assert titles == [f"`{name}` has no effect" for name in ("same_seed", "activation_loading_horizon", "limit_all_gathers")]


@pytest.mark.parametrize(
    ("valid", "invalid", "message"),
    [
        ("val_batch_size", "val_batchsize", "21:3 unknown field `val_batchsize` (did you mean `train.eval_batch_size`?)"),
        ("num_heads: 32", "num_heads: many", "9:14 `train.model.num_attention_heads` must be a whole number, not `many`"),
        ("beta2: 0.95", "beta2: high", "43:10 `train.betas.1` must be a number, not `high`"),
        ("bf16: 1", "bf16: 7", "27:9 `bf16` is not supported: `7` is neither true nor false"),
        ("llama_v2", "mixtral", f"12:15 `model_type` is not supported: {MIXTRAL}"),
        (
            "attn_pdrop: 0",
            "attn_pdrop: 0.1",
            f"18:15 `attn_pdrop` is not supported: {SCRIPT_ARGUMENTS['attn_pdrop'].meaning}",
        ),
        ("freq: 1000", "freq: often", "48:20 `train.checkpoint_every` must be a whole number, not `often`"),
    ],
)
def test_mistake_in_a_spec_is_one_problem_with_its_position(valid, invalid, message):
    with pytest.raises(SpecError) as raised:
        load_spec(LLAMA_2.replace(valid, invalid), file="job.yaml")
    (problem,) = raised.value.problems
    hint = f" ({problem.hint})" if problem.hint else ""
    assert f"{problem.line}:{problem.column} {problem.title}{hint}" == message


def test_unknown_argument_has_a_suggestion():
    with pytest.raises(SpecError) as raised:
        from_argv(["--model=tiny-llama", "--data=d", "--max-steps=1", "--train_batch_sise=3"])
    assert raised.value.hint == "did you mean `--train-batch-size`?"


def test_local_rank_of_a_launcher_is_ignored():
    assert from_argv(["--local_rank=1", "--model=tiny-llama", "--data=d", "--max-steps=1"]).max_steps == 1
    assert from_argv(["--model=tiny-llama", "--data=d", "--max-steps=1", "--local-rank", "0"]).max_steps == 1


def test_spawn_needs_the_python_launcher():
    text = "name: j\nimage: i\nlauncher: {}\ntrain:\n  model: tiny-llama\n  data: d\n  max_steps: 1\n  spawn: 2\n"
    with pytest.raises(SpecError) as raised:
        load_spec(text.format("torchrun"), file="j.yaml")
    (problem,) = raised.value.problems
    assert (problem.line, problem.path) == (8, "train.spawn")
    assert problem.hint == "use `launcher: python`, or `processes_per_node` instead of `spawn`"
    assert load_spec(text.format("python"), file="j.yaml").spec.train


DEVICES = "name: a\nimage: a:1\n{job}\ntrain: {{model: tiny-llama, data: /d, max_steps: 1, precision: fp32, {train}}}\n"


@pytest.mark.parametrize("job", ["processes_per_node: 4", "resources: {gpus: 4}", "instance: g4dn.12xlarge"])
def test_devices_that_the_job_has_are_accepted(job):
    assert load_spec(DEVICES.format(job=job, train="devices: 4")).spec.train


@pytest.mark.parametrize(
    ("job", "title"),
    [
        ("processes_per_node: 8", "`devices: 4` differs from `processes_per_node: 8`"),
        ("resources: {gpus: 8}", "`devices: 4` differs from `resources.gpus: 8`"),
        ("nodes: 1", "`devices: 4` starts no processes here"),
    ],
)
def test_other_devices_are_one_error(job, title):
    with pytest.raises(SpecError) as caught:
        load_spec(DEVICES.format(job=job, train="devices: 4"))
    (problem,) = caught.value.problems
    assert (problem.title, problem.path, problem.line) == (title, "train.devices", 4)


def test_checkpoint_that_resume_ignores_is_an_error():
    with pytest.raises(SpecError, match="`resume: false` ignores `checkpoint: /c`"):
        load_spec(DEVICES.format(job="nodes: 1", train="resume: false, checkpoint: /c"))


def test_hints_offer_no_private_names():
    with pytest.raises(SpecError) as caught:
        load_spec(DEVICES.format(job="nodes: 1", train="sharding_strategy: hybrid_zero"))
    assert "`_" not in str(caught.value)


def test_cards_without_bf16_are_reported_on_this_machine_too():
    spec = load_spec(DEVICES.format(job="instance: g4dn.xlarge", train="seed: 1").replace("fp32", "bf16")).spec
    problems = lint(spec, resolve(spec, Context(backend="local", launch="l")))
    assert "unsupported-precision" in [problem.rule for problem in problems]
