"""Build an image from a folder with a container engine: the request, the content hash, the labels and the run."""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import urlsplit

from msgspec.structs import replace

from kfjob.base.common_types import Notify
from kfjob.base.errors import BackendError, NotFound, UsageError
from kfjob.base.file_access import name_file
from kfjob.base.parsing import ParseError, read_document
from kfjob.base.text import join_names
from kfjob.base.units import MIB
from kfjob.base.version import __version__
from kfjob.image import auth
from kfjob.image.build import archive, engine_process
from kfjob.image.build.dockerfile import check_bases, find_ecr_registries
from kfjob.image.build.engine_logins import lend_logins
from kfjob.image.build.engines import BuildRequest, Engine, make_build_command, make_export_command
from kfjob.image.folder import IGNORE_FILE, MAX_IGNORE_BYTES, format_secrets_warning, read_folder, read_ignore_file
from kfjob.image.references import ImageRef
from kfjob.spec.image import ImageSpec

CONTENT_LABEL = "dev.kfjob.content"
"""The label with the content hash of an image."""
OCI_PREFIX = "org.opencontainers.image."
MAX_DOCKERFILE_BYTES = 4 * MIB
"""Size of a Dockerfile."""
_DOCKERFILES = ("*[Dd]ockerfile", "[Dd]ockerfile[.-]*", "*[Cc]ontainerfile", "[Cc]ontainerfile[.-]*")
"""Patterns of the names of Dockerfiles."""
_GIT_SECONDS = 10
"""Timeout of git, which names the commit of a build."""


def make_build_request(spec: ImageSpec) -> BuildRequest:
    """Return the build of a spec, without the image's name and labels.

    Raises:
        NotFound: the context, the Dockerfile or a secret's file does not exist.
    """
    folder = Path(spec.context).expanduser()
    if not folder.is_dir():
        raise NotFound(f"build context `{folder}` does not exist")
    dockerfile = Path(spec.dockerfile).expanduser() if spec.dockerfile else folder / "Dockerfile"
    if not dockerfile.is_file():
        raise NotFound(f"Dockerfile `{dockerfile}` does not exist", hint=_suggest_dockerfile(dockerfile.parent))
    for name, file in spec.secrets.items():
        if not Path(file).expanduser().is_file():
            raise NotFound(f"the file of secret `{name}` does not exist", location=file)
    content = _read_dockerfile(dockerfile)
    text = content.decode(errors="replace")
    build_args = _make_build_args(spec, text)
    check_bases(text, build_args)
    return BuildRequest(
        context=folder,
        dockerfile=dockerfile,
        dockerfile_content=content,
        local_name="",
        platform=spec.platform,
        build_args=build_args,
        secrets={name: str(Path(file).expanduser()) for name, file in spec.secrets.items()},
        target=spec.target,
        no_cache=spec.no_cache,
    )


def _suggest_dockerfile(folder: Path) -> str:
    """Return the hint for a Dockerfile that does not exist: the others of the folder."""
    others = _list_dockerfiles(folder)
    if len(others) == 1:
        return f"use `--file {others[0]}`"
    if others:
        return f"choose one with `--file`: {join_names(f'`{file}`' for file in others)}"
    return "set another with `kfjob push-image --file`; `--code DIR --onto IMAGE` adds code without a build"


def _list_dockerfiles(folder: Path) -> list[str]:
    """Return the paths of a folder's files that are named like Dockerfiles, as words for a shell."""
    files = sorted(file for pattern in _DOCKERFILES for file in folder.glob(pattern) if file.is_file())
    return [shlex.quote(str(file)) for file in dict.fromkeys(files) if file.suffix != IGNORE_FILE]


def describe_choice(spec: ImageSpec, request: BuildRequest) -> str:
    """Return which Dockerfile a build uses, as `docker build` does, if the folder has more; empty if there is no choice."""
    used = shlex.quote(str(request.dockerfile))
    others = [file for file in _list_dockerfiles(request.context) if file != used]
    if spec.dockerfile or not others:
        return ""
    return f"building `{used}`; `--file` chooses another: {join_names(f'`{file}`' for file in others)}"


def _make_build_args(spec: ImageSpec, text: str) -> dict[str, str]:
    """Return the spec's build arguments, and kfjob's version if the Dockerfile declares `ARG KFJOB_VERSION`."""
    takes_version = re.search(r"^\s*ARG\s+KFJOB_VERSION\b", text, re.MULTILINE)
    return ({"KFJOB_VERSION": __version__} if takes_version else {}) | spec.all_build_args()


def _read_dockerfile(file: Path) -> bytes:
    try:
        return read_document(file, max_bytes=MAX_DOCKERFILE_BYTES)
    except (OSError, ParseError) as err:
        raise UsageError(f"Dockerfile `{file}` cannot be read", cause=str(err)) from err


def compute_content_hash(request: BuildRequest, notify: Notify) -> str:
    """Return the hash of the context without ignored files, the Dockerfile and the arguments, but not of the base image."""
    folder = read_folder(request.context, ignore=read_ignore_file(_find_own_ignore_file(request.dockerfile)), may_link_out=True)
    if warning := format_secrets_warning(folder):
        notify(warning)
    fields = [
        request.dockerfile_content.decode(errors="surrogateescape"),
        folder.compute_digest(),
        request.platform,
        request.target or "",
        *map("=".join, sorted(request.build_args.items())),
    ]
    return hashlib.sha256("\0".join(fields).encode(errors="surrogateescape")).hexdigest()


def _find_own_ignore_file(dockerfile: Path) -> Path:
    """Return the path of the Dockerfile's own ignore file, which BuildKit prefers to that of the context."""
    return dockerfile.with_name(f"{dockerfile.name}{IGNORE_FILE}")


def make_labels(request: BuildRequest, content: str) -> dict[str, str]:
    """Return the content label and OCI's predefined annotations that are known. Builders record the base image."""
    folder = request.context
    epoch = os.environ.get("SOURCE_DATE_EPOCH", "")
    created = datetime.fromtimestamp(int(epoch) if epoch.isdecimal() else time.time(), UTC)
    labels = {
        f"{OCI_PREFIX}revision": _run_git(folder, "rev-parse", "HEAD"),
        f"{OCI_PREFIX}source": _remove_login(_run_git(folder, "config", "--get", "remote.origin.url")),
        f"{OCI_PREFIX}created": created.strftime("%Y-%m-%dT%H:%M:%SZ"),
        CONTENT_LABEL: content,
    }
    return {name: value for name, value in labels.items() if value}


def _run_git(folder: Path, *arguments: str) -> str:
    """Return the output of a git command; "" if it fails."""
    try:
        argv = ["git", "-C", str(folder), *arguments]
        process = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=_GIT_SECONDS)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return process.stdout.strip() if process.returncode == 0 else ""


def _remove_login(url: str) -> str:
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl() if parts.scheme else url


@contextmanager
def build_image(
    engine: Engine, request: BuildRequest, *, profile: str | None, notify: Notify, show: Callable[[str], None]
) -> Iterator[archive.BuiltImage]:
    """Build an image, and provide it as files until the block ends; `show` receives the engine's output by line."""
    if request.secrets and not engine.has_secrets:
        hint = "install docker's buildx plugin, or use another `--builder`"
        raise UsageError("docker's classic builder does not support build secrets", hint=hint)
    with ExitStack() as stack:
        try:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="kfjob-image-")))
        except OSError as err:
            hint = "set TMPDIR to another folder"
            raise BackendError("the folder for the image cannot be created", cause=str(err), hint=hint) from err
        notify(f"building with {engine.name}")
        path = _run_build(engine, request, folder, profile=profile, show=show)
        (folder / "work").mkdir()
        yield archive.read_image(path, folder / "work", platform=request.platform)


def _copy_dockerfile(request: BuildRequest, folder: Path) -> Path:
    """Write the Dockerfile as it was read, with its own ignore file, and return its path for the engine.

    So the content hash, the labels and the image are from the same text, even if someone edits the file in the meantime.
    """
    copy = folder / "dockerfile" / request.dockerfile.name
    copy.parent.mkdir()
    ignore = _find_own_ignore_file(request.dockerfile)
    with name_file(copy.parent):
        copy.write_bytes(request.dockerfile_content)
        if ignore.exists():
            _find_own_ignore_file(copy).write_bytes(read_document(ignore, max_bytes=MAX_IGNORE_BYTES))
    return copy


def _run_build(
    engine: Engine, request: BuildRequest, folder: Path, *, profile: str | None, show: Callable[[str], None]
) -> Path:
    """Build, export and return the path of the image."""
    text = request.dockerfile_content.decode(errors="replace")
    request = replace(request, dockerfile=_copy_dockerfile(request, folder))
    refs = [ImageRef(registry=host, repository="") for host in find_ecr_registries(text, request.build_args)]
    logins = {ref.registry: auth.make_login_source(ref, profile=profile) for ref in refs}
    out, image = folder / "built", folder / "image"
    with lend_logins(logins, engine) as (variables, authfile):
        argv = make_build_command(engine, request, out, authfile=authfile)
        engine_process.run_engine(engine, argv, show=show, environment=variables)
    image_id = out.read_text(encoding="utf-8").strip() if engine.has_storage else ""
    export = make_export_command(engine, image_id, image)
    if export is None:
        return out
    engine_process.run_engine(engine, export, show=show)
    return image
