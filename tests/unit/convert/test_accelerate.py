"""Accelerate configs to specs and back, with every key."""

from __future__ import annotations

import json
from importlib import import_module

import pytest
import yaml

from kfjob.api.specs.exports import export_accelerate
from kfjob.compile.pytorchjob import compile_pytorchjob
from kfjob.convert.accelerate import from_accelerate
from kfjob.errors import SpecError, UsageError
from kfjob.plan import Context, resolve
from kfjob.spec.job import JobSpec
from kfjob.spec.source import LoadedSpec, Positions

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


def exported(spec: JobSpec):
    return export_accelerate(LoadedSpec(spec, Positions()))


@pytest.mark.parametrize("text", [FSDP, DEEPSPEED, CPU], ids=["fsdp", "deepspeed", "cpu"])
def test_every_key_comes_back(text):
    config = yaml.safe_load(text)
    spec = JobSpec.model_validate(from_accelerate(config).spec)
    assert exported(spec) == config


def test_the_job_is_started_with_what_the_config_says():
    found = from_accelerate(yaml.safe_load(FSDP), program=["run/bert.py", "--lr", "1e-5"])
    spec = JobSpec.model_validate({**found.spec, "image": "a:1"})
    assert (spec.name, spec.nodes, spec.processes_per_node, spec.resources.gpus) == ("bert", 2, 4, 4)
    job = compile_pytorchjob(resolve(spec, Context(backend="kubernetes", launch="l")))
    assert set(job["spec"]["pytorchReplicaSpecs"]) == {"Master", "Worker"}
    words = job["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]["containers"][0]["command"]
    assert words[:2] == ["accelerate", "launch"]
    assert {"--use_fsdp", "--num_machines=2", "--num_processes=8", "--fsdp_transformer_layer_cls_to_wrap=BertLayer"} <= set(
        words
    )
    assert "--multi_gpu" not in words  # `accelerate launch` takes one of the two
    assert words[-3:] == ["run/bert.py", "--lr", "1e-5"]
    said = {note.what for note in found.notes}
    assert said == {"num_processes: 8", 'rdzv_backend: "c10d"'}


def test_what_the_launcher_is_not_told_is_said():
    found = from_accelerate(yaml.safe_load(DEEPSPEED))
    said = {note.what.partition(":")[0]: note.why for note in found.notes}
    assert set(said) == {
        "machine_rank",
        "main_process_ip",
        "main_process_port",
        "dynamo_config",
        "new_key_of_a_later_version",
        "train.py",
        "num_processes",
    }
    assert said["machine_rank"] == "each pod has its own; kept for export"
    assert "is not told" in said["new_key_of_a_later_version"]


@pytest.mark.trainer
@pytest.mark.parametrize("text", [FSDP, DEEPSPEED, CPU], ids=["fsdp", "deepspeed", "cpu"])
def test_accelerate_reads_the_options_as_it_reads_the_file(text, tmp_path):
    launch = import_module("accelerate.commands.launch")
    found = from_accelerate(yaml.safe_load(text)).spec["command"]
    args = launch.launch_command_parser().parse_args(found[2:])
    assert args.training_script == "train.py"
    for section in ("fsdp_config", "deepspeed_config"):
        for key, value in yaml.safe_load(text).get(section, {}).items():
            key = key.removesuffix("_policy") if "prefetch" in key else key  # noqa: PLW2901
            assert str(getattr(args, key)).lower() == str(value).lower()


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ("full", "FULL_SHARD"),
        ("shard_grad_op", "SHARD_GRAD_OP"),
        ("hybrid", "HYBRID_SHARD"),
        ("hybrid_shard_grad_op", "_HYBRID_SHARD_ZERO2"),
        ("no_shard", "NO_SHARD"),
    ],
)
def test_no_sharding_is_lost(ours, theirs):
    """accelerate's own step from FSDP's first version to its second loses the last three."""
    train = {"model": "llama-3-8b", "data": "/d", "max_steps": 1, "sharding": ours}
    assert exported(JobSpec.model_validate({"name": "a", "train": train}))["fsdp_config"]["fsdp_sharding_strategy"] == theirs


def test_the_trainers_strategy_has_a_name_there():
    train = {"model": "llama-3-8b", "data": "/d", "max_steps": 1, "sharding": "shard_grad_op", "activation_checkpointing": True}
    made = exported(JobSpec.model_validate({"name": "a", "nodes": 2, "processes_per_node": 4, "train": train}))
    assert (made["distributed_type"], made["mixed_precision"], made["num_processes"]) == ("FSDP", "bf16", 8)
    assert made["fsdp_config"]["fsdp_sharding_strategy"] == "SHARD_GRAD_OP"
    assert made["fsdp_config"]["fsdp_activation_checkpointing"] is True
    assert exported(JobSpec.model_validate({"name": "a", "command": "x"}))["distributed_type"] == "NO"


def test_the_number_of_processes_must_be_known():
    with pytest.raises(UsageError, match="needs the number of processes"):
        exported(JobSpec.model_validate({"name": "a", "command": "x", "processes_per_node": "auto"}))


@pytest.mark.parametrize(
    ("config", "why"),
    [
        ([], "not an Accelerate config"),
        ({"a": 1}, "not an Accelerate config"),
        ({"num_machines": 2, "num_processes": 3}, "cannot be shared out evenly"),
        ({"num_processes": "many"}, "cannot be shared out evenly"),
    ],
)
def test_what_is_no_config_is_an_error(config, why):
    with pytest.raises(SpecError) as raised:
        from_accelerate(config)
    assert why in str(raised.value)


def test_the_commands(tmp_path, capsys):
    from kfjob.cli.main import run

    file = tmp_path / "a.yaml"
    file.write_text(FSDP)
    assert run(["import", "accelerate", "--image", "a:1", "-o", "json", str(file), "t.py", "--name", "x"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["spec"]["command"][-2:] == ["--name", "x"]
    (tmp_path / "s.yaml").write_text(yaml.safe_dump(said["spec"]))
    assert run(["export", "accelerate", str(tmp_path / "s.yaml")]) == 0
    assert yaml.safe_load(capsys.readouterr().out) == yaml.safe_load(FSDP)
    assert run(["import", "torchrun", "A=1", "torchrun", "--nnodes=2", "t.py", "--image", "x"]) == 0
    out, err = capsys.readouterr()
    assert out.startswith("# yaml-language-server: $schema=")
    assert yaml.safe_load(out)["env"] == {"A": "1"}
    assert yaml.safe_load(out)["command"] == ["torchrun", "t.py", "--image", "x"]
    assert err == ""
    assert run(["import", "torchrun", "torchrun --nproc-per-node=4 t.py"]) == 0
    assert "note: `--nproc-per-node=4`: taken for 4 GPUs" in capsys.readouterr().err
    assert run(["import", "pytorchjob", str(file)]) == 2
    assert run(["import", "pytorchjob", str(tmp_path / "none")]) == 3
    assert "manifest" in capsys.readouterr().err
