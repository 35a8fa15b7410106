"""The job that stands in for another, and what its pods are heard to say."""

from __future__ import annotations

import base64
import json
import zlib
from typing import Any

import pytest

from kfjob.api.preflight import pod_requirements
from kfjob.api.preflight.trial import SCRIPT, START, Trial, packed, trial_name, trial_plan
from kfjob.api.preflight.trial_results import Heard
from kfjob.compile.pod_templates import read_pod_templates
from kfjob.compile.pytorchjob import compile_manifests, compile_pytorchjob
from kfjob.plan import Context, JobPlan, resolve
from kfjob.spec.job import JobSpec

HERE = Context(backend="kubernetes", launch="l", namespace="ml")


def spec(**said: Any) -> JobSpec:
    return JobSpec.model_validate({"name": "job", "image": "a:1", "nodes": 2, "command": "torchrun train.py", **said})


def trial(job: JobSpec, **how: Any) -> JobPlan:
    return trial_plan(job, HERE, Trial(**how))


def container(plan: JobPlan) -> dict[str, Any]:
    replica = compile_pytorchjob(plan)["spec"]["pytorchReplicaSpecs"]["Worker"]
    found: dict[str, Any] = replica["template"]["spec"]["containers"][0]
    return found


def test_it_is_the_job_with_another_program():
    job = spec(
        resources={"cpu": 4, "gpus": 8, "efa": 4},
        env={"NCCL_DEBUG": "INFO", "TOKEN": {"secret": "hub", "key": "token"}},
        volumes=[{"name": "fsx", "pvc": "fsx", "mount_path": "/fsx"}],
        instance="p4d.24xlarge",
        restarts={"policy": "OnFailure", "max": 9},
        torchrun={"redirects": "3", "log_dir": "/logs"},
        rendezvous={"id": "mine", "port": 29500},
        elastic={"min": 1, "max": 4},
        pod={"init_containers": [{"name": "copy", "image": "a:1"}], "host_network": True},
    )
    own, meant = trial(job, sizes="8K", timeout=100), resolve(job, HERE)
    assert (own.name, own.nodes, own.min_nodes, own.max_nodes) == ("job-preflight", 2, 2, 2)
    for same in ("image", "resources", "volumes", "scheduling", "processes_per_node", "shared_memory", "instance"):
        assert getattr(own, same) == getattr(meant, same), same
    assert (own.restarts.policy, own.restarts.max) == ("Never", 0)
    assert own.run.ttl
    assert own.rendezvous.id == "job-preflight-l"
    assert (own.rendezvous.host, own.rendezvous.port) == ("job-preflight-worker-0", 29500)
    assert (own.pod.host_network, own.pod.init_containers) == (True, ())
    env = dict(own.env)
    assert env["NCCL_DEBUG"] == "INFO"
    assert not any(name.startswith("PET_") for name in env)
    assert {"TOKEN", "KFJOB_NODE_NAME"} == set(dict(own.env_from))
    assert own.command[:3] == ("python3", "-c", START)
    words = own.command[own.command.index("--") + 1 :]
    assert words[:5] == ("torchrun", "--no-python", "python3", "-c", START)
    assert words[words.index("--backend") + 1] == "nccl"
    assert words[words.index("--sizes") + 1] == "8K"
    assert own.command[own.command.index("--peers") + 1] == "job-preflight-worker-0,job-preflight-worker-1"


def test_the_program_goes_along_as_a_variable():
    env = {one["name"]: one.get("value") for one in container(trial(spec()))["env"]}
    text = zlib.decompress(base64.b64decode(env[SCRIPT])).decode()
    assert "all_reduce = reduce + broadcast" not in START
    assert text.startswith('"""Checks whether the ranks of a job can communicate')
    assert len(packed()) < 16_000  # far below what one argument or variable may hold (128 KiB)
    assert "$(" not in START + packed()


@pytest.mark.parametrize("launcher", ["launch", "accelerate", "deepspeed", "python"])
def test_a_launcher_with_a_master_keeps_its_topology(launcher):
    own = trial(spec(launcher=launcher, command="train.py", rendezvous={"backend": "static", "port": 29511}))
    assert own.pods == ("job-preflight-master-0", "job-preflight-worker-0")
    assert (own.rendezvous.host, own.rendezvous.port) == ("job-preflight-master-0", 29511)
    assert "torchrun" in own.command


def test_ones_own_etcd_comes_along_and_an_etcd_with_a_user_is_logged_in_to():
    own = trial(spec(rendezvous="etcd"))
    assert [one["kind"] for one in compile_manifests(own)] == ["PyTorchJob", "Service", "Pod"]
    shared = spec(rendezvous={"backend": "etcd", "endpoint": "etcd:2379", "user": "e/u", "password": "e/p"})
    words = trial(shared).command
    assert any("KFJOB_ETCD_USER" in word for word in words)
    assert words[:3] == ("python3", "-c", START)


def test_the_trainers_own_jobs_are_tried_too():
    own = trial(spec(command=None, train={"model": "tiny-llama", "data": "/text", "max_steps": 1}))
    assert "kfjob.trainer" not in " ".join(own.command)


def test_overrides_stay_but_for_what_the_container_runs():
    container_over = {"name": "pytorch", "command": ["sleep"], "args": ["1"], "tty": True}
    template = {"template": {"spec": {"containers": [container_over], "runtimeClassName": "nvidia"}}}
    own = trial(spec(overrides={"spec": {"pytorchReplicaSpecs": {"Worker": template}}}))
    made = container(own)
    assert (made["command"][:3], made["tty"], "args" in made) == (["python3", "-c", START], True, False)
    pod = compile_pytorchjob(own)["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]
    assert pod["runtimeClassName"] == "nvidia"


@pytest.mark.parametrize("length", [3, 44, 53])
def test_its_name_fits_however_long_the_jobs_is(length):
    name = trial_name(spec(name="j" * length, nodes=16))
    assert name.endswith("-preflight")
    assert len(f"{name}-worker-15") <= 63
    resolve(spec(name=name, nodes=16), HERE)


@pytest.mark.parametrize(
    ("said", "backend"),
    [
        ({"resources": {"gpus": 2}}, "nccl"),
        ({}, "gloo"),
        ({"processes_per_node": "auto"}, "auto"),
        ({"instance": "p5.48xlarge"}, "nccl"),
    ],
)
def test_the_network_that_is_tried_is_the_one_that_training_will_use(said, backend):
    words = trial(spec(**said)).command
    assert words[words.index("--backend") + 1] == backend


def test_what_a_pod_refers_to_and_where_the_spec_says_so():
    job = spec(
        env={"A": {"secret": "s", "key": "k"}, "B": {"config_map": "c", "key": "k", "optional": True}},
        hub_token={"secret": "hub", "key": "token"},
        image_pull_secrets=["pull"],
        volumes=[{"name": "v", "efs": "claim", "mount_path": "/v"}],
        service_account="me",
        overrides={"spec": {"pytorchReplicaSpecs": {"Worker": {"template": {"spec": {"priorityClassName": "high"}}}}}},
    )
    pods = read_pod_templates(compile_manifests(resolve(job, HERE)))
    found = {(one.kind, one.name, one.key): one.path for one in pod_requirements.references(pods, job)}
    assert found == {
        ("secret", "s", "k"): "env.A",
        ("secret", "hub", "token"): "hub_token",
        ("secret", "pull", ""): "image_pull_secrets.0",
        ("claim", "claim", ""): "volumes.0",
        ("service account", "me", ""): "service_account",
        ("priority class", "high", ""): "overrides",
    }


def heard(*facts: dict[str, Any], gpus: int = 0) -> list[tuple[str, str]]:
    ear = Heard()
    for fact in facts:
        ear.take(fact.pop("pod", "p-0"), "[default0]:" + json.dumps(fact))
    plan = resolve(spec(resources={"gpus": gpus}), HERE)
    return [(one.severity, one.title) for one in ear.problems(plan)]


ROW = {"kfjob": "summary", "op": "all_reduce", "bytes": 8, "seconds": 1, "wrong": [], "outliers": []}


def test_a_healthy_trial_has_no_problems_and_other_lines_are_left_alone():
    ear = Heard()
    ear.take("p-0", "step 1")
    ear.take("p-0", '{"kfjob": "summary", "cut')
    assert not ear.pods
    assert heard({"kfjob": "node", "shm": 2**30}, {"kfjob": "port", "what": "a:1", "ok": True, "why": ""}, dict(ROW)) == []


def test_what_the_pods_say_becomes_problems():
    assert heard({"kfjob": "dns", "what": "w-1", "ok": False, "why": "not known"}) == [
        ("error", "pod `p-0` cannot resolve `w-1`")
    ]
    assert heard({"kfjob": "port", "what": "w-0:1", "ok": False, "why": "refused"}) == [
        ("error", "pod `p-0` cannot reach w-0:1")
    ]
    assert heard({"kfjob": "rank", "rank": 0, "gpus": 1}, gpus=2) == [
        ("error", "pod `p-0`: torch sees 1 GPU, and the job requests 2")
    ]
    assert heard({"kfjob": "node", "shm": 64 * 2**20}, gpus=2)[0][0] == "warning"
    assert heard({"kfjob": "error", "rank": 1, "doing": "meeting the others", "why": "x"}) == [
        ("error", "rank 1 in pod `p-0` failed in meeting the others")
    ]
    assert heard({"kfjob": "late", "rank": 1, "doing": "reduce", "seconds": 9.0}) == [
        ("error", "rank 1 in pod `p-0` waited 9 s in reduce, and gave up")
    ]
    assert heard(ROW | {"wrong": [3]}) == [("error", "`all_reduce` of 8 bytes gives wrong values on rank 3")]
    assert heard(ROW | {"outliers": [2, 3]}) == [
        ("warning", "`all_reduce` of 8 bytes is slower on ranks 2, 3 than on the others")
    ]
    broken = {"kfjob": "table", "line": "mean = sum / ranks: BROKEN on rank 1"}
    assert heard(broken, {"kfjob": "done", "ranks": 2, "wrong": True}) == [
        ("error", "a collective is not the two that it is made of")
    ]
