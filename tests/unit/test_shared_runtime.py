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
        ({"elastic": {"min": 1, "max": 3}, "run": {"backoff_limit": 3}}, ["elastic", "run.backoff_limit"]),
        ({"rendezvous": "etcd"}, ["rendezvous"]),
        ({"rendezvous": {"backend": "static", "port": 4}}, ["rendezvous.port"]),
        (
            {"scheduling": {"gang": {"scheduler": "volcano"}, "priority_class": "p"}},
            ["scheduling.gang", "scheduling.priority_class"],
        ),
        ({"runtime": "trainingruntime/train"}, ["runtime"]),
        ({"env": {"PET_NNODES": "5", "MINE": "1"}}, ["env.PET_NNODES"]),
        ({"processes_per_node": "cpu"}, ["processes_per_node"]),
        ({"pod": {"sidecars": [{"name": "a", "image": "b"}]}}, ["pod.sidecars"]),
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


@pytest.mark.parametrize("name", ["clustertrainingruntime/a", "a/b/c", "Big", "trainingruntime/", "/x"])
def test_names_of_runtimes(name: str):
    with pytest.raises(SpecError, match="is not the name of a runtime"):
        compile_job(runtime=name)


def make_runtime(policy: dict[str, Any] | None, *, name: str = "node", label: str = "trainer", **more: Any) -> dict[str, Any]:
    container = {"name": more.pop("container", "node"), "image": "r:1"} | more.pop("own", {})
    labels = {"trainer.kubeflow.org/trainjob-ancestor-step": label}
    template = {"metadata": {"labels": labels}, "spec": {"template": {"spec": {"containers": [container]}}}}
    jobs = {"replicatedJobs": [{"name": name, "template": template}], **more}
    return {"spec": {"mlPolicy": policy, "template": {"spec": jobs}}}


TORCH: dict[str, Any] = {"torch": {}}


@pytest.mark.parametrize(
    ("runtime", "title"),
    [
        (None, "there is no ClusterTrainingRuntime `torch-distributed`"),
        (make_runtime({"numNodes": 1}), "does not have the policy `torch`"),
        (make_runtime(None), "does not have the policy `torch`"),
        (make_runtime(TORCH, name="worker"), "has no replicated job `node`"),
        (make_runtime(TORCH, label="dataset-initializer"), "has no replicated job `node`"),
        (make_runtime(TORCH, container="main"), "has no container `node`"),
        (make_runtime(TORCH, own={"args": ["--foo"]}), "has `args`, which would follow the command"),
        (make_runtime(TORCH, network={"subdomain": "other"}), "sets `network.subdomain`"),
        (make_runtime(TORCH), ""),
    ],
)
def test_what_keeps_a_job_from_running_in_a_runtime(runtime: dict[str, Any] | None, title: str):
    asked = []

    def read(api_version: str, resource: str, name: str, *, namespaced: bool = True) -> dict[str, Any] | None:
        asked.append((api_version, resource, name, namespaced))
        return runtime

    (job,) = compile_job()
    problems = list(KIND.find_runtime_problems(job, read))
    assert asked == [("trainer.kubeflow.org/v1alpha1", "clustertrainingruntimes", "torch-distributed", False)]
    assert [title in problem.title for problem in problems] == ([True] if title else [])


def test_one_node_needs_no_policy_for_torch():
    (job,) = compile_job(nodes=1)
    assert not list(KIND.find_runtime_problems(job, lambda *_, **__: make_runtime(None)))


def test_only_the_runtime_of_the_job_itself_may_be_missing():
    refusal = "specified trainingRuntime must be created before the TrainJob is created"
    assert KIND.lacks_only_prerequisite(compile_job(runtime=None)[1], refusal)
    assert not KIND.lacks_only_prerequisite(compile_job(runtime="trainingruntime/other")[0], refusal)
    assert not KIND.lacks_only_prerequisite(compile_job()[0], refusal)


def test_pods_that_fetch_data_before_do_not_train():
    assert KIND.select_pods("a") == "jobset.sigs.k8s.io/jobset-name=a,jobset.sigs.k8s.io/replicatedjob-name=node"


def test_patches_of_others_stay_in_a_change():
    (job,) = compile_job()
    (own,) = job["spec"]["runtimePatches"]
    kueue = {"manager": "kueue.x-k8s.io/manager", "time": "t", "trainingRuntimeSpec": {}}
    live = {"spec": {"runtimePatches": [kueue, {**own, "time": "u"}]}}
    assert KIND.adopt_live_fields(job, live)["spec"]["runtimePatches"] == [kueue, {**own, "time": "u"}]
    (_, plain) = compile_job(runtime=None)
    assert KIND.adopt_live_fields(plain, {"spec": {}}) == plain
    assert KIND.adopt_live_fields(plain, {"spec": {"runtimePatches": [kueue]}})["spec"]["runtimePatches"] == [kueue]


@pytest.mark.parametrize("target", [None, "auto", "trainjob"])
def test_runtime_makes_a_trainjob(target: str | None):
    assert load_spec(write_yaml([SPEC | {"target": target}])).spec.wanted_target == "trainjob"
