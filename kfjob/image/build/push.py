"""A built image into a registry: what is there already is not sent, what broke off is taken up again."""

from __future__ import annotations

from dataclasses import dataclass

from kfjob.image.build.archive import Built
from kfjob.image.references import ImageRef
from kfjob.image.registry.client import Registry
from kfjob.image.registry.uploads import Progress, silent, upload


@dataclass(frozen=True, kw_only=True)
class Pushed:
    """What a push has done."""

    ref: ImageRef  # with its digest
    sent: int  # bytes
    there: int  # bytes that the registry had


def push(registry: Registry, ref: ImageRef, built: Built, *, progress: Progress = silent) -> Pushed:
    """Upload what is missing, then the manifest under the tag: until then nobody sees any of it.

    Raises:
        AlreadyExists: the tag is taken and may not be changed.
        KfjobError: the registry does not take it; the blobs that it took are used by the next attempt.
    """
    sent = there = 0
    for blob in {blob.digest: blob for blob in built.blobs}.values():
        if registry.has_blob(ref.repository, blob.digest):
            there += blob.size
            progress(blob.digest, blob.size, blob.size)
        else:
            upload(registry, ref.repository, blob, progress=progress)
            sent += blob.size
    registry.put_manifest(ref.repository, ref.tag, built.manifest)
    return Pushed(ref=ref.pinned(built.manifest.digest), sent=sent, there=there)
