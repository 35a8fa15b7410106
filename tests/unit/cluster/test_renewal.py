"""Tokens that end in the midst of a followed log, against a fake API front that speaks HTTP and looks at every token."""

from __future__ import annotations

import json
import stat
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest
from kubernetes import config

from kfjob.backends.base import LogRange
from kfjob.base.errors import Forbidden
from kfjob.base.http import ConnectionLost
from kfjob.cluster import requests
from kfjob.cluster.connect import connect
from kfjob.cluster.logs import read_pod_log
from kfjob.cluster.requests import Request
from kfjob.joblog.events import LogLine
from tests.hostile_server import Answer, Received, refusal, serve
from tests.unit.cluster.test_connect import kubeconfig
from tests.unit.cluster.test_logs import POD, REF, SECOND, START, Kubelet, kubelet

LINES = [(START + n * SECOND // 3, f"Batch {n}") for n in range(60)]


@dataclass
class FakeFront:
    """Passes requests on to a `Kubelet`. After each answer with a log, `rotate` says which token is taken from then on."""

    kubelet: Kubelet
    token: str = "one"  # noqa: S105 - a stand-in
    rotate: Callable[[], str] = lambda: "one"
    refusals: int = 0
    tokens: list[str] = field(default_factory=list)  # of every request
    lock: threading.Lock = field(default_factory=threading.Lock)

    def answer(self, received: Received) -> Answer:
        path, token = received.path, received.headers.get("Authorization", "")
        with self.lock:
            self.tokens.append(token)
            if token.partition(" ")[2] != self.token:  # the scheme is written in either case
                self.refusals += 1
                return refusal(401, "Unauthorized")
            parts = urlsplit(path)
            query, names = dict(parse_qsl(parts.query)), parts.path.split("/namespaces/")[1].split("/")[1:]
            resource, name, subresource = (*names, "", "")[:3]
            verb = "watch" if "watch" in query else "get" if name else "list"
            asked = Request(
                method="GET", path=path, verb=verb, resource=resource, namespace="ml", name=name, subresource=subresource,
                query=tuple(query.items()),
            )  # fmt: skip
            answered = self.kubelet.answer(asked)
            assert not isinstance(answered, ConnectionLost)
            if subresource == "log":
                self.token = self.rotate()
            return Answer(status=answered.status, body=list(answered.chunks()))


@pytest.fixture
def front() -> FakeFront:
    return FakeFront(kubelet(LINES, cuts=[300, 300, 300]))


@pytest.fixture
def url(front: FakeFront) -> Iterator[str]:
    with serve(lambda _, received: front.answer(received)) as server:
        yield server.url


def followed(**where: Any) -> list[str]:
    client = connect(**where).client
    try:
        lines = list(read_pod_log(client, REF, POD, LogRange(follow=True)))
    finally:
        client.close()
    return [line.text if isinstance(line, LogLine) else line.reason for line in lines]


def numbered(front: FakeFront, put: Callable[[str], object]) -> Callable[[], str]:
    """Every log that was answered ends the token that it was asked with; the new one is put where it is looked for."""

    def rotate() -> str:
        token = f"{front.token}+"
        put(token)
        return token

    return rotate


def test_a_token_that_was_replaced_in_the_kubeconfig(front: FakeFront, url: str, tmp_path: Path):
    path = kubeconfig(tmp_path, url, {"token": "one"})
    front.rotate = numbered(front, lambda token: kubeconfig(tmp_path, url, {"token": token}))
    assert followed(kubeconfig=path) == [text for _, text in LINES]
    assert front.refusals >= 3


def test_a_token_of_a_credential_plugin(front: FakeFront, url: str, tmp_path: Path):
    runs, plugin, token = tmp_path / "runs", tmp_path / "plugin", tmp_path / "token"
    said = {"apiVersion": "client.authentication.k8s.io/v1beta1", "kind": "ExecCredential", "status": {"token": "TOKEN"}}
    before, after = json.dumps(said).split("TOKEN")
    plugin.write_text(f"#!/bin/sh\necho ran >> {runs}\nprintf '%s%s%s' '{before}' \"$(cat {token})\" '{after}'\n")
    plugin.chmod(plugin.stat().st_mode | stat.S_IXUSR)
    token.write_text("one")
    front.rotate = numbered(front, token.write_text)
    user = {"exec": {"apiVersion": said["apiVersion"], "command": str(plugin), "interactiveMode": "Never"}}
    assert followed(kubeconfig=kubeconfig(tmp_path, url, user)) == [text for _, text in LINES]
    assert front.refusals == runs.read_text().count("ran") - 1  # once for each make_error, and at the start


def test_a_service_accounts_token(front: FakeFront, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    token, authority, namespace = tmp_path / "token", tmp_path / "ca.crt", tmp_path / "namespace"
    for file, text in ((token, "one"), (authority, "none"), (namespace, "ml")):
        file.write_text(text)

    def of_pod(client_configuration: Any = None, **_: Any) -> None:
        environ = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": "1"}
        loader = config.incluster_config.InClusterConfigLoader(str(token), str(authority), environ=environ)
        set_config = loader._set_config

        def set_http(configuration: Any) -> None:
            """Set the address of this server; a pod is given https. The package sets it again with each request."""
            set_config(configuration)
            configuration.host, configuration.ssl_ca_cert = url, None

        loader._set_config = set_http
        loader.load_and_set(client_configuration)

    monkeypatch.setattr(config, "load_incluster_config", of_pod)
    monkeypatch.setattr("kfjob.cluster.connect.SERVICE_ACCOUNT", namespace.parent)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    front.rotate = numbered(front, lambda text: token.write_text(f"{text}\n"))
    assert followed() == [text for _, text in LINES]
    assert front.refusals >= 3


def test_a_second_refusal_is_an_error(front: FakeFront, url: str, tmp_path: Path):
    path = kubeconfig(tmp_path, url, {"token": "one"})
    front.rotate = lambda: "another"
    with pytest.raises(Forbidden, match="does not accept the credentials of the kubeconfig") as caught:
        followed(kubeconfig=path)
    assert "log in again" in str(caught.value)
    assert front.refusals == 2
    assert front.tokens[-2:] == ["Bearer one", "Bearer one"]


def test_one_thread_renews_for_all(front: FakeFront, url: str, tmp_path: Path):
    client = connect(kubeconfig=kubeconfig(tmp_path, url, {"token": "old"})).client
    kubeconfig(tmp_path, url, {"token": "one"})
    count, together = 8, threading.Barrier(8)

    def ask(_: int) -> Any:
        together.wait()
        return client.call(requests.get("pods", "ml", POD))["metadata"]["name"]

    with ThreadPoolExecutor(count) as pool:
        assert list(pool.map(ask, range(count))) == [POD] * count
    client.close()
    assert front.refusals <= count
