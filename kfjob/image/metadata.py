"""What a registry says of an image, without pulling it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kfjob.image.mutate import read_image_set
from kfjob.image.references import ImageRef
from kfjob.image.registry.client import Registry
from kfjob.image.registry.documents import list_images

PREFERRED = "linux/amd64"


@dataclass(frozen=True, kw_only=True)
class ImageMetadata:
    """An image that is there."""

    digest: str  # of what the reference names: an index, or one image
    platforms: tuple[str, ...]  # "linux/amd64", "linux/arm64/v8"
    labels: Mapping[str, str]  # of one platform's: linux/amd64 where there is one
    size: int  # bytes to pull for that platform

    def runs_on(self, architecture: str) -> bool:
        """Whether there is a variant for Linux on that processor (`amd64`, `arm64`)."""
        return any(f"{platform}/".startswith(f"linux/{architecture}/") for platform in self.platforms)


def read_metadata(registry: Registry, ref: ImageRef) -> ImageMetadata:
    """Of the image that `ref` names in `registry`.

    Raises:
        NotFound: there is no such image.
        Refused: it is no container image.
        Forbidden, Unreachable: the registry would not say.
    """
    top = registry.get_manifest(ref.repository, ref.tag_or_digest)
    there = tuple(str(platform) for platform, _ in list_images(top)) if top.is_index else ()
    shown = () if not there else (PREFERRED,) if PREFERRED in there else there[:1]
    one = read_image_set(registry, ref.repository, top.digest, shown).images[0]
    return ImageMetadata(digest=top.digest, platforms=there or (str(one.platform),), labels=one.labels, size=one.size)
