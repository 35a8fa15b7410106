"""What an image is made of, brought into a repository: what is there already is left, what a neighbour has is mounted."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial

from kfjob.image.mutate import MutatedImage
from kfjob.image.references import ImageRef
from kfjob.image.registry.client import Registry
from kfjob.image.registry.parallel import run_transfers
from kfjob.image.registry.uploads import Blob, RemoteBlob, ReportProgress, ignore_progress, mount_blob, upload_blob


@dataclass(frozen=True, kw_only=True)
class Repository:
    """A repository, and the way to it."""

    registry: Registry
    ref: ImageRef

    @property
    def name(self) -> str:
        """Its name within the registry."""
        return self.ref.repository


@dataclass(frozen=True, kw_only=True)
class CopyResult:
    """What it took. Bytes that the registry had already are not counted."""

    uploaded: int = 0
    copied: int = 0  # from another registry
    mounted: int = 0
    reused: int = 0

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
    """All that the image's manifests name, some at a time, then these, and at last the tag: nothing half-done has a name.

    Raises:
        KfjobError: a registry refuses, or stays away. What has been sent stays there, and is found the next time.
    """
    layers = [partial(_layer, layer["digest"], int(layer["size"]), source, target) for layer in image.layers]
    own = [partial(_own, blob, target) for blob in (*blobs, *image.configs)]
    sent = sum(run_transfers([*layers, *own], progress=progress), CopyResult())
    for manifest in image.manifests:
        target.registry.put_manifest(target.name, manifest.digest, manifest)
    target.registry.put_manifest(target.name, target.ref.tag or image.root.digest, image.root)
    return sent


def _own(blob: Blob, target: Repository, progress: ReportProgress) -> CopyResult:
    """A blob that is new."""
    if target.registry.has_blob(target.name, blob.digest):
        return CopyResult(reused=blob.size)
    upload_blob(target.registry, target.name, blob, progress=progress)
    return CopyResult(uploaded=blob.size)


def _layer(digest: str, size: int, source: Repository, target: Repository, progress: ReportProgress) -> CopyResult:
    """A layer of the base."""
    neighbours = source.ref.registry == target.ref.registry
    same = neighbours and source.name == target.name and source.registry.endpoint == target.registry.endpoint
    if same or target.registry.has_blob(target.name, digest):
        return CopyResult(reused=size)
    if neighbours and mount_blob(target.registry, target.name, digest, source=source.name):
        return CopyResult(mounted=size)
    blob = RemoteBlob(digest=digest, size=size, registry=source.registry, repository=source.name)
    upload_blob(target.registry, target.name, blob, progress=progress)
    return CopyResult(copied=size)
