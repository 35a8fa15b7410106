"""Certificates of a registry and of its client, as `hosts.toml` and `certs.d` name them."""

from __future__ import annotations

import ssl
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from msgspec.structs import replace

from kfjob.base.errors import Unreachable, UsageError
from kfjob.base.http import Limits
from kfjob.image.registry.client import Registry
from kfjob.image.registry.endpoints import Endpoint
from tests.hostile_server import Answer, HostileServer, serve
from tests.image.registries import make_certificate

DIGEST = "sha256:2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881"  # of `x`


@pytest.fixture
def server(tmp_path: Path) -> Iterator[HostileServer]:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(make_certificate(tmp_path)))
    context.load_cert_chain(tmp_path / "cert.pem", tmp_path / "key.pem")
    context.verify_mode = ssl.CERT_OPTIONAL
    with serve(lambda *_: Answer(body=[b"x"]), tls=context) as hostile:
        yield hostile


@pytest.fixture
def endpoint(server: HostileServer, tmp_path: Path) -> Endpoint:
    files = (tmp_path / "cert.pem", tmp_path / "key.pem")
    return Endpoint(url=server.url, authorities=files[:1], certificate=files)


def pull(endpoint: Endpoint) -> bytes:
    with closing(Registry(endpoint, limits=Limits(attempts=1))) as registry:
        return b"".join(registry.stream_blob("team/train", DIGEST))


def test_registry_gets_the_certificate(server: HostileServer, endpoint: Endpoint):
    assert pull(endpoint) == b"x"
    assert [request.has_certificate for request in server.received] == [True]


def test_skip_verify_accepts_any_certificate(endpoint: Endpoint):
    with pytest.raises(Unreachable, match="is not trusted") as caught:
        pull(replace(endpoint, authorities=()))
    assert "certs.d" in (caught.value.hint or "")
    assert pull(replace(endpoint, authorities=(), verify=False)) == b"x"


def test_encrypted_key_asks_nobody_for_its_password(endpoint: Endpoint, tmp_path: Path):
    argv = ["openssl", "ec", "-aes256", "-passout", "pass:x", "-in", "key.pem", "-out", "locked.pem"]
    subprocess.run(argv, cwd=tmp_path, check=True, capture_output=True)
    with pytest.raises(UsageError) as caught:
        pull(replace(endpoint, certificate=(tmp_path / "cert.pem", tmp_path / "locked.pem")))
    assert caught.value.cause == "the key is encrypted"
