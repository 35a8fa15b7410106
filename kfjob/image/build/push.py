"""Push a built image: blobs that the registry has are not sent again."""

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
    """A pushed image, and the bytes of its blobs."""

    ref: ImageRef  # with its digest
    sent_bytes: int
    reused_bytes: int  # in the registry before


def push_built_image(
    registry: Registry, ref: ImageRef, image: BuiltImage, *, progress: ReportProgress = ignore_progress
) -> UploadResult:
    """Upload missing blobs in parallel, then the manifest under the tag: no tag names a partial image.

    Raises:
        AlreadyExists: the tag exists and is immutable.
        KfjobError: the registry refuses or does not answer; the next attempt reuses the blobs that it has accepted.
    """

    def upload(blob: Blob, report: ReportProgress) -> int:
        if registry.has_blob(ref.repository, blob.digest):
            report(blob.digest, blob.size, blob.size)
            return 0
        upload_blob(registry, ref.repository, blob, progress=report)
        return blob.size

    blobs = list({blob.digest: blob for blob in image.blobs}.values())
    sent = sum(run_transfers([partial(upload, blob) for blob in blobs], progress=progress))
    registry.put_manifest(ref.repository, ref.tag, image.manifest)
    reused = sum(blob.size for blob in blobs) - sent
    return UploadResult(ref=ref.with_digest(image.manifest.digest), sent_bytes=sent, reused_bytes=reused)
