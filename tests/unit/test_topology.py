"""Instances, launchers, masters and overrides: from a spec to its plan and its PyTorchJob."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from kfjob.base.errors import SpecError
from kfjob.kinds.pytorchjob.manifest import compile_manifests, compile_pytorchjob
from kfjob.objects.merge import merge
from kfjob.plan import Context, JobPlan, resolve
from kfjob.plan.agent import AgentPlace, make_local_agent, operator_environment
from kfjob.spec.job import JobSpec

KUBERNETES = Context(backend="kubernetes", launch="l1")
LOCAL = Context(backend="local", launch="l1")


def make_plan(context: Context = KUBERNETES, **fields: Any) -> JobPlan:
    spec = {"name": "train", "image": "a:1", "command": ["torchrun", "train.py"], **fields}
    return resolve(JobSpec.model_validate(spec), context)


def list_origins(plan: JobPlan) -> dict[str, str]:
    return {decision.path: decision.origin for decision in plan.decisions}


def test_instance_sets_gpus_network_nodes_and_tolerations():
    plan = make_plan(instance="p4d.24xlarge", nodes=2)
    assert (plan.resources.gpus, plan.resources.efa, plan.processes_per_node) == (8, 4, "8")
    assert dict(plan.env)["FI_PROVIDER"] == "efa"
    assert plan.scheduling.node_selector == {"node.kubernetes.io/instance-type": "p4d.24xlarge"}
    assert [toleration.key for toleration in plan.scheduling.tolerations] == ["nvidia.com/gpu"]
    assert list_origins(plan)["resources.efa"] == list_origins(plan)["env.FI_PROVIDER"] == "instance"


def test_spec_overrides_the_instance():
    plan = make_plan(instance="p5.48xlarge", nodes=2, resources={"efa": 0, "gpus": 4}, env={"NCCL_DEBUG": "INFO"})
    assert (plan.resources.gpus, plan.resources.efa, plan.processes_per_node) == (4, 0, "4")


NCCL = {"TORCH_NCCL_TRACE_BUFFER_SIZE", "TORCH_NCCL_DUMP_ON_TIMEOUT", "NCCL_SOCKET_IFNAME"}


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"instance": "p5.48xlarge"}, NCCL),
        ({"instance": "p5.48xlarge", "network_profile": "older"}, {"FI_PROVIDER", "FI_EFA_USE_DEVICE_RDMA", *NCCL}),
        ({"instance": "p4d.24xlarge", "network_profile": "current"}, {"FI_EFA_USE_HUGE_PAGE", *NCCL}),
        ({"instance": "p4d.24xlarge", "network_profile": "none"}, set()),
        ({"instance": "p4d.24xlarge", "resources": {"efa_claim": "a"}}, {"FI_PROVIDER", "FI_EFA_USE_DEVICE_RDMA", *NCCL}),
        ({"instance": "g5.12xlarge"}, {"NCCL_SHM_USE_CUDA_MEMCPY", *NCCL}),
        ({"resources": {"gpus": 1}}, NCCL),
        ({"resources": {"gpus": 2}, "nodes": 1}, NCCL - {"NCCL_SOCKET_IFNAME"}),
        ({"resources": {"gpus": 1}, "nodes": 1}, set()),
        ({"resources": {"gpus": 8}, "network_profile": "none"}, set()),
        ({"instance": "trn1.32xlarge"}, set()),
        ({}, set()),
    ],
)
def test_network_variables_depend_on_devices_and_profile(fields, expected):
    names = {name for name, _ in make_plan(**{"nodes": 2, **fields}).env}
    assert {name for name in names if name.startswith(("FI_", "NCCL_", "TORCH_NCCL_"))} == expected


def test_local_backend_keeps_the_loopback_interface_for_nccl():
    assert not NCCL & dict(make_plan(LOCAL, resources={"gpus": 8}, nodes=2).env).keys()


def test_efa_claim_replaces_the_extended_resource():
    job = compile_pytorchjob(make_plan(instance="p5.48xlarge", nodes=2, resources={"efa_claim": "all-efa"}))
    pod = job["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]
    assert pod["resourceClaims"] == [{"name": "efa", "resourceClaimTemplateName": "all-efa"}]
    assert pod["containers"][0]["resources"]["claims"] == [{"name": "efa"}]
    assert "vpc.amazonaws.com/efa" not in pod["containers"][0]["resources"]["limits"]


@pytest.mark.parametrize(
    ("fields", "processes"),
    [
        ({"instance": "trn1.32xlarge"}, "32"),
        ({"instance": "trn1.2xlarge"}, "2"),
        ({"instance": "trn2.48xlarge"}, "64"),
        ({"instance": "trn2.48xlarge", "env": {"NEURON_LOGICAL_NC_CONFIG": "1"}}, "128"),
        ({"instance": "trn1.32xlarge", "resources": {"neuron": 8}}, "16"),
        ({"resources": {"neuron": 16}}, "16"),
    ],
)
def test_neuron_has_one_process_for_each_core(fields, processes):
    assert make_plan(**fields).processes_per_node == processes


def test_own_trainer_is_refused_on_neuron():
    train = {"model": "micro-llama", "data": "/d", "max_steps": 1, "sequence_length": 64}
    with pytest.raises(SpecError, match="cannot train on Neuron devices: it is written for CUDA and the CPU"):
        make_plan(instance="trn1.32xlarge", command=None, train=train)


def test_unknown_instance_selects_its_nodes():
    plan = make_plan(instance="p9.48xlarge", resources={"gpus": 16})
    assert plan.scheduling.node_selector == {"node.kubernetes.io/instance-type": "p9.48xlarge"}
    assert [toleration.key for toleration in plan.scheduling.tolerations] == ["nvidia.com/gpu"]
    assert plan.processes_per_node == "16"


def test_hyperpod_restarts_on_failure_unless_the_spec_says_otherwise():
    hyperpod = {"hyperpod": {"auto_resume": True}}
    assert make_plan(scheduling=hyperpod).restarts.policy == "OnFailure"
    assert make_plan(scheduling=hyperpod, restarts={"policy": "Never"}).restarts.policy == "Never"
    assert make_plan(scheduling={"hyperpod": {"auto_resume": False}}).restarts.policy == "Never"


def test_own_etcd_has_what_the_pods_of_the_job_have():
    scheduling = {"priority_class": "high", "tolerations": [{"key": "nvidia.com/gpu", "effect": "NoSchedule"}]}
    pod = {"container_security_context": {"runAsNonRoot": True, "privileged": True}}
    plan = make_plan(rendezvous="etcd", scheduling=scheduling, image_pull_secrets=["registry"], pod=pod)
    job, _, etcd = compile_manifests(plan)
    worker = job["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]
    for field in ("priorityClassName", "tolerations", "imagePullSecrets"):
        assert etcd["spec"][field] == worker[field]
    assert etcd["spec"]["securityContext"]["runAsNonRoot"]
    (wait,) = worker["initContainers"]
    assert wait["securityContext"]["runAsNonRoot"]
    assert "privileged" not in wait["securityContext"]
    assert wait["resources"]["requests"] == wait["resources"]["limits"]


def test_single_node_requests_no_efa():
    assert make_plan(instance="p5.48xlarge").resources.efa == 0


@pytest.mark.parametrize("launcher", ["torchrun", "launch", "accelerate", "python"])
def test_command_may_include_its_launcher(launcher):
    starts = {
        "torchrun": ["torchrun"],
        "launch": ["python3", "-m", "torch.distributed.launch"],
        "accelerate": ["accelerate", "launch"],
    }
    words = starts.get(launcher, ["python"])
    bare, full = (make_plan(launcher=launcher, nodes=2, command=command).command for command in (["x.py"], [*words, "x.py"]))
    assert bare == full
    assert bare[-1] == "x.py"


@pytest.mark.parametrize(
    ("launcher", "command", "program"),
    [
        ("torchrun", "python train.py --lr 1", "train.py --lr 1"),
        ("torchrun", "python3 -u train.py python", "train.py python"),
        ("torchrun", "python -m pkg.train -u", "-m pkg.train -u"),
        ("torchrun", "python -um pkg", "-m pkg"),
        ("torchrun", "/opt/bin/torchrun --max-restarts 3 python train.py", "--max-restarts 3 train.py"),
        ("torchrun", "python -u -m torch.distributed.run train.py", "train.py"),
        ("torchrun", "--no-python python -O train.py", "--no-python python -O train.py"),
        ("launch", "python -m torch.distributed.launch --use_env train.py", "train.py"),
        ("accelerate", "accelerate launch --mixed_precision bf16 python -m pkg", "--mixed_precision bf16 -m pkg"),
        ("accelerate", "python -m accelerate.commands.launch train.py", "train.py"),
        ("deepspeed", "deepspeed train.py --deepspeed d.json", "train.py --deepspeed d.json"),
        ("deepspeed", "python -m pkg", "--module pkg"),
        ("python", "python -u train.py", "python3 -u train.py"),
        ("python", "/opt/bin/python3.12 train.py", "/opt/bin/python3.12 train.py"),
    ],
)
def test_launcher_replaces_the_interpreter_of_the_command(launcher, command, program):
    words = tuple(program.split())
    full = make_plan(launcher=launcher, nodes=2, processes_per_node=2, command=command).command
    assert full[-len(words) :] == words
    if launcher != "python":
        bare = make_plan(launcher=launcher, nodes=2, processes_per_node=2, command=["x.py"]).command
        assert full[: -len(words)] == bare[:-1]


@pytest.mark.parametrize(
    ("launcher", "command", "title", "hint"),
    [
        ("torchrun", "python -O train.py", "starts Python itself, without `-O`", "`--no-python python -O …`"),
        ("torchrun", "python -c 'x()'", "cannot start `python -c`", "write the program as a file"),
        ("torchrun", "/opt/bin/python3.12 train.py", "starts its own Python", "`--no-python /opt/bin/python3.12 …`"),
        ("torchrun", "bash train.sh", "starts `bash` as a Python file", "`--no-python bash …`"),
        ("accelerate", "uv run train.py", "starts `uv` as a Python file", "`--no_python uv …`"),
        ("python", "./train.sh", "starts `./train.sh` as a Python file", "remove `launcher`"),
        ("torchrun", "accelerate launch train.py", "the command starts `accelerate`", "set `launcher: accelerate`"),
        ("accelerate", "python -m torch.distributed.run train.py", "the command starts `torchrun`", "set `launcher: torchrun`"),
        ("torchrun", "mpirun -np 4 python train.py", "the command starts `mpirun`", "remove `launcher`"),
        ("accelerate", "accelerate launch --num_processes 2 train.py", "sets `--num_processes` itself", "`processes_per_node`"),
        ("accelerate", "accelerate launch --num-machines=2 train.py", "sets `--num-machines` itself", "set `nodes`"),
        ("deepspeed", "deepspeed --num_gpus 8 train.py", "sets `--num_gpus` itself", "set `processes_per_node`"),
    ],
)
def test_command_that_the_launcher_cannot_start_is_an_error(launcher, command, title, hint):
    with pytest.raises(SpecError) as caught:
        make_plan(launcher=launcher, nodes=2, processes_per_node=2, command=command)
    (problem,) = caught.value.problems
    assert problem.path == "command"
    assert title in problem.title
    assert hint in (problem.hint or "")


def test_all_doubled_options_are_reported():
    command = "accelerate launch --num_processes 2 --num_machines 2 --mixed_precision bf16 train.py --num_processes 3"
    with pytest.raises(SpecError) as caught:
        make_plan(launcher="accelerate", nodes=2, command=command)
    assert len(caught.value.problems) == 2


def test_deepspeed_gets_the_whole_world():
    command = make_plan(launcher="deepspeed", nodes=2, processes_per_node=2, command=["x.py"]).command
    (world,) = (word.removeprefix("--world_info=") for word in command if word.startswith("--world_info="))
    assert json.loads(base64.urlsafe_b64decode(world)) == {"node-0": [0, 1], "node-1": [0, 1]}


@pytest.mark.parametrize("launcher", ["torchrun", "launch", "accelerate", "deepspeed", "python"])
def test_the_trainer_runs_as_a_module_under_every_launcher(launcher):
    train = {"model": "tiny-llama", "data": "/d", "max_steps": 1}
    command = make_plan(launcher=launcher, command=None, train=train).command
    index = command.index("kfjob.trainer")
    assert command[index - 1] in ("-m", "--module")


def test_static_job_has_a_master_and_no_elastic_policy():
    job = compile_pytorchjob(make_plan(nodes=3, rendezvous="static"))["spec"]
    assert "elasticPolicy" not in job
    assert {kind: replica["replicas"] for kind, replica in job["pytorchReplicaSpecs"].items()} == {"Master": 1, "Worker": 2}
    assert list(compile_pytorchjob(make_plan(rendezvous="static"))["spec"]["pytorchReplicaSpecs"]) == ["Master"]


def test_ranks_of_a_job_with_a_master():
    plan = make_plan(nodes=2, launcher="python", command="train.py")
    assert plan.pods == ("train-master-0", "train-worker-0")
    assert [operator_environment(plan, index)["RANK"] for index in (0, 1)] == ["0", "1"]


def test_local_agent_expands_variables_in_the_command():
    plan = make_plan(LOCAL, nodes=2, launcher="accelerate", command=["x.py", "$(NOBODY)", "$$(RANK)"], env={"A": "$(RANK)"})
    placement = AgentPlace(addresses=("127.0.0.2", "127.0.0.3"), endpoint="127.0.0.2:4000", interface="lo", folders={})
    agent = make_local_agent(plan, 1, placement)
    assert {"--machine_rank=1", "--main_process_ip=127.0.0.2", "--main_process_port=4000"} < set(agent.argv)
    assert agent.argv[-2:] == ("$(NOBODY)", "$(RANK)")
    assert agent.env["A"] == "1"


def test_shared_memory_is_half_of_the_memory_by_default():
    assert make_plan(resources={"memory": "64Gi"}).shared_memory == "32Gi"
    assert make_plan(resources={"memory": "64Gi"}, shared_memory="8Gi").shared_memory == "8Gi"
    assert make_plan(shared_memory="0").shared_memory is None
    assert make_plan(volumes=[{"name": "a", "mount_path": "/dev/shm", "empty_dir": True}]).shared_memory is None


def test_etcd_login_needs_a_torchrun_command():
    rendezvous = {"backend": "etcd", "endpoint": "e:1", "user": "a/b", "password": "a/c"}
    with pytest.raises(SpecError, match="only a command that begins with `torchrun` can log in"):
        make_plan(command=["sh", "-c", "torchrun x.py"], rendezvous=rendezvous)


def test_unsupported_field_of_the_local_backend_is_an_error():
    pod = {"sidecars": [{"name": "a", "image": "b"}], "init_containers": [{"name": "c", "image": "d"}]}
    with pytest.raises(SpecError) as caught:
        make_plan(LOCAL, pod=pod)
    assert [problem.path for problem in caught.value.problems] == ["pod.init_containers", "pod.sidecars"]


@pytest.mark.parametrize(
    ("base", "overrides", "result"),
    [
        ({"a": {"b": 1, "c": 2}}, {"a": {"b": 3}}, {"a": {"b": 3, "c": 2}}),
        ({"a": 1, "b": 2}, {"a": None}, {"b": 2}),
        ([1, 2], [3], [3]),
        ([{"name": "x", "v": 1}, {"name": "y"}], [{"name": "x", "w": 2}, {"name": "z"}], None),
        ({"a": 1}, {"b": {"c": None, "d": 1}}, {"a": 1, "b": {"d": 1}}),
    ],
)
def test_overrides_merge_mappings_deeply_and_lists_by_name(base, overrides, result):
    expected = [{"name": "x", "v": 1, "w": 2}, {"name": "y"}, {"name": "z"}] if result is None else result
    assert merge(base, overrides) == expected
