"""Are a job's images there, and for the nodes' processor? Asked before a job is created, and by `preflight`.

A registry is asked as the nodes will ask it, with the pull secrets that the pods name and that may be read here; where there
are none, or they do not let in, as whoever the user is. What cannot be known from here is said: the cluster has the last word.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kfjob.api.images.required_images import RequiredImage, find_required_images
from kfjob.api.target import Target
from kfjob.common_types import Notify
from kfjob.errors import Forbidden, KfjobError, NotFound, Refused, UsageError
from kfjob.image.references import ImageRef, parse_reference
from kfjob.spec import names

if TYPE_CHECKING:
    from kfjob.api.images.pull_secrets import PullSecret
    from kfjob.image.metadata import ImageMetadata
    from kfjob.image.registry.client import Registry
    from kfjob.image.registry.secrets import LoginSource
    from kfjob.image.registry.transport import RetryPolicy
    from kfjob.plan import JobPlan

_AT_ONCE = 4


class ImageInspector:
    """Asks registries about images; briefly, because something else is waiting."""

    def __init__(self, *, profile: str | None = None, retries: RetryPolicy | None = None) -> None:
        """`profile` of AWS, for images in ECR."""
        self._profile, self._retries = profile, retries

    def inspect(self, reference: str, secrets: Sequence[PullSecret] = ()) -> Inspection:
        """What the registry says of an image.

        Raises:
            UsageError: that is not the name of an image.
            NotFound: there is none; the hint names the tag that is most like it.
            Forbidden: the registry does not know the user here; the nodes may be somebody else.
            Unreachable: the registry does not answer from here; it may, from the cluster.
            Refused: it is no container image.
        """
        from kfjob.image.auth import make_login_source

        ref, useless = parse_reference(reference), list[str]()
        absent: NotFound | None = None
        for secret in secrets:
            if (login := secret.find_login(ref)) is None:
                continue
            try:
                return Inspection(metadata=self._facts(ref, login), rejected_secrets=tuple(useless))
            except (Forbidden, NotFound) as err:  # some registries say so too of what may not be seen
                useless.append(secret.name)
                absent = err if isinstance(err, NotFound) else absent
        try:
            return Inspection(
                metadata=self._facts(ref, make_login_source(ref, profile=self._profile)), rejected_secrets=tuple(useless)
            )
        except Forbidden as err:
            raise absent or err from err

    def _facts(self, ref: ImageRef, login: LoginSource) -> ImageMetadata:
        from kfjob.image.metadata import read_metadata

        with self._opened(ref, login) as registry:
            try:
                return read_metadata(registry, ref)
            except NotFound as err:
                hint = _nearest(registry, ref) or err.hint or "`kfjob push-image` pushes one and prints its name"
                raise NotFound(f"image `{ref}` does not exist", cause=err.cause, hint=hint) from err

    @contextmanager
    def _opened(self, ref: ImageRef, login: LoginSource) -> Iterator[Registry]:
        from kfjob.image.auth import open_registry
        from kfjob.image.registry.transport import BRIEF_RETRIES

        with open_registry(ref, "pull", login=login, retries=self._retries or BRIEF_RETRIES) as registry:
            yield registry


@dataclass(frozen=True, kw_only=True)
class Inspection:
    """An image that is there."""

    metadata: ImageMetadata
    rejected_secrets: tuple[str, ...] = ()  # pull secrets that the registry did not take


@dataclass(frozen=True, kw_only=True)
class ImageCheck:
    """What is known of one image that a job needs."""

    image: RequiredImage
    inspection: Inspection | None = None
    error: KfjobError | None = None
    is_certain: bool = False  # the error: no node could pull it

    def explain_mismatch(self, nodes: Iterable[str]) -> str | None:
        """Why it does not run on the nodes, whose processors these are; None: it does, or nobody knows."""
        wanted = [self.image.architecture] if self.image.architecture else sorted(nodes)
        if self.inspection is None or not wanted or any(self.inspection.metadata.runs_on(one) for one in wanted):
            return None
        return f"it is there for {', '.join(self.inspection.metadata.platforms)}, and the nodes are {', '.join(wanted)}"


def inspect_images(
    wanted: Sequence[RequiredImage], inspector: ImageInspector, secrets: Mapping[str, PullSecret]
) -> list[ImageCheck]:
    """About every image, some at a time; an error is an answer."""

    def one(needed: RequiredImage) -> ImageCheck:
        known = [secrets[name] for name in needed.pull_secrets if name in secrets]
        try:
            parse_reference(needed.image)
        except UsageError as err:
            return ImageCheck(image=needed, error=err, is_certain=True)
        try:
            return ImageCheck(image=needed, inspection=inspector.inspect(needed.image, known))
        except KfjobError as err:
            return ImageCheck(image=needed, error=err, is_certain=isinstance(err, NotFound))

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return list(pool.map(one, wanted))


def check_image(target: Target, plan: JobPlan, *, notify: Notify, inspector: ImageInspector | None = None) -> None:
    """`check_images` for what a plan compiles to."""
    if target.name == "kubernetes" and target.settings.image_check:
        from kfjob.compile.pytorchjob import compile_manifests

        instance = plan.instance.architecture if plan.instance else ""
        check_images(target, compile_manifests(plan), notify=notify, inspector=inspector, nodes=instance)


def check_images(
    target: Target,
    objects: Sequence[Mapping[str, Any]],
    *,
    notify: Notify,
    inspector: ImageInspector | None = None,
    nodes: str = "",
) -> None:
    """Refuse objects whose pods could not pull an image or not run it; say so where that cannot be known from here.

    `nodes` is the processor of the training pods' nodes, where it is known.

    Raises:
        UsageError: a name is not that of an image.
        NotFound: the registry has no such image.
        Refused: it is not for the processor of any node that the pods may run on.
    """
    if target.name != "kubernetes" or not target.settings.image_check:
        return
    wanted = find_required_images(objects, architecture=nodes)
    asked = inspector or ImageInspector(profile=target.settings.aws_profile)
    namespace = str(objects[0]["metadata"].get("namespace") or target.namespace)
    answers = inspect_images(wanted, asked, read_named_secrets(target, wanted, namespace))
    for answer in answers:
        if answer.error and answer.is_certain:
            raise _named(answer.error, answer.image)
    for answer in answers:
        if err := answer.error:
            cause = f": {err.cause}" if err.cause else ""
            notify(f"image `{answer.image.image}` was not checked, the cluster will say: {err.title}{cause}")
        for secret in answer.inspection.rejected_secrets if answer.inspection else ():
            notify(format_rejected_secret(secret, answer.image))
    _check_architectures(answers, target)


def format_rejected_secret(secret: str, needed: RequiredImage) -> str:
    """What is said of a pull secret that the registry did not take."""
    return f"warning: pull secret `{secret}` does not open `{needed.image}`: it was looked at with your own login"


def read_named_secrets(target: Target, wanted: Iterable[RequiredImage], namespace: str) -> Mapping[str, PullSecret]:
    """Those that the pods name and that may be read; not the one that kfjob keeps, which is renewed after this."""
    said = {secret for needed in wanted for secret in needed.pull_secrets if not secret.startswith(names.PULL_SECRET_PREFIX)}
    if not said:
        return {}
    from kfjob.api.images.pull_secrets import read_pull_secrets

    return read_pull_secrets(target.cluster.inventory(namespace), said)


def _named(err: KfjobError, needed: RequiredImage) -> KfjobError:
    """The error with the container whose image it is, if that is not the training container."""
    if needed.container:
        err.location = err.location or needed.container
    return err


def _check_architectures(answers: Sequence[ImageCheck], target: Target) -> None:
    there: list[str] | None = None
    for answer in answers:
        if answer.inspection and not answer.image.architecture and there is None:
            there = sorted(target.cluster.node_architectures())
        if cause := answer.explain_mismatch(there or ()):
            nodes = answer.image.architecture or (there or ("",))[0]
            raise _named(
                Refused(
                    f"image `{answer.image.image}` is not for the processor of the nodes",
                    cause=cause,
                    hint=f"build it for them: `kfjob push-image --platform linux/{nodes}`",
                ),
                answer.image,
            )


def _nearest(registry: Registry, ref: ImageRef) -> str | None:
    if ref.digest:
        return None
    with suppress(KfjobError):
        if close := difflib.get_close_matches(ref.tag_or_digest, list(registry.list_tags(ref.repository)), n=1):
            return f"did you mean `{ref.with_tag(close[0])}`?"
    return None
