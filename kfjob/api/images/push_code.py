"""Add a folder of code to an image in a registry, through the registry's API, without a container engine."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path, PurePosixPath
from typing import Any

from msgspec import Struct

from kfjob.api.images.check import explain_missing
from kfjob.base.errors import NotFound, UsageError
from kfjob.base.http import Limits
from kfjob.image.auth import open_registry
from kfjob.image.folder import read_folder, refuse_secrets
from kfjob.image.layers import pack_layer
from kfjob.image.mutate import ImageSet, MutatedImage, add_layers, read_image_set
from kfjob.image.push import CopyResult, Repository, copy_image
from kfjob.image.references import DOCKER_HUB, ImageRef, parse_reference
from kfjob.image.registry.transport import DEFAULT_LIMITS
from kfjob.image.registry.uploads import ReportProgress, ignore_progress

CodeCheck = Callable[[str, frozenset[str]], None]
"""Raises an error unless the folder of the image may receive the files (relative paths)."""
_TAG_DIGITS = 12  # of the digest, in a tag that is derived from it


class CodePushResult(Struct, frozen=True, kw_only=True):
    """An image with a code layer, in the registry."""

    ref: ImageRef  # with its tag and its digest
    files: int
    layer_size: int  # bytes, compressed
    copy: CopyResult
    is_new: bool  # False: the registry had the image already, and nothing was (or would be) sent
    platforms: tuple[str, ...]

    def describe(self) -> dict[str, Any]:
        """Return the result as JSON."""
        return {
            "image": str(self.ref),
            "digest": self.ref.digest,
            "tag": self.ref.tag,
            "registry": self.ref.registry,
            "repository": self.ref.repository,
            "pushed": self.is_new,
            "files": self.files,
            "layer_bytes": self.layer_size,
            "bytes_sent": self.copy.uploaded + self.copy.copied,
            "bytes_reused": self.copy.reused + self.copy.mounted,
            "platforms": list(self.platforms),
        }


def accept_code(_folder: str, _files: frozenset[str]) -> None:
    """Accept every folder and file."""


def push_code(
    folder: Path,
    base: str,
    *,
    new_image: str | None = None,
    workdir: str | None = None,
    include: Sequence[str] = (),
    platforms: Sequence[str] = (),
    labels: Mapping[str, str] | None = None,
    profile: str | None = None,
    limits: Limits = DEFAULT_LIMITS,
    progress: ReportProgress = ignore_progress,
    dry_run: bool = False,
    check: CodeCheck = accept_code,
) -> CodePushResult:
    """Add the files of `folder` to the image `base`, in `workdir` or else in the image's working directory.

    `workdir` becomes the working directory of the new image. `new_image` is its repository, with or without a tag; without a
    host, it is in the base's registry. The default is the base's repository and a tag derived from the digest. The code layer
    of an earlier call is replaced.
    `include` names files to add although they look like secrets (patterns as in `.dockerignore`).
    `platforms` (`linux/amd64`) selects platforms of the base; the default is all. A dry run reads the base and sends nothing:
    `is_new` is then whether a push would send anything. Before it packs the code, it calls `check` for each folder of the image
    that receives the code.

    Raises:
        UsageError: a name is not an image reference, or neither the image nor the caller gives a working directory.
        NotFound: the folder or the base image does not exist.
        Refused: the folder holds a secret, a link leads out of it, or a file changes while it is read.
        Forbidden, Unreachable: the registry refuses or does not answer. The tag is written last: no tag names a partial image.
    """
    base_ref = parse_reference(base)
    target_ref = _parse_target(new_image, base_ref) if new_image else base_ref.with_tag("")
    files = read_folder(folder)
    refuse_secrets(files, include)
    with ExitStack() as stack:
        registry = stack.enter_context(open_registry(base_ref, "pull", profile=profile, limits=limits))
        source = Repository(registry=registry, ref=base_ref)
        target_registry = stack.enter_context(open_registry(target_ref, "push", profile=profile, limits=limits))
        try:
            manifest = registry.get_manifest(base_ref.repository, base_ref.tag_or_digest)
        except NotFound as err:
            raise explain_missing(registry, base_ref, err) from err
        base_images = read_image_set(registry, base_ref, manifest, platforms)
        workdirs = list(_list_workdirs(base_images, workdir))
        for path in workdirs:
            check(path, frozenset(entry.path for entry in files.entries if entry.kind != "folder"))
        layers = {path: stack.enter_context(pack_layer(files, path)) for path in workdirs}
        image = add_layers(base_images, layers, workdir=workdir, labels=labels or {}, base_name=str(base_ref.with_digest("")))
        destination = Repository(
            registry=target_registry, ref=target_ref if target_ref.tag else target_ref.with_tag(_derive_tag(image))
        )
        is_new = target_registry.get_digest(destination.name, destination.ref.tag) != image.root.digest
        blobs = [layer.blob for layer in layers.values()]
        copy = copy_image(image, blobs, source, destination, progress=progress) if is_new and not dry_run else CopyResult()
    return CodePushResult(
        ref=destination.ref.with_digest(image.root.digest),
        files=sum(entry.kind == "file" for entry in files.entries),
        layer_size=sum(layer.blob.size for layer in layers.values()),
        copy=copy,
        is_new=is_new,
        platforms=tuple(str(platform_image.platform) for platform_image in base_images.images),
    )


def _list_workdirs(base: ImageSet, workdir: str | None) -> Iterator[str]:
    """Return the folders of the image that receive the code: one, unless the working directory differs between platforms."""
    if workdir is not None and (not PurePosixPath(workdir).is_absolute() or ".." in PurePosixPath(workdir).parts):
        raise UsageError(f"`{workdir}` is not an absolute path", hint="`--workdir /workspace`")
    for path in dict.fromkeys(workdir or image.workdir for image in base.images):
        if not path:
            raise UsageError("the image has no working directory to put code into", hint="`--workdir /workspace` names one")
        yield path


def _parse_target(target: str, base: ImageRef) -> ImageRef:
    ref = parse_reference(target)
    if ref.digest:
        hint = "use REPOSITORY or REPOSITORY:TAG"
        raise UsageError(f"`{target}` has a digest, and cannot be pushed to", hint=hint)
    if ref.registry == DOCKER_HUB and not target.startswith(f"{DOCKER_HUB}/"):
        return parse_reference(f"{base.registry}/{target}")
    return ref


def _derive_tag(image: MutatedImage) -> str:
    return f"code-{image.root.digest.partition(':')[2][:_TAG_DIGITS]}"
