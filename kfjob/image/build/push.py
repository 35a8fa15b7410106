"""A built image into a registry: what is there already is not sent, what broke off is taken up again."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from kfjob.image.build.archive import BuiltImage
from kfjob.image.references import ImageRef
from kfjob.image.registry.client import Registry
from kfjob.image.registry.parallel import run_transfers
from kfjob.image.registry.uploads import Blob, ReportProgress, ignore_progress, upload_blob


@dataclass(frozen=True, kw_only=True)
class UploadResult:
    """What a push has done."""

    ref: ImageRef  # with its digest
    sent_bytes: int  # bytes
    reused_bytes: int  # bytes that the registry had


def push_built_image(
    registry: Registry, ref: ImageRef, built: BuiltImage, *, progress: ReportProgress = ignore_progress
) -> UploadResult:
    """Upload what is missing, some blobs at a time, then the manifest under the tag: until then nobody sees any of it.

    Raises:
        AlreadyExists: the tag is taken and may not be changed.
        KfjobError: the registry does not take it; the blobs that it took are used by the next attempt.
    """

    def one(blob: Blob, told: ReportProgress) -> int:
        if registry.has_blob(ref.repository, blob.digest):
            told(blob.digest, blob.size, blob.size)
            return 0
        upload_blob(registry, ref.repository, blob, progress=told)
        return blob.size

    blobs = list({blob.digest: blob for blob in built.blobs}.values())
    sent = sum(run_transfers([partial(one, blob) for blob in blobs], progress=progress))
    registry.put_manifest(ref.repository, ref.tag, built.manifest)
    return UploadResult(
        ref=ref.with_digest(built.manifest.digest), sent_bytes=sent, reused_bytes=sum(blob.size for blob in blobs) - sent
    )
