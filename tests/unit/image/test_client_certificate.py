"""The client's certificate and `skip_verify` are for the registry's own host, and for no other to which it leads."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from kfjob.base.errors import KfjobError, UsageError
from kfjob.image.registry.client import Registry
from kfjob.image.registry.endpoints import Endpoint
from kfjob.image.registry.transport import RetryPolicy
from tests.hostile_server import Answer, HostileServer, Received, json_answer, serve
from tests.image.registries import make_certificate

RETRIES = RetryPolicy(attempts=1, sleep=lambda _: None)
DIGEST = "sha256:2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881"  # of `x`


@dataclass
class Servers:
    """A registry at 127.0.0.1, and another server at `localhost`."""

    own: HostileServer
    other: HostileServer
    folder: Path
    location: str = ""  # to which the registry redirects a blob
    realm: str = ""  # its token server

    def endpoint(self, **changes: object) -> Endpoint:
        values = {
            "certificate": (self.folder / "cert.pem", self.folder / "key.pem"),
            "authorities": (self.folder / "cert.pem",),
        }
        return Endpoint(url=self.own.url, **(values | changes))  # type: ignore[arg-type]

    def pull(self, endpoint: Endpoint) -> bytes:
        with closing(Registry(endpoint, retries=RETRIES)) as registry:
            return b"".join(registry.stream_blob("team/train", DIGEST))


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[Servers]:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(make_certificate(tmp_path)))
    context.load_cert_chain(tmp_path / "cert.pem", tmp_path / "key.pem")
    context.verify_mode = ssl.CERT_OPTIONAL

    def respond(_: HostileServer, request: Received) -> Answer:
        if state.realm and "Authorization" not in request.headers:
            return Answer(status=401, headers=(("WWW-Authenticate", f'Bearer realm="{state.realm}",service=x'),))
        if state.location and "blobs" in request.path:
            return Answer(status=307, headers=(("Location", state.location),))
        return Answer(body=[b"x"])

    with ExitStack() as stack:
        other = stack.enter_context(serve(lambda *_: json_answer(b'{"token": "t"}' if state.realm else b"x"), tls=context))
        state = Servers(stack.enter_context(serve(respond, tls=context)), other, tmp_path)
        yield state


def name_other(servers: Servers) -> str:
    return f"https://localhost:{urlsplit(servers.other.url).port}/data"


def test_own_host_gets_the_certificate(servers: Servers):
    assert servers.pull(servers.endpoint()) == b"x"
    assert [request.has_certificate for request in servers.own.received] == [True]


def test_host_of_a_redirect_gets_no_certificate(servers: Servers):
    servers.location = name_other(servers)
    assert servers.pull(servers.endpoint()) == b"x"
    assert [request.has_certificate for request in servers.other.received] == [False]


def test_token_server_on_another_host_gets_no_certificate(servers: Servers):
    servers.realm = name_other(servers)
    assert servers.pull(servers.endpoint()) == b"x"
    assert [request.has_certificate for request in servers.other.received] == [False]
    assert {request.has_certificate for request in servers.own.received} == {True}


def test_other_port_of_the_own_host_gets_the_certificate(servers: Servers):
    servers.location = f"{servers.other.url}/data"
    assert servers.pull(servers.endpoint()) == b"x"
    assert [request.has_certificate for request in servers.other.received] == [True]


def test_skip_verify_is_for_the_own_host(servers: Servers):
    endpoint = servers.endpoint(authorities=(), verify=False)
    assert servers.pull(endpoint) == b"x"
    servers.location = name_other(servers)
    with pytest.raises(KfjobError, match="is not trusted"):
        servers.pull(endpoint)
    assert servers.other.received == []


def test_encrypted_key_asks_nobody_for_its_password(servers: Servers):
    import subprocess

    argv = ["openssl", "ec", "-aes256", "-passout", "pass:x", "-in", "key.pem", "-out", "locked.pem"]
    subprocess.run(argv, cwd=servers.folder, check=True, capture_output=True)
    with pytest.raises(UsageError) as caught:
        servers.pull(servers.endpoint(certificate=(servers.folder / "cert.pem", servers.folder / "locked.pem")))
    assert caught.value.cause == "the key is encrypted"
