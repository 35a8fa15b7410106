"""Manifests, indexes and configs as a registry keeps them: bytes with a type, known by their digest. Pure.

The OCI types (image-spec v1.1) and Docker's (distribution, manifest v2 schema 2) have one form, with different names.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from kfjob.errors import Refused

OCI_INDEX = "application/vnd.oci.image.index.v1+json"
OCI_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
OCI_CONFIG = "application/vnd.oci.image.config.v1+json"
OCI_LAYER = "application/vnd.oci.image.layer.v1.tar+gzip"
DOCKER_INDEX = "application/vnd.docker.distribution.manifest.list.v2+json"
DOCKER_MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"
DOCKER_CONFIG = "application/vnd.docker.container.image.v1+json"
DOCKER_LAYER = "application/vnd.docker.image.rootfs.diff.tar.gzip"

INDEX_TYPES, MANIFEST_TYPES, CONFIG_TYPES = (
    (OCI_INDEX, DOCKER_INDEX),
    (OCI_MANIFEST, DOCKER_MANIFEST),
    (OCI_CONFIG, DOCKER_CONFIG),
)
LAYER_TYPES = {OCI_MANIFEST: OCI_LAYER, DOCKER_MANIFEST: DOCKER_LAYER}
ACCEPTED_TYPES = ", ".join((*INDEX_TYPES, *MANIFEST_TYPES))


def compute_digest(data: bytes) -> str:
    """As a digest is written."""
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


@dataclass(frozen=True, kw_only=True)
class Document:
    """A manifest or an index, to the byte."""

    media_type: str
    body: bytes

    @cached_property
    def digest(self) -> str:
        """What it is known by."""
        return compute_digest(self.body)

    @cached_property
    def value(self) -> dict[str, Any]:
        """What it says.

        Raises:
            Refused: it is not a JSON object.
        """
        return parse_object(self.body, "a manifest")

    @property
    def is_index(self) -> bool:
        """Whether it only names manifests, one a platform."""
        return self.media_type in INDEX_TYPES

    def make_descriptor(self, **more: Any) -> dict[str, Any]:
        """How an index names it."""
        return {"mediaType": self.media_type, "digest": self.digest, "size": len(self.body), **more}


def make_document(media_type: str, value: Mapping[str, Any]) -> Document:
    """A new one. The same value gives the same bytes."""
    return Document(media_type=media_type, body=encode_json(value))


def encode_json(value: Mapping[str, Any]) -> bytes:
    """JSON with sorted keys and no spaces."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def parse_object(body: bytes, label: str) -> dict[str, Any]:
    """A JSON object.

    Raises:
        Refused: it is something else.
    """
    try:
        value = json.loads(body)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise Refused(f"the registry gives {label} that is not a JSON object")
    return value


@dataclass(frozen=True, kw_only=True)
class Platform:
    """What an image runs on."""

    os: str
    architecture: str
    variant: str = ""

    def __str__(self) -> str:
        """`linux/amd64`, `linux/arm64/v8`."""
        return "/".join(filter(None, (self.os, self.architecture, self.variant)))


def parse_platform(value: Mapping[str, Any]) -> Platform:
    """Of an index's entry, or of a config."""
    said = [str(value.get(key) or "") for key in ("os", "architecture", "variant")]
    return Platform(os=said[0], architecture=said[1], variant=said[2])


def list_images(index: Document) -> Iterator[tuple[Platform, dict[str, Any]]]:
    """The images of an index; what builders put beside them (attestations, for a platform `unknown`) is left out."""
    for entry in index.value.get("manifests") or ():
        found = parse_platform(entry.get("platform") or {})
        if entry.get("mediaType") in MANIFEST_TYPES and found.os != "unknown":
            yield found, entry
