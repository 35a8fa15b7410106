"""Build an image and push it, unless the registry has it already: `push_image(ImageSpec) -> ImageRef`."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from kfjob.api.images.build import (
    CONTENT_LABEL,
    OCI_PREFIX,
    build_image,
    compute_content_hash,
    describe_choice,
    make_build_request,
    make_labels,
)
from kfjob.base.aws import parse_push_error
from kfjob.base.common_types import JsonObject, Notify, ignore_notice
from kfjob.base.errors import AlreadyExists, KfjobError, Refused, UsageError
from kfjob.image import auth, ecr
from kfjob.image.build import archive, engine_process
from kfjob.image.build.engines import BuildRequest
from kfjob.image.push import Repository, push_built_image
from kfjob.image.references import ImageRef, parse_reference
from kfjob.image.registry.client import Registry
from kfjob.image.registry.documents import Document, ImageConfig, parse_object
from kfjob.image.registry.uploads import ReportProgress, ignore_progress
from kfjob.redaction import find_secret
from kfjob.spec.image import AUTO, ImageSpec

_TAG_LENGTH = 16
EcrRegistry = ecr.PrivateRegistry | ecr.PublicRegistry


class PushResult(Struct, frozen=True, kw_only=True):
    """A pushed image, or one that the registry had already."""

    ref: ImageRef  # with tag and digest
    content: str  # the content hash
    builder: str | None = None  # None: the registry had the image
    sent_bytes: int = 0
    reused_bytes: int = 0  # in the registry before
    created_repository: bool = False
    seconds: float = 0.0

    def describe(self) -> dict[str, Any]:
        """Return the result as JSON."""
        return {
            "image": str(self.ref),
            "digest": self.ref.digest,
            "tag": self.ref.tag,
            "registry": self.ref.registry,
            "repository": self.ref.repository,
            "content": self.content,
            "pushed": self.builder is not None,
            "builder": self.builder,
            "bytes_sent": self.sent_bytes,
            "bytes_reused": self.reused_bytes,
            "created_repository": self.created_repository,
            "seconds": round(self.seconds, 3),
        }


class Listener(Struct, frozen=True, kw_only=True):
    """Functions that are called during a build and a push."""

    notify: Notify = ignore_notice
    output: Callable[[str], None] = ignore_notice  # receives the engine's output by line
    progress: ReportProgress = ignore_progress  # of the upload


def push_image(spec: ImageSpec) -> ImageRef:
    """Build and push an image, and return its reference with the digest.

    Raises:
        KfjobError: nothing was pushed; no tag names a partial image.
    """
    return build_and_push(spec).ref


def build_and_push(spec: ImageSpec, listener: Listener | None = None) -> PushResult:
    """Build and push an image as `push_image` does, and return the full result."""
    listener, start = listener or Listener(), time.monotonic()
    request = make_build_request(spec)
    _notify_choice(spec, request, listener.notify)
    for name, value in spec.build_args.items():
        if find_secret(value, name):
            listener.notify(
                f"warning: build argument `{name}` stays in the image's history\nhint: use `--secret id=…,src=FILE` instead"
            )
    ref, ecr_registry = _resolve_target(spec)
    content = compute_content_hash(request, listener.notify)
    ref = ref.with_tag(_resolve_tag(spec, ref, content))
    with _open_for_push(ref, spec.profile) as registry:
        if digest := _find_same_content(registry, ref, content, rebuild=spec.no_cache):
            listener.notify(f"`{ref}` exists with the same content: nothing was pushed")
            return PushResult(ref=ref.with_digest(digest), content=content, seconds=time.monotonic() - start)
        _check_mutable(registry, ecr_registry, ref)
        engine = engine_process.find_engine(spec.builder)
        request = replace(request, local_name=str(ref), labels=make_labels(request, content))
        with build_image(engine, request, profile=spec.profile, notify=listener.notify, show=listener.output) as image:
            if compute_content_hash(request, ignore_notice) != content:
                raise Refused("the context changed during the build: nothing was pushed", hint="run the command again")
            is_new = ecr_registry is not None and ecr_registry.ensure_repository(ref.repository)
            if is_new:
                listener.notify(f"created repository `{ref.name}`")
            annotations = {name: text for name, text in request.labels.items() if name.startswith(OCI_PREFIX) and text}
            annotated = archive.add_annotations(image, annotations)
            upload = push_built_image(Repository(registry=registry, ref=ref), annotated, progress=listener.progress)
    return PushResult(
        ref=ref.with_digest(annotated.manifest.digest),
        content=content,
        builder=engine.name,
        sent_bytes=upload.uploaded,
        reused_bytes=upload.reused,
        created_repository=is_new,
        seconds=time.monotonic() - start,
    )


def _notify_choice(spec: ImageSpec, request: BuildRequest, notify: Notify) -> None:
    if choice := describe_choice(spec, request):
        notify(choice)


def preview_push(spec: ImageSpec, notify: Notify = ignore_notice) -> ImageRef:
    """Return the reference that `build_and_push` would push, without a build; with the digest if the registry has the image.

    Raises:
        KfjobError: as in `build_and_push`, except for errors of the build and the upload.
    """
    request = make_build_request(spec)
    _notify_choice(spec, request, notify)
    ref, _ = _resolve_target(spec)
    content = compute_content_hash(request, notify)
    ref = ref.with_tag(_resolve_tag(spec, ref, content))
    with _open_for_push(ref, spec.profile) as registry:
        if digest := _find_same_content(registry, ref, content, rebuild=spec.no_cache):
            return ref.with_digest(digest)
    engine_process.find_engine(spec.builder)
    return ref


def _resolve_target(spec: ImageSpec) -> tuple[ImageRef, EcrRegistry | None]:
    """Return the image's reference, and its ECR registry if it is in ECR."""
    name = spec.to or _derive_name(Path(spec.context))
    host, slash, _ = name.partition("/")
    ecr_registry: EcrRegistry | None
    if slash and (host == "localhost" or "." in host or ":" in host):
        ref = parse_reference(name)
        _check_region(spec, ref)
        ecr_registry = ecr.open_registry(ref, profile=spec.profile) if ref.ecr else None
    else:
        ecr_registry = ecr.open_own_registry(profile=spec.profile, region=spec.region)
        ref = parse_reference(f"{ecr_registry.host}/{name}")
    if ref.digest:
        hint = "remove `@…`: a build determines the digest"
        raise UsageError(f"`{name}` has a digest, and cannot be pushed to", hint=hint)
    return ref, ecr_registry


def _check_region(spec: ImageSpec, ref: ImageRef) -> None:
    region = ref.ecr.region if ref.ecr else ""
    if spec.region and spec.region != region:
        problem = f"is in region `{region}`" if region else "is not ECR, and has no region"
        hint = "remove `--region`"
        raise UsageError(f"`{ref.registry}` {problem}", cause=f"`--region` is `{spec.region}`", hint=hint)


def _derive_name(folder: Path) -> str:
    name = re.sub(r"[^a-z0-9]+", "-", folder.expanduser().resolve().name.lower()).strip("-")
    if not name:
        raise UsageError("the folder has no name from which to name the image", hint="`--to NAME`")
    return name


def _resolve_tag(spec: ImageSpec, ref: ImageRef, content: str) -> str:
    tag = spec.tag or ref.tag or AUTO
    return content[:_TAG_LENGTH] if tag == AUTO else parse_reference(f"{ref.name}:{tag}").tag


def _find_same_content(registry: Registry, ref: ImageRef, content: str, *, rebuild: bool) -> str | None:
    """Return the digest of the tag if its image was built from the same content."""
    if rebuild or (digest := registry.get_digest(ref.repository, ref.tag)) is None:
        return None
    config = _read_config(registry, ref, registry.get_manifest(ref.repository, digest))
    return digest if (config.get("config", {}).get("Labels") or {}).get(CONTENT_LABEL) == content else None


def _read_config(registry: Registry, ref: ImageRef, manifest: Document) -> JsonObject:
    if manifest.is_index:
        return {}
    return parse_object(registry.get_blob(ref.repository, manifest.config_digest), "a config", ImageConfig)


def _check_mutable(registry: Registry, ecr_registry: EcrRegistry | None, ref: ImageRef) -> None:
    if ecr_registry is None or registry.get_digest(ref.repository, ref.tag) is None:
        return
    if ecr_registry.has_immutable_tags(ref.repository):
        cause = "the tag names an image with other content, and the tags of this repository are immutable"
        raise AlreadyExists(f"`{ref}` exists already", cause=cause, hint="`--tag auto` names each image by its content")


@contextmanager
def _open_for_push(ref: ImageRef, profile: str | None) -> Iterator[Registry]:
    """Open the registry, and translate ECR's refusals into errors that name the missing right."""
    with auth.open_registry(ref, "push", profile=profile) as registry:
        try:
            yield registry
        except KfjobError as err:
            if ref.ecr and (error := parse_push_error(err.cause or "", ref.name)):
                raise error from err
            raise
