"""Kubeconfigs and addresses that do not work: what is said, and how soon."""

from __future__ import annotations

import base64
import gzip
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from kfjob.base.errors import KfjobError, Unreachable, UsageError
from kfjob.base.http import Limits
from kfjob.cluster import client, requests
from kfjob.cluster.backend import KubernetesBackend
from kfjob.cluster.connect import connect
from tests.hostile_server import Answer, json_answer, serve
from tests.image.registries import make_certificate
from tests.pytorchjobs import KIND

SHORT = Limits(start_seconds=0.5, body_seconds=0.5)


@pytest.fixture(autouse=True)
def nothing_configured(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST", "HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"):
        monkeypatch.delenv(name, raising=False)


def kubeconfig(folder: Path, server: str = "https://127.0.0.1:1", user: dict[str, Any] | None = None, **context: str) -> Path:
    config = {
        "current-context": "here",
        "contexts": [{"name": "here", "context": {"cluster": "c", "user": "u", **context}}],
        "clusters": [{"name": "c", "cluster": {"server": server}}],
        "users": [{"name": "u", "user": user or {"token": "secret"}}],
    }
    path = folder / "config.yaml"
    path.write_text(yaml.safe_dump(config))
    return path


def test_no_kubeconfig(tmp_path: Path):
    with pytest.raises(Unreachable, match="no cluster is configured") as caught:
        connect()
    assert f"{tmp_path}/.kube/config" in str(caught.value)
    assert "aws eks update-kubeconfig" in str(caught.value)


def test_the_named_kubeconfig_is_not_there(tmp_path: Path):
    with pytest.raises(Unreachable, match="there is no kubeconfig at"):
        connect(kubeconfig=tmp_path / "nothing")


@pytest.mark.parametrize("text", ["", "a: [", "- 1", "text", "{}", "contexts: 3", "contexts: [{}]\ncurrent-context: x"])
def test_an_invalid_kubeconfig_is_an_error(tmp_path: Path, text: str):
    path = tmp_path / "config"
    path.write_text(text)
    with pytest.raises(KfjobError, match=r"cannot be used|no current context") as caught:
        connect(kubeconfig=path)
    assert str(path) in str(caught.value)


def test_an_unknown_context(tmp_path: Path):
    with pytest.raises(UsageError, match="there is no context `there`") as caught:
        connect(kubeconfig=kubeconfig(tmp_path), context="there")
    assert "it has `here`" in str(caught.value)


def test_the_namespace_is_the_contexts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = kubeconfig(tmp_path, namespace="ml")
    monkeypatch.setenv("KUBECONFIG", f"{path}:{tmp_path / 'missing'}")
    assert KubernetesBackend.from_kubeconfig().namespace == "ml"
    assert KubernetesBackend.from_kubeconfig(namespace="other").namespace == "other"
    assert connect(kubeconfig=kubeconfig(tmp_path)).namespace == "default"


def test_a_pod_without_a_service_account(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    with pytest.raises(Unreachable, match="this pod has no access to its cluster"):
        connect()


def ask(path: Path) -> Unreachable:
    with pytest.raises(Unreachable) as caught:
        connect(kubeconfig=path).client.call(requests.select_jobs(KIND, "ml").list_request())
    return caught.value


def test_a_closed_port(tmp_path: Path):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    err = ask(kubeconfig(tmp_path, f"https://127.0.0.1:{port}"))
    assert (err.title, err.exit_code) == (f"the API server `https://127.0.0.1:{port}` does not answer", 5)
    assert "refused" in (err.cause or "")


@pytest.fixture
def full() -> Iterator[int]:
    """A port whose queue is full: nothing answers, as with an address behind a firewall."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen(0)
        waiting = []
        for _ in range(8):
            client = socket.socket()
            client.setblocking(False)
            client.connect_ex(server.getsockname())
            waiting.append(client)
        yield server.getsockname()[1]
        for client in waiting:
            client.close()


def test_an_address_behind_a_firewall(tmp_path: Path, full: int, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(client, "READS", SHORT)
    assert ask(kubeconfig(tmp_path, f"https://127.0.0.1:{full}")).cause == "no complete answer in 0.5 s"


def test_a_name_that_does_not_exist(tmp_path: Path):
    assert ask(kubeconfig(tmp_path, "https://cluster.invalid:6443")).cause == "the name cannot be resolved"


def test_a_closed_backend_does_nothing_more(tmp_path: Path):
    with KubernetesBackend.from_kubeconfig(kubeconfig=kubeconfig(tmp_path)) as backend:
        pass
    with pytest.raises(Unreachable):
        backend.get("llama", namespace="ml")


@pytest.mark.parametrize("damaged", [False, True], ids=["whole", "damaged"])
def test_a_list_may_come_compressed(tmp_path: Path, *, damaged: bool):
    """The real API server compresses its lists above 128 KB."""
    packed = gzip.compress(b'{"items": [%s]}' % b", ".join([b'{"metadata": {"name": "p", "uid": "u"}}'] * 9000))
    body = packed[:50] + bytes(20) + packed[70:] if damaged else packed
    with serve(lambda *_: Answer(headers=(("Content-Encoding", "gzip"),), body=[body])) as server:
        client = connect(kubeconfig=kubeconfig(tmp_path, server.url)).client
        if damaged:
            with pytest.raises(Unreachable, match=r"incorrect|invalid|decode"):
                client.call(requests.select_jobs(KIND, "ml").list_request())
        else:
            assert len(client.call(requests.select_jobs(KIND, "ml").list_request())["items"]) == 9000
        client.close()
    assert server.received[0].headers["Accept-Encoding"] == "gzip"


def test_certificates_of_the_kubeconfig(tmp_path: Path):
    """The client presents a certificate, and checks the name in that of the server."""
    authority = make_certificate(tmp_path)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(authority))
    context.load_cert_chain(authority, tmp_path / "key.pem")
    context.verify_mode = ssl.CERT_REQUIRED
    files = {"client-certificate": "cert.pem", "client-key": str(tmp_path / "key.pem")}
    data = {f"{name}-data": base64.b64encode((tmp_path / file).read_bytes()).decode() for name, file in files.items()}
    with serve(lambda *_: json_answer({"items": []}), tls=context) as server:
        for user in (files, data):
            path = kubeconfig(tmp_path, server.url, user)
            document = yaml.safe_load(path.read_text())
            document["clusters"][0]["cluster"] |= {"certificate-authority": "cert.pem", "tls-server-name": "other.example"}
            path.write_text(yaml.safe_dump(document))
            assert "ostname mismatch" in str(ask(path))
            document["clusters"][0]["cluster"] |= {"tls-server-name": "localhost"}
            path.write_text(yaml.safe_dump(document))
            client = connect(kubeconfig=path).client
            assert client.call(requests.select_jobs(KIND, "ml").list_request())["items"] == []
            client.close()
        assert all(request.has_certificate for request in server.received)


def test_empty_file_in_the_list_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = kubeconfig(tmp_path, namespace="team")
    (tmp_path / "empty").write_text("")
    (tmp_path / "comments").write_text("# nothing\n\n")
    monkeypatch.setenv("KUBECONFIG", f"{tmp_path}/empty:{path}:{tmp_path}/comments:{tmp_path}/absent")
    assert connect().namespace == "team"


def test_proxy_of_the_kubeconfig_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("NO_PROXY", "*")  # holds for the proxies of the environment
    with serve(lambda *_: Answer(status=403)) as proxy:
        path = kubeconfig(tmp_path, server="https://api.example:6443")
        path.write_text(path.read_text().replace("server:", f"proxy-url: {proxy.url}\n    server:"))
        ask(path)
    assert (proxy.received[0].method, proxy.received[0].path) == ("CONNECT", "api.example:6443")


@pytest.mark.parametrize(("scheme", "title"), [("https", "does not answer"), ("ftp", "is not the address of an API server")])
def test_password_in_the_address_is_not_printed(tmp_path: Path, scheme: str, title: str):
    path = kubeconfig(tmp_path, server=f"{scheme}://me:tomato-soup@127.0.0.1:1")
    with pytest.raises(Unreachable) as caught:
        KubernetesBackend(connect(kubeconfig=path).client).list(namespace="default")
    assert f"`{scheme}://127.0.0.1:1` {title}" in str(caught.value)
    assert "tomato-soup" not in str(caught.value)
