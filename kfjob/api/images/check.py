"""Check that a job's images exist and run on the nodes: before a job is created, and in `kfjob preflight`.

A registry is asked as the nodes do, with the pull secrets of the pods, if they can be read here. Otherwise the user's own login
is used. If the check cannot decide, it prints a notice, and the cluster decides.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from msgspec import Struct

from kfjob.api.images.hidden_files import find_hidden_files, report
from kfjob.api.images.required_images import RequiredImage, find_required_images
from kfjob.api.target import Target
from kfjob.base.common_types import Notify
from kfjob.base.concurrency import map_parallel
from kfjob.base.errors import Forbidden, KfjobError, NotFound, Problem, Refused, UsageError
from kfjob.base.text import find_similar
from kfjob.image.references import ImageRef, parse_reference
from kfjob.objects import names

if TYPE_CHECKING:
    from kfjob.api.images.pull_secrets import PullSecret
    from kfjob.api.prepared import PreparedJob
    from kfjob.base.http import Limits
    from kfjob.image.metadata import ImageMetadata
    from kfjob.image.registry.client import Registry
    from kfjob.image.registry.secrets import LoginSource

_THREADS = 4
"""Images to inspect at the same time."""


class ImageInspector:
    """Reads the metadata of images, with few retries, because a submit waits for it."""

    def __init__(self, *, profile: str | None = None, limits: Limits | None = None) -> None:
        """`profile` is the AWS profile for images in ECR."""
        self._profile, self._limits = profile, limits

    def inspect(self, reference: str, secrets: Sequence[PullSecret] = ()) -> Inspection:
        """Return the metadata of an image.

        Raises:
            UsageError: the text is not an image reference.
            NotFound: the image does not exist; the hint names the most similar tag.
            Forbidden: the registry refuses the login here; the nodes may have another.
            Unreachable: the registry does not answer here; it may answer the cluster.
            Refused: it is not a container image.
        """
        from kfjob.image.auth import make_login_source

        ref, rejected = parse_reference(reference), list[str]()
        not_found: NotFound | None = None
        for secret in secrets:
            if (login := secret.find_login(ref)) is None:
                continue
            try:
                return Inspection(metadata=self._read_metadata(ref, login), rejected_secrets=tuple(rejected))
            except (Forbidden, NotFound) as err:  # some registries answer 404 for a missing right
                rejected.append(secret.name)
                not_found = err if isinstance(err, NotFound) else not_found
        try:
            metadata = self._read_metadata(ref, make_login_source(ref, profile=self._profile))
        except Forbidden as err:
            raise not_found or err from err
        return Inspection(metadata=metadata, rejected_secrets=tuple(rejected))

    def _read_metadata(self, ref: ImageRef, login: LoginSource) -> ImageMetadata:
        from kfjob.image.metadata import read_metadata

        with self._open_registry(ref, login) as registry:
            try:
                return read_metadata(registry, ref)
            except NotFound as err:
                raise explain_missing(registry, ref, err) from err

    @contextmanager
    def _open_registry(self, ref: ImageRef, login: LoginSource) -> Iterator[Registry]:
        from kfjob.image.auth import open_registry
        from kfjob.image.registry.transport import BRIEF_LIMITS

        with open_registry(ref, "pull", login=login, limits=self._limits or BRIEF_LIMITS) as registry:
            yield registry


class Inspection(Struct, frozen=True, kw_only=True):
    """The metadata of an image that exists."""

    metadata: ImageMetadata
    rejected_secrets: tuple[str, ...] = ()  # pull secrets that the registry refused


class ImageCheck(Struct, frozen=True, kw_only=True):
    """The result of a check: an inspection or an error."""

    required: RequiredImage
    inspection: Inspection | None = None
    error: KfjobError | None = None
    is_certain: bool = False  # whether the error holds for the nodes too

    def explain_mismatch(self, architectures: Iterable[str]) -> str | None:
        """Return why the image does not run on nodes of these architectures; None if it does, or if nothing is known."""
        nodes = [self.required.architecture] if self.required.architecture else sorted(architectures)
        if self.inspection is None or not nodes or any(self.inspection.metadata.runs_on(node) for node in nodes):
            return None
        return f"it has variants for {', '.join(self.inspection.metadata.platforms)}, and the nodes are {', '.join(nodes)}"


def inspect_images(
    images: Sequence[RequiredImage], inspector: ImageInspector, secrets: Mapping[str, PullSecret]
) -> list[ImageCheck]:
    """Return the check of each image; an error is a result."""

    def inspect(required: RequiredImage) -> ImageCheck:
        pull_secrets = [secrets[name] for name in required.pull_secrets if name in secrets]
        try:
            parse_reference(required.image)
        except UsageError as err:
            return ImageCheck(required=required, error=err, is_certain=True)
        try:
            return ImageCheck(required=required, inspection=inspector.inspect(required.image, pull_secrets))
        except KfjobError as err:
            return ImageCheck(required=required, error=err, is_certain=isinstance(err, NotFound))

    return map_parallel(inspect, images, threads=_THREADS, name="image-check")


def check_job_images(job: PreparedJob, *, notify: Notify, inspector: ImageInspector | None = None) -> None:
    """Refuse a job whose pods cannot pull or run an image; print a notice if this cannot be decided here.

    Raises:
        UsageError: an image is not an image reference.
        NotFound: an image does not exist.
        Refused: an image has no variant for the nodes on which its pod may run.
        SpecError: a volume hides what the job runs of an image.
    """
    target = job.target
    if not target.capabilities.has_images or not target.settings.image_check:
        return
    images = find_required_images(job.objects, architecture=job.architecture)
    inspector = inspector or ImageInspector(profile=target.settings.aws_profile)
    namespace = str(job.objects[0]["metadata"].get("namespace") or target.namespace)
    checks = inspect_images(images, inspector, read_named_secrets(target, images, namespace))
    for check in checks:
        if check.error and check.is_certain:
            raise _add_location(check.error, check.required)
    for check in checks:
        if err := check.error:
            cause = f": {err.cause}" if err.cause else ""
            notify(f"image `{check.required.image}` was not checked: {err.title}{cause}")
        for secret in check.inspection.rejected_secrets if check.inspection else ():
            notify(format_rejected_secret(secret, check.required))
    _check_architectures(checks, target)
    report(find_hidden_by_volumes(job, checks), notify)


def find_hidden_by_volumes(job: PreparedJob, checks: Iterable[ImageCheck]) -> list[Problem]:
    """Return the volumes that hide what the job runs of the images that were inspected."""
    found = ((check.required, check.inspection) for check in checks)
    return [
        problem
        for required, inspection in found
        if inspection and not required.container
        for problem in find_hidden_files(job, required.image, inspection.metadata)
    ]


def format_rejected_secret(secret: str, required: RequiredImage) -> str:
    """Return the warning about a pull secret that the registry refused."""
    return f"warning: pull secret `{secret}` does not give access to `{required.image}`; kfjob used your own login"


def read_named_secrets(target: Target, images: Iterable[RequiredImage], namespace: str) -> Mapping[str, PullSecret]:
    """Return the readable pull secrets of the pods, without kfjob's own, which is renewed after the check."""
    secrets = {secret for image in images for secret in image.pull_secrets if not secret.startswith(names.PULL_SECRET_PREFIX)}
    if not secrets:
        return {}
    from kfjob.api.images.pull_secrets import read_pull_secrets

    return read_pull_secrets(target.cluster.inventory(namespace), secrets)


def _add_location(err: KfjobError, required: RequiredImage) -> KfjobError:
    """Return the error with the container as its location, except for the training container."""
    if required.container:
        err.location = err.location or required.container
    return err


def _check_architectures(checks: Sequence[ImageCheck], target: Target) -> None:
    nodes: list[str] | None = None
    for check in checks:
        if check.inspection and not check.required.architecture and nodes is None:
            nodes = sorted(target.cluster.node_architectures())
        if cause := check.explain_mismatch(nodes or ()):
            architecture = check.required.architecture or (nodes or ("",))[0]
            error = Refused(
                f"image `{check.required.image}` has no variant for the architecture of the nodes",
                cause=cause,
                hint=f"build one with `kfjob push-image --platform linux/{architecture}`",
            )
            raise _add_location(error, check.required)


def explain_missing(registry: Registry, ref: ImageRef, err: NotFound) -> NotFound:
    """Return the error for an image that a registry does not have; the hint names the most similar tag."""
    hint = _suggest_tag(registry, ref) or err.hint or "`kfjob push-image` pushes an image and prints its name"
    return NotFound(f"image `{ref}` does not exist", cause=err.cause, hint=hint)


def _suggest_tag(registry: Registry, ref: ImageRef) -> str | None:
    if ref.digest:
        return None
    with suppress(KfjobError):
        tags = list(registry.list_tags(ref.repository))
        if similar := find_similar(ref.tag_or_digest, tags):
            return f"did you mean `{ref.with_tag(similar)}`?"
    return None
