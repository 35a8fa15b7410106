"""What an engine has built, as files: an OCI layout (a folder or a tar) or what `docker save` writes.

Layers that are not compressed yet (docker keeps them so) are compressed here, without a time in the header: the same layer
gives the same bytes, and so is in the registry already the next time.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import shutil
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any

from kfjob.errors import BackendError, Refused
from kfjob.image.registry import documents
from kfjob.image.registry.documents import Document
from kfjob.image.registry.uploads import Blob, BytesBlob, FileBlob

_COMPRESSION = 6
_PIECE = 1024 * 1024
_GZIP, _ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"


@dataclass(frozen=True, kw_only=True)
class BuiltImage:
    """An image that is ready to be pushed: its manifest, and the blobs that it names, the config last."""

    manifest: Document
    config: dict[str, Any]
    blobs: tuple[Blob, ...]


def read_image(image: Path, folder: Path, *, platform: str) -> BuiltImage:
    """The image in a layout or an archive; `folder` is an empty one for what has to be unpacked or compressed.

    Raises:
        Refused: it is neither, or not for this platform.
        BackendError: the disk is full.
    """
    try:
        root = image if image.is_dir() else _unpacked(image, folder / "unpacked")
        packed = folder / "packed"
        packed.mkdir()
        if (root / "index.json").is_file():
            return _layout(root, packed, platform)
        return _saved(root, packed)
    except (FileExistsError, FileNotFoundError, IsADirectoryError, NotADirectoryError) as err:
        raise Refused("the builder wrote an image that kfjob cannot read", cause=str(err)) from err
    except OSError as err:
        raise BackendError("the built image cannot be read", cause=str(err), hint=f"is there space left in {folder}?") from err
    except (tarfile.TarError, EOFError, AttributeError, LookupError, ValueError, TypeError, RuntimeError) as err:
        raise Refused("the builder wrote an image that kfjob cannot read", cause=f"{type(err).__name__}: {err}") from err


def add_annotations(built: BuiltImage, annotations: Mapping[str, str]) -> BuiltImage:
    """The image with these annotations beside those that its builder made; Docker's form of a manifest has none."""
    if built.manifest.media_type != documents.OCI_MANIFEST:
        return built
    value = built.manifest.value
    said = {**annotations, **(value.get("annotations") or {})}
    return replace(built, manifest=documents.make_document(documents.OCI_MANIFEST, {**value, "annotations": said}))


def _unpacked(archive: Path, folder: Path) -> Path:
    """Unpack an archive. `tarfile` refuses paths outside the folder only from Python 3.11.4 on; Debian 12 has 3.11.2."""
    folder.mkdir()
    with tarfile.open(archive, "r:") as tar:  # no builder compresses it
        for member in tar:
            path = _inside(folder, member.name)
            path.parent.mkdir(parents=True, exist_ok=True)
            if member.isdir():
                path.mkdir(exist_ok=True)
            elif member.isfile():
                _write(tar, member, path)
            elif member.issym() or member.islnk():
                origin = Path(member.name).parent if member.issym() else Path()
                path.symlink_to(_inside(folder, str(origin / member.linkname)))
            else:
                raise ValueError(f"`{member.name}` is neither a file, nor a folder, nor a link")
    return folder


def _write(tar: tarfile.TarFile, member: tarfile.TarInfo, path: Path) -> None:
    content = tar.extractfile(member)
    if content is None or member.issparse():
        raise ValueError(f"`{member.name}` is no plain file")
    with content, path.open("wb") as file:
        shutil.copyfileobj(content, file, _PIECE)


def _layout(root: Path, packed: Path, platform: str) -> BuiltImage:
    manifest = _chosen(root, json.loads((root / "index.json").read_bytes()), platform)
    value = manifest.value
    config = _blob_file(root, value["config"]["digest"]).read_bytes()
    files = [_blob_file(root, layer["digest"]) for layer in value["layers"]]
    if all(_is_compressed(file) for file in files):
        pairs = zip(value["layers"], files, strict=True)
        blobs = [FileBlob(digest=layer["digest"], size=layer["size"], file=file) for layer, file in pairs]
        last = BytesBlob(digest=value["config"]["digest"], content=config)
        return BuiltImage(manifest=manifest, config=json.loads(config), blobs=(*blobs, last))
    return _assembled(config, files, packed)


def _chosen(root: Path, index: dict[str, Any], platform: str) -> Document:
    entries = [entry for entry in index["manifests"] if entry.get("platform", {}).get("os") != "unknown"]
    for entry in entries:
        body = _blob_file(root, entry["digest"]).read_bytes()
        found = Document(media_type=entry["mediaType"], body=body)
        if found.is_index:
            return _chosen(root, found.value, platform)
        said = entry.get("platform")
        if len(entries) == 1 or (said and str(documents.parse_platform(said)).startswith(platform)):
            return found
    raise ValueError(f"no image for {platform}")


def _blob_file(root: Path, digest: str) -> Path:
    algorithm, _, name = digest.partition(":")
    if not (algorithm.isalnum() and name.isalnum()):
        raise ValueError(f"`{digest}` is not a digest")
    return _inside(root, f"blobs/{algorithm}/{name}")


def _saved(root: Path, packed: Path) -> BuiltImage:
    (image,) = json.loads((root / "manifest.json").read_bytes())
    config = _inside(root, image["Config"]).read_bytes()
    return _assembled(config, [_inside(root, layer) for layer in image["Layers"]], packed)


def _inside(root: Path, name: str) -> Path:
    found = (root / name).resolve()  # a layer that stands twice may be a link to the first
    if not found.is_relative_to(root.resolve()):
        raise ValueError(f"`{name}` is outside of the archive")
    return found


def _assembled(config: bytes, files: list[Path], packed: Path) -> BuiltImage:
    layers = [_compressed(file, packed) for file in files]
    config_digest = documents.compute_digest(config)
    manifest = documents.make_document(
        documents.OCI_MANIFEST,
        {
            "schemaVersion": 2,
            "mediaType": documents.OCI_MANIFEST,
            "config": {"mediaType": documents.OCI_CONFIG, "digest": config_digest, "size": len(config)},
            "layers": [{"mediaType": _kind(layer), "digest": layer.digest, "size": layer.size} for layer in layers],
        },
    )
    return BuiltImage(
        manifest=manifest, config=json.loads(config), blobs=(*layers, BytesBlob(digest=config_digest, content=config))
    )


def _compressed(file: Path, packed: Path) -> FileBlob:
    target = file if _is_compressed(file) else packed / hashlib.sha256(str(file).encode()).hexdigest()
    if target is not file and not target.exists():
        with file.open("rb") as source, target.open("wb") as raw, _gzip(raw) as out:
            shutil.copyfileobj(source, out, _PIECE)
    return FileBlob(digest=_digest(target), size=target.stat().st_size, file=target)


def _gzip(raw: IO[bytes]) -> gzip.GzipFile:
    return gzip.GzipFile(filename="", fileobj=raw, mode="wb", compresslevel=_COMPRESSION, mtime=0)


def _is_compressed(file: Path) -> bool:
    return _start(file).startswith((_GZIP, _ZSTD))


def _kind(layer: FileBlob) -> str:
    return documents.OCI_LAYER.replace("+gzip", "+zstd") if _start(layer.file) == _ZSTD else documents.OCI_LAYER


def _start(file: Path) -> bytes:
    with file.open("rb") as stream:
        return stream.read(4)


def _digest(file: Path) -> str:
    with file.open("rb") as stream:
        return f"sha256:{hashlib.file_digest(stream, 'sha256').hexdigest()}"
