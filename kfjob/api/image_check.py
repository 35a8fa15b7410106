"""Is the image there, and is it for the nodes' processor? Asked before a job is created, and by `preflight`."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from kfjob.api.place import Notice, Place, cluster_of
from kfjob.errors import KfjobError, NotFound, Refused
from kfjob.image.references import ImageRef, parse
from kfjob.plan import JobPlan

if TYPE_CHECKING:
    from kfjob.image.facts import ImageFacts
    from kfjob.image.registry.client import Registry
    from kfjob.image.registry.transport import Patience

_ARCHITECTURE = "kubernetes.io/arch"


class ImageInspector:
    """Asks registries about images, as whoever the user is here; briefly, because something else is waiting."""

    def __init__(self, *, profile: str | None = None, patience: Patience | None = None) -> None:
        """`profile` of AWS, for images in ECR."""
        self._profile, self._patience = profile, patience

    def inspect(self, reference: str) -> ImageFacts:
        """What the registry says of an image.

        Raises:
            UsageError: that is not the name of an image.
            NotFound: there is none; the hint names the tag that is most like it.
            Forbidden: the registry does not know the user here; the nodes may be somebody else.
            Unreachable: the registry does not answer from here; it may, from the cluster.
            Refused: it is no container image.
        """
        from kfjob.image.facts import facts

        ref = parse(reference)
        with self._opened(ref) as registry:
            try:
                return facts(registry, ref)
            except NotFound as err:
                hint = _nearest(registry, ref) or err.hint or "`kfjob push-image` pushes one and prints its name"
                raise NotFound(f"image `{ref}` does not exist", cause=err.cause, hint=hint) from err

    @contextmanager
    def _opened(self, ref: ImageRef) -> Iterator[Registry]:
        from kfjob.image.access import opened
        from kfjob.image.registry.transport import BRIEF

        with opened(ref, "pull", profile=self._profile, patience=self._patience or BRIEF) as registry:
            yield registry


def check_image(at: Place, plan: JobPlan, *, notice: Notice, inspector: ImageInspector | None = None) -> None:
    """Refuse a plan whose pods could not pull their image or not run it; say so where that cannot be known from here.

    Raises:
        NotFound: the registry has no such image.
        Refused: it is not for the processor of any node that the pods may run on.
    """
    if at.name != "kubernetes" or not at.settings.image_check or plan.image_pull_policy == "Never":
        return
    try:
        found = (inspector or ImageInspector(profile=at.settings.aws_profile)).inspect(plan.image)
    except NotFound:
        raise
    except KfjobError as err:
        cause = f": {err.cause}" if err.cause else ""
        notice(f"image `{plan.image}` was not checked, the cluster will say: {err.title}{cause}")
        return
    _check_architecture(found, plan, lambda: cluster_of(at).architectures())


def _check_architecture(found: ImageFacts, plan: JobPlan, ask: Callable[[], Iterable[str]]) -> None:
    wanted = plan.scheduling.node_selector.get(_ARCHITECTURE) or (plan.instance.architecture if plan.instance else "")
    nodes = [wanted] if wanted else sorted(ask())
    if nodes and not any(found.runs_on(one) for one in nodes):
        raise Refused(
            f"image `{plan.image}` is not for the processor of the nodes",
            cause=f"it is there for {', '.join(found.platforms)}, and the nodes are {', '.join(nodes)}",
            hint=f"build it for them: `kfjob push-image --platform linux/{nodes[0]}`",
        )


def _nearest(registry: Registry, ref: ImageRef) -> str | None:
    if ref.digest:
        return None
    with suppress(KfjobError):
        if close := difflib.get_close_matches(ref.wanted, list(registry.tags(ref.repository)), n=1):
            return f"did you mean `{ref.tagged(close[0])}`?"
    return None
