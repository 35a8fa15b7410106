"""Every foreign error has one of ours. The refusals were recorded on the test cluster (API server v1.34.4, operator v1.9.3)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kfjob.base.errors import (
    AlreadyExists,
    BackendError,
    Forbidden,
    KfjobError,
    NodeUnreachable,
    NotFound,
    NotInstalled,
    Refused,
)
from kfjob.base.http import ConnectionLost
from kfjob.cluster import requests
from kfjob.cluster.errors import (
    Conflict,
    Expired,
    WebhookDown,
    is_transient,
    make_error,
    make_unreachable,
)
from tests.pytorchjobs import KIND

JOB = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": {"name": "llama", "namespace": "ml"}}
CREATE = requests.create(JOB)
GET = requests.get_job(KIND, "ml", "llama")
LOG = requests.pod_log("ml", "llama-worker-0", container="pytorch")
RECORDED = json.loads((Path(__file__).parent / "recorded" / "refusals.json").read_text())

CASES = {
    "webhook": (CREATE, Refused, "must have at least one container with name pytorch"),
    "schema": (CREATE, Refused, "spec.nprocPerNode in body must be of type string"),
    "unknown-field": (CREATE, Refused, 'unknown field "spec.nonsense"'),
    "taken": (CREATE, AlreadyExists, "`kfjob stop llama`"),
    "no-namespace": (CREATE, NotFound, "there is no namespace `ml`"),
    "no-crd": (GET, NotInstalled, "kubectl apply --server-side -k manifests/operator"),
    "no-job": (GET, NotFound, "there is no job `llama` in namespace `ml`"),
    "no-pod": (requests.get("pods", "ml", "llama-worker-0"), NotFound, "there is no pod `llama-worker-0`"),
    "other-uid": (requests.delete_job(KIND, "ml", "llama", "x"), Conflict, "does not match the UID"),
    "log-waiting": (LOG, Refused, "is waiting to start"),
    "log-no-previous": (LOG, Refused, "previous terminated container"),
    "log-no-container": (LOG, Refused, "is not valid for pod"),
    "forbidden-create": (CREATE, Forbidden, "kubectl auth can-i create pytorchjobs.kubeflow.org -n ml"),
    "forbidden-log": (LOG, Forbidden, "kubectl auth can-i get pods --subresource=log -n ml"),
    "unauthorized": (GET, Forbidden, "does not accept the credentials"),
}


@pytest.mark.parametrize("case", CASES)
def test_recorded_refusals(case: str):
    request, kind, said = CASES[case]
    err = make_error(request, RECORDED[case]["status"], RECORDED[case]["body"].encode())
    assert type(err) is kind
    assert said in str(err)


def test_every_recorded_refusal_is_tested():
    assert set(RECORDED) == {*CASES, "expired"}  # that one comes in a watch: test_watch


def test_log_of_a_node_that_does_not_answer():
    """The message was seen on the test cluster, after everything on a node had been killed."""
    reason = "dial tcp 10.0.0.7:10250: connect: connection refused"
    url = "https://10.0.0.7:10250/containerLogs/ml/llama-worker-0/pytorch?tailLines=300&timestamps=true"
    body = json.dumps({"kind": "Status", "message": f'Get "{url}": {reason}', "code": 500}).encode()
    err = make_error(LOG, 500, body)
    assert type(err) is NodeUnreachable
    assert (err.title, err.cause) == ("the log of pod `llama-worker-0` cannot be read: its node does not answer", reason)
    assert type(make_error(GET, 500, body)) is BackendError


@pytest.mark.parametrize("body", [b"", b"<html>bad gateway</html>", b"[]", b'{"kind": "Status"}', b"\xff"])
@pytest.mark.parametrize("status", [302, 400, 401, 403, 404, 409, 410, 422, 429, 500, 503])
@pytest.mark.parametrize("request_", [CREATE, GET, LOG], ids=["create", "get", "log"])
def test_every_status_has_an_error(request_: requests.Request, status: int, body: bytes):
    err = make_error(request_, status, body)
    assert isinstance(err, KfjobError)
    assert err.title
    assert "\n" not in err.title
    assert is_transient(status) == isinstance(err, BackendError)
    assert isinstance(err, Expired) == (status == 410)
    if status in {401, 403} and not body.startswith(b'{"kind'):
        assert isinstance(err, Forbidden)


@pytest.mark.parametrize(
    "message",
    [
        'pods "x" is forbidden: exceeded quota: team, requested: pods=1, used: pods=9, limited: pods=9',
        "unable to create new content in namespace ml because it is being terminated",
    ],
)
def test_status_403_without_a_missing_permission_is_refused(message: str):
    body = json.dumps({"kind": "Status", "code": 403, "reason": "Forbidden", "message": message}).encode()
    err = make_error(CREATE, 403, body)
    assert isinstance(err, Refused)
    assert err.cause == message


def test_an_unreachable_server_has_a_hint():
    lost = ConnectionLost("TLS: unknown", untrusted=True)
    assert "certificate authority" in str(make_unreachable(lost, "https://host"))
    assert "kubectl cluster-info" in str(make_unreachable(ConnectionLost("refused"), "https://host"))


WEBHOOK_DOWN = (
    'Internal error occurred: failed calling webhook "validator.pytorchjob.training-operator.kubeflow.org": failed to call '
    'webhook: Post "https://training-operator.kubeflow.svc:443/validate-kubeflow-org-v1-pytorchjob?timeout=10s": {reason}'
)


def test_webhook_that_does_not_answer_is_named():
    reason = "tls: failed to verify certificate: x509: certificate signed by unknown authority"
    body = {"kind": "Status", "reason": "InternalError", "message": WEBHOOK_DOWN.format(reason=reason)}
    err = make_error(CREATE, 500, json.dumps(body).encode())
    assert isinstance(err, WebhookDown)
    webhook = "webhook `validator.pytorchjob.training-operator.kubeflow.org` does not answer"
    assert err.title == f"the cluster cannot create job `llama`: {webhook}"
    assert err.cause == f"training-operator.kubeflow.svc:443: {reason}"
    assert "`kubectl -n kubeflow get pods,endpoints` shows whether `training-operator` is ready" in (err.hint or "")
