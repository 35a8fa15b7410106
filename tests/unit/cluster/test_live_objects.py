from __future__ import annotations

from typing import Any

import pytest

from kfjob.base.errors import Refused
from kfjob.cluster.client import Client
from kfjob.cluster.live_objects import keep_records, list_job_changes, read_live_objects, refuse_changes
from kfjob.kinds.pytorchjob.manifest import compile_pytorchjob
from kfjob.kinds.registry import find_kind
from kfjob.objects.api_objects import ANNOTATION_DECISION, ANNOTATION_RELAUNCHES
from kfjob.plan import Context, JobPlan, resolve
from kfjob.spec.job import JobSpec
from tests.fakes.transport import FakeTransport, refused, reply
from tests.pytorchjobs import KIND


def plan(launch: str = "2", **spec: Any) -> JobPlan:
    base: dict[str, Any] = {"name": "llama", "image": "i:1", "nodes": 2, "command": ["torchrun", "t.py"], "env": {"A": "1"}}
    return resolve(JobSpec.model_validate(base | spec), Context(backend="kubernetes", launch=launch, namespace="ml"))


def live(**spec: Any) -> dict[str, Any]:
    made = compile_pytorchjob(plan(launch="1", **spec))
    made["metadata"] |= {"uid": "u-1", "resourceVersion": "7"}
    return made


ELASTIC = {"min": 1, "max": 4}


def refuse(wanted: JobPlan, job: dict[str, Any]) -> None:
    refuse_changes("llama", list_job_changes(KIND, job, compile_pytorchjob(wanted)))


def test_the_number_of_workers_of_an_elastic_job_can_change():
    wanted, job = compile_pytorchjob(plan(launch="1", nodes=3, elastic=ELASTIC)), live(elastic=ELASTIC)
    (change,) = list_job_changes(KIND, job, wanted)
    assert (change.path, change.desired, change.in_place) == ("spec.pytorchReplicaSpecs.Worker.replicas", 3, True)


def test_records_of_the_live_job_stay():
    job = live()
    job["metadata"]["annotations"] |= {"kfjob.dev/submitted-by": "me@there", "kfjob.dev/spec-file": "0 /a"}
    job["metadata"]["annotations"] |= {ANNOTATION_RELAUNCHES: "[]", ANNOTATION_DECISION: "the image does not exist"}
    assert keep_records(live(), job)["metadata"]["annotations"] == job["metadata"]["annotations"]
    changed = live()
    changed["metadata"]["annotations"]["kfjob.dev/spec-file"] = "1 /b"
    assert keep_records(changed, job)["metadata"]["annotations"]["kfjob.dev/spec-file"] == "1 /b"


@pytest.mark.parametrize(
    ("refusal", "is_change"),
    [
        ('spec.trainer: Invalid value: "object": field is immutable', True),
        ("RuntimePatches can only be modified when the TrainJob is suspended before or after the update", True),
        ("must not have reserved envs", False),
    ],
)
def test_change_that_a_trainjob_cannot_take_is_shown(refusal: str, *, is_change: bool):
    kind = find_kind("TrainJob")
    context = Context(backend="kubernetes", launch="1", namespace="ml", name_pods=kind.name_hosts)
    base = {"name": "llama", "image": "i:1", "runtime": "torch", "command": ["torchrun", "t.py"], "env": {"A": "1"}}
    (old,), (new,) = (
        kind.compile(resolve(JobSpec.model_validate(base | spec), context)) for spec in ({}, {"env": {"A": "2"}, "nodes": 2})
    )
    old["metadata"] |= {"uid": "u-1", "resourceVersion": "7"}
    answers = [reply(old), refused(422, "Invalid", refusal)]
    transport = FakeTransport(lambda _: answers.pop(0))
    objects = read_live_objects(Client(transport, host="https://cluster"), [new])
    if not is_change:
        with pytest.raises(Refused, match="the API server refused"):
            objects.find_changes()
        return
    changes = {change.path: (change.live, change.desired, change.in_place) for change in objects.find_changes()}
    assert changes["spec.trainer.numNodes"] == (1, 2, False)
    assert changes["spec.trainer.env[A].value"] == ("1", "2", False)


def test_job_that_changes_meanwhile_is_compared_again():
    job, newer = live(), live()
    newer["metadata"]["resourceVersion"] = "8"
    answers = [reply(job), refused(409, "Conflict", "the object has been modified"), reply(newer), reply(newer)]
    transport = FakeTransport(lambda _: answers.pop(0))
    objects = read_live_objects(Client(transport, host="https://cluster"), [compile_pytorchjob(plan(launch="1"))])
    assert objects.find_changes() == []
    versions = [request.body["metadata"]["resourceVersion"] for request in transport.requests if request.verb == "update"]
    assert versions == ["7", "8"]


@pytest.mark.parametrize(
    ("change", "path"),
    [
        ({"nodes": 3}, "spec.elasticPolicy.maxReplicas"),
        ({"image": "i:2"}, "spec.pytorchReplicaSpecs.Worker.template.spec.containers[pytorch].image"),
        ({"env": {"A": "2"}}, "spec.pytorchReplicaSpecs.Worker.template.spec.containers[pytorch].env[A].value"),
        ({"env": {}}, "spec.pytorchReplicaSpecs.Worker.template.spec.containers[pytorch].env[A]"),
        ({"rendezvous": {"conf": {"read_timeout": "9"}}}, "spec.elasticPolicy.rdzvConf"),
        ({"labels": {"team": "nlp"}}, "spec.pytorchReplicaSpecs.Worker.template.metadata.labels.team"),
    ],
)
def test_changes_that_need_a_relaunch_are_refused(change: dict[str, Any], path: str):
    with pytest.raises(Refused) as caught:
        refuse(plan(launch="1", **change), live())
    assert path in (caught.value.cause or "").splitlines()
    assert "kfjob stop llama" in str(caught.value)


def test_many_changes_are_not_all_listed():
    with pytest.raises(Refused, match="and 4 more"):
        refuse(plan(launch="1", env={f"B{at}": "1" for at in range(13)}), live())


def test_another_launch_id_needs_a_relaunch():
    with pytest.raises(Refused, match="rdzvId"):
        refuse(plan(launch="2"), live())


def test_a_job_of_someone_else_is_left_alone():
    theirs = live()
    del theirs["metadata"]["labels"]
    client = Client(FakeTransport(lambda _: reply(theirs)), host="https://cluster")
    with pytest.raises(Refused, match="not submitted by kfjob"):
        read_live_objects(client, KIND.compile(plan()))


def test_lists_without_names_are_compared_as_a_whole():
    def paths(live: dict[str, Any], wanted: dict[str, Any]) -> list[str]:
        return [
            change.path for change in list_job_changes(KIND, {"metadata": {}, "spec": live}, {"metadata": {}, "spec": wanted})
        ]

    assert paths({"a": [1, 2]}, {"a": [1, 3]}) == ["spec.a"]
    assert paths({"a": []}, {}) == ["spec.a"]
