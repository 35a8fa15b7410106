"""A folder of code onto an image that a registry has, by the registry's API alone: no engine, no rebuild, seconds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from kfjob.common_types import Notify
from kfjob.errors import UsageError
from kfjob.image.access import opened
from kfjob.image.copies import Place, Sent, bring
from kfjob.image.folder import read_folder, secrets_warning
from kfjob.image.layers import packed
from kfjob.image.onto import Images, Rewritten, put_onto, read_images
from kfjob.image.references import DOCKER_HUB, ImageRef, parse
from kfjob.image.registry.transport import PATIENT, Patience
from kfjob.image.registry.uploads import Progress, silent

_SHORT = 12  # digits of a digest that a tag made of it has


@dataclass(frozen=True, kw_only=True)
class CodePushed:
    """An image with code on it."""

    ref: ImageRef  # with its tag and its digest
    files: int
    layer_size: int  # bytes, compressed
    sent: Sent
    is_new: bool  # False: the registry had it already, and nothing was (or would be) sent
    platforms: tuple[str, ...]

    def describe(self) -> dict[str, Any]:
        """For machines."""
        return {
            "image": str(self.ref),
            "digest": self.ref.digest,
            "tag": self.ref.tag,
            "registry": self.ref.registry,
            "repository": self.ref.repository,
            "pushed": self.is_new,
            "files": self.files,
            "layer_bytes": self.layer_size,
            "bytes_sent": self.sent.uploaded + self.sent.copied,
            "bytes_there": self.sent.there + self.sent.mounted,
            "platforms": list(self.platforms),
        }


def push_code(
    code: Path,
    onto: str,
    *,
    to: str | None = None,
    workdir: str | None = None,
    platforms: Sequence[str] = (),
    labels: Mapping[str, str] | None = None,
    profile: str | None = None,
    patience: Patience = PATIENT,
    notify: Notify = lambda _text: None,
    progress: Progress = silent,
    dry_run: bool = False,
) -> CodePushed:
    """Put the folder `code` onto the image `onto`, as its working directory or at `workdir`, which it then becomes.

    `to` is the repository, and if wanted the tag, of the new image: without a host in the base's registry; unset, the base's
    repository and a tag made of the content. Code that was put on before in this way is replaced. `platforms`
    (`linux/amd64`) leaves others out. A dry run reads the base, and sends nothing: `is_new` is whether it would.

    Raises:
        UsageError: a name is not one of an image; the image says no working directory and neither do you.
        NotFound: there is no such folder or image.
        Refused: a link leads out of the folder, a file changes while it is read.
        Forbidden, Unreachable: the registry says no, or nothing. The tag is written last, so nothing half-done has a name.
    """
    base_ref = parse(onto)
    wanted = _target(to, base_ref) if to else None
    folder = read_folder(code)
    if warning := secrets_warning(folder):
        notify(warning)
    target_ref = wanted or base_ref.tagged("")
    with ExitStack() as open_ones:
        source = Place(
            registry=open_ones.enter_context(opened(base_ref, "pull", profile=profile, patience=patience)), ref=base_ref
        )
        registry = open_ones.enter_context(opened(target_ref, "push", profile=profile, patience=patience))
        base = read_images(source.registry, base_ref.repository, base_ref.wanted, platforms)
        layers = {into: open_ones.enter_context(packed(folder, into)) for into in _places(base, workdir)}
        image = put_onto(base, layers, workdir=workdir, labels=labels or {}, base_name=str(base_ref.pinned("")))
        target = Place(registry=registry, ref=target_ref if target_ref.tag else target_ref.tagged(_tag(image)))
        is_new = target.registry.digest_of(target.repository, target.ref.tag) != image.top.digest
        blobs = [layer.blob for layer in layers.values()]
        sent = bring(image, blobs, source, target, progress=progress) if is_new and not dry_run else Sent()
    return CodePushed(
        ref=target.ref.pinned(image.top.digest),
        files=sum(entry.kind == "file" for entry in folder.entries),
        layer_size=sum(layer.blob.size for layer in layers.values()),
        sent=sent,
        is_new=is_new,
        platforms=tuple(str(one.platform) for one in base.images),
    )


def _places(base: Images, workdir: str | None) -> Iterator[str]:
    """The folders of the image into which code goes: one, unless its platforms differ in theirs."""
    if workdir is not None and (not PurePosixPath(workdir).is_absolute() or ".." in PurePosixPath(workdir).parts):
        raise UsageError(f"`{workdir}` is not an absolute path", hint="`--workdir /workspace`")
    for into in dict.fromkeys(workdir or image.workdir for image in base.images):
        if not into:
            raise UsageError("the image has no working directory to put code into", hint="`--workdir /workspace` names one")
        yield into


def _target(to: str, base: ImageRef) -> ImageRef:
    wanted = parse(to)
    if wanted.digest:
        raise UsageError(f"`{to}` names a digest, and an image to be made has none yet", hint="REPOSITORY or REPOSITORY:TAG")
    if wanted.registry == DOCKER_HUB and not to.startswith(f"{DOCKER_HUB}/"):
        return parse(f"{base.registry}/{to}")
    return wanted


def _tag(image: Rewritten) -> str:
    return f"code-{image.top.digest.partition(':')[2][:_SHORT]}"
