"""A layer put onto an image: new manifests and configs, made from those that a registry has. Only values; nothing is sent.

A layer that was put on before by the same way is taken off again: files that are gone from the folder are gone from the image,
and a hundred relaunches with new code do not pile up a hundred layers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kfjob.errors import Refused, UsageError
from kfjob.image.layers import Layer
from kfjob.image.registry.client import Registry
from kfjob.image.registry.documents import (
    CONFIG_TYPES,
    LAYER_TYPES,
    OCI_MANIFEST,
    Document,
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
"""Holds the diff id of the layer that kfjob put on, so that the next one takes its place."""
BASE_NAME, BASE_DIGEST = "org.opencontainers.image.base.name", "org.opencontainers.image.base.digest"
_WHEN = "2000-01-01T00:00:00Z"
_BY = "kfjob push-image --code"


@dataclass(frozen=True, kw_only=True)
class PlatformImage:
    """One image for one platform, as a registry has it."""

    platform: Platform
    manifest: Document
    config: dict[str, Any]

    @property
    def workdir(self) -> str:
        """Where its programs start; empty where it does not say."""
        said = str((self.config.get("config") or {}).get("WorkingDir") or "")
        return "" if said == "/" else said

    @property
    def labels(self) -> dict[str, str]:
        """Of its config."""
        return dict((self.config.get("config") or {}).get("Labels") or {})

    @property
    def size(self) -> int:
        """Bytes of its layers as they are pulled."""
        return sum(int(layer.get("size") or 0) for layer in self.manifest.value.get("layers") or ())


@dataclass(frozen=True, kw_only=True)
class ImageSet:
    """What stands behind a tag: an index of images, or one."""

    root: Document
    images: tuple[PlatformImage, ...]


@dataclass(frozen=True, kw_only=True)
class MutatedImage:
    """What has to be in a registry for an image with another layer: in this order."""

    layers: tuple[Mapping[str, Any], ...]  # descriptors of those that the base brings
    configs: tuple[BytesBlob, ...]
    manifests: tuple[Document, ...]  # by their digest
    root: Document  # under the tag


def read_image_set(registry: Registry, repository: str, tag_or_digest: str, platforms: Sequence[str] = ()) -> ImageSet:
    """An image with the configs of the platforms that are wanted; of all, if none is named.

    Raises:
        NotFound: there is no such image.
        UsageError: it is not there for a platform.
        Refused: it is no container image.
    """
    top = registry.get_manifest(repository, tag_or_digest)
    if not top.is_index:
        found = [_image(registry, repository, top)]
    else:
        entries = [entry for there, entry in list_images(top) if not platforms or _is_one_of(there, platforms)]
        found = [_image(registry, repository, registry.get_manifest(repository, entry["digest"])) for entry in entries]
    there = [str(one.platform) for one in found] if not top.is_index else [str(one) for one, _ in list_images(top)]
    for name in platforms:
        if not any(_is_one_of(one.platform, [name]) for one in found):
            shown = ", ".join(there) or "none"
            location = f"{registry.endpoint.host}/{repository}:{tag_or_digest}"
            raise UsageError(f"the image is not there for `{name}`", location=location, cause=f"it is there for {shown}")
    if not found:
        raise Refused(f"`{repository}:{tag_or_digest}` names no image")
    return ImageSet(root=top, images=tuple(found))


def _is_one_of(there: Platform, wanted: Sequence[str]) -> bool:
    return any(f"{there}/".startswith(f"{name}/") for name in wanted)


def _image(registry: Registry, repository: str, manifest: Document) -> PlatformImage:
    said = manifest.value.get("config") or {}
    if said.get("mediaType") not in CONFIG_TYPES:
        raise Refused(
            f"`{registry.endpoint.host}/{repository}` is no container image", cause=f"it is a {said.get('mediaType')}"
        )
    config = parse_object(registry.get_blob(repository, said["digest"]), "a config")
    return PlatformImage(platform=parse_platform(config), manifest=manifest, config=config)


def add_layers(
    base: ImageSet,
    layers: Mapping[str, Layer],
    *,
    workdir: str | None,
    labels: Mapping[str, str],
    base_name: str,
) -> MutatedImage:
    """The images with their layer; `layers` has one for each folder into which code goes (the images' own, or `workdir`).

    Raises:
        Refused: a config and its manifest do not fit together.
    """
    kept: dict[str, Mapping[str, Any]] = {}
    configs, manifests = list[BytesBlob](), list[Document]()
    for image in base.images:
        bare, is_first = _without_code(image)
        own = {BASE_NAME: base_name, BASE_DIGEST: base.root.digest} if is_first else {}
        layer = layers[workdir or image.workdir]
        content = encode_json(_config(bare, layer, {**own, **labels}, workdir))
        configs.append(BytesBlob(digest=compute_digest(content), content=content))
        manifests.append(_manifest(bare, configs[-1], layer, {**own, **labels}))
        kept |= {one["digest"]: one for one in bare.manifest.value.get("layers") or () if not one.get("urls")}
    top = _index(base, manifests) if base.root.is_index else manifests.pop()
    return MutatedImage(layers=tuple(kept.values()), configs=tuple(configs), manifests=tuple(manifests), root=top)


def _without_code(image: PlatformImage) -> tuple[PlatformImage, bool]:
    """The image without the layer that was put on before, and whether there was none."""
    diff_ids = image.config.get("rootfs", {}).get("diff_ids") or []
    layers = image.manifest.value.get("layers") or []
    if len(diff_ids) != len(layers):
        cause = f"its config names {len(diff_ids)} layers, its manifest {len(layers)}"
        raise Refused(f"the image for {image.platform} is damaged", cause=cause)
    if not diff_ids or image.labels.get(CODE_LABEL) != diff_ids[-1]:
        return image, True
    history = list(image.config.get("history") or [])
    while history and history.pop().get("empty_layer"):
        pass
    config = {**image.config, "rootfs": {**image.config["rootfs"], "diff_ids": diff_ids[:-1]}, "history": history}
    manifest = make_document(image.manifest.media_type, {**image.manifest.value, "layers": layers[:-1]})
    return PlatformImage(platform=image.platform, manifest=manifest, config=config), False


def _config(image: PlatformImage, layer: Layer, labels: Mapping[str, str], workdir: str | None) -> dict[str, Any]:
    inner = dict(image.config.get("config") or {})
    inner["Labels"] = {**image.labels, **labels, CODE_LABEL: layer.diff_id}
    if workdir:
        inner["WorkingDir"] = workdir
    old = image.config.get("rootfs") or {"type": "layers"}
    rootfs = {**old, "diff_ids": [*(old.get("diff_ids") or ()), layer.diff_id]}
    history = [*(image.config.get("history") or []), {"created": _WHEN, "created_by": _BY}]
    return {**image.config, "config": inner, "rootfs": rootfs, "history": history}


def _manifest(image: PlatformImage, config: BytesBlob, layer: Layer, annotations: Mapping[str, str]) -> Document:
    kind, value = image.manifest.media_type, image.manifest.value
    entry = {"mediaType": LAYER_TYPES[kind], "digest": layer.blob.digest, "size": layer.blob.size}
    named = {**value["config"], "digest": config.digest, "size": config.size}
    made = {**value, "mediaType": kind, "config": named, "layers": [*(value.get("layers") or ()), entry]}
    if kind == OCI_MANIFEST:  # Docker's form has no annotations
        said = {key: text for key, text in annotations.items() if key.startswith("org.opencontainers.image.")}
        made["annotations"] = {**(value.get("annotations") or {}), **said}
    return make_document(kind, made)


def _index(base: ImageSet, manifests: Sequence[Document]) -> Document:
    entries = {entry["digest"]: entry for _, entry in list_images(base.root)}
    made = [
        {**entries[old.manifest.digest], **new.make_descriptor()} for old, new in zip(base.images, manifests, strict=True)
    ]  # platform and annotations stay
    return make_document(base.root.media_type, {**base.root.value, "mediaType": base.root.media_type, "manifests": made})
