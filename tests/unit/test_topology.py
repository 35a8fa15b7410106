"""Instances, launchers, masters and what is merged last: from a spec to its plan and its PyTorchJob."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from kfjob.compile.merge import merge
from kfjob.compile.pytorchjob import compile_pytorchjob
from kfjob.compile.torchrun import Placement, make_local_agent, operator_environment
from kfjob.errors import SpecError
from kfjob.plan import Context, JobPlan, resolve
from kfjob.spec.job import JobSpec

KUBERNETES = Context(backend="kubernetes", launch="l1")
LOCAL = Context(backend="local", launch="l1")


def plan(context: Context = KUBERNETES, **more: Any) -> JobPlan:
    spec = {"name": "train", "image": "a:1", "command": ["torchrun", "train.py"], **more}
    return resolve(JobSpec.model_validate(spec), context)


def origins(made: JobPlan) -> dict[str, str]:
    return {decision.path: decision.origin for decision in made.decisions}


def test_an_instance_gives_gpus_network_nodes_and_tolerations():
    made = plan(instance="p4d.24xlarge", nodes=2)
    assert (made.resources.gpus, made.resources.efa, made.processes_per_node) == (8, 4, "8")
    assert dict(made.env)["FI_PROVIDER"] == "efa"
    assert made.scheduling.node_selector == {"node.kubernetes.io/instance-type": "p4d.24xlarge"}
    assert [toleration.key for toleration in made.scheduling.tolerations] == ["nvidia.com/gpu"]
    assert origins(made)["resources.efa"] == origins(made)["env.FI_PROVIDER"] == "instance"


def test_what_the_spec_says_wins_over_the_instance():
    made = plan(instance="p5.48xlarge", nodes=2, resources={"efa": 0, "gpus": 4}, env={"NCCL_DEBUG": "INFO"})
    assert (made.resources.gpus, made.resources.efa, made.processes_per_node) == (4, 0, "4")


@pytest.mark.parametrize(
    ("instance", "profile", "expected"),
    [
        ("p5.48xlarge", "auto", set()),
        ("p5.48xlarge", "older", {"FI_PROVIDER", "FI_EFA_USE_DEVICE_RDMA"}),
        ("p4d.24xlarge", "current", {"FI_EFA_USE_HUGE_PAGE"}),
        ("p4d.24xlarge", "none", set()),
        ("g5.12xlarge", "auto", {"NCCL_SHM_USE_CUDA_MEMCPY"}),
    ],
)
def test_network_variables_follow_the_instance_and_the_image(instance, profile, expected):
    names = {name for name, _ in plan(instance=instance, network_profile=profile, nodes=2).env}
    assert {name for name in names if name.startswith(("FI_", "NCCL_"))} == expected


def test_one_node_asks_for_no_network():
    assert plan(instance="p5.48xlarge").resources.efa == 0


@pytest.mark.parametrize("launcher", ["torchrun", "launch", "accelerate", "python"])
def test_a_program_may_be_given_with_its_launcher_or_without(launcher):
    own = {
        "torchrun": ["torchrun"],
        "launch": ["python3", "-m", "torch.distributed.launch"],
        "accelerate": ["accelerate", "launch"],
    }
    words = own.get(launcher, ["python"])
    bare, said = (plan(launcher=launcher, nodes=2, command=command).command for command in (["x.py"], [*words, "x.py"]))
    assert bare == said
    assert bare[-1] == "x.py"


def test_deepspeed_is_told_the_whole_world():
    command = plan(launcher="deepspeed", nodes=2, processes_per_node=2, command=["x.py"]).command
    (world,) = (word.removeprefix("--world_info=") for word in command if word.startswith("--world_info="))
    assert json.loads(base64.urlsafe_b64decode(world)) == {"node-0": [0, 1], "node-1": [0, 1]}


@pytest.mark.parametrize("launcher", ["torchrun", "launch", "accelerate", "deepspeed", "python"])
def test_the_trainer_runs_as_a_module_under_every_launcher(launcher):
    train = {"model": "tiny-llama", "data": "/d", "max_steps": 1}
    command = plan(launcher=launcher, command=None, train=train).command
    at = command.index("kfjob.trainer")
    assert command[at - 1] in ("-m", "--module")


def test_static_jobs_have_a_master_and_no_elastic_policy():
    job = compile_pytorchjob(plan(nodes=3, rendezvous="static"))["spec"]
    assert "elasticPolicy" not in job
    assert {kind: replica["replicas"] for kind, replica in job["pytorchReplicaSpecs"].items()} == {"Master": 1, "Worker": 2}
    assert list(compile_pytorchjob(plan(rendezvous="static"))["spec"]["pytorchReplicaSpecs"]) == ["Master"]


def test_ranks_of_a_job_with_a_master():
    made = plan(nodes=2, launcher="python")
    assert made.pods == ("train-master-0", "train-worker-0")
    assert [operator_environment(made, index)["RANK"] for index in (0, 1)] == ["0", "1"]


def test_variables_in_a_command_become_values_on_this_machine_as_in_a_pod():
    made = plan(LOCAL, nodes=2, launcher="accelerate", command=["x.py", "$(NOBODY)", "$$(RANK)"], env={"A": "$(RANK)"})
    place = Placement(addresses=("127.0.0.2", "127.0.0.3"), endpoint="127.0.0.2:4000", interface="lo", folders={})
    agent = make_local_agent(made, 1, place)
    assert {"--machine_rank=1", "--main_process_ip=127.0.0.2", "--main_process_port=4000"} < set(agent.argv)
    assert agent.argv[-2:] == ("$(NOBODY)", "$(RANK)")
    assert agent.env["A"] == "1"


def test_shared_memory_is_half_of_the_memory_unless_said_otherwise():
    assert plan(resources={"memory": "64Gi"}).shared_memory == "32Gi"
    assert plan(resources={"memory": "64Gi"}, shared_memory="8Gi").shared_memory == "8Gi"
    assert plan(shared_memory="0").shared_memory is None
    assert plan(volumes=[{"name": "a", "mount_path": "/dev/shm", "empty_dir": True}]).shared_memory is None


def test_torch_cannot_log_in_through_a_shell():
    rendezvous = {"backend": "etcd", "endpoint": "e:1", "user": "a/b", "password": "a/c"}
    with pytest.raises(SpecError, match="only a command that begins with `torchrun` can log in"):
        plan(command=["sh", "-c", "torchrun x.py"], rendezvous=rendezvous)


def test_what_this_machine_cannot_do_is_refused():
    pod = {"sidecars": [{"name": "a", "image": "b"}], "init_containers": [{"name": "c", "image": "d"}]}
    with pytest.raises(SpecError) as caught:
        plan(LOCAL, pod=pod)
    assert [problem.path for problem in caught.value.problems] == ["pod.init_containers", "pod.sidecars"]


@pytest.mark.parametrize(
    ("base", "over", "result"),
    [
        ({"a": {"b": 1, "c": 2}}, {"a": {"b": 3}}, {"a": {"b": 3, "c": 2}}),
        ({"a": 1, "b": 2}, {"a": None}, {"b": 2}),
        ([1, 2], [3], [3]),
        ([{"name": "x", "v": 1}, {"name": "y"}], [{"name": "x", "w": 2}, {"name": "z"}], None),
        ({"a": 1}, {"b": {"c": None, "d": 1}}, {"a": 1, "b": {"d": 1}}),
    ],
)
def test_overrides_merge_mappings_deep_and_lists_by_name(base, over, result):
    expected = [{"name": "x", "v": 1, "w": 2}, {"name": "y"}, {"name": "z"}] if result is None else result
    assert merge(base, over) == expected
