"""`submit --code` and `relaunch --code`: the folder goes onto the spec's image, and the job runs what comes of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from kfjob.api.target import Target
from kfjob.common_types import Notify
from kfjob.errors import UsageError
from kfjob.plan import JobPlan
from kfjob.spec.job import JobSpec
from kfjob.text import plural

if TYPE_CHECKING:
    from kfjob.image.registry.uploads import ReportProgress


@contextmanager
def _silently() -> Iterator[ReportProgress]:
    yield lambda _digest, _done, _size: None


@dataclass(frozen=True, kw_only=True)
class CodeLayer:
    """Code that is to run instead of what the image holds at that place."""

    folder: Path
    target: str | None = None  # the repository, and if wanted the tag, of the new image; None: that of the spec's image
    workdir: str | None = None  # None: the image's own
    show_progress: Callable[[], AbstractContextManager[ReportProgress]] = _silently
    """Gives what is to be told of the upload, for as long as that lasts."""


def add_code_layer(
    spec: JobSpec, plan: JobPlan, layer: CodeLayer, target: Target, *, notify: Notify, dry_run: bool = False
) -> JobSpec:
    """The spec with its image pinned to the one that has the code on it, which is in the registry then (`coded`)."""
    return spec.model_copy(update={"image": push_code_layer(plan.image, layer, target, notify=notify, dry_run=dry_run)})


def push_code_layer(image: str, layer: CodeLayer, target: Target, *, notify: Notify, dry_run: bool = False) -> str:
    """The image with the code on it, pinned; in the registry then, unless it is a dry run, which only says what it would be.

    Raises:
        UsageError: jobs run on this machine, where there is no image.
        KfjobError: the code could not be pushed.
    """
    if target.name != "kubernetes":
        raise UsageError("code goes onto an image, and jobs on this machine have none", hint="leave `--code` out")
    from kfjob.api.images.push_code import push_code

    with layer.show_progress() as progress:
        pushed = push_code(
            layer.folder,
            image,
            target=layer.target,
            workdir=layer.workdir,
            profile=target.settings.aws_profile,
            notify=notify,
            progress=progress,
            dry_run=dry_run,
        )
    what = f"{plural(pushed.files, 'file')} onto `{image}`" if pushed.is_new else "the registry has this code already"
    notify(f"code: {'would put ' if dry_run and pushed.is_new else ''}{what}: `{pushed.ref}`")
    return str(pushed.ref)
