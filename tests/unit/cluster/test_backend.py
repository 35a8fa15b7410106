"""What the backend does when an answer is lost or a webhook says no; the rest is in tests/contract and tests/cluster."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from kfjob.backends.base import JobRef
from kfjob.base.errors import NotFound, Refused, Unreachable
from kfjob.base.http import ConnectionLost
from kfjob.cluster.backend import KubernetesBackend
from kfjob.cluster.client import Client
from kfjob.kinds.pytorchjob.manifest import compile_pytorchjob
from kfjob.plan import Context, resolve
from kfjob.spec.job import JobSpec
from tests.fakes.transport import FakeStream, FakeTransport, refused, reply
from tests.pytorchjobs import KIND

PLAN = resolve(
    JobSpec.model_validate({"name": "llama", "image": "i", "command": ["true"]}),
    Context(backend="kubernetes", launch="7", namespace="ml"),
)
OBJECTS = KIND.compile(PLAN)
REF = JobRef(backend="kubernetes", namespace="ml", name="llama", uid="u-1", launch="7", job_kind="PyTorchJob")
LOST = ConnectionLost("connection reset")
NO_JOB = refused(404, "NotFound", "no", kind="pytorchjobs", name="llama")


def job(launch: str = "7") -> dict[str, Any]:
    made = compile_pytorchjob(PLAN)
    made["metadata"] |= {"uid": "u-1", "labels": {"kfjob.dev/launch": launch}}
    return made


def backend(*answers: FakeStream | ConnectionLost) -> tuple[KubernetesBackend, FakeTransport]:
    left = list(answers)
    transport = FakeTransport(lambda _: left.pop(0))
    return KubernetesBackend(Client(transport, host="https://cluster")), transport


def test_a_job_is_found_if_the_response_to_its_create_is_lost():
    submitting, _ = backend(LOST, reply(job()))
    assert submitting.submit(OBJECTS) == (REF, [])


@pytest.mark.parametrize("there", [reply(job(launch="6")), NO_JOB], ids=["another launch", "nothing"])
def test_a_failed_create_stays_an_error(there: FakeStream):
    submitting, transport = backend(LOST, there)
    with pytest.raises(Unreachable, match="connection reset"):
        submitting.submit(OBJECTS)
    assert [request.verb for request in transport.requests] == ["create", "get"]


EMPTY = {"metadata": {"resourceVersion": "1"}, "items": []}
NOTHING_LEFT = [reply(EMPTY), reply(EMPTY)]


def test_a_later_job_of_that_name_is_left_alone():
    stopping, transport = backend(*NOTHING_LEFT, refused(409, "Conflict", "the UID in the precondition does not match"))
    with pytest.raises(NotFound, match="another job has its name, and was not changed"):
        stopping.stop(REF, timeout=1)
    assert [request.verb for request in transport.requests] == ["list", "list", "delete"]


def test_a_webhook_that_rejects_a_deletion_is_an_error():
    stopping, _ = backend(*NOTHING_LEFT, refused(403, "Forbidden", 'admission webhook "keep" denied the request: protected'))
    with pytest.raises(Refused, match="protected"):
        stopping.stop(REF, timeout=1)


def test_stop_survives_a_short_outage():
    stopping, transport = backend(*NOTHING_LEFT, reply({"kind": "PyTorchJob"}), LOST, *NOTHING_LEFT, reply(EMPTY))
    stopping.stop(REF, timeout=60)
    assert [request.resource for request in transport.requests[-3:]] == ["pytorchjobs", "pods", "services"]


def test_stop_of_a_trainjob_waits_for_its_own_etcd(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(Client, "pause", lambda *_: True)
    metadata = {"name": "llama-etcd", "uid": "u-etcd", "labels": {"kfjob.dev/launch": "7"}}
    etcd = EMPTY | {"items": [{"metadata": metadata, "spec": {"containers": []}, "status": {}}]}
    rights, no_job = [reply(EMPTY)] * 3, reply(EMPTY)
    ends = [no_job, reply(EMPTY), reply(etcd), no_job, *[reply(EMPTY)] * 4]
    stopping, transport = backend(*rights, reply({"kind": "TrainJob"}), *ends)
    stopping.stop(replace(REF, job_kind="TrainJob"), timeout=60)
    assert [request.resource for request in transport.requests[4:]] == [
        *("trainjobs", "pods", "pods"),
        *("trainjobs", "pods", "pods", "services", "trainingruntimes"),
    ]


def test_force_removes_only_the_pods_whose_time_to_end_is_over(monkeypatch: pytest.MonkeyPatch):
    """A lost node keeps its pods for ever, because no kubelet confirms their end."""

    def pod(name: str, ends: str) -> dict[str, Any]:
        owner = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "name": "train", "uid": "u-1", "controller": True}
        metadata = {"name": name, "uid": f"u-{name}", "ownerReferences": [owner], "deletionTimestamp": ends}
        return {"metadata": metadata, "spec": {"containers": []}, "status": {}}

    monkeypatch.setattr(Client, "pause", lambda *_: True)
    pods = EMPTY | {"items": [pod("lost", "2020-01-01T00:00:00Z"), pod("ending", "2999-01-01T00:00:00Z")]}
    before = [reply(pods), reply(EMPTY)]
    answers = [reply({"kind": "PyTorchJob"}), reply(EMPTY), reply(pods), reply(pods), reply({"kind": "Pod"})]
    stopping, transport = backend(*before, *answers, reply(EMPTY), reply(EMPTY), reply(EMPTY))
    stopping.stop(REF, timeout=60, force=True)
    removed = [request for request in transport.requests if request.verb == "delete" and request.resource == "pods"]
    assert [(request.name, request.body["gracePeriodSeconds"]) for request in removed] == [("lost", 0)]
    assert removed[0].body["preconditions"] == {"uid": "u-lost"}
