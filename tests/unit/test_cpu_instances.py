"""An instance type without an accelerator: its jobs get nothing that is for GPUs, and train with gloo."""

from __future__ import annotations

import pytest

from kfjob.kinds.pytorchjob.manifest import compile_pytorchjob
from kfjob.lint.fit import find_device
from kfjob.plan import Context, resolve
from kfjob.spec.instances import load_catalogue
from kfjob.spec.job import JobSpec
from tests.pytorchjobs import lint

BASE = {"name": "job", "image": "registry.example/train:1", "nodes": 2, "command": "torchrun train.py"}
TRAIN = {"model": "micro-llama", "data": "/data/text", "max_steps": 1, "sequence_length": 64}
CPU_TYPES = [name for name, instance in load_catalogue().items() if not instance.accelerator]


def plan(**fields):
    spec = JobSpec.model_validate({key: value for key, value in (BASE | fields).items() if value is not None})
    return spec, resolve(spec, Context(backend="kubernetes", launch="l"))


def test_job_on_cpus_gets_nothing_that_is_for_gpus():
    _, found = plan(instance="m5.2xlarge")
    job = compile_pytorchjob(found)
    (replica, *_) = job["spec"]["pytorchReplicaSpecs"].values()
    pod = replica["template"]["spec"]
    (container,) = pod["containers"]
    variables = {variable["name"] for variable in container["env"]}
    assert not container.get("resources")
    assert not [name for name in variables if name.startswith(("NCCL_", "TORCH_NCCL_", "FI_", "CUDA_"))]
    assert "tolerations" not in pod
    assert pod["nodeSelector"] == {"node.kubernetes.io/instance-type": "m5.2xlarge"}
    assert job["spec"]["nprocPerNode"] == "1"
    assert find_device(found).kind == "cpu"  # the trainer's processes meet with gloo


@pytest.mark.parametrize("name", CPU_TYPES)
@pytest.mark.parametrize("program", [{}, {"command": None, "train": TRAIN}], ids=["command", "train"])
def test_no_rule_expects_an_accelerator(name, program):
    spec, found = plan(instance=name, **program)
    words = "\n".join(str(problem) for problem in lint(spec, found) if problem.path != "train.data")
    assert not any(word in words for word in ("GPU", "NCCL", "EFA", "CUDA"))


def test_rules_use_the_numbers_of_the_type():
    spec, found = plan(instance="m5.2xlarge", resources={"cpu": 16, "memory": "64Gi", "gpus": 1})
    assert {p.path for p in lint(spec, found) if p.rule == "exceeds-instance"} == {
        "resources.cpu",
        "resources.memory",
        "resources.gpus",
    }
    spec, found = plan(instance="m5.2xlarge", command=None, train=TRAIN | {"precision": "fp8"})
    assert "`precision: fp8` is set, and m5.2xlarge has no GPU" in [problem.title for problem in lint(spec, found)]


def test_sizes_are_those_of_aws():
    numbers = {name: (load_catalogue()[name].vcpus, load_catalogue()[name].memory) for name in CPU_TYPES}
    assert numbers["m5.2xlarge"] == (8, 32)
    assert numbers["c5.9xlarge"] == (36, 72)
    assert numbers["c7i.48xlarge"] == (192, 384)
    assert all(memory in (2 * vcpus, 4 * vcpus) for vcpus, memory in numbers.values())
