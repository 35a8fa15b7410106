"""Push an image: blobs that the registry has are reused, those of the same registry mounted, others sent in parallel."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TypeVar

from msgspec import Struct

from kfjob.base.concurrency import map_parallel
from kfjob.image.build.archive import BuiltImage
from kfjob.image.mutate import MutatedImage
from kfjob.image.references import ImageRef
from kfjob.image.registry.client import Registry
from kfjob.image.registry.uploads import Blob, RemoteBlob, ReportProgress, ignore_progress, mount_blob, upload_blob

TRANSFER_THREADS = 4
"""Layers to transfer at the same time; each holds a chunk or two in memory, and ECR throttles clients that send
much more in parallel."""

T = TypeVar("T")
Transfer = Callable[[ReportProgress], T]


class _Cancelled(Exception):
    """Another transfer has failed."""


class Repository(Struct, frozen=True, kw_only=True):
    """An image's repository, with the client of its registry."""

    registry: Registry
    ref: ImageRef

    @property
    def name(self) -> str:
        """The repository's name within the registry."""
        return self.ref.repository


class CopyResult(Struct, frozen=True, kw_only=True):
    """Bytes of a copy, by the way they took."""

    uploaded: int = 0  # from this machine
    copied: int = 0  # from another registry
    mounted: int = 0  # from another repository of the registry
    reused: int = 0  # in the repository already

    def __add__(self, other: CopyResult) -> CopyResult:
        return CopyResult(
            uploaded=self.uploaded + other.uploaded,
            copied=self.copied + other.copied,
            mounted=self.mounted + other.mounted,
            reused=self.reused + other.reused,
        )


def copy_image(
    image: MutatedImage,
    blobs: Iterable[Blob],
    source: Repository,
    target: Repository,
    *,
    progress: ReportProgress = ignore_progress,
) -> CopyResult:
    """Copy the blobs of an image in parallel, then its manifests, then the tag: no tag names a partial image.

    `blobs` are the new layers; the base's layers come from `source`.

    Raises:
        KfjobError: a registry refuses or does not answer. Blobs that were sent stay there, and the next copy reuses them.
    """
    copies = [partial(_copy_layer, layer["digest"], int(layer["size"]), source, target) for layer in image.layers]
    uploads = [partial(_upload, blob, target) for blob in (*blobs, *image.configs)]
    result = sum(run_transfers([*copies, *uploads], progress=progress), CopyResult())
    for manifest in image.manifests:
        target.registry.put_manifest(target.name, manifest.digest, manifest)
    target.registry.put_manifest(target.name, target.ref.tag or image.root.digest, image.root)
    return result


def push_built_image(target: Repository, image: BuiltImage, *, progress: ReportProgress = ignore_progress) -> CopyResult:
    """Upload the missing blobs of a built image in parallel, then its manifest under the tag: no tag names a partial image.

    Raises:
        AlreadyExists: the tag exists and is immutable.
        KfjobError: the registry refuses or does not answer; the next attempt reuses the blobs that it has accepted.
    """
    blobs = {blob.digest: blob for blob in image.blobs}
    result = sum(run_transfers([partial(_upload, blob, target) for blob in blobs.values()], progress=progress), CopyResult())
    target.registry.put_manifest(target.name, target.ref.tag, image.manifest)
    return result


def _upload(blob: Blob, target: Repository, progress: ReportProgress) -> CopyResult:
    if target.registry.has_blob(target.name, blob.digest):
        progress(blob.digest, blob.size, blob.size)
        return CopyResult(reused=blob.size)
    upload_blob(target.registry, target.name, blob, progress=progress)
    return CopyResult(uploaded=blob.size)


def _copy_layer(digest: str, size: int, source: Repository, target: Repository, progress: ReportProgress) -> CopyResult:
    is_same_registry = source.ref.registry == target.ref.registry
    is_same_repository = (
        is_same_registry and source.name == target.name and source.registry.endpoint == target.registry.endpoint
    )
    if is_same_repository or target.registry.has_blob(target.name, digest):
        return CopyResult(reused=size)
    if is_same_registry and mount_blob(target.registry, target.name, digest, source=source.name):
        return CopyResult(mounted=size)
    blob = RemoteBlob(digest=digest, size=size, registry=source.registry, repository=source.name)
    upload_blob(target.registry, target.name, blob, progress=progress)
    return CopyResult(copied=size)


def run_transfers(
    transfers: Sequence[Transfer[T]], *, progress: ReportProgress = ignore_progress, threads: int = TRANSFER_THREADS
) -> list[T]:
    """Return the results of the transfers, in order. `progress` is called by one thread at a time.

    Raises:
        Exception: the first exception of a transfer. Before it is raised, the running transfers end with their current chunk;
            the others do not begin.
    """
    cancelled, lock = threading.Event(), threading.Lock()

    def report(digest: str, done: int, size: int) -> None:
        if cancelled.is_set():
            raise _Cancelled
        with lock:
            progress(digest, done, size)

    def run(transfer: Transfer[T]) -> T:
        return transfer(report)

    return map_parallel(run, transfers, threads=threads, name="transfer", stop=cancelled)
