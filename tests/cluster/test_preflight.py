"""preflight on the real cluster: what is missing is told before anything is created, and a trial of two workers."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from kfjob.backends.kubernetes.requests import Request
from tests.cluster import test_bad_input
from tests.cluster.facts import Space
from tests.cluster.facts import space as make_space


@pytest.fixture
def kfjob(space: Space, tmp_path: Path):
    """The command line on one spec, `user` being who asks; findings by their title's beginning."""

    def run(spec: Mapping[str, Any], *argv: str, user: str = "admin", timeout: float = 60) -> dict[str, Any]:
        job = {"image": space.facts.image, "command": "torchrun train.py", **spec}
        path = tmp_path / f"{job['name']}.yaml"
        path.write_text(yaml.safe_dump(job, sort_keys=False))
        done = test_bad_input.kfjob(space, tmp_path, "preflight", str(path), "-o", "json", *argv, user=user, timeout=timeout)
        assert done.stdout, done.stderr
        said: dict[str, Any] = json.loads(done.stdout)
        return said | {"code": done.returncode, "stderr": done.stderr}

    return run


def titles(found: Mapping[str, Any], severity: str = "error") -> list[str]:
    return [problem["title"] for problem in found["problems"] if problem["severity"] == severity]


def make(space: Space, resource: str, name: str, **body: Any) -> None:
    path = f"/api/v1/namespaces/{space.name}/{resource}"
    body = {"metadata": {"name": name}, **body}
    space.client.call(Request(method="POST", path=path, verb="create", resource=resource, namespace=space.name, body=body))


@pytest.fixture
def limited() -> Iterator[Space]:
    """A namespace for one test that limits it."""
    with make_space() as made:
        yield made


def test_a_job_that_can_run_is_told_so(kfjob):
    found = kfjob({"name": "fine", "nodes": 2, "resources": {"cpu": "100m", "memory": "128Mi"}})
    assert (found["code"], found["passed"], titles(found)) == (0, True, [])
    assert any(line.startswith("2 pods find a place, ") for line in found["good"])
    assert "the API server would take PyTorchJob `fine`" in found["good"]
    assert any(line.startswith("image ") for line in found["unchecked"])


def test_everything_that_is_missing_is_told_at_once_and_where_it_stands(kfjob, space):
    make(space, "secrets", "there", stringData={"other": "1"})
    found = kfjob(
        {
            "name": "bad",
            "nodes": 2,
            "resources": {"cpu": 1, "gpus": 8},
            "env": {"A": {"secret": "hub", "key": "token"}, "B": {"secret": "there", "key": "token"}},
            "volumes": [
                {"name": "data", "pvc": "no-claim", "mount_path": "/data"},
                {"name": "conf", "config_map": "no-config", "mount_path": "/conf"},
            ],
            "service_account": "no-account",
            "scheduling": {"priority_class": "no-class", "queue": "no-queue"},
            "image_pull_secrets": ["no-pull"],
        }
    )
    assert found["code"] == 1
    where = {problem["path"]: problem for problem in found["problems"] if problem["severity"] == "error"}
    assert "no secret `hub`" in where["env.A"]["title"]
    assert "`there` has no key `token`" in where["env.B"]["title"]
    assert where["env.B"]["hint"] == "it has `other`"
    assert "no claim `no-claim`" in where["volumes.0"]["title"]
    assert "no config map `no-config`" in where["volumes.1"]["title"]
    assert "no service account `no-account`" in where["service_account"]["title"]
    assert "no priority class `no-class`" in where["scheduling.priority_class"]["title"]
    assert "no secret `no-pull`" in where["image_pull_secrets.0"]["title"]
    assert "the cluster has no Kueue" in where["scheduling.queue"]["title"]
    assert where["resources"]["title"] == "no node can hold pod `bad-worker-0`"
    assert where["resources"]["detail"].startswith("2 of 2 such pods have no node: of ")
    assert "1 with 0 nvidia.com/gpu (8 wanted)" in where["resources"]["detail"]
    assert all(problem["line"] for problem in where.values())


def test_a_quota_is_counted_for_all_pods_together(limited, tmp_path):
    make(limited, "resourcequotas", "small", spec={"hard": {"pods": "2", "requests.cpu": "1", "memory": "4Gi"}})
    spec = {"name": "wide", "nodes": 3, "resources": {"cpu": "400m"}}
    path = tmp_path / "wide.yaml"
    path.write_text(yaml.safe_dump({"image": limited.facts.image, "command": "torchrun train.py", **spec}))
    done = test_bad_input.kfjob(limited, tmp_path, "preflight", str(path), "-o", "json")
    found = json.loads(done.stdout)
    assert done.returncode == 1
    by_title = {problem["title"]: problem for problem in found["problems"]}
    over = by_title["the job does not fit in quota `small`"]["detail"].splitlines()
    assert "pods: the job wants 3, 0 is taken, the limit is 2" in over
    assert "requests.cpu: the job wants 1.2, 0 is taken, the limit is 1" in over
    assert (
        "memory is not said by container `pytorch`"
        in by_title["quota `small` wants every container to say what it uses"]["detail"]
    )


def test_what_stands_before_a_pod_is_asked_also_by_a_submitter(limited, tmp_path):
    make(limited, "limitranges", "tiny", spec={"limits": [{"type": "Container", "max": {"cpu": "50m"}}]})
    path = tmp_path / "big.yaml"
    path.write_text(
        yaml.safe_dump(
            {"name": "big", "image": limited.facts.image, "command": "true", "resources": {"cpu": "1", "memory": "1Gi"}}
        )
    )
    done = test_bad_input.kfjob(limited, tmp_path, "preflight", str(path), "-o", "json", user="submitter")
    found = json.loads(done.stdout)
    (problem,) = [one for one in found["problems"] if one["severity"] == "error"]
    assert problem["title"] == "the cluster would not take pod `big-worker-0`"
    assert "maximum cpu usage per Container is 50m" in problem["detail"]
    assert any(line.startswith("nodes: ") for line in found["unchecked"])
    assert any(line.startswith("quotas: ") for line in found["unchecked"])


def test_a_name_that_is_taken_and_a_job_that_the_webhook_refuses(kfjob, space):
    plan = space.plan("taken", ["true"], run={"suspend": True})
    with space.open() as backend:
        ref = backend.submit(plan)
        try:
            assert titles(kfjob({"name": "taken"})) == [f"there is a job `taken` in namespace `{space.name}` already"]
        finally:
            backend.stop(ref, timeout=60)
    found = kfjob({"name": "other", "overrides": {"spec": {"runPolicy": {"managedBy": "example.com/nobody"}}}})
    (problem,) = [one for one in found["problems"] if one["severity"] == "error"]
    assert "managedBy" in problem["detail"]


def test_the_collectives_between_two_workers_with_a_submitters_rights(kfjob, space):
    spec = {
        "name": "trial",
        "nodes": 2,
        "resources": {"cpu": "700m", "memory": "1Gi"},  # with less the limit makes the imports of torch take a minute
        "volumes": list(map(dict, space.facts.volumes)),
    }
    found = kfjob(spec, "--run", "--sizes", "8K,256K", "--seconds", "0.05", "--timeout", "240", user="submitter", timeout=300)
    assert found["code"] == 0, json.dumps(found, indent=1)[:4000]
    run = found["run"]
    assert (run["job"], run["passed"], run["phase"]) == ("trial-preflight", True, "Succeeded")
    assert [pod["pod"] for pod in run["pods"]] == ["trial-preflight-worker-0", "trial-preflight-worker-1"]
    for pod in run["pods"]:
        assert set(pod["dns"]) == {"trial-preflight-worker-0", "trial-preflight-worker-1"}
        assert all(fact["ok"] for fact in pod["dns"].values())
        assert (pod["port"]["what"], pod["port"]["ok"]) == ("trial-preflight-worker-0:23456", True)
        assert pod["shm"] == 512 * 2**20
        assert pod["node"]
    assert len({row["op"] for row in run["collectives"]}) == 9
    assert not any(row["wrong"] for row in run["collectives"])
    assert Path(run["logs"]).is_dir()
    with space.open() as backend:
        assert "trial-preflight" not in {job.name for job in backend.list(namespace=space.name)}


def test_a_trial_that_finds_no_node_is_ended_and_says_why(kfjob, space):
    """A submitter cannot see nodes, so only the trial finds it."""
    began = time.monotonic()
    found = kfjob({"name": "gpu", "resources": {"gpus": 8}}, "--run", "--timeout", "6", user="submitter", timeout=120)
    assert (found["passed"], found["code"]) == (True, 1)
    said = " ".join(f"{problem['title']} {problem['detail']}" for problem in found["run"]["problems"])
    assert "pod `gpu-preflight-worker-0` has not started" in said
    assert "nvidia.com/gpu" in said
    assert time.monotonic() - began < 100


def test_the_user_s_own_interrupt_removes_the_trial(space, tmp_path):
    path = tmp_path / "gone.yaml"
    path.write_text(yaml.safe_dump({"name": "gone", "image": space.facts.image, "command": "true", "resources": {"gpus": 8}}))
    env = {
        "KUBECONFIG": test_bad_input.kubeconfig(space, "submitter"),
        "KFJOB_STATE": str(tmp_path),
        "KFJOB_NAMESPACE": space.name,
    }
    with subprocess.Popen(
        [test_bad_input.KFJOB, "preflight", str(path), "--run"],
        env=os.environ | env,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stderr
        line = process.stderr.readline()
        assert "gone-preflight" in line, line
        process.send_signal(2)
        assert process.wait(timeout=60) == 130
    with space.open() as backend:
        assert "gone-preflight" not in {job.name for job in backend.list(namespace=space.name)}
