"""Read the image that an engine exported: an OCI layout (a folder or a tar), or the archive of `docker save`.

Layers that are not compressed yet, such as docker's, are compressed here, without a time in the gzip header. So the same layer
gives the same bytes, and the registry has it already at the next push.
"""

from __future__ import annotations

import gzip
import hashlib
import shutil
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import IO

from msgspec import Struct
from msgspec.structs import replace

from kfjob.base.common_types import JsonObject
from kfjob.base.errors import BackendError, Refused
from kfjob.base.parsing import parse_json, read_document
from kfjob.base.units import MIB
from kfjob.image.registry import documents
from kfjob.image.registry.documents import Document
from kfjob.image.registry.uploads import Blob, BytesBlob, FileBlob

_COMPRESSION_LEVEL = 6
_PIECE = MIB
_GZIP, _ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"  # first bytes


class BuiltImage(Struct, frozen=True, kw_only=True):
    """An image ready to push."""

    manifest: Document
    config: JsonObject
    blobs: tuple[Blob, ...]  # those that the manifest names; the config is the last


def read_image(path: Path, folder: Path, *, platform: str) -> BuiltImage:
    """Return the image in a layout or an archive; `folder` is an empty folder for temporary files.

    Raises:
        Refused: the path holds neither form, or no image for the platform.
        BackendError: the disk is full.
    """
    try:
        root = path if path.is_dir() else _unpack(path, folder / "unpacked")
        compressed = folder / "packed"
        compressed.mkdir()
        if (root / "index.json").is_file():
            return _read_layout(root, compressed, platform)
        return _read_docker_archive(root, compressed)
    except (FileExistsError, FileNotFoundError, IsADirectoryError, NotADirectoryError) as err:
        raise Refused("the builder wrote an image that kfjob cannot read", cause=str(err)) from err
    except OSError as err:
        hint = f"check the free space in `{folder}`"
        raise BackendError("the built image cannot be read", cause=str(err), hint=hint) from err
    except (tarfile.TarError, EOFError, AttributeError, LookupError, ValueError, TypeError, RuntimeError) as err:
        raise Refused("the builder wrote an image that kfjob cannot read", cause=f"{type(err).__name__}: {err}") from err


def add_annotations(image: BuiltImage, annotations: Mapping[str, str]) -> BuiltImage:
    """Return the image with more annotations. Those of its builder take precedence; Docker manifests have none."""
    if image.manifest.media_type != documents.OCI_MANIFEST:
        return image
    value = image.manifest.value
    builders = {name: text for name, text in (value.get("annotations") or {}).items() if text}  # buildah writes empty ones
    merged = {**value, "annotations": {**annotations, **builders}}
    return replace(image, manifest=documents.make_document(documents.OCI_MANIFEST, merged))


def _unpack(archive: Path, folder: Path) -> Path:
    """Unpack an archive. `tarfile` refuses paths outside the folder only from Python 3.11.4 on; Debian 12 has 3.11.2."""
    folder.mkdir()
    with tarfile.open(archive, "r:") as tar:  # no builder compresses it
        for member in tar:
            path = _resolve_path(folder, member.name)
            path.parent.mkdir(parents=True, exist_ok=True)
            if member.isdir():
                path.mkdir(exist_ok=True)
            elif member.isfile():
                _write_member(tar, member, path)
            elif member.issym() or member.islnk():
                origin = Path(member.name).parent if member.issym() else Path()
                path.symlink_to(_resolve_path(folder, str(origin / member.linkname)))
            else:
                raise ValueError(f"`{member.name}` is neither a file, a folder nor a link")
    return folder


def _write_member(tar: tarfile.TarFile, member: tarfile.TarInfo, path: Path) -> None:
    content = tar.extractfile(member)
    if content is None or member.issparse():
        raise ValueError(f"`{member.name}` is not a regular file")
    with content, path.open("wb") as file:
        shutil.copyfileobj(content, file, _PIECE)


def _read_layout(root: Path, compressed: Path, platform: str) -> BuiltImage:
    manifest = _select_manifest(root, parse_json(read_document(root / "index.json")), platform)
    value = manifest.value
    config = read_document(_find_blob(root, value["config"]["digest"]))
    files = [_find_blob(root, layer["digest"]) for layer in value["layers"]]
    if all(_is_compressed(file) for file in files):
        pairs = zip(value["layers"], files, strict=True)
        layers = [FileBlob(digest=layer["digest"], size=layer["size"], file=file) for layer, file in pairs]
        config_blob = BytesBlob(digest=value["config"]["digest"], content=config)
        return BuiltImage(manifest=manifest, config=parse_json(config), blobs=(*layers, config_blob))
    return _assemble(config, files, compressed)


def _select_manifest(root: Path, index: JsonObject, platform: str) -> Document:
    entries = [entry for entry in index["manifests"] if entry.get("platform", {}).get("os") != "unknown"]
    for entry in entries:
        body = read_document(_find_blob(root, entry["digest"]))
        document = Document(media_type=entry["mediaType"], body=body)
        if document.is_index:
            return _select_manifest(root, document.value, platform)
        entry_platform = entry.get("platform")
        if len(entries) == 1 or (entry_platform and str(documents.parse_platform(entry_platform)).startswith(platform)):
            return document
    raise ValueError(f"no image for {platform}")


def _find_blob(root: Path, digest: str) -> Path:
    algorithm, _, name = digest.partition(":")
    if not (algorithm.isalnum() and name.isalnum()):
        raise ValueError(f"`{digest}` is not a digest")
    return _resolve_path(root, f"blobs/{algorithm}/{name}")


def _read_docker_archive(root: Path, compressed: Path) -> BuiltImage:
    (image,) = parse_json(read_document(root / "manifest.json"))
    config = read_document(_resolve_path(root, image["Config"]))
    return _assemble(config, [_resolve_path(root, layer) for layer in image["Layers"]], compressed)


def _resolve_path(root: Path, name: str) -> Path:
    path = (root / name).resolve()  # a repeated layer may be a link to the first
    if not path.is_relative_to(root.resolve()):
        raise ValueError(f"`{name}` is outside of the archive")
    return path


def _assemble(config: bytes, files: list[Path], compressed: Path) -> BuiltImage:
    """Return an image of compressed layers with a new manifest."""
    layers = [_compress(file, compressed) for file in files]
    config_blob = BytesBlob(digest=documents.compute_digest(config), content=config)
    manifest = documents.make_document(
        documents.OCI_MANIFEST,
        {
            "schemaVersion": 2,
            "mediaType": documents.OCI_MANIFEST,
            "config": {"mediaType": documents.OCI_CONFIG, "digest": config_blob.digest, "size": len(config)},
            "layers": [{"mediaType": _get_media_type(layer), "digest": layer.digest, "size": layer.size} for layer in layers],
        },
    )
    return BuiltImage(manifest=manifest, config=parse_json(config), blobs=(*layers, config_blob))


def _compress(file: Path, folder: Path) -> FileBlob:
    target = file if _is_compressed(file) else folder / hashlib.sha256(str(file).encode()).hexdigest()
    if target is not file and not target.exists():
        with file.open("rb") as source, target.open("wb") as raw, _open_gzip(raw) as out:
            shutil.copyfileobj(source, out, _PIECE)
    return FileBlob(digest=_compute_file_digest(target), size=target.stat().st_size, file=target)


def _open_gzip(raw: IO[bytes]) -> gzip.GzipFile:
    return gzip.GzipFile(filename="", fileobj=raw, mode="wb", compresslevel=_COMPRESSION_LEVEL, mtime=0)


def _is_compressed(file: Path) -> bool:
    return _read_start(file).startswith((_GZIP, _ZSTD))


def _get_media_type(layer: FileBlob) -> str:
    is_zstd = _read_start(layer.file) == _ZSTD
    return documents.OCI_LAYER.replace("+gzip", "+zstd") if is_zstd else documents.OCI_LAYER


def _read_start(file: Path) -> bytes:
    with file.open("rb") as stream:
        return stream.read(4)


def _compute_file_digest(file: Path) -> str:
    with file.open("rb") as stream:
        return f"sha256:{hashlib.file_digest(stream, 'sha256').hexdigest()}"
