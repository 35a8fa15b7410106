"""`kfjob estimate`: memory of every strategy, time and GPU hours."""

from __future__ import annotations

import json

import pytest

from kfjob.base.units import GIB
from kfjob.trainspec.memory_table import MemoryRow, describe_memory, list_rows
from kfjob.trainspec.train_spec import TrainSpec
from tests.unit.api import script

SPEC = """\
name: est
image: a:1
nodes: 2
instance: p4d.24xlarge
train: {model: llama-3-8b, data: /data/x, max_steps: 1000, sequence_length: 4096, gradient_accumulation_steps: 4}
"""
QWEN = {"model": "qwen2-1.5b", "data": "synthetic", "max_steps": 1}


@pytest.fixture
def run(kfjob, here):
    """Estimate a spec, and return the JSON output."""

    def run(*options: str, spec: str = SPEC):
        (here / "job.yaml").write_text(spec)
        assert kfjob("estimate", "job.yaml", "-o", "json", *options) == 0, kfjob.err
        return json.loads(kfjob.out)

    return run


def test_defaults_of_the_device_are_named_with_their_reasons(run, kfjob):
    defaults = {choice["field"]: choice for choice in run()["defaults"]}
    assert set(defaults) == {"compile", "activation_checkpointing", "micro_batch_size"}
    recompute = defaults["activation_checkpointing"]
    assert recompute["value"].startswith("true")
    assert "40.0 GiB" in recompute["reason"]
    assert kfjob("estimate", "job.yaml") == 0
    assert f"default activation_checkpointing: {recompute['value']}, because {recompute['reason']}\n" in kfjob.out
    chosen = run(*(f"--set=train.{name}=false" for name in ("compile", "activation_checkpointing")))["defaults"]
    assert [choice["field"] for choice in chosen] == ["micro_batch_size"]


def make_rows(ranks: int, local_ranks: int, **fields: object) -> dict[str, MemoryRow]:
    spec = TrainSpec.model_validate(QWEN | fields)
    return {row.name: row for row in list_rows(spec, world_size=ranks, local_world_size=local_ranks)}


def test_strategies_of_the_comparison_are_side_by_side():
    names = ["dp", "ddp", "zero-0", "zero-1", "zero-2", "zero-3", "full", "shard_grad_op", "hybrid"]
    assert list(make_rows(2, 2)) == names
    assert list(make_rows(1, 1)) == ["none", *names]
    assert list(make_rows(16, 8)) == names[1:]  # DataParallel is one process on one node


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({}, "full"),
        ({"sharding": "no_shard"}, "no_shard"),
        ({"sharding": "hybrid_shard_grad_op"}, "hybrid_shard_grad_op"),
        ({"strategy": "dp"}, "dp"),
        *(({"strategy": "deepspeed", "zero_stage": stage}, f"zero-{stage}") for stage in range(4)),
    ],
)
def test_own_strategy_is_marked(fields, name):
    rows = make_rows(2, 2, **fields)
    assert [row.name for row in rows.values() if row.is_own] == [name]


def test_adapters_need_less_memory_and_time(kfjob, run):
    full, adapted = run(), run("--set", "train.lora={}")
    assert (full["trained_parameters"], adapted["trained_parameters"]) == (full["parameters"], 41943040)
    rows = {row["name"]: row for row in adapted["strategies"]}
    assert rows["ddp"]["optimizer"] == 8 * 41943040
    assert rows["ddp"]["parameters"] == 2 * full["parameters"] + 4 * 41943040
    assert all(rows[row["name"]]["peak"] < row["peak"] for row in full["strategies"])
    assert 0.66 < adapted["seconds"] / full["seconds"] < 0.75
    assert kfjob("estimate", "job.yaml", "--set", "train.lora={}") == 0
    assert "\n41943040 trained parameters in adapters (lora); the model is frozen\n" in kfjob.out


def test_quantised_model_needs_less_memory(kfjob, run):
    """Neither `dp` nor DeepSpeed supports it, so their rows are those of a bf16 model."""
    options = ("train.lora={}", "train.lora={quantize: nf4}")
    plain, quantized = ({row["name"]: row["peak"] for row in run("--set", option)["strategies"]} for option in options)
    assert {name for name in plain if quantized[name] < plain[name]} == {"ddp", "full", "shard_grad_op", "hybrid"}
    assert all(quantized[name] == plain[name] for name in plain if name.startswith(("dp", "zero")))
    assert kfjob("estimate", "job.yaml", "--set", options[1]) == 0
    assert "in adapters (lora); the model is frozen, its linear layers in nf4\n" in kfjob.out


@pytest.mark.parametrize("options", [[], ["--set", "resources.gpu_memory=36Gi"], ["--set", "elastic={min: 1, max: 2}"]])
def test_memory_of_a_gpu_is_the_number_of_the_lint_rule(kfjob, run, options):
    options = [*options, "--set", "train.strategy=ddp", "--set", "train.micro_batch_size=8"]
    result = run(*options)
    (row,) = [row for row in result["strategies"] if row["own"]]
    assert kfjob("estimate", "job.yaml", *options) == 0
    needed = f"{row['needed'] / GIB:.1f} GiB"
    assert f"; this one needs {needed}\n" in kfjob.out
    assert ("the table is for 2 nodes; `kfjob validate` checks 1 node" in kfjob.out) == ("elastic" in options[1])
    assert f"\na GPU has {result['gpu_memory'] / GIB:.1f} GiB; too large: " in kfjob.out
    assert not row["fits"]
    assert kfjob("validate", "job.yaml", *options) == 0
    gpu = "a GPU" if "gpu_memory" in options[1] else "a GPU of p4d.24xlarge"
    assert f"training needs about {needed} on each GPU, and {gpu} has {result['gpu_memory'] / GIB:.1f} GiB" in kfjob.err


def test_stage_0_has_the_memory_of_ddp_because_its_bf16_is_off():
    rows = make_rows(2, 2)
    assert rows["zero-0"].estimate == rows["ddp"].estimate


def test_strategy_that_refuses_the_spec_is_left_out():
    assert "zero-0" not in make_rows(2, 2, precision="fp16")
    assert "zero-1" in make_rows(2, 2, precision="bf16-true", on_nan="roll_back")
    assert "zero-1" in make_rows(2, 2, precision="fp8", fp8_recipe="rowwise")


def test_offload_counts_where_it_is_possible():
    rows = make_rows(2, 2, cpu_offload=True)
    assert rows["full"].estimate.parameters == 0
    assert rows["ddp"].estimate == make_rows(2, 2)["ddp"].estimate


def test_both_counts_of_qwen2_are_printed(kfjob, here):
    (here / "q.yaml").write_text(
        "name: q\nimage: a:1\nprocesses_per_node: 2\nresources: {gpus: 2}\n"
        "train: {model: qwen2-1.5b, data: synthetic, max_steps: 5, strategy: deepspeed, zero_stage: 1}\n"
    )
    assert kfjob("estimate", "q.yaml") == 0
    assert "qwen2-1.5b: 1543714304 parameters" in kfjob.out
    assert "771857152 of them per rank where 2 ranks share them" in kfjob.out
    assert "<- this one" in next(line for line in kfjob.out.splitlines() if line.startswith("  zero-1"))


def test_time_follows_from_a_stated_share_of_the_peak(run):
    estimate = run("--mfu", "0.5")
    assert estimate["tokens_per_step"] == 4096 * 4 * 16
    assert estimate["tokens"] == 1000 * estimate["tokens_per_step"]
    flops_per_token = 6 * (8030261248 - 128256 * 4096) + 12 * 32 * 4096 * 4096
    assert estimate["tokens_per_second"] == pytest.approx(0.5 * 312e12 * 16 / flops_per_token)
    assert estimate["seconds"] == pytest.approx(estimate["tokens"] / estimate["tokens_per_second"])
    assert estimate["gpu_hours"] == pytest.approx(estimate["seconds"] * 16 / 3600)
    assert estimate["speed_source"] == "50% of the peak of 312 TFLOPS of each A100"
    assert run()["speed_source"].endswith(", an assumption")


def test_measured_speed_replaces_the_assumption(run):
    assert run("--tokens-per-second", "262144")["seconds"] == 1000


def test_speed_of_a_job_is_used(fake, run):
    fake.play("train", *script.TRAINING, spec=script.SPEC)
    estimate = run("--job", "train")
    assert estimate["tokens_per_second"] == 8.0 * 4096  # the job prints 8 samples a second
    assert estimate["speed_source"] == "measured in job `train`"


def test_max_minutes_limits_the_time(run):
    assert run("--tokens-per-second", "262144", "--set", "train.max_minutes=2")["seconds"] == 120


def test_strategies_that_fit_the_gpu_are_named(run):
    fits = {row["name"]: row["fits"] for row in run("--set", "train.model=llama-3.2-1b")["strategies"]}
    assert fits["full"] is True
    assert {row["fits"] for row in run("--set", "train.model=llama-3-70b")["strategies"]} == {False}


@pytest.mark.parametrize(
    ("model", "preset"),
    [
        ("meta-llama/Meta-Llama-3-8B", "llama-3-8b"),
        ("meta-llama/Llama-2-7b-chat-hf", "llama-2-7b"),
        ("meta-llama/Llama-3.2-1B-Instruct", "llama-3.2-1b"),
        ("mistralai/Mistral-7B-v0.1", "mistral-7b"),
        ("Qwen/Qwen2-1.5B", "qwen2-1.5b"),
    ],
)
def test_model_on_the_hub_with_the_shape_of_a_preset_is_estimated(run, kfjob, model, preset):
    expected = run("--set", f"train.model={preset}")["strategies"]
    assert run("--set", f"train.model={model}")["strategies"] == expected
    assert f"`{model}` has the shape of the preset `{preset}`" in kfjob.err


@pytest.mark.usefixtures("fake")
@pytest.mark.parametrize(
    ("spec", "options", "message"),
    [
        ("name: a\nimage: a:1\ncommand: torchrun a.py\n", (), "only a spec with a `train` section"),
        (SPEC.replace("llama-3-8b", "org/model"), (), "the shape of the model `org/model` is in its folder or on the hub"),
        (SPEC + "processes_per_node: auto\n", (), "an estimate needs the number of processes"),
        (SPEC, ("--job", "nobody"), "`nobody`"),
        (SPEC.replace("model:", "modl:"), (), "did you mean `train.model`"),
    ],
)
def test_estimate_without_its_facts_is_an_error(kfjob, here, spec, options, message):
    (here / "job.yaml").write_text(spec)
    assert kfjob("estimate", "job.yaml", *options) in (2, 3)
    assert message in kfjob.err


def test_unknown_speed_is_said(kfjob, here):
    (here / "job.yaml").write_text("name: a\nimage: a:1\ntrain: {model: tiny-llama, data: synthetic, max_steps: 5}\n")
    assert kfjob("estimate", "job.yaml") == 0
    assert "time: unknown; give `--tokens-per-second`, `--job`, or an `instance` with GPUs" in kfjob.out


def test_table_of_peaks_has_a_column_for_each_world_size():
    lines = list(describe_memory(TrainSpec.model_validate(QWEN), 2, 2))
    full = next(line.split() for line in reversed(lines) if line.startswith("  full"))
    assert len(full) == 9
    assert float(full[2]) == pytest.approx(make_rows(2, 8)["full"].estimate.peak / GIB, abs=0.01)
