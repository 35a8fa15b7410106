"""Build an image and push it, unless the registry has it already: `push_image(ImageSpec) -> ImageRef`."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from kfjob import __version__
from kfjob.common_types import Notify
from kfjob.errors import AlreadyExists, BackendError, KfjobError, NotFound, Refused, UsageError
from kfjob.image import auth, ecr
from kfjob.image.build import archive, base_images, engine_process, engines
from kfjob.image.build.push import UploadResult, push_built_image
from kfjob.image.ecr_errors import parse_push_error
from kfjob.image.folder import IGNORE_FILE, format_secrets_warning, read_folder
from kfjob.image.ignore import parse_ignore
from kfjob.image.mutate import BASE_DIGEST, BASE_NAME
from kfjob.image.references import ImageRef, parse_reference
from kfjob.image.registry.client import Registry
from kfjob.image.registry.documents import Document
from kfjob.image.registry.uploads import ReportProgress, ignore_progress
from kfjob.lint.secrets import find_secret
from kfjob.spec.image import AUTO, ImageSpec

LABEL_CONTENT = "dev.kfjob.content"
"""The hash of all that an image was built of."""
_OCI = "org.opencontainers.image."
_TAG_LENGTH = 16
_GIT_SECONDS = 10


def _quiet(_text: str) -> None:
    """Notices and an engine's output are for terminals."""


@dataclass(frozen=True, kw_only=True)
class PushResult:
    """An image that is in the registry now."""

    ref: ImageRef  # with tag and digest
    content: str  # the hash of what it was built of
    builder: str | None = None  # None: it was there already
    sent_bytes: int = 0  # bytes
    reused_bytes: int = 0  # bytes that the registry had
    created_repository: bool = False
    seconds: float = 0.0

    def describe(self) -> dict[str, Any]:
        """For machines."""
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
            "bytes_there": self.reused_bytes,
            "created_repository": self.created_repository,
            "seconds": round(self.seconds, 3),
        }


@dataclass(frozen=True, kw_only=True)
class Listener:
    """Who is told what, while it happens."""

    notify: Notify = _quiet
    output: Callable[[str], None] = _quiet  # of the engine, line by line
    progress: ReportProgress = ignore_progress  # of the upload


def push_image(spec: ImageSpec) -> ImageRef:
    """Build and push; the image with its digest.

    Raises:
        KfjobError: and then nothing was pushed that anybody could see.
    """
    return build_and_push(spec).ref


def build_and_push(spec: ImageSpec, listener: Listener | None = None) -> PushResult:
    """`push_image`, with all that there is to tell of it."""
    told, began = listener or Listener(), time.monotonic()
    wanted = _wanted(spec)
    for name, value in spec.build_args.items():
        if find_secret(value, name):
            told.notify(f"warning: build argument `{name}` stays in the image's history: `--secret id=…,src=FILE` does not")
    ref, place = _target(spec)
    content = _content(wanted, told.notify)
    ref = ref.with_tag(_tag(spec, ref, content))
    with _pushing_to(ref, spec.profile) as registry:
        if found := _there(registry, ref, content, rebuild=spec.no_cache):
            told.notify(f"`{ref}` is there already, built of the same content: nothing was pushed")
            return PushResult(ref=ref.with_digest(found), content=content, seconds=time.monotonic() - began)
        _refuse_immutable(registry, place, ref)
        engine = engine_process.find_engine(spec.builder)
        wanted = replace(wanted, local_name=str(ref), labels=_labels(wanted, content))
        with _built(engine, wanted, spec, told) as built:
            if _content(wanted, _quiet) != content:
                raise Refused("the context changed while it was built: nothing was pushed", hint="run the same again")
            created = place is not None and place.ensure_repository(ref.repository, spec.repository)
            if created:
                told.notify(f"made the repository `{ref.name}`")
            said = {name: text for name, text in wanted.labels.items() if name.startswith(_OCI) and text}
            pushed = push_built_image(registry, ref, archive.add_annotations(built, said), progress=told.progress)
    return _outcome(pushed, content, engine.name, created=created, seconds=time.monotonic() - began)


def preview_push(spec: ImageSpec, notify: Notify = _quiet) -> ImageRef:
    """What `build_and_push` would push, without building it: with its digest if the registry has it already.

    Raises:
        KfjobError: as `build_and_push`, as far as can be known before.
    """
    wanted = _wanted(spec)
    ref, _ = _target(spec)
    content = _content(wanted, notify)
    ref = ref.with_tag(_tag(spec, ref, content))
    with _pushing_to(ref, spec.profile) as registry:
        if found := _there(registry, ref, content, rebuild=spec.no_cache):
            return ref.with_digest(found)
    engine_process.find_engine(spec.builder)
    return ref


def _outcome(pushed: UploadResult, content: str, builder: str, *, created: bool, seconds: float) -> PushResult:
    return PushResult(
        ref=pushed.ref,
        content=content,
        builder=builder,
        sent_bytes=pushed.sent_bytes,
        reused_bytes=pushed.reused_bytes,
        created_repository=created,
        seconds=seconds,
    )


def _wanted(spec: ImageSpec) -> engines.BuildRequest:
    folder = Path(spec.context).expanduser()
    if not folder.is_dir():
        raise NotFound(f"there is no folder `{folder}` to build")
    dockerfile = Path(spec.dockerfile).expanduser() if spec.dockerfile else folder / "Dockerfile"
    if not dockerfile.is_file():
        hint = "`kfjob push-image --file` names another; code alone goes onto an image with `--code`, without a build"
        raise NotFound(f"there is no Dockerfile at `{dockerfile}`", hint=hint)
    for name, file in spec.secrets.items():
        if not Path(file).expanduser().is_file():
            raise NotFound(f"the file of secret `{name}` is not there", location=file)
    return engines.BuildRequest(
        context=folder,
        dockerfile=dockerfile,
        local_name="",
        platform=spec.platform,
        build_args=_build_args(spec, dockerfile),
        secrets={name: str(Path(file).expanduser()) for name, file in spec.secrets.items()},
        target=spec.target,
        no_cache=spec.no_cache,
    )


def _build_args(spec: ImageSpec, dockerfile: Path) -> dict[str, str]:
    """Those of the spec, and kfjob's version where the Dockerfile asks for it."""
    asked = re.search(r"^\s*ARG\s+KFJOB_VERSION\b", dockerfile.read_text(encoding="utf-8", errors="replace"), re.MULTILINE)
    return ({"KFJOB_VERSION": __version__} if asked else {}) | spec.all_build_args()


def _content(wanted: engines.BuildRequest, notify: Notify) -> str:
    """A hash of the context without what is ignored, the Dockerfile and the arguments; not of the base image."""
    own = wanted.dockerfile.with_name(f"{wanted.dockerfile.name}{IGNORE_FILE}")  # which BuildKit prefers
    ignore = parse_ignore(own.read_text(encoding="utf-8"), file=str(own)) if own.is_file() else None
    folder = read_folder(wanted.context, ignore=ignore)
    if warning := format_secrets_warning(folder):
        notify(warning)
    dockerfile = wanted.dockerfile.read_text(encoding="utf-8", errors="surrogateescape")
    said = [
        dockerfile,
        folder.compute_digest(),
        wanted.platform,
        wanted.target or "",
        *map("=".join, sorted(wanted.build_args.items())),
    ]
    return hashlib.sha256("\0".join(said).encode(errors="surrogateescape")).hexdigest()


def _target(spec: ImageSpec) -> tuple[ImageRef, ecr.PrivateRegistry | ecr.PublicRegistry | None]:
    """Where the image is to go, and ECR's side of it if it is one of ECR's."""
    name = spec.to or _name_of(Path(spec.context))
    first, slash, _ = name.partition("/")
    if slash and (first == "localhost" or "." in first or ":" in first):
        ref = parse_reference(name)
        _check_region(spec, ref)
        place = ecr.open_registry(ref, profile=spec.profile) if ref.ecr else None
    else:
        own = ecr.open_own_registry(profile=spec.profile, region=spec.region)
        ref, place = parse_reference(f"{own.host}/{name}"), own
    if ref.digest:
        raise UsageError(f"`{name}` names an image by its digest, and what is built has one of its own", hint="leave `@…` out")
    if place is None and spec.repository != type(spec.repository)():
        raise UsageError(f"`{ref.registry}` is not ECR: options for a new repository mean nothing there")
    return ref, place


def _check_region(spec: ImageSpec, ref: ImageRef) -> None:
    """The host's name says the region."""
    said = ref.ecr.region if ref.ecr else ""
    if spec.region and spec.region != said:
        what = f"is in region `{said}`" if said else "is not ECR, and has no region"
        raise UsageError(f"`{ref.registry}` {what}", cause=f"`{spec.region}` was asked for", hint="leave `--region` out")


def _name_of(folder: Path) -> str:
    name = re.sub(r"[^a-z0-9]+", "-", folder.expanduser().resolve().name.lower()).strip("-")
    if not name:
        raise UsageError("the folder has no name to call the image by", hint="`--to NAME`")
    return name


def _tag(spec: ImageSpec, ref: ImageRef, content: str) -> str:
    tag = spec.tag or ref.tag or AUTO
    return content[:_TAG_LENGTH] if tag == AUTO else parse_reference(f"{ref.name}:{tag}").tag


def _there(registry: Registry, ref: ImageRef, content: str, *, rebuild: bool) -> str | None:
    """The digest under this tag, if that image was built of the same content."""
    if rebuild or (digest := registry.get_digest(ref.repository, ref.tag)) is None:
        return None
    manifest = registry.get_manifest(ref.repository, digest)
    config = _config(registry, ref, manifest)
    return digest if (config.get("config", {}).get("Labels") or {}).get(LABEL_CONTENT) == content else None


def _config(registry: Registry, ref: ImageRef, manifest: Document) -> dict[str, Any]:
    if manifest.is_index:
        return {}
    from kfjob.image.registry.documents import parse_object

    return parse_object(registry.get_blob(ref.repository, manifest.value["config"]["digest"]), "a config")


def _refuse_immutable(registry: Registry, place: ecr.PrivateRegistry | ecr.PublicRegistry | None, ref: ImageRef) -> None:
    if place is None or registry.get_digest(ref.repository, ref.tag) is None or not place.has_immutable_tags(ref.repository):
        return
    cause = "it is another image, and the tags of this repository are immutable"
    raise AlreadyExists(f"tag `{ref}` is taken", cause=cause, hint="`--tag auto` names each image by its content")


@contextlib.contextmanager
def _pushing_to(ref: ImageRef, profile: str | None) -> Iterator[Registry]:
    """The registry; what ECR's says about rights is said with the right that is missing."""
    with auth.open_registry(ref, "push", profile=profile) as registry:
        try:
            yield registry
        except KfjobError as err:
            if ref.ecr and (said := parse_push_error(err.cause or "", ref.name)):
                raise said from err
            raise


@contextlib.contextmanager
def _built(
    engine: engines.Engine, wanted: engines.BuildRequest, spec: ImageSpec, told: Listener
) -> Iterator[archive.BuiltImage]:
    """Build, and have the image as files for as long as the block lasts."""
    if wanted.secrets and not engine.has_secrets:
        hint = "install docker's buildx plugin, or use another `--builder`"
        raise UsageError("docker's classic builder has no secrets for a build", hint=hint)
    with contextlib.ExitStack() as stack:
        try:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="kfjob-image-")))
        except OSError as err:
            raise BackendError("there is no folder for the image", cause=str(err), hint="TMPDIR names another") from err
        image = _run(engine, wanted, folder, spec.profile, told)
        (folder / "work").mkdir()
        yield archive.read_image(image, folder / "work", platform=spec.platform)


def _run(engine: engines.Engine, wanted: engines.BuildRequest, folder: Path, profile: str | None, told: Listener) -> Path:
    text = wanted.dockerfile.read_text(encoding="utf-8", errors="replace")
    refs = base_images.select_ecr_images(base_images.find_base_images(text, wanted.build_args))
    logins = {ref.registry: auth.make_login_source(ref, profile=profile) for ref in refs}
    out = folder / "built"
    told.notify(f"building with {engine.name}")
    with base_images.lend_logins(logins, engine) as (variables, authfile):
        engine_process.run_engine(
            engine, engines.make_build_command(engine, wanted, out, authfile=authfile), show=told.output, environment=variables
        )
    image = folder / "image"
    export = (
        engines.make_export_command(engine, out.read_text(encoding="utf-8").strip(), image) if engine.name in _BY_ID else None
    )
    if export is None:
        return out
    engine_process.run_engine(engine, export, show=told.output)
    return image


_BY_ID = ("docker", "buildah", "podman")


def _labels(wanted: engines.BuildRequest, content: str) -> dict[str, str]:
    """OCI's annotations, as far as they are known: the manifest has them too, where its form has any.

    The base's digest is what the Dockerfile says; which one a tag led to only the builder knows (buildah writes it down).
    """
    folder, text = wanted.context, wanted.dockerfile.read_text(encoding="utf-8", errors="replace")
    base = base_images.find_final_base(text, wanted.build_args, wanted.target)
    epoch = os.environ.get("SOURCE_DATE_EPOCH", "")
    created = datetime.fromtimestamp(int(epoch) if epoch.isdecimal() else time.time(), UTC)
    found: Mapping[str, str] = {
        BASE_NAME: str(base.with_tag(base.tag)) if base else "",
        f"{_OCI}revision": _git(folder, "rev-parse", "HEAD"),
        f"{_OCI}source": _without_login(_git(folder, "config", "--get", "remote.origin.url")),
        f"{_OCI}created": created.strftime("%Y-%m-%dT%H:%M:%SZ"),
        LABEL_CONTENT: content,
    }
    known = {name: value for name, value in found.items() if value}
    return known | ({BASE_DIGEST: base.digest} if base else {})  # empty rather than what the base says of its own


def _git(folder: Path, *words: str) -> str:
    try:
        argv = ["git", "-C", str(folder), *words]
        done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=_GIT_SECONDS)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def _without_login(url: str) -> str:
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl() if parts.scheme else url
