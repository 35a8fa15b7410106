"""Add a layer to an image: new manifests and configs, computed from those in a registry. Nothing is sent.

The layer replaces one that kfjob added earlier. So a file that is removed from the folder is removed from the image, and a
hundred relaunches with new code do not pile up a hundred layers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from kfjob.base.common_types import JsonMapping, JsonObject
from kfjob.base.errors import Refused, UsageError
from kfjob.base.text import plural
from kfjob.image.layers import Layer
from kfjob.image.references import ImageRef
from kfjob.image.registry.client import Registry
from kfjob.image.registry.documents import (
    CONFIG_TYPES,
    LAYER_TYPES,
    OCI_MANIFEST,
    Document,
    ImageConfig,
    Platform,
    compute_digest,
    encode_json,
    list_images,
    make_document,
    parse_object,
    parse_platform,
)
from kfjob.image.registry.uploads import BytesBlob

CODE_LABEL = "dev.kfjob.code.layer"
"""The diff id of the layer that kfjob added, so that the next layer replaces it."""
BASE_NAME, BASE_DIGEST = "org.opencontainers.image.base.name", "org.opencontainers.image.base.digest"
_CREATED = "2000-01-01T00:00:00Z"
_CREATED_BY = "kfjob push-image --code"


class PlatformImage(Struct, frozen=True, kw_only=True):
    """An image for one platform, as a registry stores it."""

    platform: Platform
    manifest: Document
    config: JsonObject

    @property
    def workdir(self) -> str:
        """The working directory; "" if the config names none, or `/`."""
        path = str((self.config.get("config") or {}).get("WorkingDir") or "")
        return "" if path == "/" else path

    @property
    def labels(self) -> dict[str, str]:
        """The labels of the config."""
        return dict((self.config.get("config") or {}).get("Labels") or {})

    @property
    def has_code(self) -> bool:
        """Whether the last layer is code that kfjob added to the working directory."""
        diff_ids = (self.config.get("rootfs") or {}).get("diff_ids") or []
        return bool(diff_ids) and self.labels.get(CODE_LABEL) == diff_ids[-1]

    @property
    def entry_point(self) -> tuple[str, ...]:
        """The words that a container of the image starts by itself."""
        settings = self.config.get("config") or {}
        return (*(settings.get("Entrypoint") or ()), *(settings.get("Cmd") or ()))

    @property
    def search_path(self) -> tuple[str, ...]:
        """The folders in which the image looks for programs."""
        env = (self.config.get("config") or {}).get("Env") or ()
        path = next((value for name, _, value in (entry.partition("=") for entry in env) if name == "PATH"), "")
        return tuple(folder for folder in path.split(":") if folder)

    @property
    def size(self) -> int:
        """Compressed bytes of all layers."""
        return sum(int(layer.get("size") or 0) for layer in self.manifest.value.get("layers") or ())


class ImageSet(Struct, frozen=True, kw_only=True):
    """The images that a tag names: those of an index, or a single image."""

    root: Document  # the index, or the manifest of the single image
    images: tuple[PlatformImage, ...]


class MutatedImage(Struct, frozen=True, kw_only=True):
    """The blobs and manifests of an image with a new layer, in the order in which a registry accepts them."""

    layers: tuple[JsonMapping, ...]  # descriptors of the base's layers
    configs: tuple[BytesBlob, ...]
    manifests: tuple[Document, ...]  # stored under their digests
    root: Document  # stored under the tag


def read_image_set(registry: Registry, ref: ImageRef, root: Document, platforms: Sequence[str] = ()) -> ImageSet:
    """Return the images of `root`, the manifest or index of `ref`, with their configs; by default for all platforms.

    Raises:
        UsageError: it has no variant for a platform.
        Refused: it is not a container image.
    """
    if root.is_index:
        entries = [entry for platform, entry in list_images(root) if not platforms or _matches(platform, platforms)]
        manifests = [registry.get_manifest(ref.repository, entry["digest"]) for entry in entries]
        images = [_read_image(registry, ref, manifest) for manifest in manifests]
        available = [str(platform) for platform, _ in list_images(root)]
    else:
        images = [_read_image(registry, ref, root)]
        available = [str(images[0].platform)]
    for name in platforms:
        if not any(_matches(image.platform, [name]) for image in images):
            cause = f"it has variants for {', '.join(available) or 'no platform'}"
            raise UsageError(f"the image has no variant for `{name}`", location=str(ref), cause=cause)
    if not images:
        raise Refused(f"`{ref}` is an index without images")
    return ImageSet(root=root, images=tuple(images))


def _matches(platform: Platform, names: Sequence[str]) -> bool:
    return any(f"{platform}/".startswith(f"{name}/") for name in names)


def _read_image(registry: Registry, ref: ImageRef, manifest: Document) -> PlatformImage:
    descriptor = manifest.value.get("config") or {}
    if descriptor.get("mediaType") not in CONFIG_TYPES:
        cause = f"the media type of its config is `{descriptor.get('mediaType')}`"
        raise Refused(f"`{ref}` is not a container image", cause=cause)
    config = parse_object(registry.get_blob(ref.repository, descriptor["digest"]), "a config", ImageConfig)
    return PlatformImage(platform=parse_platform(config), manifest=manifest, config=config)


def add_layers(
    base: ImageSet,
    layers: Mapping[str, Layer],
    *,
    workdir: str | None,
    labels: Mapping[str, str],
    base_name: str,
) -> MutatedImage:
    """Return the images with one more layer each; `layers` holds the layer of each working directory.

    Raises:
        Refused: a config contradicts its manifest.
    """
    base_layers: dict[str, JsonMapping] = {}
    configs, manifests = list[BytesBlob](), list[Document]()
    for image in base.images:
        bare = _remove_code_layer(image)
        base_labels = {BASE_NAME: base_name, BASE_DIGEST: base.root.digest} if bare is image else {}
        layer = layers[workdir or image.workdir]
        content = encode_json(_make_config(bare, layer, {**base_labels, **labels}, workdir))
        configs.append(BytesBlob(digest=compute_digest(content), content=content))
        manifests.append(_make_manifest(bare, configs[-1], layer, {**base_labels, **labels}))
        entries = bare.manifest.value.get("layers") or ()
        base_layers |= {entry["digest"]: entry for entry in entries if not entry.get("urls")}
    root = _make_index(base, manifests) if base.root.is_index else manifests.pop()
    return MutatedImage(layers=tuple(base_layers.values()), configs=tuple(configs), manifests=tuple(manifests), root=root)


def _remove_code_layer(image: PlatformImage) -> PlatformImage:
    """Return the image without the layer that kfjob added, or the image itself if it has none."""
    diff_ids = image.config.get("rootfs", {}).get("diff_ids") or []
    layers = image.manifest.value.get("layers") or []
    if len(diff_ids) != len(layers):
        cause = f"its config names {plural(len(diff_ids), 'layer')}, its manifest {len(layers)}"
        raise Refused(f"the image for {image.platform} is damaged", cause=cause)
    if not image.has_code:
        return image
    history = list(image.config.get("history") or [])
    while history and history.pop().get("empty_layer"):
        pass
    config = {**image.config, "rootfs": {**image.config["rootfs"], "diff_ids": diff_ids[:-1]}, "history": history}
    manifest = make_document(image.manifest.media_type, {**image.manifest.value, "layers": layers[:-1]})
    return PlatformImage(platform=image.platform, manifest=manifest, config=config)


def _make_config(image: PlatformImage, layer: Layer, labels: Mapping[str, str], workdir: str | None) -> JsonObject:
    settings = dict(image.config.get("config") or {})
    settings["Labels"] = {**image.labels, **labels, CODE_LABEL: layer.diff_id}
    if workdir:
        settings["WorkingDir"] = workdir
    base_rootfs = image.config.get("rootfs") or {"type": "layers"}
    rootfs = {**base_rootfs, "diff_ids": [*(base_rootfs.get("diff_ids") or ()), layer.diff_id]}
    history = [*(image.config.get("history") or []), {"created": _CREATED, "created_by": _CREATED_BY}]
    return {**image.config, "config": settings, "rootfs": rootfs, "history": history}


def _make_manifest(image: PlatformImage, config: BytesBlob, layer: Layer, labels: Mapping[str, str]) -> Document:
    media_type, value = image.manifest.media_type, image.manifest.value
    descriptor = {"mediaType": LAYER_TYPES[media_type], "digest": layer.blob.digest, "size": layer.blob.size}
    manifest: dict[str, Any] = {
        **value,
        "mediaType": media_type,
        "config": {**value["config"], "digest": config.digest, "size": config.size},
        "layers": [*(value.get("layers") or ()), descriptor],
    }
    if media_type == OCI_MANIFEST:  # Docker manifests have no annotations
        annotations = {name: text for name, text in labels.items() if name.startswith("org.opencontainers.image.")}
        manifest["annotations"] = {**(value.get("annotations") or {}), **annotations}
    return make_document(media_type, manifest)


def _make_index(base: ImageSet, manifests: Sequence[Document]) -> Document:
    """Return the base's index with the new digests and sizes; platforms and annotations stay."""
    entries = {entry["digest"]: entry for _, entry in list_images(base.root)}
    descriptors = [
        {**entries[image.manifest.digest], **manifest.make_descriptor()}
        for image, manifest in zip(base.images, manifests, strict=True)
    ]
    index = {**base.root.value, "mediaType": base.root.media_type, "manifests": descriptors}
    return make_document(base.root.media_type, index)
