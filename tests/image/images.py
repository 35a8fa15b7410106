"""Small images of every form, pushed to a registry."""

from __future__ import annotations

import gzip
import io
import os
import tarfile
from collections.abc import Mapping
from typing import Any

from kfjob.image.registry import documents as docs
from kfjob.image.registry.client import Registry
from kfjob.image.registry.uploads import BytesBlob, upload_blob

FORMS = ("oci", "docker", "oci-index", "docker-index")


def layer(files: Mapping[str, bytes]) -> tuple[bytes, str]:
    """Return the compressed layer and its diff id."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for name, content in files.items():
            header = tarfile.TarInfo(name)
            header.size = len(content)
            tar.addfile(header, io.BytesIO(content))
    return gzip.compress(out.getvalue(), mtime=0), docs.compute_digest(out.getvalue())


def push(registry: Registry, repository: str, content: bytes) -> dict[str, Any]:
    blob = BytesBlob(digest=docs.compute_digest(content), content=content)
    upload_blob(registry, repository, blob)
    return {"digest": blob.digest, "size": blob.size}


def push_one(registry: Registry, repository: str, architecture: str, *, docker: bool, **config: Any) -> docs.Document:
    """Return an image with two layers."""
    packed = [layer({f"{n}-{architecture}": os.urandom(20)}) for n in range(2)]
    value = {
        "os": "linux",
        "architecture": architecture,
        "config": config,
        "rootfs": {"type": "layers", "diff_ids": [diff_id for _, diff_id in packed]},
        "history": [{"created_by": "a"}, {"created_by": "ENV x", "empty_layer": True}, {"created_by": "b"}],
    }
    kind = docs.DOCKER_MANIFEST if docker else docs.OCI_MANIFEST
    manifest = {
        "schemaVersion": 2,
        "mediaType": kind,
        "config": {
            "mediaType": docs.DOCKER_CONFIG if docker else docs.OCI_CONFIG,
            **push(registry, repository, docs.encode_json(value)),
        },
        "layers": [{"mediaType": docs.LAYER_TYPES[kind], **push(registry, repository, body)} for body, _ in packed],
    }
    if not docker:
        manifest["annotations"] = {"of": "the base"}
    document = docs.make_document(kind, manifest)
    registry.put_manifest(repository, document.digest, document)
    return document


def push_image(registry: Registry, repository: str, tag: str, form: str, **config: Any) -> docs.Document:
    """Push an image. Indexes have two platforms; the OCI index also has an attestation, as buildx adds it."""
    docker = form.startswith("docker")
    config = {"WorkingDir": "/workspace", "Labels": {"who": "the base"}, **config}
    document = push_one(registry, repository, "amd64", docker=docker, **config)
    if form.endswith("index"):
        second = push_one(registry, repository, "arm64", docker=docker, **config)
        entries = [
            document.make_descriptor(platform={"os": "linux", "architecture": "amd64"}),
            second.make_descriptor(platform={"os": "linux", "architecture": "arm64", "variant": "v8"}),
        ]
        if not docker:
            unknown = {"os": "unknown", "architecture": "unknown"}
            attestation = push_one(registry, repository, "unknown", docker=False)
            entries.append(attestation.make_descriptor(platform=unknown))
        kind = docs.DOCKER_INDEX if docker else docs.OCI_INDEX
        document = docs.make_document(kind, {"schemaVersion": 2, "mediaType": kind, "manifests": entries})
    registry.put_manifest(repository, tag, document)
    return document
