"""The registry client with real registries, and with a proxy that injects errors."""

from __future__ import annotations

import hashlib
import os
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path

import pytest

from kfjob.base.errors import Forbidden, KfjobError, NotFound, Refused, Unreachable
from kfjob.image.auth import open_registry
from kfjob.image.references import parse_reference
from kfjob.image.registry.client import Registry
from kfjob.image.registry.documents import OCI_CONFIG, OCI_MANIFEST, compute_digest, make_document
from kfjob.image.registry.endpoints import Endpoint
from kfjob.image.registry.secrets import Login, Secret
from kfjob.image.registry.uploads import BytesBlob, FileBlob, RemoteBlob, mount_blob, upload_blob
from kfjob.local.machine import free_port
from tests.image.proxy import Cut, ProxiedRequest, Proxy, Reply, proxy_before
from tests.image.registries import (
    HURRIED,
    NEXT_PASSWORD,
    PASSWORD,
    RealRegistry,
    known,
    make_certificate,
    real_registry,
    store_login,
)
from tests.image.tokens import token_server

CHUNK = 64 * 1024
SIZE = 16 * CHUNK


@pytest.fixture
def proxy(plain: RealRegistry) -> Iterator[Proxy]:
    with proxy_before(plain.port) as made:
        yield made


def blob(size: int = SIZE) -> BytesBlob:
    content = os.urandom(size)
    return BytesBlob(digest=compute_digest(content), content=content)


@pytest.mark.parametrize("size", [0, 1, CHUNK - 1, CHUNK, CHUNK + 1, 3 * CHUNK + 7])
def test_blob_is_uploaded_completely(plain: RealRegistry, name: str, size: int, tmp_path):
    content, reports = blob(size), []
    file = tmp_path / "blob"
    file.write_bytes(content.content)
    with plain.open() as registry:
        assert not registry.has_blob(name, content.digest)
        sent = FileBlob(digest=content.digest, size=size, file=file)
        upload_blob(registry, name, sent, chunk_size=CHUNK, progress=lambda *arguments: reports.append(arguments))
        assert registry.has_blob(name, content.digest)
        assert b"".join(registry.stream_blob(name, content.digest)) == content.content
        assert b"".join(registry.stream_blob(name, content.digest, size // 2)) == content.content[size // 2 :]
    assert plain.checked_blob(name, content.digest) == content.content
    assert reports[0] == (content.digest, 0, size)
    assert reports[-1] == (content.digest, size, size)
    assert [done for _, done, _ in reports] == sorted(done for _, done, _ in reports)


def test_manifests_and_tags(plain: RealRegistry, name: str):
    config = BytesBlob(digest=compute_digest(b"{}"), content=b"{}")
    value = {"schemaVersion": 2, "mediaType": OCI_MANIFEST, "layers": []}
    value["config"] = {"mediaType": OCI_CONFIG, "digest": config.digest, "size": 2}
    image = make_document(OCI_MANIFEST, value)
    with plain.open() as registry:
        with pytest.raises(NotFound):
            registry.get_manifest(name, "one")
        assert registry.get_digest(name, "one") is None
        with pytest.raises((Refused, NotFound)):
            registry.put_manifest(name, "one", image)  # its config is not there
        upload_blob(registry, name, config)
        registry.put_manifest(name, "one", image)
        registry.put_manifest(name, image.digest, image)
        assert registry.get_digest(name, "one") == registry.get_digest(name, image.digest) == image.digest
        assert registry.get_manifest(name, "one") == image
        assert registry.get_blob(name, config.digest) == b"{}"
        for tag in ("two", "three"):
            registry.put_manifest(name, tag, image)
        assert sorted(registry.list_tags(name)) == ["one", "three", "two"]


def test_broken_connection_costs_one_chunk(proxy: Proxy, plain: RealRegistry, name: str):
    def rule(request: ProxiedRequest) -> Cut | None:
        cut = request.method == "PATCH" and len(proxy.methods("PATCH")) in (7, 8, 12)
        return Cut("buffered", after=CHUNK // 2) if cut else None

    proxy.rule = rule
    content = blob()
    with plain.open(proxy.port) as registry:
        upload_blob(registry, name, content, chunk_size=CHUNK)
    assert plain.checked_blob(name, content.digest) == content.content
    assert proxy.body_bytes == SIZE + 3 * CHUNK // 2
    assert len(proxy.methods("POST")) == 1


def test_dropped_upload_session_is_restarted(proxy: Proxy, plain: RealRegistry, name: str):
    def rule(request: ProxiedRequest) -> Cut | None:
        return Cut("streamed", after=CHUNK // 2) if request.method == "PATCH" and len(proxy.methods("PATCH")) == 5 else None

    proxy.rule = rule
    content = blob()
    with plain.open(proxy.port) as registry:
        upload_blob(registry, name, content, chunk_size=CHUNK)
    assert plain.checked_blob(name, content.digest) == content.content
    assert proxy.body_bytes == SIZE + 4 * CHUNK + CHUNK // 2
    assert len(proxy.methods("POST")) == 2


def test_lost_response_does_not_repeat_the_upload(proxy: Proxy, plain: RealRegistry, name: str):
    proxy.rule = lambda request: Cut("answered") if request.method == "PUT" and len(proxy.methods("PUT")) == 1 else None
    content = blob(CHUNK)
    with plain.open(proxy.port) as registry:
        upload_blob(registry, name, content, chunk_size=CHUNK)
    assert proxy.body_bytes == CHUNK
    assert plain.checked_blob(name, content.digest) == content.content


def test_unreachable_registry_is_an_error_after_all_attempts(proxy: Proxy, plain: RealRegistry, name: str):
    proxy.rule = lambda request: Cut("buffered") if request.method == "PATCH" else None
    with plain.open(proxy.port) as registry, pytest.raises(Unreachable) as caught:
        upload_blob(registry, name, blob(), chunk_size=CHUNK)
    assert f"127.0.0.1:{proxy.port}" in caught.value.title
    assert len(proxy.methods("PATCH")) == HURRIED.attempts


def test_busy_registry_is_retried(proxy: Proxy, plain: RealRegistry, name: str):
    proxy.rule = lambda _seen: Reply(503) if len(proxy.requests) <= 2 else None
    with plain.open(proxy.port) as registry:
        assert registry.get_digest(name, "1") is None
    assert len(proxy.requests) == 3


@pytest.mark.parametrize("status", [400, 403, 404, 405, 413, 422])
def test_refusal_is_not_retried(proxy: Proxy, plain: RealRegistry, name: str, status: int):
    proxy.rule = lambda _seen: Reply(status, b'{"errors":[{"code":"DENIED","message":"no, because"}]}')
    with plain.open(proxy.port) as registry, pytest.raises(KfjobError) as caught:
        registry.get_manifest(name, "1")
    assert caught.value.cause == "no, because"
    assert caught.value.exit_code == {403: 4, 404: 3}.get(status, 1)
    assert len(proxy.requests) == 1


def test_content_with_another_digest_is_refused(proxy: Proxy, plain: RealRegistry, name: str):
    proxy.rule = lambda _seen: Reply(200, b"{}", {"Content-Type": OCI_MANIFEST})
    with plain.open(proxy.port) as registry:
        for read in (registry.get_manifest, registry.get_blob):
            with pytest.raises(Refused, match="does not match its digest"):
                read(name, compute_digest(b"other"))


@pytest.mark.parametrize(
    ("kind", "hint"),
    [("application/vnd.docker.distribution.manifest.v1+prettyjws", "builder"), ("application/vnd.cncf.helm", None)],
)
def test_other_media_types_are_refused(proxy: Proxy, plain: RealRegistry, name: str, kind: str, hint: str | None):
    proxy.rule = lambda _seen: Reply(200, b"{}", {"Content-Type": kind})
    with plain.open(proxy.port) as registry, pytest.raises(Refused) as caught:
        registry.get_manifest(name, "1")
    assert kind in (caught.value.cause or "")
    assert bool(hint) == bool(caught.value.hint)


def test_missing_and_wrong_logins_are_refused(private: RealRegistry, name: str):
    calls: list[int] = []

    def wrong() -> Login:
        calls.append(1)
        return Login(user="AWS", password=Secret("another-secret"))

    for login in (lambda: None, wrong):
        with private.open(login=login) as registry, pytest.raises(Forbidden) as caught:
            registry.get_manifest(name, "1")
        assert "another-secret" not in str(caught.value)
        assert caught.value.cause == "authentication required"
    assert len(calls) == 1


def test_expired_login_is_renewed(tmp_path, name: str):
    logins = iter([known(), Login(user="AWS", password=Secret(NEXT_PASSWORD))])
    content, sent = blob(), 0

    def progress(_digest: str, done: int, _size: int) -> None:
        nonlocal sent
        if sent < SIZE // 2 <= done:
            real.change_password()
        sent = done

    with real_registry(tmp_path, tls=True) as real, real.open(login=lambda: next(logins)) as registry:
        upload_blob(registry, name, content, chunk_size=CHUNK, progress=progress)
        assert next(logins, None) is None
        assert registry.get_blob(name, content.digest) == content.content


def test_missing_registry_is_unreachable():
    absent = Registry(Endpoint(url=f"http://127.0.0.1:{free_port()}"), limits=HURRIED)
    with absent as registry, pytest.raises(Unreachable, match="does not answer") as caught:
        registry.get_manifest("a", "1")
    assert "refused" in (caught.value.cause or "")


def test_tokens_have_the_scopes_and_are_renewed(tmp_path, name: str):
    with token_server(tmp_path) as tokens, real_registry(tmp_path, tls=True, auth=tokens.configuration()) as real:
        content = blob(CHUNK)
        with real.open(login=known) as registry:
            upload_blob(registry, name, content)
            assert mount_blob(registry, f"{name}-copy", content.digest, source=name)
            assert registry.has_blob(f"{name}-copy", content.digest)
            assert tokens.asked == [
                [f"repository:{name}:pull,push"],
                [f"repository:{name}-copy:pull,push", f"repository:{name}:pull"],
                [f"repository:{name}-copy:pull"],
            ]
            tokens.life = -100  # the registry finds it too old; the client was told it lives for minutes
            with pytest.raises(Forbidden):
                registry.has_blob(name, content.digest)
            tokens.life = 300
            assert registry.has_blob(name, content.digest)
            tokens.password = NEXT_PASSWORD
            with pytest.raises(Forbidden) as caught:
                registry.has_blob("another", content.digest)
            assert PASSWORD not in str(caught.value)


def test_login_is_not_sent_to_a_redirect_target(plain: RealRegistry, name: str, tmp_path):
    content = blob(100)
    with plain.open() as registry:
        upload_blob(registry, name, content)
    elsewhere = f"http://127.0.0.1:{plain.port}/v2/{name}/blobs/{content.digest}"
    seen: list[ProxiedRequest] = []

    def rule(request: ProxiedRequest) -> Reply | None:
        seen.append(request)
        challenge = {"WWW-Authenticate": 'Basic realm="x"'}
        return (
            Reply(307, headers={"Location": elsewhere}) if "Authorization" in request.headers else Reply(401, headers=challenge)
        )

    with proxy_before(plain.port, tls_folder=tmp_path) as proxy, proxy_before(plain.port) as second:
        proxy.rule = rule
        elsewhere = elsewhere.replace(str(plain.port), str(second.port))
        with Registry(tls_endpoint(proxy, tmp_path), login=known, limits=HURRIED) as registry:
            assert registry.get_blob(name, content.digest) == content.content
        assert "Authorization" in seen[-1].headers
        assert ["Authorization" in request.headers for request in second.requests] == [False]


def tls_endpoint(proxy: Proxy, folder: Path) -> Endpoint:
    return Endpoint(url=f"https://127.0.0.1:{proxy.port}", authorities=(folder / "cert.pem",))


CHALLENGES = ['Basic realm="x"', 'Bearer realm="http://127.0.0.1:1/token",service="x"']


@pytest.mark.parametrize("challenge", [*CHALLENGES, 'Bearer realm="/token",service="x"'])
def test_login_is_not_sent_without_tls(proxy: Proxy, plain: RealRegistry, challenge: str):
    proxy.rule = lambda _request: Reply(401, headers={"WWW-Authenticate": challenge})
    with plain.open(proxy.port, login=known) as registry, pytest.raises(Forbidden) as caught:
        registry.get_manifest("team/train", "1")
    assert caught.value.title == f"registry `127.0.0.1:{proxy.port}` requests the login without TLS"
    assert not any("Authorization" in request.headers for request in proxy.requests)


def test_login_is_not_sent_to_a_token_server_without_tls(plain: RealRegistry, tmp_path):
    with proxy_before(plain.port, tls_folder=tmp_path) as proxy, proxy_before(plain.port) as tokens:
        realm = f'Bearer realm="http://127.0.0.1:{tokens.port}/token"'
        proxy.rule = lambda _request: Reply(401, headers={"WWW-Authenticate": realm})
        with Registry(tls_endpoint(proxy, tmp_path), login=known, limits=HURRIED) as registry, pytest.raises(Forbidden):
            registry.get_manifest("team/train", "1")
        assert tokens.requests == []


@pytest.mark.parametrize("protocol", ["https", "http"])
@pytest.mark.parametrize("scheme", ["Basic", "Bearer"])
def test_mirror_never_receives_the_registrys_login(
    plain: RealRegistry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scheme: str, protocol: str
):
    (tmp_path / "certs.d" / "registry.example").mkdir(parents=True)
    store_login(tmp_path, "registry.example")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("KFJOB_REGISTRY_CERTS", str(tmp_path / "certs.d"))
    ref = parse_reference("registry.example/team/train:1")
    make_certificate(tmp_path)
    with proxy_before(plain.port, tls_folder=tmp_path if protocol == "https" else None) as mirror:
        url = f"{protocol}://127.0.0.1:{mirror.port}"
        (tmp_path / "certs.d" / "registry.example" / "hosts.toml").write_text(f'[host."{url}"]\nca = "{tmp_path}/cert.pem"\n')
        mirror.rule = lambda _request: Reply(401, headers={"WWW-Authenticate": f'{scheme} realm="{url}/token"'})
        for login in (None, known):
            with open_registry(ref, "pull", limits=HURRIED, login=login) as registry, pytest.raises(KfjobError):
                registry.get_manifest("team/train", "1")
        assert mirror.requests
        assert not any("Authorization" in request.headers for request in mirror.requests)


def test_mirror_receives_the_login_of_its_own_host(plain: RealRegistry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "certs.d" / "registry.example").mkdir(parents=True)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("KFJOB_REGISTRY_CERTS", str(tmp_path / "certs.d"))
    with proxy_before(plain.port, tls_folder=tmp_path) as mirror:
        host, auth = f"127.0.0.1:{mirror.port}", b64encode(b"mirror:its own").decode()
        hosts = f'[host."https://{host}"]\nca = "{tmp_path}/cert.pem"\n'
        (tmp_path / "certs.d" / "registry.example" / "hosts.toml").write_text(hosts)
        store_login(tmp_path, host, "mirror", "its own")
        mirror.rule = lambda _request: Reply(401, headers={"WWW-Authenticate": 'Basic realm="x"'})
        ref = parse_reference("registry.example/team/train:1")
        with open_registry(ref, "pull", limits=HURRIED) as registry, pytest.raises(Forbidden):
            registry.get_manifest("team/train", "1")
        assert mirror.requests[-1].headers["Authorization"] == f"Basic {auth}"


def test_blob_is_copied_between_registries(proxy: Proxy, plain: RealRegistry, private: RealRegistry, name: str):
    content = blob()
    with private.open() as source, plain.open(proxy.port) as target:
        upload_blob(source, name, content)
        proxy.rule = lambda request: (
            Cut("buffered", after=10) if request.method == "PATCH" and len(proxy.methods("PATCH")) in (3, 9) else None
        )
        upload_blob(
            target, name, RemoteBlob(digest=content.digest, size=SIZE, registry=source, repository=name), chunk_size=CHUNK
        )
    assert hashlib.sha256(plain.checked_blob(name, content.digest)).hexdigest() == content.digest.removeprefix("sha256:")
    assert proxy.body_bytes == SIZE + 20


def test_refused_mount_falls_back_to_upload(plain: RealRegistry, name: str):
    with plain.open() as registry:
        assert not mount_blob(registry, name, compute_digest(b"nowhere"), source="team/nothing")
