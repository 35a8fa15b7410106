"""Metadata of an image, read from its registry without a pull."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from kfjob.image.mutate import read_image_set
from kfjob.image.references import ImageRef
from kfjob.image.registry.client import Registry
from kfjob.image.registry.documents import list_images

PREFERRED_PLATFORM = "linux/amd64"


class ImageMetadata(Struct, frozen=True, kw_only=True):
    """An image as its registry describes it."""

    digest: str  # of the index or manifest that the reference names
    platforms: tuple[str, ...]  # "linux/amd64", "linux/arm64/v8"
    labels: Mapping[str, str]  # of linux/amd64 if the image has it, else of the first platform
    size: int  # bytes to pull for that platform
    workdir: str = ""  # "": none, or `/`
    has_code: bool = False  # whether kfjob added code to the working directory
    entry_point: tuple[str, ...] = ()
    search_path: tuple[str, ...] = ()  # the folders of PATH

    def runs_on(self, architecture: str) -> bool:
        """Return whether the image has a Linux variant for the architecture (`amd64`, `arm64`)."""
        return any(f"{platform}/".startswith(f"linux/{architecture}/") for platform in self.platforms)


def read_metadata(registry: Registry, ref: ImageRef) -> ImageMetadata:
    """Return the metadata of the image that `ref` names.

    Raises:
        NotFound: the image does not exist.
        Refused: it is not a container image.
        Forbidden, Unreachable: the registry refuses or does not answer.
    """
    root = registry.get_manifest(ref.repository, ref.tag_or_digest)
    platforms = tuple(str(platform) for platform, _ in list_images(root)) if root.is_index else ()
    selection = (PREFERRED_PLATFORM,) if PREFERRED_PLATFORM in platforms else platforms[:1]
    image = read_image_set(registry, ref, root, selection).images[0]
    return ImageMetadata(
        digest=root.digest,
        platforms=platforms or (str(image.platform),),
        labels=image.labels,
        size=image.size,
        workdir=image.workdir,
        has_code=image.has_code,
        entry_point=image.entry_point,
        search_path=image.search_path,
    )
