"""`kfjob preflight` on the real cluster: it reports missing objects, and runs a trial with two workers."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from kfjob.base.errors import KfjobError
from tests.cluster import test_bad_input
from tests.cluster.facts import Space, submit, until
from tests.cluster.facts import space as make_space
from tests.kfjob_command import KFJOB


@pytest.fixture
def kfjob(space: Space, tmp_path: Path):
    """Return a function that runs `kfjob preflight` on a spec as `user` and returns its report."""

    def run(
        spec: Mapping[str, Any], *argv: str, user: str = "admin", timeout: float = 60, space: Space = space
    ) -> dict[str, Any]:
        job = {"image": space.facts.image, "command": "torchrun train.py", **spec}
        path = tmp_path / f"{job['name']}.yaml"
        path.write_text(yaml.safe_dump(job, sort_keys=False))
        result = test_bad_input.kfjob(space, tmp_path, "preflight", str(path), "-o", "json", *argv, user=user, timeout=timeout)
        assert result.stdout, result.stderr
        report: dict[str, Any] = json.loads(result.stdout)
        return report | {"code": result.returncode, "stderr": result.stderr}

    return run


def titles(report: Mapping[str, Any], severity: str = "error") -> list[str]:
    return [problem["title"] for problem in report["problems"] if problem["severity"] == severity]


@pytest.fixture
def limited_space() -> Iterator[Space]:
    """Yield a namespace for a test that sets limits in it."""
    with make_space() as namespace:
        yield namespace


def test_job_without_problems_passes(kfjob):
    report = kfjob({"name": "fine", "nodes": 2, "resources": {"cpu": "100m", "memory": "128Mi"}})
    assert (report["code"], report["passed"], titles(report)) == (0, True, [])
    assert any(line.startswith("2 pods can be scheduled on ") for line in report["good"])
    assert "the API server accepts PyTorchJob `fine`" in report["good"]
    assert any(line.startswith("image ") for line in report["unchecked"])


def test_all_missing_objects_are_reported_with_their_paths(kfjob, space):
    space.send(
        "POST", f"/api/v1/namespaces/{space.name}/secrets", {"metadata": {"name": "there"}, "stringData": {"other": "1"}}
    )
    report = kfjob(
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
    assert report["code"] == 1
    problems = {problem["path"]: problem for problem in report["problems"] if problem["severity"] == "error"}
    assert "secret `hub` does not exist" in problems["env.A"]["title"]
    assert "`there` has no key `token`" in problems["env.B"]["title"]
    assert problems["env.B"]["hint"] == "its keys are `other`"
    assert "claim `no-claim` does not exist" in problems["volumes.0"]["title"]
    assert "config map `no-config` does not exist" in problems["volumes.1"]["title"]
    assert "service account `no-account` does not exist" in problems["service_account"]["title"]
    assert "priority class `no-class` does not exist" in problems["scheduling.priority_class"]["title"]
    assert "secret `no-pull` does not exist" in problems["image_pull_secrets.0"]["title"]
    assert "the cluster has no Kueue" in problems["scheduling.queue"]["title"]
    assert problems["resources"]["title"] == "no node can hold pod `bad-worker-0`"
    assert problems["resources"]["detail"].startswith("no node for 2 of 2 pods: of ")
    assert "1 with 0 nvidia.com/gpu (8 requested)" in problems["resources"]["detail"]
    assert all(problem["line"] for problem in problems.values())


def limit(space: Space, resource: str, **spec: Any) -> None:
    space.send("POST", f"/api/v1/namespaces/{space.name}/{resource}", {"metadata": {"name": "small"}, "spec": spec})


def test_quota_counts_all_pods_together(kfjob, limited_space):
    limit(limited_space, "resourcequotas", hard={"pods": "2", "requests.cpu": "1", "memory": "4Gi"})
    report = kfjob({"name": "wide", "nodes": 3, "resources": {"cpu": "400m"}}, space=limited_space)
    assert report["code"] == 1
    by_title = {problem["title"]: problem for problem in report["problems"]}
    details = by_title["the job does not fit in quota `small`"]["detail"].splitlines()
    assert "pods: the job needs 3, 0 in use, limit 2" in details
    assert "requests.cpu: the job needs 1.2, 0 in use, limit 1" in details
    assert "must specify memory" in by_title["the cluster refuses pod `wide-worker-0`"]["detail"]


def test_submitter_sees_refusals_of_pod_admission(kfjob, limited_space):
    limit(limited_space, "limitranges", limits=[{"type": "Container", "max": {"cpu": "50m"}}])
    spec = {"name": "big", "command": "true", "resources": {"cpu": "1", "memory": "1Gi"}}
    report = kfjob(spec, user="submitter", space=limited_space)
    (problem,) = [problem for problem in report["problems"] if problem["severity"] == "error"]
    assert problem["title"] == "the cluster refuses pod `big-worker-0`"
    assert "maximum cpu usage per Container is 50m" in problem["detail"]
    assert any(line.startswith("nodes: ") for line in report["unchecked"])
    assert any(line.startswith("quotas: ") for line in report["unchecked"])


def test_taken_name_and_refused_job_are_errors(kfjob, space):
    plan = space.plan("taken", ["true"], run={"suspend": True})
    with space.open() as backend:
        ref = submit(backend, plan)
        try:
            (title,) = titles(kfjob({"name": "taken"}))
            assert title.startswith("job `taken` runs already (")
        finally:
            backend.stop(ref, timeout=60)
    report = kfjob({"name": "other", "overrides": {"spec": {"runPolicy": {"managedBy": "example.com/nobody"}}}})
    (problem,) = [problem for problem in report["problems"] if problem["severity"] == "error"]
    assert "managedBy" in problem["detail"]


def test_collectives_between_two_workers_as_submitter(kfjob, space):
    spec = {
        "name": "trial",
        "nodes": 2,
        "resources": {"cpu": "700m", "memory": "1Gi"},  # with less CPU the import of torch takes a minute
        "volumes": list(map(dict, space.facts.volumes)),
    }
    report = kfjob(spec, "--run", "--sizes", "8K,256K", "--seconds", "0.05", "--timeout", "240", user="submitter", timeout=300)
    assert report["code"] == 0, json.dumps(report, indent=1)[:4000]
    run = report["run"]
    assert (run["name"], run["passed"], run["phase"]) == ("trial-preflight", True, "Succeeded")
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


def test_trial_without_a_node_ends_with_the_reason(kfjob, space):
    """A submitter cannot see nodes, so only the trial shows this problem."""
    report = kfjob({"name": "gpu", "resources": {"gpus": 8}}, "--run", "--timeout", "6", user="submitter", timeout=120)
    assert (report["passed"], report["code"]) == (True, 1)
    text = " ".join(f"{problem['title']} {problem['detail']}" for problem in report["run"]["problems"])
    assert "pod `gpu-preflight-worker-0` has not started" in text
    assert "nvidia.com/gpu" in text


def test_interrupt_removes_the_trial(space, tmp_path):
    path = tmp_path / "gone.yaml"
    path.write_text(yaml.safe_dump({"name": "gone", "image": space.facts.image, "command": "true", "resources": {"gpus": 8}}))
    env = {
        "KUBECONFIG": space.facts.kubeconfig_of("submitter", space.name),
        "KFJOB_STATE": str(tmp_path),
        "KFJOB_NAMESPACE": space.name,
    }
    with subprocess.Popen(
        [KFJOB, "preflight", str(path), "--run"],
        env=os.environ | env,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stderr
        line = process.stderr.readline()
        assert "gone-preflight" in line, line
        process.send_signal(2)
        assert process.wait(timeout=60) == 130
    with space.open() as backend:  # the request to delete it was sent; its pods may still end
        until(lambda: "gone-preflight" not in {job.name for job in backend.list(namespace=space.name)})


NODE_POOL_CRD = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "nodepools.karpenter.sh"},
    "spec": {
        "group": "karpenter.sh",
        "names": {"kind": "NodePool", "plural": "nodepools"},
        "scope": "Cluster",
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
            }
        ],
    },
}


@pytest.fixture
def node_pools(space: Space) -> Iterator[None]:
    """Serve node pools, as Karpenter and Auto Mode do, without their controller."""
    crds, pools = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", "/apis/karpenter.sh/v1/nodepools"
    space.send("POST", crds, NODE_POOL_CRD)
    try:
        until(lambda: is_served(space, pools))
        yield
    finally:
        space.send("DELETE", f"{crds}/nodepools.karpenter.sh")


def is_served(space: Space, path: str) -> bool:
    try:
        space.send("GET", path)
    except KfjobError:
        return False
    return True


@pytest.mark.usefixtures("node_pools")
def test_node_that_a_pool_may_add_is_a_warning(kfjob):
    report = kfjob({"name": "scaled", "nodes": 2, "instance": "p5.48xlarge", "resources": {"efa": 0}})
    assert [title for title in titles(report) if "node" in title] == []
    (warning,) = [problem for problem in report["problems"] if "may add one" in problem["title"]]
    assert warning["title"] == "no node can hold pod `scaled-worker-0` yet; a node pool of the cluster may add one"
    assert "preflight --run" in warning["hint"]
