"""What observation needs of a spec is recorded at submit and read from the record."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from kfjob.api.recorded_config import from_manifest, read_observe_config
from kfjob.joblog.events import JobChanged, JobPhase, JobSnapshot, PodChanged, PodPhase
from kfjob.joblog.observe_config import Limits, ObserveConfig, decode, encode
from kfjob.kinds.pytorchjob.manifest import compile_pytorchjob
from kfjob.objects import names
from kfjob.objects.api_objects import ANNOTATION_OBSERVE_CONFIG
from kfjob.plan import Context, resolve
from kfjob.source.spec_text import load_spec

GOLDEN = sorted((Path(__file__).parents[2] / "golden" / "specs").glob("*.yaml"))
CONTEXT = Context(backend="kubernetes", launch="l")
JOB = "name: a\nimage: b\ncommand: torchrun c.py\n"


def snapshot(name="a", **fields) -> JobSnapshot:
    return JobSnapshot(name=name, namespace="default", job=JobChanged(phase=JobPhase.RUNNING), **fields)


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
def test_recorded_annotation_is_read_back(path):
    plan = resolve(load_spec(path.read_text()).spec, CONTEXT)
    annotation = compile_pytorchjob(plan)["metadata"]["annotations"][ANNOTATION_OBSERVE_CONFIG]
    assert read_observe_config(snapshot(plan.name, observe_config=annotation)) == plan.observe_config
    assert plan.observe_config.workers == plan.pods


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("nodes: 2\nrendezvous: static\n", {"workers": ("a-master-0", "a-worker-0"), "rendezvous": "static"}),
        ("nodes: 2\nmaster: true\nrendezvous: etcd\n", {"workers": ("a-master-0", "a-worker-0"), "rendezvous": "etcd"}),
        ("processes_per_node: auto\n", {"processes_per_node": None}),
        ("progress: 'done (?P<step>[0-9]+)'\n", {"progress_pattern": "done (?P<step>[0-9]+)", "trainer": ""}),
        ("env: {LOGLEVEL: WARNING}\n", {"loglevel": "WARNING"}),
        ("watchdog: {stall: 60, crashes: 3}\n", {"limits": Limits(stall=60, crashes=3)}),
    ],
)
def test_plan_holds_what_observation_needs(text, expected):
    config = resolve(load_spec(JOB + text).spec, CONTEXT).observe_config
    assert {name: getattr(config, name) for name in expected} == expected


@pytest.mark.parametrize("annotation", ["{", "[]", '{"nodes": 1000000000}', '{"nodes": "2"}', '{"progress_pattern": "("}'])
def test_damaged_annotation_is_ignored(annotation):
    pods = (PodChanged(pod="a-worker-0", phase=PodPhase.RUNNING),)
    assert read_observe_config(snapshot(observe_config=annotation, pods=pods)).workers == ("a-worker-0",)


@pytest.mark.parametrize("record", ["[{}]", "{", '[{"kind": "PyTorchJob", "metadata": {"name": "a"}, "spec": 3}]'])
def test_damaged_record_leaves_the_pods(record):
    pods = (PodChanged(pod="a-worker-0", phase=PodPhase.RUNNING),)
    assert read_observe_config(snapshot(manifest=record, pods=pods)).workers == ("a-worker-0",)


def test_annotation_of_a_newer_version_is_read():
    config = decode('{"nodes": 2, "master": true, "invented_later": 1}', name_pods=partial(names.pod_names, "a"))
    assert config == ObserveConfig(workers=("a-master-0", "a-worker-0"), master=True)
    config = ObserveConfig(rendezvous="etcd")
    assert decode(encode(config), name_pods=partial(names.pod_names, "a")) == config


def test_job_of_another_tool_shows_its_pods():
    pods = tuple(
        PodChanged(pod=f"a-{kind.lower()}-{index}", phase=PodPhase.RUNNING, replica_type=kind, replica_index=index)
        for kind, index in (("Worker", 1), ("Worker", 0), ("Master", 0))
    )
    assert read_observe_config(snapshot(pods=pods)).workers == ("a-master-0", "a-worker-0", "a-worker-1")
    kind = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob"}
    job = {**kind, "metadata": {"name": "a"}, "spec": {"pytorchReplicaSpecs": {"Master": {}, "Worker": {"replicas": 2}}}}
    assert from_manifest(job).workers == ("a-master-0", "a-worker-0", "a-worker-1")
