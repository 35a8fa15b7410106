"""Every foreign error has one of ours. The refusals were recorded on the test cluster (API server v1.34.4, operator v1.9.3)."""

from __future__ import annotations

import json
import socket
import ssl
from http import HTTPStatus
from pathlib import Path

import pytest
import urllib3.connection
import urllib3.exceptions

from kfjob.base.errors import AlreadyExists, BackendError, Forbidden, KfjobError, NotFound, Refused
from kfjob.cluster import requests
from kfjob.cluster.errors import (
    Conflict,
    ConnectionLost,
    Expired,
    is_transient,
    make_error,
    make_unreachable,
    map_exception,
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
    "no-crd": (GET, Refused, "kubectl apply --server-side -k manifests/operator"),
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


@pytest.mark.parametrize("body", [b"", b"<html>bad gateway</html>", b"[]", b'{"kind": "Status"}', b"\xff"])
@pytest.mark.parametrize("status", [status.value for status in HTTPStatus if status >= 300])
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
        'pods "x" is forbidden: violates PodSecurity "restricted:latest"',
        "unable to create new content in namespace ml because it is being terminated",
    ],
)
def test_status_403_without_a_missing_permission_is_refused(message: str):
    body = json.dumps({"kind": "Status", "code": 403, "reason": "Forbidden", "message": message}).encode()
    err = make_error(CREATE, 403, body)
    assert isinstance(err, Refused)
    assert err.cause == message


def exceptions() -> list[Exception]:
    """One of every class that urllib3 has, so that a new class in a later version fails here rather than at a user's."""
    u = urllib3.exceptions
    pool, connection = urllib3.HTTPSConnectionPool("host", 6443), urllib3.connection.HTTPConnection("host", 6443)
    special: dict[type, Exception] = {
        u.MaxRetryError: u.MaxRetryError(pool, "/", None),
        u.ReadTimeoutError: u.ReadTimeoutError(pool, "/", "read timed out"),
        u.NewConnectionError: u.NewConnectionError(
            connection, f"{connection}: Failed to establish a new connection: [Errno 111] no"
        ),
        u.NameResolutionError: u.NameResolutionError("host", connection, socket.gaierror(-2, "not known")),
        u.ProxyError: u.ProxyError("Unable to connect to proxy", OSError("refused")),
        u.HostChangedError: u.HostChangedError(pool, "https://other/", 3),
        u.RequestError: u.RequestError(pool, "/", "x"),
        u.PoolError: u.PoolError(pool, "x"),
        u.EmptyPoolError: u.EmptyPoolError(pool, "x"),
        u.FullPoolError: u.FullPoolError(pool, "x"),
        u.ClosedPoolError: u.ClosedPoolError(pool, "x"),
        u.LocationParseError: u.LocationParseError("x"),
        u.URLSchemeUnknown: u.URLSchemeUnknown("x"),
        u.ProxySchemeUnknown: u.ProxySchemeUnknown("x"),
        u.IncompleteRead: u.IncompleteRead(1, 2),
        u.HeaderParsingError: u.HeaderParsingError([], b"x"),
    }
    classes = [
        one
        for one in vars(u).values()
        if isinstance(one, type) and issubclass(one, u.HTTPError) and not issubclass(one, Warning)
    ]
    made = [special.get(one) for one in classes]
    simple = [one for one, instance in zip(classes, made, strict=True) if instance is None and one is not u.InvalidChunkLength]
    return [
        *filter(None, made),
        *(one("x") for one in simple),
        ConnectionResetError("reset"),
        ssl.SSLEOFError("eof"),
        TimeoutError("t"),
    ]


@pytest.mark.parametrize("err", exceptions(), ids=lambda err: type(err).__name__)
def test_every_exception_of_the_transport_is_a_broken_connection(err: Exception):
    lost = map_exception(err)
    told = make_unreachable(lost, "https://host:6443")
    assert told.exit_code == 5
    assert "0x" not in str(told)


def test_requests_that_were_not_sent_are_known():
    u = urllib3.exceptions
    by_type = {type(err): map_exception(err) for err in exceptions()}
    assert not any(
        by_type[kind].sent for kind in (u.NewConnectionError, u.NameResolutionError, u.ConnectTimeoutError, u.ProxyError)
    )
    assert all(by_type[kind].sent for kind in (u.ReadTimeoutError, u.ProtocolError, u.IncompleteRead, ConnectionResetError))
    refused = by_type[u.NewConnectionError]
    assert refused.cause == "[Errno 111] no"


def test_a_wrong_certificate_is_not_tried_again():
    lost = map_exception(urllib3.exceptions.SSLError("[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed"))
    assert lost.permanent
    assert "certificate authority" in str(make_unreachable(lost, "https://host"))


def test_other_exceptions_are_raised_again():
    with pytest.raises(KeyError):
        map_exception(KeyError("x"))


def test_broken_is_no_error_for_users():
    assert not issubclass(ConnectionLost, KfjobError)
