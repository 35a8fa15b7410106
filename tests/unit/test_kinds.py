"""What kinds of jobs refuse of a spec, how one is chosen, and how TrainJobs are read."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kfjob.api.settings import Settings
from kfjob.api.target import make_target
from kfjob.base.capabilities import AUTO_TARGET, TARGETS
from kfjob.base.errors import Refused
from kfjob.base.units import SECOND
from kfjob.cli.view_text import reported_text
from kfjob.joblog.events import JobPhase
from kfjob.kinds.base import Replica
from kfjob.kinds.registry import KINDS
from kfjob.plan import Context, resolve
from kfjob.spec.job import JobSpec
from tests.cluster.indexed_jobs import IndexedJob

SPEC: dict[str, Any] = {"name": "train", "image": "registry.example/train:1", "nodes": 2, "command": ["torchrun", "train.py"]}


@pytest.mark.parametrize(
    ("fields", "paths"),
    [
        ({}, []),
        ({"overrides": {"metadata": {"labels": {"a": "b"}}}}, ["overrides"]),
        ({"run": {"clean_pods": "All"}}, ["run"]),
        ({"rendezvous": {"backend": "etcd-v2"}}, ["rendezvous"]),
        ({"rendezvous": {"backend": "static"}}, ["master"]),
    ],
)
def test_own_kind_refuses_what_it_lacks(fields: dict[str, Any], paths: list[str]):
    plan = resolve(JobSpec.model_validate(SPEC | fields), Context(backend="kubernetes", launch="20260101-000000-abcd"))
    assert [problem.path for problem in IndexedJob().find_plan_problems(plan)] == paths


def test_targets_are_the_kinds_in_small_letters():
    assert (*(name.lower() for name in KINDS), AUTO_TARGET) == TARGETS


@pytest.mark.parametrize(
    ("settings", "wanted", "kind", "origin"),
    [
        ({}, None, "", "default"),
        ({}, "trainjob", "TrainJob", "spec"),
        ({"target": "trainjob"}, None, "TrainJob", "cluster"),
        ({"target": "trainjob"}, "pytorchjob", "PyTorchJob", "spec"),
        ({"job_kind": "TrainJob"}, "pytorchjob", "TrainJob", "cluster"),
    ],
)
def test_option_decides_before_the_spec_and_the_spec_before_the_configuration(
    settings: dict[str, Any], wanted: str | None, kind: str, origin: str, tmp_path: Path
):
    choice = make_target(Settings(state=tmp_path, **settings), "kubernetes").choose_kind(wanted)
    assert (choice.target.settings.job_kind, choice.origin) == (kind, origin)


@pytest.mark.parametrize(
    ("served", "kind"), [(("pytorchjobs", "trainjobs"), "PyTorchJob"), (("trainjobs",), "TrainJob"), ((), None)]
)
def test_auto_takes_the_first_kind_that_the_cluster_offers(served: tuple[str, ...], kind: str | None, tmp_path: Path):
    target = make_target(Settings(state=tmp_path, job_kind=AUTO_TARGET), "kubernetes")
    inventory = SimpleNamespace(list_resources=lambda _: served)
    vars(target)["cluster"] = SimpleNamespace(inventory=lambda _: inventory)
    if kind is None:
        with pytest.raises(Refused, match="the cluster offers no kind of job"):
            target.choose_kind(None)
    else:
        assert target.choose_kind("pytorchjob").target.settings.job_kind == kind


POD: dict[str, Any] = {
    "metadata": {
        "name": "train-node-0-1-x7k2p",
        "labels": {
            "jobset.sigs.k8s.io/jobset-name": "train",
            "batch.kubernetes.io/job-completion-index": "1",
            "kfjob.dev/launch": "20261121-083000-abcd",
        },
    }
}


def test_pod_of_a_trainjob_belongs_to_its_launch_and_has_the_rank_of_its_index():
    kind = KINDS["TrainJob"]
    assert kind.read_replica(POD) == Replica("Worker", 1, "train-node-0-1.train")
    assert kind.find_job_id(POD) == kind.identify(name="train", uid="1", launch="20261121-083000-abcd")
    foreign = {"metadata": {"labels": {"jobset.sigs.k8s.io/jobset-name": "train"}}}
    assert kind.find_job_id(foreign) == kind.identify(name="train", uid="1", launch="")


@pytest.mark.parametrize(
    ("status", "phase"),
    [
        ({}, JobPhase.PENDING),
        ({"jobsStatus": [{"name": "node", "active": 1, "ready": 0}]}, JobPhase.PENDING),
        ({"jobsStatus": [{"name": "node", "active": 1, "ready": 1}]}, JobPhase.RUNNING),
        ({"conditions": [{"type": "Suspended", "status": "True"}]}, JobPhase.SUSPENDED),
        ({"conditions": [{"type": "Complete", "status": "True"}]}, JobPhase.SUCCEEDED),
        ({"conditions": [{"type": "Failed", "status": "True"}]}, JobPhase.FAILED),
    ],
)
def test_state_of_a_trainjob(status: dict[str, Any], phase: JobPhase):
    job = {"metadata": {"name": "train", "creationTimestamp": "2026-11-21T08:30:00Z"}, "status": status}
    assert KINDS["TrainJob"].read_state(job, now=0).phase is phase


def test_progress_that_the_program_has_posted_is_read_and_shown():
    status = {
        "progressPercentage": 42,
        "estimatedRemainingSeconds": 125,
        "metrics": [{"name": "loss", "value": "0.123"}],
        "lastUpdatedTime": "2026-11-21T08:30:00Z",
    }
    job = {"metadata": {"name": "train", "creationTimestamp": "2026-11-21T08:30:00Z"}, "status": {"trainerStatus": status}}
    state = KINDS["TrainJob"].read_state(job, now=0)
    assert state.reported
    later = (state.reported.time or 0) + 12 * SECOND
    assert reported_text(state.reported, later) == "42 % · 2m05s left · loss 0.123 (12s ago)"


@pytest.mark.parametrize("kind", ["PyTorchJob", "TrainJob"])
@pytest.mark.parametrize(("rendezvous", "store"), [("etcd", "train-etcd"), ("c10d", "")])
def test_own_etcd_is_found_in_the_job(kind: str, rendezvous: str, store: str):
    spec = JobSpec.model_validate(
        {"name": "train", "image": "i", "nodes": 2, "command": ["torchrun", "train.py"], "rendezvous": rendezvous}
    )
    plan = resolve(spec, Context(backend="kubernetes", launch="7", namespace="ml"))
    (job,) = (item for item in KINDS[kind].compile(plan) if item["kind"] == kind)
    assert KINDS[kind].find_store(job) == store
