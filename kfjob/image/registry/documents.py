"""Manifests, indexes and configs as a registry stores them: bytes with a media type and a digest. Pure.

The OCI types (image-spec v1.1) and Docker's (distribution, manifest v2 schema 2) share one form and differ in their names.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from functools import cached_property
from typing import Annotated, Any, Required, TypedDict

import msgspec
from msgspec import Struct

from kfjob.base.common_types import JsonMapping, JsonObject
from kfjob.base.errors import Refused
from kfjob.base.parsing import parse_json
from kfjob.image.references import DIGEST

OCI_INDEX = "application/vnd.oci.image.index.v1+json"
OCI_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
OCI_CONFIG = "application/vnd.oci.image.config.v1+json"
OCI_LAYER = "application/vnd.oci.image.layer.v1.tar+gzip"
DOCKER_INDEX = "application/vnd.docker.distribution.manifest.list.v2+json"
DOCKER_MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"
DOCKER_CONFIG = "application/vnd.docker.container.image.v1+json"
DOCKER_LAYER = "application/vnd.docker.image.rootfs.diff.tar.gzip"

INDEX_TYPES = (OCI_INDEX, DOCKER_INDEX)
MANIFEST_TYPES = (OCI_MANIFEST, DOCKER_MANIFEST)
CONFIG_TYPES = (OCI_CONFIG, DOCKER_CONFIG)
LAYER_TYPES = {OCI_MANIFEST: OCI_LAYER, DOCKER_MANIFEST: DOCKER_LAYER}
ACCEPTED_TYPES = ", ".join((*INDEX_TYPES, *MANIFEST_TYPES))


class _PlatformFields(TypedDict, total=False):
    os: str | None
    architecture: str | None
    variant: str | None


class _Descriptor(TypedDict, total=False):
    mediaType: str | None
    digest: Required[Annotated[str, msgspec.Meta(pattern=DIGEST)]]
    size: Required[int]
    urls: list[str] | None
    annotations: dict[str, str] | None
    platform: _PlatformFields | None


class Index(TypedDict, total=False):
    """The fields of an index that kfjob uses."""

    manifests: list[_Descriptor] | None
    annotations: dict[str, str] | None


class Manifest(TypedDict, total=False):
    """The fields of a manifest that kfjob uses."""

    config: _Descriptor | None
    layers: list[_Descriptor] | None
    annotations: dict[str, str] | None


class _Settings(TypedDict, total=False):
    WorkingDir: str | None
    Labels: dict[str, str] | None
    Entrypoint: list[str] | None
    Cmd: list[str] | None
    Env: list[str] | None


class _RootFs(TypedDict, total=False):
    diff_ids: list[str] | None


class _History(TypedDict, total=False):
    empty_layer: bool | None


class ImageConfig(_PlatformFields, total=False):
    """The fields of an image's config that kfjob uses."""

    config: _Settings | None
    rootfs: _RootFs
    history: list[_History] | None


class TagList(TypedDict, total=False):
    """A page of tags."""

    tags: list[str] | None


def compute_digest(data: bytes) -> str:
    """Return the SHA-256 digest: `sha256:…`."""
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


class Document(Struct, frozen=True, kw_only=True, dict=True):
    """The exact bytes of a manifest or an index."""

    media_type: str
    body: bytes

    @cached_property
    def digest(self) -> str:
        """The digest of the bytes."""
        return compute_digest(self.body)

    @cached_property
    def value(self) -> JsonObject:
        """The parsed JSON.

        Raises:
            Refused: the document is not an index or a manifest.
        """
        return parse_object(self.body, "an index", Index) if self.is_index else parse_object(self.body, "a manifest", Manifest)

    @property
    def config_digest(self) -> str:
        """The digest of a manifest's config.

        Raises:
            Refused: the manifest names no config.
        """
        if not (config := self.value.get("config")):
            raise Refused("the registry returned a manifest without a config")
        return str(config["digest"])

    @property
    def is_index(self) -> bool:
        """Whether the document is an index: a list of manifests, one for each platform."""
        return self.media_type in INDEX_TYPES

    def make_descriptor(self, **fields: Any) -> JsonObject:
        """Return the entry that names the document in an index."""
        return {"mediaType": self.media_type, "digest": self.digest, "size": len(self.body), **fields}


def make_document(media_type: str, value: JsonMapping) -> Document:
    """Return a new document. The same value gives the same bytes."""
    return Document(media_type=media_type, body=encode_json(value))


def encode_json(value: JsonMapping) -> bytes:
    """Return JSON with sorted keys and without spaces."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def parse_object(body: bytes, label: str, shape: Any) -> JsonObject:
    """Return a JSON object; `label` names it in the error. Its fields that `shape` (a TypedDict) names have these types.

    Raises:
        Refused: the bytes are not such an object.
    """
    try:
        value: JsonObject = parse_json(body)
        msgspec.convert(value, shape)
    except (ValueError, msgspec.ValidationError) as err:
        raise Refused(f"the registry returned {label} that kfjob cannot read", cause=str(err)[:200]) from err
    return value


class Platform(Struct, frozen=True, kw_only=True):
    """The platform of an image."""

    os: str
    architecture: str
    variant: str = ""

    def __str__(self) -> str:
        """`linux/amd64`, `linux/arm64/v8`."""
        return "/".join(filter(None, (self.os, self.architecture, self.variant)))


def parse_platform(value: JsonMapping) -> Platform:
    """Return the platform in an index entry or a config."""
    os, architecture, variant = (str(value.get(key) or "") for key in ("os", "architecture", "variant"))
    return Platform(os=os, architecture=architecture, variant=variant)


def list_images(index: Document) -> Iterator[tuple[Platform, JsonObject]]:
    """Yield the images of an index, without builders' attestations (platform `unknown`)."""
    for entry in index.value.get("manifests") or ():
        platform = parse_platform(entry.get("platform") or {})
        if entry.get("mediaType") in MANIFEST_TYPES and platform.os != "unknown":
            yield platform, entry
