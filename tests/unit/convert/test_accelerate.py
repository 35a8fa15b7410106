"""Conversion of Accelerate configs to specs and back, with every key."""

from __future__ import annotations

import json
from datetime import date
from importlib import import_module

import pytest
import yaml

from kfjob.api.specs.exports import export_accelerate
from kfjob.base.errors import SpecError, UsageError
from kfjob.convert.accelerate import from_accelerate
from kfjob.kinds.pytorchjob.manifest import compile_pytorchjob
from kfjob.plan import Context, resolve
from kfjob.source.spec_text import LoadedSpec
from kfjob.spec.job import JobSpec
from kfjob.trainspec.train_spec import TrainSpec
from kfjob.validation.field_paths import Positions

FSDP = """
compute_environment: LOCAL_MACHINE
debug: false
distributed_type: FSDP
downcast_bf16: 'no'
fsdp_config:
  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP
  fsdp_backward_prefetch_policy: BACKWARD_PRE
  fsdp_cpu_ram_efficient_loading: true
  fsdp_forward_prefetch: false
  fsdp_offload_params: true
  fsdp_sharding_strategy: 1
  fsdp_state_dict_type: SHARDED_STATE_DICT
  fsdp_sync_module_states: true
  fsdp_transformer_layer_cls_to_wrap: BertLayer
  fsdp_use_orig_params: true
machine_rank: 0
main_training_function: main
mixed_precision: bf16
num_machines: 2
num_processes: 8
rdzv_backend: c10d
same_network: true
tpu_env: []
tpu_use_cluster: false
tpu_use_sudo: false
use_cpu: false
"""
DEEPSPEED = """
compute_environment: LOCAL_MACHINE
deepspeed_config: {zero_stage: 3, offload_optimizer_device: cpu, zero3_init_flag: true, gradient_clipping: 1.0}
distributed_type: DEEPSPEED
dynamo_config: {dynamo_backend: INDUCTOR}
machine_rank: 1
main_process_ip: 10.0.0.1
main_process_port: 29501
mixed_precision: 'no'
num_machines: 1
num_processes: 4
rdzv_backend: static
gpu_ids: all
downcast_bf16: true
new_key_of_a_later_version: {a: [1, 2]}
"""
CPU = "{compute_environment: LOCAL_MACHINE, distributed_type: MULTI_CPU, num_machines: 1, num_processes: 2, machine_rank: 0, "
CPU += "use_cpu: true, rdzv_backend: static, mixed_precision: '1', gpu_ids: ''}"


def export(**fields):
    return export_accelerate(LoadedSpec(JobSpec.model_validate({"name": "a", **fields}), Positions()))


def export_train(**train):
    """Return the config and the notes of a training on eight GPUs."""
    fields = {"model": "llama-3-8b", "data": "/d", "max_steps": 1, **train}
    conversion = export(processes_per_node=8, resources={"gpus": 8}, train=fields)
    return conversion.spec, {note.item: note.reason for note in conversion.notes}


@pytest.mark.parametrize("text", [FSDP, DEEPSPEED, CPU], ids=["fsdp", "deepspeed", "cpu"])
def test_round_trip_keeps_every_key(text):
    config = yaml.safe_load(text)
    assert export(**from_accelerate(config).spec).spec == config


def test_command_has_the_options_of_the_config():
    conversion = from_accelerate(yaml.safe_load(FSDP), program=["run/bert.py", "--lr", "1e-5"])
    spec = JobSpec.model_validate({**conversion.spec, "image": "a:1"})
    assert (spec.name, spec.nodes, spec.processes_per_node, spec.resources.gpus) == ("bert", 2, 4, 4)
    job = compile_pytorchjob(resolve(spec, Context(backend="kubernetes", launch="l")))
    assert set(job["spec"]["pytorchReplicaSpecs"]) == {"Master", "Worker"}
    words = job["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]["containers"][0]["command"]
    assert words[:2] == ["accelerate", "launch"]
    assert {"--use_fsdp", "--num_machines=2", "--num_processes=8", "--fsdp_transformer_layer_cls_to_wrap=BertLayer"} <= set(
        words
    )
    assert "--multi_gpu" not in words  # `accelerate launch` accepts only one of the two
    assert words[-3:] == ["run/bert.py", "--lr", "1e-5"]
    items = {note.item for note in conversion.notes}
    assert items == {"num_processes: 8", 'rdzv_backend: "c10d"'}


@pytest.mark.parametrize(
    ("keys", "gpus"),
    [
        ({}, None),
        ({"use_cpu": False}, None),
        ({"use_cpu": True, "distributed_type": "FSDP"}, None),
        ({"distributed_type": "MULTI_CPU", "gpu_ids": "all"}, None),
        ({"distributed_type": "NO"}, None),
        ({"gpu_ids": ""}, None),
        ({"gpu_ids": "all"}, 2),
        ({"distributed_type": "MULTI_GPU", "use_cpu": False}, 2),
        ({"distributed_type": "FSDP"}, 2),
        ({"distributed_type": "MEGATRON_LM"}, 2),
    ],
)
def test_gpus_are_requested_only_if_a_key_names_them(keys, gpus):
    conversion = from_accelerate({"num_processes": 2} | keys)
    assert conversion.spec.get("resources", {}).get("gpus") == gpus
    assert any("assumed" in note.reason and "2 GPUs per node" in note.reason for note in conversion.notes) is (gpus is not None)


def test_keys_without_an_option_have_a_note():
    conversion = from_accelerate(yaml.safe_load(DEEPSPEED))
    reasons = {note.item.partition(":")[0]: note.reason for note in conversion.notes}
    assert set(reasons) == {
        "machine_rank",
        "main_process_ip",
        "main_process_port",
        "dynamo_config",
        "new_key_of_a_later_version",
        "train.py",
        "num_processes",
    }
    assert reasons["machine_rank"] == "each pod has its own; kept for export"
    assert "does not get it" in reasons["new_key_of_a_later_version"]


@pytest.mark.trainer
@pytest.mark.parametrize("text", [FSDP, DEEPSPEED, CPU], ids=["fsdp", "deepspeed", "cpu"])
def test_accelerate_parses_the_options_like_the_file(text, tmp_path):
    launch = import_module("accelerate.commands.launch")
    command = from_accelerate(yaml.safe_load(text)).spec["command"]
    args = launch.launch_command_parser().parse_args(command[2:])
    assert args.training_script == "train.py"
    for section in ("fsdp_config", "deepspeed_config"):
        for key, value in yaml.safe_load(text).get(section, {}).items():
            key = key.removesuffix("_policy") if "prefetch" in key else key  # noqa: PLW2901
            assert str(getattr(args, key)).lower() == str(value).lower()


@pytest.mark.parametrize(
    ("sharding", "strategy"),
    [
        ("full", "FULL_SHARD"),
        ("shard_grad_op", "SHARD_GRAD_OP"),
        ("hybrid", "HYBRID_SHARD"),
        ("hybrid_shard_grad_op", "_HYBRID_SHARD_ZERO2"),
        ("no_shard", "NO_SHARD"),
    ],
)
def test_every_sharding_has_a_strategy(sharding, strategy):
    """accelerate's own migration from FSDP version 1 to version 2 loses the last three."""
    assert export_train(sharding=sharding)[0]["fsdp_config"]["fsdp_sharding_strategy"] == strategy


def test_config_has_the_strategy_of_the_trainer():
    train = {"model": "llama-3-8b", "data": "/d", "max_steps": 1, "activation_checkpointing": True}
    config = export(nodes=2, processes_per_node=4, train=train).spec
    assert (config["distributed_type"], config["mixed_precision"], config["num_processes"]) == ("FSDP", "bf16", 8)
    assert config["fsdp_config"]["fsdp_activation_checkpointing"] is True
    assert export(command="x").spec["distributed_type"] == "NO"


def test_fsdp_settings_are_written():
    config, notes = export_train(wrap="LlamaDecoderLayer,Embedding", full_state_dict=True, cpu_offload=True, compile=True)
    assert config["fsdp_config"] == {
        "fsdp_sharding_strategy": "FULL_SHARD",
        "fsdp_auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
        "fsdp_activation_checkpointing": False,
        "fsdp_offload_params": True,
        "fsdp_state_dict_type": "FULL_STATE_DICT",
        "fsdp_transformer_layer_cls_to_wrap": "LlamaDecoderLayer,Embedding",
    }
    assert config["dynamo_config"] == {"dynamo_backend": "INDUCTOR", "dynamo_use_regional_compilation": True}
    assert list(notes) == ["model, data, max_steps"]


@pytest.mark.parametrize("stage", [0, 1, 2, 3])
def test_zero_stages_are_written(stage):
    offload = {"cpu_offload": True} if stage else {}
    config, notes = export_train(
        strategy="deepspeed", zero_stage=stage, gradient_accumulation_steps=4, grad_clip=0.5, **offload
    )
    assert config["distributed_type"] == "DEEPSPEED"
    section = config["deepspeed_config"]
    assert (section["zero_stage"], section["gradient_accumulation_steps"], section["gradient_clipping"]) == (stage, 4, 0.5)
    assert section["offload_optimizer_device"] == ("cpu" if stage else "none")
    assert section["offload_param_device"] == ("cpu" if stage == 3 else "none")
    assert list(notes) == ["model, data, max_steps"]


def test_disk_offload_is_written():
    section = export_train(strategy="deepspeed", disk_offload="/nvme")[0]["deepspeed_config"]
    assert (section["offload_param_device"], section["offload_param_nvme_path"]) == ("nvme", "/nvme")


@pytest.mark.parametrize(("strategy", "kind"), [("ddp", "MULTI_GPU"), ("fsdp", "FSDP"), ("deepspeed", "DEEPSPEED")])
def test_every_setting_is_written_or_named(strategy, kind):
    """Each field of the trainer is changed, one after the other: the config changes, or a note names the field."""
    values = {
        bool: lambda old: not old,
        int: lambda old: old + 1,
        float: lambda old: old / 2,
    }
    base = {"model", "data", "max_steps", "strategy"}
    plain = export_train(strategy=strategy)[0]
    assert plain["distributed_type"] == kind
    lost = []
    for name, field in TrainSpec.model_fields.items():
        if name in base or type(field.default) not in values:
            continue
        changed = values[type(field.default)](field.default)
        try:
            config, notes = export_train(strategy=strategy, **{name: changed})
        except SpecError:  # the strategy does not have this field
            continue
        if config == plain and not any(name in item.replace(":", ",").split(", ") for item in notes):
            lost.append(name)
    assert lost == []


def test_losses_have_a_reason():
    _, notes = export_train(shard_size=4, sharding="hybrid", recompute="cheap", activation_checkpointing=True, lr=1e-5)
    assert notes == {
        "shard_size: 4": "left out: Accelerate shards within a node",
        "recompute: cheap": "left out: Accelerate recomputes all operations",
        "model, data, max_steps, lr": "left out: settings of the program that `accelerate launch` starts",
    }
    config, notes = export_train(precision="bf16-true", strategy="ddp", gradient_accumulation_steps=2)
    assert config["mixed_precision"] == "bf16"
    assert "load the model in bf16" in notes["precision: bf16-true"]
    assert "Accelerator(gradient_accumulation_steps=" in notes["gradient_accumulation_steps: 2"]


@pytest.mark.trainer
@pytest.mark.parametrize(
    "train", [{"wrap": "A", "cpu_offload": True, "compile": True}, {"strategy": "deepspeed", "zero_stage": 1}]
)
def test_accelerate_reads_the_config(train, tmp_path):
    (tmp_path / "a.yaml").write_text(yaml.safe_dump(export_train(**train)[0]))
    config = import_module("accelerate.commands.config.config_args").load_config_from_file(str(tmp_path / "a.yaml"))
    parser = import_module("accelerate.commands.launch").launch_command_parser()
    options = set(vars(parser.parse_args(["train.py"])))
    for section in (config.fsdp_config, config.deepspeed_config, config.dynamo_config):
        assert set(section) <= options


def test_options_of_a_command_have_values_after_a_space():
    command = ["accelerate", "launch", "--use_fsdp", "--mixed_precision", "bf16", "--fsdp_offload_params=true", "--tee", "3"]
    conversion = export(command=[*command, "t.py", "--x=1"])
    assert conversion.spec["mixed_precision"] == "bf16"
    assert conversion.spec["fsdp_config"] == {"fsdp_offload_params": True}
    assert [note.item for note in conversion.notes] == ["--tee"]
    assert [note.item for note in export(command="torchrun t.py").notes] == ["command"]


def test_export_needs_the_number_of_processes():
    with pytest.raises(UsageError, match="needs the number of processes"):
        export(command="x", processes_per_node="auto")


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ([], "not an Accelerate config"),
        ({"a": 1}, "not an Accelerate config"),
        ({"num_machines": 2, "num_processes": 3}, "is not a multiple of"),
        ({"num_processes": "many"}, "is not a multiple of"),
        ({"num_processes": 1, "fsdp_config": [1, 2]}, "`fsdp_config` must be a mapping"),
        ({"num_processes": 1, "distributed_type": ["FSDP"]}, "`distributed_type` must be a text"),
        ({"num_processes": 2, "use_cpu": True, "distributed_type": {"a": "b"}}, "`distributed_type` must be a text"),
    ],
)
def test_invalid_config_is_an_error(config, message):
    with pytest.raises(SpecError) as raised:
        from_accelerate(config)
    assert message in str(raised.value)


def test_date_is_kept_as_text():
    (annotation,) = from_accelerate({"num_processes": 1, "z": date(2020, 1, 1)}).spec["annotations"].values()
    assert json.loads(annotation)["z"] == "2020-01-01"


@pytest.mark.parametrize("text", ["[1]", '"x"', "{bad", "null", '{"fsdp_config": [1]}'])
def test_annotation_of_another_program_is_an_error(text):
    with pytest.raises(SpecError, match=r"annotation is not|must be a mapping"):
        export(command="accelerate launch t.py", annotations={"kfjob.dev/accelerate": text})


def test_program_of_a_module_keeps_its_own_options():
    conversion = export(command="accelerate launch --multi_gpu -m pkg.train --lr 1 --zero_stage 2 data", nodes=2)
    assert "deepspeed_config" not in conversion.spec
    assert [note.item for note in conversion.notes if note.item in {"--lr", "--zero_stage"}] == []


def test_import_and_export_commands(tmp_path, capsys):
    from kfjob.cli.commands import run

    file = tmp_path / "a.yaml"
    file.write_text(FSDP)
    assert run(["import", "accelerate", "--image", "a:1", "-o", "json", str(file), "t.py", "--name", "x"]) == 0
    output = json.loads(capsys.readouterr().out)
    assert output["spec"]["command"][-2:] == ["--name", "x"]
    (tmp_path / "s.yaml").write_text(yaml.safe_dump(output["spec"]))
    assert run(["export", "accelerate", str(tmp_path / "s.yaml")]) == 0
    assert yaml.safe_load(capsys.readouterr().out) == yaml.safe_load(FSDP)
    assert run(["import", "torchrun", "A=1", "torchrun", "--nnodes=2", "t.py", "--image", "x"]) == 0
    out, err = capsys.readouterr()
    assert out.startswith("# yaml-language-server: $schema=")
    assert yaml.safe_load(out)["env"] == {"A": "1"}
    assert yaml.safe_load(out)["command"] == ["torchrun", "t.py", "--image", "x"]
    assert err == ""
    assert run(["import", "torchrun", "torchrun --nproc-per-node=4 t.py"]) == 0
    assert "note: `--nproc-per-node=4`: read as 4 GPUs" in capsys.readouterr().err
    assert run(["import", "pytorchjob", str(file)]) == 2
    assert run(["import", "pytorchjob", str(tmp_path / "none")]) == 3
    assert "manifest" in capsys.readouterr().err


def test_several_processes_on_cpus_start_as_several():
    config = {"distributed_type": "MULTI_CPU", "use_cpu": True, "num_machines": 1, "num_processes": 2}
    several = from_accelerate(config, program=["train.py"])
    assert several.spec["command"] == ["accelerate", "launch", "--multi_gpu", "train.py"]
    assert several.spec["env"] == {"ACCELERATE_USE_CPU": "true"}
    assert "with `--cpu` one process starts" in {note.item: note.reason for note in several.notes}["use_cpu: true"]
    one = from_accelerate(config | {"num_processes": 1}, program=["train.py"])
    assert (one.spec["command"], one.notes) == (["accelerate", "launch", "--cpu", "train.py"], ())
