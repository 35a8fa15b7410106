"""`submit --code` and `relaunch --code`: add a folder to the job's image, and run the new image."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from kfjob.api.prepared import PreparedJob
from kfjob.base.common_types import Notify
from kfjob.base.errors import UsageError
from kfjob.base.text import plural
from kfjob.image.references import parse_reference
from kfjob.kinds.pod_changes import ImageChange

if TYPE_CHECKING:
    from kfjob.image.registry.uploads import ReportProgress


@contextmanager
def _hide_progress() -> Iterator[ReportProgress]:
    yield lambda _digest, _done, _size: None


class CodeLayer(Struct, frozen=True, kw_only=True):
    """A folder of code to add to a job's image."""

    folder: Path
    new_image: str | None = None  # repository of the new image, with or without a tag; None: that of the spec's image
    workdir: str | None = None  # None: the image's own
    include: tuple[str, ...] = ()  # patterns of files to add although they look like secrets
    show_progress: Callable[[], AbstractContextManager[ReportProgress]] = _hide_progress
    """Returns the context in which the progress of the upload is shown."""


def change_code(layer: CodeLayer, job: PreparedJob, *, notify: Notify, dry_run: bool = False) -> ImageChange:
    """Return the change of an image to one with the code layer, pinned by its digest.

    Raises:
        UsageError: the Master and the Workers have different images, and one tag is given for both.
    """
    images = list(dict.fromkeys(role.image for role in job.resolved[1].roles)) if job.resolved else []
    if len(images) > 1 and layer.new_image and (tag := parse_reference(layer.new_image).tag):
        title = f"the Master and the Workers have different images, and the tag `{tag}` can name only one"
        shown = ", ".join(f"`{image}`" for image in images)
        raise UsageError(title, cause=f"images: {shown}", hint="give the repository without a tag: each image gets its own")
    return lambda image: push_code_layer(image, layer, job, notify=notify, dry_run=dry_run)


def push_code_layer(image: str, layer: CodeLayer, job: PreparedJob, *, notify: Notify, dry_run: bool = False) -> str:
    """Push an image with the code layer, and return its reference with the digest. A dry run pushes nothing.

    Raises:
        UsageError: the job runs on this machine, without an image.
        SpecError: a volume of the job hides the code.
        KfjobError: the code cannot be pushed.
    """
    target = job.target
    if not target.capabilities.has_images:
        raise UsageError("`--code` needs an image, and jobs on this machine have none", hint="remove `--code`")
    from kfjob.api.images.hidden_files import ImageCode, check_code
    from kfjob.api.images.push_code import push_code

    def check(folder: str, files: frozenset[str]) -> None:
        code = ImageCode(folder=folder, origin="the code of `--code`", files=files, is_workdir=not layer.workdir)
        check_code(job, image, code, notify)

    with layer.show_progress() as progress:
        result = push_code(
            layer.folder,
            image,
            new_image=layer.new_image,
            workdir=layer.workdir,
            include=layer.include,
            profile=target.settings.aws_profile,
            progress=progress,
            dry_run=dry_run,
            check=check,
        )
    if result.is_new:
        action = f"{'would add' if dry_run else 'added'} {plural(result.files, 'file')} to `{image}`"
    else:
        action = "the registry has this code already"
    notify(f"code: {action}: `{result.ref}`")
    return str(result.ref)
