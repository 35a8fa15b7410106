"""The credentials of the user never leave in any output, also when the server that received them quotes them."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from kfjob.base.errors import KfjobError
from kfjob.base.http import Limits
from kfjob.cluster.errors import make_error
from kfjob.cluster.requests import Request
from kfjob.image.registry.authorization import _encode_basic
from kfjob.image.registry.client import Registry
from kfjob.image.registry.endpoints import Endpoint
from kfjob.image.registry.secrets import Login, Secret
from kfjob.redaction import REDACTED, Redactor, remember_credential
from tests.hostile_server import Answer, HostileServer, Received, refusal, serve
from tests.unit.api.conftest import Shell

WORD = "correcthorsebattery"
"""It has no shape of a token, and no name of a secret stands before it."""
KEY = "-----BEGIN EC PRIVATE KEY-----\nMHcCAQEEIIrYSSNQFaA2Hwf1duRSxKtLYX5CB04fSeQ6tF1aY\n-----END EC PRIVATE KEY-----\n"
KUBECONFIG = """
apiVersion: v1
kind: Config
current-context: test
clusters: [{{name: test, cluster: {{server: "{url}"}}}}]
users: [{{name: test, user: {user}}}]
contexts: [{{name: test, context: {{cluster: test, user: test}}}}]
"""
PLUGIN = """#!/bin/sh
echo '{"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": {"token": "%s"}}'
"""
QUOTES: dict[str, Callable[[str], str]] = {
    "a message": lambda text: f"no such session {text}!",
    "a part of a word": lambda text: f"session/{text}.cache not found",
    "escaped": lambda text: json.dumps({"seen": text}),
    "base64": lambda text: base64.b64encode(text.encode()).decode(),
}


def quote_credentials(quote: Callable[[str], str]) -> Callable[[HostileServer, Received], Answer]:
    """Return a server that refuses every request and quotes the credentials in it."""

    def respond(_: HostileServer, request: Received) -> Answer:
        credential = {name.lower(): value for name, value in request.headers.items()}["authorization"].rpartition(" ")[2]
        return refusal(403, "Forbidden", f"{quote(credential)} and {quote(WORD)}")

    return respond


def write_user(folder: Path, kind: str) -> str:
    if kind == "plugin":
        (folder / "plugin").write_text(PLUGIN % WORD)
        (folder / "plugin").chmod(0o755)
        return json.dumps({"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": "./plugin"}})
    (folder / "token").write_text(WORD)
    users = {"token": {"token": WORD}, "file": {"tokenFile": str(folder / "token")}}
    return json.dumps(users.get(kind, {"username": "me", "password": WORD}))


@pytest.mark.parametrize("kind", ["token", "file", "password", "plugin"])
@pytest.mark.parametrize("quote", QUOTES.values(), ids=QUOTES.keys())
def test_quoted_credentials_of_the_kubeconfig_are_redacted(kfjob: Shell, here: Path, kind: str, quote: Callable[[str], str]):
    with serve(quote_credentials(quote)) as server:
        (here / "kubeconfig").write_text(KUBECONFIG.format(url=server.url, user=write_user(here, kind)))
        for command in ("list", "status train -o json", "diagnose train", "stop train"):
            assert kfjob(*command.split(), "--backend", "kubernetes") in (1, 3, 4)
            encoded = base64.b64encode(WORD.encode()).decode()
            assert WORD not in kfjob.out + kfjob.err
            assert encoded not in kfjob.out + kfjob.err
            assert REDACTED in kfjob.err
        assert server.received


def test_quoted_login_of_a_registry_is_redacted():
    encoded = base64.b64encode(f"me:{WORD}".encode()).decode()
    body = json.dumps({"errors": [{"code": "DENIED", "message": f"cannot find {WORD} or {encoded}"}]}).encode()
    limits = Limits(attempts=1, pause=0.0)
    login = Login(user="me", password=Secret(WORD))
    _encode_basic(login)
    with (
        serve(lambda *_: Answer(status=403, body=[body])) as server,
        closing(Registry(Endpoint(url=server.url), login=lambda: login, limits=limits)) as registry,
    ):
        with pytest.raises(KfjobError) as caught:
            registry.get_manifest("team/train", "1")
        text = Redactor().text(str(caught.value))
    assert WORD not in text
    assert encoded not in text
    assert REDACTED in text


def test_client_key_is_redacted_whole_and_line_by_line():
    remember_credential(KEY)
    body = KEY.splitlines()[1]
    for text in (body, base64.b64encode(KEY.encode()).decode(), json.dumps(KEY), f"seen {body}."):
        assert body not in Redactor().text(text)
        assert REDACTED in Redactor().text(text)


@pytest.mark.parametrize("status", [400, 401, 403, 409, 500])
def test_error_of_the_cluster_does_not_repeat_credentials(status: int):
    remember_credential(WORD)
    message = f'User "x": bad token {WORD} of DB_PASSWORD=tomato-soup'
    body = json.dumps({"kind": "Status", "message": message, "details": {"causes": [{"message": message}]}}).encode()
    request = Request(method="GET", path="/", verb="get", resource="pods", namespace="default", name="a")
    text = str(make_error(request, status, body))
    assert WORD not in text
    assert "tomato" not in text


def test_short_credential_is_a_whole_word():
    remember_credential("abcde")
    assert Redactor().text("abcde abcdef") == f"{REDACTED} abcdef"


def test_credentials_of_another_test_are_forgotten():
    assert Redactor().text(WORD) == WORD
