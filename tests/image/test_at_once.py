"""Several blobs at the same time, into a real registry."""

from __future__ import annotations

import hashlib
import os
import threading
import tracemalloc
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from kfjob.errors import Forbidden
from kfjob.image.build.archive import Built
from kfjob.image.build.push import push
from kfjob.image.references import parse
from kfjob.image.registry import documents as docs
from kfjob.image.registry.at_once import AT_ONCE, at_once
from kfjob.image.registry.secrets import Login
from kfjob.image.registry.uploads import CHUNK, Blob, BytesBlob, FileBlob, Progress
from tests.image.proxy import Say, Seen, proxy_before
from tests.image.registries import RealRegistry, is_absent, known, real_registry

WAIT = 20.0


def blobs(count: int, size: int = 1000) -> list[BytesBlob]:
    made = [os.urandom(size) for _ in range(count)]
    return [BytesBlob(digest=docs.sha256(content), content=content) for content in made]


def built(layers: Sequence[Blob]) -> Built:
    config = BytesBlob(digest=docs.sha256(b"{}"), content=b"{}")
    value = {"schemaVersion": 2, "mediaType": docs.OCI_MANIFEST}
    value["config"] = {"mediaType": docs.OCI_CONFIG, "digest": config.digest, "size": 2}
    value["layers"] = [{"mediaType": docs.OCI_LAYER, "digest": one.digest, "size": one.size} for one in layers]
    return Built(manifest=docs.document(docs.OCI_MANIFEST, value), config={}, blobs=(*layers, config))


@dataclass(frozen=True, kw_only=True)
class Meeting:
    """A blob that is read only when so many of them are."""

    digest: str
    content: bytes
    together: threading.Barrier

    @property
    def size(self) -> int:
        return len(self.content)

    def pieces(self, offset: int) -> Iterator[bytes]:
        self.together.wait(WAIT)
        yield self.content[offset:]


def test_as_many_as_that_and_no_more(plain: RealRegistry, name: str):
    lock, now, most = threading.Lock(), 0, 0

    def one(number: int, _told: Progress) -> int:
        nonlocal now, most
        with lock:
            now += 1
            most = max(most, now)
        together.wait(WAIT)  # one after the other they would never meet
        with lock:
            now -= 1
        return number

    together = threading.Barrier(AT_ONCE)
    assert at_once([partial(one, number) for number in range(3 * AT_ONCE)]) == list(range(3 * AT_ONCE))
    assert most == AT_ONCE
    layers = [Meeting(digest=one.digest, content=one.content, together=together) for one in blobs(2 * AT_ONCE)]
    told: list[tuple[str, int, int]] = []
    with plain.open() as registry:
        done = push(registry, parse(f"{plain.host}/{name}:1"), built(layers), progress=lambda *said: told.append(said))
    assert done.sent == 2 * AT_ONCE * 1000 + 2
    for blob in layers:
        assert plain.checked_blob(name, blob.digest) == blob.content
        assert [said[1:] for said in told if said[0] == blob.digest] == [(0, 1000), (1000, 1000)]


def test_the_first_fault_ends_the_others_and_leaves_no_tag(plain: RealRegistry, name: str):
    layers = blobs(12)
    with proxy_before(plain.port) as proxy:

        def rule(seen: Seen) -> Say | None:
            return Say(403, b"{}") if seen.method == "PUT" and len(proxy.methods("PUT")) > 2 else None

        proxy.rule = rule
        before = threading.active_count()
        with plain.open(proxy.port) as registry, pytest.raises(Forbidden):
            push(registry, parse(f"127.0.0.1:{proxy.port}/{name}:1"), built(layers))
        asked = len(proxy.requests)
        assert threading.active_count() <= before + AT_ONCE  # of the proxy; ours have ended
        assert len(proxy.methods("POST")) < len(layers)
    assert len(proxy.requests) == asked
    assert is_absent(plain, f"{name}/manifests/1")


def test_one_login_for_all_who_are_asked_for_it_at_once(tmp_path: Path, name: str):
    asked: list[int] = []

    def login() -> Login:
        asked.append(1)
        return known()

    with real_registry(tmp_path, tls=True) as private, private.open(login=login) as registry:
        push(registry, parse(f"{private.host}/{name}:1"), built(blobs(10)))
        assert registry.digest_of(name, "1")
    assert len(asked) == 1


def test_memory_does_not_grow_with_the_image(plain: RealRegistry, name: str, tmp_path: Path):
    layers: list[Blob] = []
    for number in range(AT_ONCE + 1):
        file, size = tmp_path / str(number), 4 * CHUNK + number
        with file.open("wb") as out:
            out.truncate(size)
        with file.open("rb") as stream:
            digest = f"sha256:{hashlib.file_digest(stream, 'sha256').hexdigest()}"
        layers.append(FileBlob(digest=digest, size=size, file=file))
    with plain.open() as registry:
        tracemalloc.start()
        try:
            push(registry, parse(f"{plain.host}/{name}:1"), built(layers))
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
    assert peak < 3 * AT_ONCE * CHUNK < sum(blob.size for blob in layers)
