"""Every wait for a registry has an end, and everything that a registry may send is a result or one error."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pytest

from kfjob.base.errors import KfjobError, Refused, Unreachable
from kfjob.base.http import Limits
from kfjob.image.metadata import read_metadata
from kfjob.image.references import parse_reference
from kfjob.image.registry import client
from kfjob.image.registry.client import Registry
from kfjob.image.registry.documents import OCI_CONFIG, OCI_INDEX, OCI_LAYER, OCI_MANIFEST
from kfjob.image.registry.endpoints import Endpoint
from kfjob.image.registry.uploads import BytesBlob, RemoteBlob, mount_blob, upload_blob
from tests.hostile_server import MEBIBYTE, Answer, HostileServer, Received, endless, prefixed, serve

LIMITS = Limits(attempts=2, pause=0.0, start_seconds=0.5, body_seconds=0.5)
DIGEST = f"sha256:{'0' * 64}"
REF = parse_reference("registry.example/team/train:1")


def connect(url: str) -> Registry:
    return Registry(Endpoint(url=url), limits=LIMITS)


def read_blob(registry: Registry) -> bytes:
    return b"".join(registry.stream_blob("team/train", DIGEST))


READS: dict[str, Callable[[Registry], object]] = {
    "manifest": lambda registry: registry.get_manifest("team/train", "1"),
    "config": lambda registry: registry.get_blob("team/train", DIGEST),
    "tags": lambda registry: list(registry.list_tags("team/train")),
    "layer": read_blob,
    "upload": lambda registry: upload_blob(registry, "team/train", BytesBlob(digest=DIGEST, content=b"x")),
}


@pytest.mark.parametrize("status", [200, 302, 403])
@pytest.mark.parametrize("body", [b"<html><body>Sign in</body></html>", b"<html>" + b"a" * 200_000])
def test_token_server_that_answers_html_is_one_error(status: int, body: bytes):
    def respond(hostile: HostileServer, received: Received) -> Answer:
        if received.path.startswith("/token"):
            return Answer(status=status, headers=(("Content-Type", "text/html"),), body=[body])
        return Answer(status=401, headers=(("WWW-Authenticate", f'Bearer realm="{hostile.url}/token"'),))

    with serve(respond) as hostile, connect(hostile.url) as registry:
        with pytest.raises(KfjobError) as caught:
            registry.get_manifest("team/train", "1")
        assert len(str(caught.value)) < 2000
        assert len(hostile.received) <= 8


def test_a_token_without_an_end_is_cut_off():
    def respond(hostile: HostileServer, received: Received) -> Answer:
        if received.path.startswith("/token"):
            return Answer(body=prefixed(b'{"token":"', endless(b"a" * 65536)))
        return Answer(status=401, headers=(("WWW-Authenticate", f'Bearer realm="{hostile.url}/token"'),))

    with serve(respond) as hostile, closing(connect(hostile.url)) as registry:
        with pytest.raises(Unreachable, match="larger than 4 MiB"):
            registry.get_manifest("team/train", "1")
        assert hostile.sent < 64 * MEBIBYTE


def test_a_layer_that_is_longer_than_its_image_names_is_not_copied():
    def respond(_: HostileServer, received: Received) -> Answer:
        return Answer(body=endless()) if received.method == "GET" else Answer(status=404)

    with serve(respond) as hostile, closing(connect(hostile.url)) as registry:
        blob = RemoteBlob(digest=DIGEST, size=100_000, registry=registry, repository="team/train")
        with pytest.raises(Refused, match="is too long"):
            list(blob.read_pieces(0))


def test_a_layer_continues_where_its_connection_was_lost():
    content = bytes(range(256)) * 4096

    def respond(hostile: HostileServer, received: Received) -> Answer:
        start = int(received.headers.get("Range", "bytes=0-").removeprefix("bytes=").removesuffix("-"))
        rest = content[start:]
        sent = rest if start else rest[:500_000]
        headers = (("Content-Length", str(len(rest))),)
        return Answer(status=206 if start else 200, headers=headers, body=[sent])

    with serve(respond) as hostile, closing(connect(hostile.url)) as registry:
        assert read_blob(registry) == content
        assert len(hostile.received) == 2


def test_pages_of_tags_without_an_end_are_not_all_read(monkeypatch):
    monkeypatch.setattr(client, "MAX_TAG_PAGES", 3)
    link = (("Link", '</v2/team/train/tags/list?last=a>; rel="next"'),)
    with (
        serve(lambda *_: Answer(headers=link, body=[b'{"tags": ["a"]}'])) as hostile,
        closing(connect(hostile.url)) as registry,
    ):
        assert list(registry.list_tags("team/train")) == ["a"] * 3
        assert len(hostile.received) == 3


def test_a_redirected_change_is_no_success():
    with (
        serve(lambda *_: Answer(status=307, headers=(("Location", "/elsewhere"),))) as hostile,
        closing(connect(hostile.url)) as registry,
        pytest.raises(Refused, match="the registry answered 307"),
    ):
        upload_blob(registry, "team/train", BytesBlob(digest=DIGEST, content=b"x"))


ODD: dict[str, Answer] = {
    "length is a word": Answer(headers=(("Content-Length", "many"),), body=[b"{}"]),
    "status 999": Answer(status=999, body=[b"x"]),
    "empty": Answer(),
    "an HTML page": Answer(headers=(("Content-Type", "text/html"),), body=[b"<html>Sign in</html>"]),
    "not UTF-8": Answer(body=[b'{"tags": ["\xff"]}']),
    "a list": Answer(body=[b"[]"]),
    "tags that are no list": Answer(body=[b'{"tags": {"a": 1}}']),
    "tags that are no text": Answer(body=[b'{"tags": [1, null]}']),
    "deep": Answer(body=[b"[" * 100_000]),
    "deep refusal": Answer(status=404, body=[b'{"errors":' * 100_000]),
    "errors that are no list": Answer(status=404, body=[b'{"errors": 5}']),
    "errors that are no objects": Answer(status=404, body=[b'{"errors": [1]}']),
    "next page that is no URL": Answer(headers=(("Link", '<http://[>; rel="next"'),), body=[b'{"tags": []}']),
    "challenge without parameters": Answer(status=401, headers=(("WWW-Authenticate", "Bearer"),)),
    "realm that is no URL": Answer(status=401, headers=(("WWW-Authenticate", 'Bearer realm="http://[::1"'),)),
    "realm that is a file": Answer(status=401, headers=(("WWW-Authenticate", 'Bearer realm="file:///etc/passwd"'),)),
    "challenge of noise": Answer(status=401, headers=(("WWW-Authenticate", ',,="\\'),)),
    "unknown algorithm": Answer(headers=(("Docker-Content-Digest", "md17:abc"), ("Content-Type", OCI_MANIFEST)), body=[b"{}"]),
    "chunk length is a word": Answer(status=202, headers=(("OCI-Chunk-Min-Length", "many"), ("Location", "/upload"))),
    "chunk length is huge": Answer(status=202, headers=(("OCI-Chunk-Min-Length", "9" * 15), ("Location", "/upload"))),
    "upload to no URL": Answer(status=202, headers=(("Location", "http://[::1"),)),
    "range of noise": Answer(status=202, headers=(("Location", "/upload"), ("Range", "0-" + "9" * 5000))),
}


@pytest.mark.parametrize("answer", ODD.values(), ids=ODD.keys())
@pytest.mark.parametrize("read", READS.values(), ids=READS.keys())
def test_an_odd_response_is_one_error_or_a_result(answer, read):
    limits = Limits(attempts=2, pause=0.0, start_seconds=20.0)
    with serve(lambda *_: answer) as hostile, closing(Registry(Endpoint(url=hostile.url), limits=limits)) as registry:
        message = find_error(lambda: read(registry))
        assert len(message) < 5000
        assert len(hostile.received) < 50
        find_error(lambda: mount_blob(registry, "team/train", DIGEST, source="team/base"))


def find_error(call: Callable[[], object]) -> str:
    """Return the message of the call's error; "" if it succeeds."""
    try:
        call()
    except KfjobError as err:
        return str(err)
    return ""


def digest(body: bytes) -> str:
    return f"sha256:{hashlib.sha256(body).hexdigest()}"


CONFIG = {"os": "linux", "architecture": "amd64", "config": {"Labels": {"a": "b"}}, "rootfs": {"diff_ids": [DIGEST]}}
MANIFEST: dict[str, Any] = {
    "config": {"mediaType": OCI_CONFIG, "digest": DIGEST, "size": 5},
    "layers": [{"mediaType": OCI_LAYER, "digest": DIGEST, "size": 5}],
}
INDEX: dict[str, Any] = {
    "manifests": [
        {"mediaType": OCI_MANIFEST, "digest": DIGEST, "size": 5, "platform": {"os": "linux", "architecture": "amd64"}}
    ]
}
WRONG: tuple[Any, ...] = (None, 5, -1, 1e300, "x", [], {}, [None], [[]], {"x": {}}, "\u202e")


def replacements(value: Any) -> Iterator[Any]:
    """Yield the value with each of its parts replaced by each wrong one, and without it."""
    yield from WRONG
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in list(items):
        for changed in replacements(part):
            copy = value.copy()
            copy[key] = changed
            yield copy
        copy = value.copy()
        del copy[key]
        yield copy


@pytest.mark.parametrize("document", [CONFIG, MANIFEST, INDEX], ids=["config", "manifest", "index"])
def test_a_document_with_a_wrong_part_is_one_error_or_a_result(document, monkeypatch):
    """Metadata are read from an index, its manifest and its config, of which one is wrong."""

    def respond(_: HostileServer, received: Received) -> Answer:
        if "blobs" in received.path:
            return Answer(body=[encode(CONFIG)])
        is_tag = received.path.endswith("/1")
        body, media_type = (encode(INDEX), OCI_INDEX) if is_tag else (encode(MANIFEST), OCI_MANIFEST)
        return Answer(headers=(("Content-Type", media_type),), body=[body])

    def encode(part: Any) -> bytes:
        return json.dumps(sent[0] if part is document else part).encode()

    monkeypatch.setattr(client, "_verify_digest", lambda *_: None)
    limits = Limits(attempts=1, pause=0.0)
    sent = [document]
    count = 0
    with serve(respond) as hostile, closing(Registry(Endpoint(url=hostile.url), limits=limits)) as registry:
        assert read_metadata(registry, REF).labels == {"a": "b"}
        for sent[0] in replacements(document):
            find_error(lambda: read_metadata(registry, REF))
            count += 1
    assert count > 30


HOSTILE_DIGESTS = [
    "../../../../admin/delete?x=1",
    "sha256:" + "0" * 63,
    f"{DIGEST}\n",
    "md5:" + "0" * 32,
    "sha256:../" + "0" * 61,
]


@pytest.mark.parametrize("hostile_digest", HOSTILE_DIGESTS)
@pytest.mark.parametrize("place", ["config", "layers", "manifests"])
def test_a_digest_that_is_none_never_becomes_a_url(place: str, hostile_digest: str):
    """The registry names a digest that would lead elsewhere; `admin/delete` is the path that a GET would then have."""
    descriptor = {"mediaType": OCI_CONFIG, "digest": hostile_digest, "size": 5}
    documents = {
        "config": MANIFEST | {"config": descriptor},
        "layers": MANIFEST | {"layers": [descriptor | {"mediaType": OCI_LAYER}]},
        "manifests": {"manifests": [INDEX["manifests"][0] | {"digest": hostile_digest}]},
    }
    media_type = OCI_INDEX if place == "manifests" else OCI_MANIFEST
    answer = Answer(headers=(("Content-Type", media_type),), body=[json.dumps(documents[place]).encode()])
    with serve(lambda *_: answer) as hostile, closing(connect(hostile.url)) as registry:
        with pytest.raises(Refused, match="that kfjob cannot read"):
            read_metadata(registry, REF)
        assert all(request.path.startswith("/v2/team/train/manifests/") for request in hostile.received)
        assert not any("admin" in request.path or hostile_digest in request.path for request in hostile.received)


def test_a_digest_in_a_header_is_checked():
    body = json.dumps(MANIFEST).encode()
    headers = (("Content-Type", OCI_MANIFEST), ("Docker-Content-Digest", "../../admin"))

    def respond(_: HostileServer, received: Received) -> Answer:
        return Answer(headers=headers if received.method == "HEAD" else headers[:1], body=[body] * (received.method == "GET"))

    with serve(respond) as hostile, closing(connect(hostile.url)) as registry:
        assert registry.get_digest("team/train", "1") == digest(body)


def test_a_registry_cannot_ask_for_chunks_larger_than_the_memory():
    answer = Answer(status=202, headers=(("OCI-Chunk-Min-Length", "9" * 15), ("Location", "/upload")))
    with serve(lambda *_: answer) as hostile, closing(Registry(Endpoint(url=hostile.url))) as registry:
        message = find_error(lambda: upload_blob(registry, "team/train", BytesBlob(digest=DIGEST, content=b"x" * 10)))
    assert f"asks for chunks of at least {'9' * 15} bytes, and kfjob sends at most 256 MiB" in message
