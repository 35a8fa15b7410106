"""Replace the image of the training containers in the objects of a job. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy

from kfjob.base.common_types import JsonObject
from kfjob.base.errors import UsageError
from kfjob.kinds.registry import get_kind, is_job

ImageChange = Callable[[str], str]
"""Returns the image to run in place of the image it receives."""


def replace_image(objects: Sequence[JsonObject], change: ImageChange) -> list[JsonObject]:
    """Return the objects with a new image in every container that has the training image, init containers included.

    Raises:
        UsageError: the training containers have several images, or none.
    """
    training = {get_kind(item).training_container for item in objects if is_job(item)}
    images = {str(container.get("image") or "") for container in _containers(objects) if container.get("name") in training}
    if len(images) != 1 or not all(images):
        shown = ", ".join(f"`{image}`" for image in sorted(images) if image) or "none"
        hint = "use one image for all replicas, or push the image with `kfjob push-image`"
        cause = f"images of the training containers: {shown}"
        raise UsageError("a job with several images, or without an image, cannot get another image", cause=cause, hint=hint)
    (old_image,) = images
    new_image, new_objects = change(old_image), deepcopy(list(objects))
    for container in _containers(new_objects):
        if container.get("image") == old_image:
            container["image"] = new_image
    return new_objects


def _containers(objects: Sequence[JsonObject]) -> Iterator[JsonObject]:
    for job in objects:
        if is_job(job):
            for template in get_kind(job).read_pod_templates(job):
                yield from (*(template.spec.get("initContainers") or ()), *(template.spec.get("containers") or ()))
