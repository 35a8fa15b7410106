"""Parallel uploads to a real registry."""

from __future__ import annotations

import hashlib
import os
import threading
import tracemalloc
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from kfjob.base.errors import Forbidden
from kfjob.image.build.archive import BuiltImage
from kfjob.image.push import TRANSFER_THREADS, CopyResult, Repository, push_built_image, run_transfers
from kfjob.image.references import parse_reference
from kfjob.image.registry import documents as docs
from kfjob.image.registry.client import Registry
from kfjob.image.registry.secrets import Login
from kfjob.image.registry.uploads import CHUNK_SIZE, Blob, BytesBlob, FileBlob, ReportProgress
from tests.image.proxy import ProxiedRequest, Reply, proxy_before
from tests.image.registries import RealRegistry, is_absent, known, real_registry

WAIT = 20.0


def blobs(count: int, size: int = 1000) -> list[BytesBlob]:
    contents = [os.urandom(size) for _ in range(count)]
    return [BytesBlob(digest=docs.compute_digest(content), content=content) for content in contents]


def built(layers: Sequence[Blob]) -> BuiltImage:
    config = BytesBlob(digest=docs.compute_digest(b"{}"), content=b"{}")
    value = {"schemaVersion": 2, "mediaType": docs.OCI_MANIFEST}
    value["config"] = {"mediaType": docs.OCI_CONFIG, "digest": config.digest, "size": 2}
    value["layers"] = [{"mediaType": docs.OCI_LAYER, "digest": one.digest, "size": one.size} for one in layers]
    return BuiltImage(manifest=docs.make_document(docs.OCI_MANIFEST, value), config={}, blobs=(*layers, config))


def push(registry: Registry, host: str, name: str, layers: Sequence[Blob], **options: Any) -> CopyResult:
    """Push an image with these layers to the tag `1`."""
    repository = Repository(registry=registry, ref=parse_reference(f"{host}/{name}:1"))
    return push_built_image(repository, built(layers), **options)


@dataclass(frozen=True, kw_only=True)
class BarrierBlob:
    """A blob whose read waits for the other parallel reads."""

    digest: str
    content: bytes
    together: threading.Barrier

    @property
    def size(self) -> int:
        return len(self.content)

    def read_pieces(self, offset: int) -> Iterator[bytes]:
        self.together.wait(WAIT)
        yield self.content[offset:]


def test_transfers_use_the_given_number_of_threads(plain: RealRegistry, name: str):
    lock, now, most = threading.Lock(), 0, 0

    def one(number: int, _told: ReportProgress) -> int:
        nonlocal now, most
        with lock:
            now += 1
            most = max(most, now)
        together.wait(WAIT)  # one after the other they would never meet
        with lock:
            now -= 1
        return number

    together = threading.Barrier(TRANSFER_THREADS)
    assert run_transfers([partial(one, number) for number in range(3 * TRANSFER_THREADS)]) == list(range(3 * TRANSFER_THREADS))
    assert most == TRANSFER_THREADS
    layers = [BarrierBlob(digest=one.digest, content=one.content, together=together) for one in blobs(2 * TRANSFER_THREADS)]
    reports: list[tuple[str, int, int]] = []
    with plain.open() as registry:
        done = push(registry, plain.host, name, layers, progress=lambda *call: reports.append(call))
    assert done.uploaded == 2 * TRANSFER_THREADS * 1000 + 2
    for blob in layers:
        assert plain.checked_blob(name, blob.digest) == blob.content
        assert [said[1:] for said in reports if said[0] == blob.digest] == [(0, 1000), (1000, 1000)]


def test_first_error_cancels_other_transfers_and_leaves_no_tag(plain: RealRegistry, name: str):
    layers = blobs(12)
    with proxy_before(plain.port) as proxy:

        def rule(request: ProxiedRequest) -> Reply | None:
            return Reply(403, b"{}") if request.method == "PUT" and len(proxy.methods("PUT")) > 2 else None

        proxy.rule = rule
        before = set(threading.enumerate())
        with plain.open(proxy.port) as registry, pytest.raises(Forbidden):
            push(registry, f"127.0.0.1:{proxy.port}", name, layers)
        calls = len(proxy.requests)
        started = set(threading.enumerate()) - before  # threads of the proxy and closed watchdogs may still be ending
        assert [thread.name for thread in started if thread.name == "kfjob-transfer"] == []
        assert len(proxy.methods("POST")) < len(layers)
    assert len(proxy.requests) == calls
    assert is_absent(plain, f"{name}/manifests/1")


def test_parallel_requests_share_one_login(tmp_path: Path, name: str):
    calls: list[int] = []

    def login() -> Login:
        calls.append(1)
        return known()

    with real_registry(tmp_path, tls=True) as private, private.open(login=login) as registry:
        push(registry, private.host, name, blobs(10))
        assert registry.get_digest(name, "1")
    assert len(calls) == 1


def test_memory_is_independent_of_image_size(plain: RealRegistry, name: str, tmp_path: Path):
    layers: list[Blob] = []
    for number in range(TRANSFER_THREADS + 1):
        file, size = tmp_path / str(number), 4 * CHUNK_SIZE + number
        with file.open("wb") as out:
            out.truncate(size)
        with file.open("rb") as stream:
            digest = f"sha256:{hashlib.file_digest(stream, 'sha256').hexdigest()}"
        layers.append(FileBlob(digest=digest, size=size, file=file))
    with plain.open() as registry:
        tracemalloc.start()
        try:
            push(registry, plain.host, name, layers)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
    assert peak < 3 * TRANSFER_THREADS * CHUNK_SIZE < sum(blob.size for blob in layers)
