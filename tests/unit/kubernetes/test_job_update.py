from __future__ import annotations

from typing import Any

import pytest

from kfjob.base.errors import Refused
from kfjob.cluster.job_update import job_changes, manifest_to_apply
from kfjob.kinds.pytorchjob.manifest import compile_pytorchjob
from kfjob.plan import Context, JobPlan, resolve
from kfjob.spec.job import JobSpec


def plan(launch: str = "2", **spec: Any) -> JobPlan:
    base: dict[str, Any] = {"name": "llama", "image": "i:1", "nodes": 2, "command": ["torchrun", "t.py"], "env": {"A": "1"}}
    return resolve(JobSpec.model_validate(base | spec), Context(backend="kubernetes", launch=launch, namespace="ml"))


def live(**spec: Any) -> dict[str, Any]:
    made = compile_pytorchjob(plan(launch="1", **spec))
    made["metadata"] |= {"uid": "u-1", "resourceVersion": "7"}
    return made


ELASTIC = {"min": 1, "max": 4}


def test_the_number_of_workers_of_an_elastic_job_can_change():
    wanted = manifest_to_apply(plan(nodes=3, elastic=ELASTIC), live(elastic=ELASTIC))
    assert wanted["spec"]["pytorchReplicaSpecs"]["Worker"]["replicas"] == 3
    assert wanted["spec"]["elasticPolicy"]["maxReplicas"] == 4


def test_the_live_launch_is_kept():
    wanted = manifest_to_apply(plan(nodes=3, elastic=ELASTIC), live(elastic=ELASTIC))
    worker = wanted["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]
    assert wanted["metadata"]["labels"]["kfjob.dev/launch"] == "1"
    assert worker["metadata"]["labels"]["kfjob.dev/launch"] == "1"
    assert wanted["spec"]["elasticPolicy"]["rdzvId"] == "llama-1"
    assert wanted["metadata"]["uid"] == "u-1"


@pytest.mark.parametrize(
    ("change", "path"),
    [
        ({"nodes": 3}, "spec.elasticPolicy.maxReplicas"),
        ({"image": "i:2"}, "spec.pytorchReplicaSpecs.Worker.template.spec.containers[pytorch].image"),
        ({"env": {"A": "2"}}, "spec.pytorchReplicaSpecs.Worker.template.spec.containers[pytorch].env[A].value"),
        ({"env": {}}, "spec.pytorchReplicaSpecs.Worker.template.spec.containers[pytorch].env[A]"),
        ({"restarts": {"policy": "OnFailure"}}, "spec.pytorchReplicaSpecs.Worker.restartPolicy"),
        ({"restarts": {"max": 9}}, "spec.elasticPolicy.maxRestarts"),
        ({"processes_per_node": 4}, "spec.nprocPerNode"),
        ({"rendezvous": {"conf": {"read_timeout": "9"}}}, "spec.elasticPolicy.rdzvConf"),
        ({"labels": {"team": "nlp"}}, "spec.pytorchReplicaSpecs.Worker.template.metadata.labels.team"),
    ],
)
def test_changes_that_need_a_relaunch_are_refused(change: dict[str, Any], path: str):
    with pytest.raises(Refused) as caught:
        manifest_to_apply(plan(**change), live())
    assert path in (caught.value.cause or "").splitlines()
    assert "kfjob stop llama" in str(caught.value)


def test_many_changes_are_not_all_listed():
    with pytest.raises(Refused, match="and 4 more"):
        manifest_to_apply(plan(env={f"B{at}": "1" for at in range(13)}), live())


def test_a_job_of_someone_else_is_left_alone():
    theirs = live()
    del theirs["metadata"]["labels"]
    with pytest.raises(Refused, match="not submitted by kfjob"):
        manifest_to_apply(plan(), theirs)


def test_lists_without_names_are_compared_as_a_whole():
    def paths(live: dict[str, Any], wanted: dict[str, Any]) -> list[str]:
        return [change.path for change in job_changes({"metadata": {}, "spec": live}, {"metadata": {}, "spec": wanted})]

    assert paths({"a": [1, 2]}, {"a": [1, 3]}) == ["spec.a"]
    assert paths({"a": []}, {}) == ["spec.a"]
