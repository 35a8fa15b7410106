"""What an image is made of, brought into a repository: what is there already is left, what a neighbour has is mounted."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from kfjob.image.onto import Rewritten
from kfjob.image.references import ImageRef
from kfjob.image.registry.client import Registry
from kfjob.image.registry.uploads import Blob, Progress, RemoteBlob, mount, silent, upload


@dataclass(frozen=True, kw_only=True)
class Place:
    """A repository, and the way to it."""

    registry: Registry
    ref: ImageRef

    @property
    def repository(self) -> str:
        """Its name within the registry."""
        return self.ref.repository


@dataclass(frozen=True, kw_only=True)
class Sent:
    """What it took. Bytes that the registry had already are not counted."""

    uploaded: int = 0
    copied: int = 0  # from another registry
    mounted: int = 0
    there: int = 0

    def __add__(self, other: Sent) -> Sent:
        return Sent(
            uploaded=self.uploaded + other.uploaded,
            copied=self.copied + other.copied,
            mounted=self.mounted + other.mounted,
            there=self.there + other.there,
        )


def bring(image: Rewritten, blobs: Iterable[Blob], source: Place, target: Place, *, progress: Progress = silent) -> Sent:
    """Everything that the image's manifests name, then the manifests, and at last the tag: nothing half-done has a name.

    Raises:
        KfjobError: a registry refuses, or stays away. What has been sent stays there, and is found the next time.
    """
    sent = Sent()
    for layer in image.layers:
        sent += _layer(layer["digest"], int(layer["size"]), source, target, progress)
    for blob in (*blobs, *image.configs):
        if target.registry.has_blob(target.repository, blob.digest):
            sent += Sent(there=blob.size)
        else:
            upload(target.registry, target.repository, blob, progress=progress)
            sent += Sent(uploaded=blob.size)
    for manifest in image.manifests:
        target.registry.put_manifest(target.repository, manifest.digest, manifest)
    target.registry.put_manifest(target.repository, target.ref.tag or image.top.digest, image.top)
    return sent


def _layer(digest: str, size: int, source: Place, target: Place, progress: Progress) -> Sent:
    """A layer of the base."""
    neighbours = source.ref.registry == target.ref.registry
    same = neighbours and source.repository == target.repository and source.registry.endpoint == target.registry.endpoint
    if same or target.registry.has_blob(target.repository, digest):
        return Sent(there=size)
    if neighbours and mount(target.registry, target.repository, digest, source=source.repository):
        return Sent(mounted=size)
    blob = RemoteBlob(digest=digest, size=size, registry=source.registry, repository=source.repository)
    upload(target.registry, target.repository, blob, progress=progress)
    return Sent(copied=size)
