"""Check the plan of a trial, and the problems that kfjob finds in the logs of its pods."""

from __future__ import annotations

import base64
import json
import zlib
from typing import Any

import pytest

from kfjob.api.capacity import pod_requirements
from kfjob.api.preflight.trial import SCRIPT_VARIABLE, START, Trial, pack_script, plan_trial, trial_name
from kfjob.api.preflight.trial_results import TrialLog
from kfjob.kinds.pytorchjob.manifest import compile_manifests, compile_pytorchjob
from kfjob.kinds.registry import read_pod_templates
from kfjob.plan import Context, JobPlan, resolve
from kfjob.spec.job import JobSpec

CONTEXT = Context(backend="kubernetes", launch="l", namespace="ml")


def spec(**fields: Any) -> JobSpec:
    return JobSpec.model_validate({"name": "job", "image": "a:1", "nodes": 2, "command": "torchrun train.py", **fields})


def make_trial(job: JobSpec, **options: Any) -> JobPlan:
    return plan_trial(job, CONTEXT, Trial(**options))


def training_container(plan: JobPlan) -> dict[str, Any]:
    replica = compile_pytorchjob(plan)["spec"]["pytorchReplicaSpecs"]["Worker"]
    result: dict[str, Any] = replica["template"]["spec"]["containers"][0]
    return result


def test_trial_is_the_job_with_another_program():
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
    trial, plan = make_trial(job, sizes="8K", timeout=100), resolve(job, CONTEXT)
    assert (trial.name, trial.spec.nodes, trial.spec.min_nodes, trial.spec.max_nodes) == ("job-preflight", 2, 2, 2)
    for field in ("image", "resources", "volumes", "processes_per_node", "shared_memory", "instance"):
        assert getattr(trial, field) == getattr(plan, field), field
    assert trial.scheduling == plan.scheduling.model_copy(update={"evictable": False})  # its number of pods is fixed
    assert (trial.restarts.policy, trial.restarts.max) == ("Never", 0)
    assert trial.spec.run.ttl
    assert trial.rendezvous.id == "job-preflight-l"
    assert (trial.rendezvous.host, trial.rendezvous.port) == ("job-preflight-worker-0", 29500)
    assert (trial.spec.pod.host_network, trial.spec.pod.init_containers) == (True, ())
    env = dict(trial.env)
    assert env["NCCL_DEBUG"] == "INFO"
    assert not any(name.startswith("PET_") for name in env)
    assert {"TOKEN", "KFJOB_NODE_NAME"} == {name for name, value in trial.env if not isinstance(value, str)}
    assert trial.command[:3] == ("python3", "-c", START)
    arguments = trial.command[trial.command.index("--") + 1 :]
    assert arguments[:5] == ("torchrun", "--no-python", "python3", "-c", START)
    assert arguments[arguments.index("--backend") + 1] == "nccl"
    assert arguments[arguments.index("--sizes") + 1] == "8K"
    assert trial.command[trial.command.index("--peers") + 1] == "job-preflight-worker-0,job-preflight-worker-1"


def test_script_travels_in_a_variable():
    env = {variable["name"]: variable.get("value") for variable in training_container(make_trial(spec()))["env"]}
    text = zlib.decompress(base64.b64decode(env[SCRIPT_VARIABLE])).decode()
    assert "all_reduce = reduce + broadcast" not in START
    assert text.startswith('"""Checks whether the ranks of a job can communicate')
    assert len(pack_script()) < 16_000  # an argument or a variable holds at most 128 KiB
    assert "$(" not in START + pack_script()


@pytest.mark.parametrize("launcher", ["launch", "accelerate", "deepspeed", "python"])
def test_launcher_with_a_master_keeps_its_topology(launcher):
    plan = make_trial(spec(launcher=launcher, command="train.py", rendezvous={"backend": "static", "port": 29511}))
    assert plan.pods == ("job-preflight-master-0", "job-preflight-worker-0")
    assert (plan.rendezvous.host, plan.rendezvous.port) == ("job-preflight-master-0", 29511)
    assert "torchrun" in plan.command


def test_trial_of_a_master_that_differs_runs_the_script_in_both_roles():
    pod = {"init_containers": [{"name": "i", "image": "c:1"}]}
    master = {"image": "m:1", "command": ["python", "lead.py"], "env": {"A": "b"}, "pod": pod}
    plan = make_trial(spec(rendezvous="static", master=master))
    assert plan.master
    assert plan.master.image == "m:1"
    assert plan.master.command == plan.command
    assert plan.master.spec.pod.init_containers == ()
    assert {"A", SCRIPT_VARIABLE} <= dict(plan.master.env).keys()


def test_trial_gets_its_own_etcd_or_the_login_of_a_shared_one():
    plan = make_trial(spec(rendezvous="etcd"))
    assert [manifest["kind"] for manifest in compile_manifests(plan)] == ["PyTorchJob", "Service", "Pod"]
    shared = spec(rendezvous={"backend": "etcd", "endpoint": "etcd:2379", "user": "e/u", "password": "e/p"})
    arguments = make_trial(shared).command
    assert any("KFJOB_ETCD_USER" in argument for argument in arguments)
    assert arguments[:3] == ("python3", "-c", START)


def test_job_of_the_trainer_gets_a_trial():
    plan = make_trial(spec(command=None, train={"model": "tiny-llama", "data": "/text", "max_steps": 1}))
    assert "kfjob.trainer" not in " ".join(plan.command)


def test_overrides_keep_everything_but_the_command():
    override = {"name": "pytorch", "command": ["sleep"], "args": ["1"], "tty": True}
    template = {"template": {"spec": {"containers": [override], "runtimeClassName": "nvidia"}}}
    plan = make_trial(spec(overrides={"spec": {"pytorchReplicaSpecs": {"Worker": template}}}))
    container = training_container(plan)
    assert (container["command"][:3], container["tty"], "args" in container) == (["python3", "-c", START], True, False)
    pod = compile_pytorchjob(plan)["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]
    assert pod["runtimeClassName"] == "nvidia"


@pytest.mark.parametrize("length", [3, 44, 53])
def test_trial_name_fits_for_every_job_name(length):
    name = trial_name(spec(name="j" * length, nodes=16))
    assert name.endswith("-preflight")
    assert len(f"{name}-worker-15") <= 63
    resolve(spec(name=name, nodes=16), CONTEXT)


@pytest.mark.parametrize(
    ("fields", "backend"),
    [
        ({"resources": {"gpus": 2}}, "nccl"),
        ({}, "gloo"),
        ({"processes_per_node": "auto"}, "auto"),
        ({"instance": "p5.48xlarge"}, "nccl"),
    ],
)
def test_trial_uses_the_backend_of_the_training(fields, backend):
    arguments = make_trial(spec(**fields)).command
    assert arguments[arguments.index("--backend") + 1] == backend


def test_references_of_pods_have_paths_in_the_spec():
    job = spec(
        env={"A": {"secret": "s", "key": "k"}, "B": {"config_map": "c", "key": "k", "optional": True}},
        hub_token={"secret": "hub", "key": "token"},
        image_pull_secrets=["pull"],
        volumes=[{"name": "v", "efs": "claim", "mount_path": "/v"}],
        service_account="me",
        overrides={"spec": {"pytorchReplicaSpecs": {"Worker": {"template": {"spec": {"priorityClassName": "high"}}}}}},
    )
    pods = read_pod_templates(compile_manifests(resolve(job, CONTEXT)))
    references = pod_requirements.find_references(pods, job)
    assert {(item.kind, item.name, item.key): item.path for item in references} == {
        ("secret", "s", "k"): "env.A",
        ("secret", "hub", "token"): "hub_token",
        ("secret", "pull", ""): "image_pull_secrets.0",
        ("claim", "claim", ""): "volumes.0",
        ("service account", "me", ""): "service_account",
        ("priority class", "high", ""): "overrides",
    }


def find_problems(*records: dict[str, Any], gpus: int = 0) -> list[tuple[str, str]]:
    log = TrialLog()
    for record in records:
        log.add_line(record.pop("pod", "p-0"), "[default0]:" + json.dumps(record))
    plan = resolve(spec(resources={"gpus": gpus}), CONTEXT)
    return [(problem.severity, problem.title) for problem in log.find_problems(plan)]


ROW = {"kfjob": "summary", "op": "all_reduce", "bytes": 8, "seconds": 1, "wrong": [], "outliers": []}


def test_healthy_trial_has_no_problems_and_ignores_other_lines():
    log = TrialLog()
    log.add_line("p-0", "step 1")
    log.add_line("p-0", '{"kfjob": "summary", "cut')
    assert not log.pods
    assert (
        find_problems({"kfjob": "node", "shm": 2**30}, {"kfjob": "port", "what": "a:1", "ok": True, "why": ""}, dict(ROW)) == []
    )


def test_failed_checks_of_pods_are_problems():
    assert find_problems({"kfjob": "dns", "what": "w-1", "ok": False, "why": "not known"}) == [
        ("error", "pod `p-0` cannot resolve `w-1`")
    ]
    assert find_problems({"kfjob": "port", "what": "w-0:1", "ok": False, "why": "refused"}) == [
        ("error", "pod `p-0` cannot reach w-0:1")
    ]
    assert find_problems({"kfjob": "rank", "rank": 0, "gpus": 1}, gpus=2) == [
        ("error", "pod `p-0`: torch sees 1 GPU, but the job requests 2")
    ]
    assert find_problems({"kfjob": "node", "shm": 64 * 2**20}, gpus=2)[0][0] == "warning"
    assert find_problems({"kfjob": "error", "rank": 1, "doing": "the rendezvous", "why": "x"}) == [
        ("error", "rank 1 in pod `p-0` failed in the rendezvous")
    ]
    assert find_problems({"kfjob": "late", "rank": 1, "doing": "reduce", "seconds": 9.0}) == [
        ("error", "rank 1 in pod `p-0` timed out after 9 s in reduce")
    ]
    assert find_problems(ROW | {"wrong": [3]}) == [("error", "`all_reduce` of 8 bytes gives wrong values on rank 3")]
    assert find_problems(ROW | {"outliers": [2, 3]}) == [
        ("warning", "`all_reduce` of 8 bytes is slower on ranks 2, 3 than on the other ranks")
    ]
    broken = {"kfjob": "table", "line": "mean = sum / ranks: BROKEN on rank 1"}
    assert find_problems(broken, {"kfjob": "done", "ranks": 2, "wrong": True}) == [
        ("error", "a collective differs from the two collectives that it equals")
    ]
