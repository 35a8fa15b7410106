"""TrainJobs of a runtime that exists: what they patch in it, what they refuse, and what is wrong with the runtime."""

from typing import Any

import pytest

from kfjob.api.planning import compile_spec
from kfjob.base.errors import SpecError
from kfjob.kinds.pod_changes import avoid_nodes
from kfjob.kinds.registry import find_kind, read_pod_templates
from kfjob.plan import Context
from kfjob.source.spec_text import load_spec
from kfjob.source.yaml_writer import write_yaml

KIND = find_kind("TrainJob")
SPEC: dict[str, Any] = {
    "name": "train",
    "image": "i:1",
    "nodes": 2,
    "command": ["torchrun", "train.py"],
    "runtime": "torch-distributed",
}


def compile_job(kind: str = "TrainJob", **fields: Any) -> list[dict[str, Any]]:
    loaded = load_spec(write_yaml([SPEC | fields]))
    chosen = find_kind(kind)
    context = Context(backend="kubernetes", launch="20261121-083000-gold", name_pods=chosen.name_hosts)
    return compile_spec(loaded.spec, loaded.positions, context, chosen)[1]


def read_environment(job: dict[str, Any]) -> dict[str, Any]:
    return {entry["name"]: entry.get("value") for entry in job["spec"]["trainer"]["env"]}


@pytest.mark.parametrize(
    ("runtime", "kind", "name"),
    [
        ("torch-distributed", "ClusterTrainingRuntime", "torch-distributed"),
        ("trainingruntime/own", "TrainingRuntime", "own"),
    ],
)
def test_only_the_job_is_made_and_it_names_the_runtime(runtime: str, kind: str, name: str):
    (job,) = compile_job(runtime=runtime)
    assert job["spec"]["runtimeRef"] == {"apiGroup": "trainer.kubeflow.org", "kind": kind, "name": name}


def test_variables_of_the_policy_for_torch_are_left_to_it():
    (job,) = compile_job(rendezvous="static")
    environment = read_environment(job)
    assert not {"PET_NNODES", "PET_NPROC_PER_NODE", "PET_NODE_RANK", "PET_MASTER_ADDR", "PET_MASTER_PORT"} & set(environment)
    assert (environment["MASTER_ADDR"], environment["MASTER_PORT"]) == ("train-node-0-0.train", "29500")
    assert read_environment(*compile_job())["PET_RDZV_ENDPOINT"] == "train-node-0-0.train:23456"


def test_pods_are_read_from_the_patch_and_avoid_nodes_in_it():
    objects = compile_job(volumes=[{"name": "data", "pvc": "claim", "mount_path": "/data"}], env={"A": "1"})
    (template,) = read_pod_templates(objects)
    (container,) = template.spec["containers"]
    assert (container["image"], container["command"]) == ("i:1", ["torchrun", "train.py"])
    assert template.spec["volumes"][-1]["persistentVolumeClaim"] == {"claimName": "claim"}
    assert template.metadata["labels"]["kfjob.dev/launch"] == "20261121-083000-gold"
    (job,) = avoid_nodes(objects, ["a"])
    (new,) = read_pod_templates([job])
    terms = new.spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert terms[0]["matchFields"][0]["values"] == ["a"]


@pytest.mark.parametrize(
    ("fields", "paths"),
    [
        ({"env_from": [{"secret": "s"}], "pod": {"host_ipc": True}}, ["env_from", "pod.host_ipc"]),
        (
            {"pod": {"working_dir": "/w", "init_containers": [{"name": "a", "image": "b"}]}},
            ["pod.init_containers", "pod.working_dir"],
        ),
        ({"image_pull_policy": "Always", "restarts": {"policy": "OnFailure"}}, ["image_pull_policy", "restarts.policy"]),
        ({"elastic": {"min": 1, "max": 3}, "run": {"backoff_limit": 3}}, ["run.backoff_limit", "elastic"]),
        ({"rendezvous": "etcd"}, ["rendezvous"]),
        ({"rendezvous": {"backend": "static", "port": 4}}, ["rendezvous.port"]),
        (
            {"scheduling": {"gang": {"scheduler": "volcano"}, "priority_class": "p"}},
            ["scheduling.priority_class", "scheduling.gang"],
        ),
        ({"runtime": "trainingruntime/train"}, ["runtime"]),
    ],
)
def test_what_a_job_cannot_change_in_a_runtime_is_an_error(fields: dict[str, Any], paths: list[str]):
    with pytest.raises(SpecError) as caught:
        compile_job(**fields)
    assert [problem.path for problem in caught.value.problems] == paths
    assert all(problem.hint for problem in caught.value.problems)


def test_a_pytorchjob_has_no_runtime():
    with pytest.raises(SpecError, match="a PyTorchJob has no runtime"):
        compile_job("PyTorchJob")


@pytest.mark.parametrize("name", ["clustertrainingruntime/a", "a/b/c", "Big", "trainingruntime/"])
def test_names_of_runtimes(name: str):
    with pytest.raises(SpecError, match="is not the name of a runtime"):
        compile_job(runtime=name)


@pytest.mark.parametrize(
    ("runtime", "title"),
    [
        (None, "there is no ClusterTrainingRuntime `torch-distributed`"),
        ({"spec": {"mlPolicy": {"numNodes": 1}}}, "does not have the policy `torch`"),
        ({"spec": {}}, "does not have the policy `torch`"),
        ({"spec": {"mlPolicy": {"torch": {}}}}, ""),
    ],
)
def test_runtime_that_connects_no_nodes_is_found(runtime: dict[str, Any] | None, title: str):
    asked = []

    def read(api_version: str, resource: str, name: str, *, namespaced: bool = True) -> dict[str, Any] | None:
        asked.append((api_version, resource, name, namespaced))
        return runtime

    (job,) = compile_job()
    problems = list(KIND.find_runtime_problems(job, read))
    assert asked == [("trainer.kubeflow.org/v1alpha1", "clustertrainingruntimes", "torch-distributed", False)]
    assert [title in problem.title for problem in problems] == ([True] if title else [])
