"""The image of the training containers in objects that are a job, and another in its place. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from typing import Any

from kfjob.errors import UsageError
from kfjob.events import TRAINING_CONTAINER
from kfjob.spec import api_objects

Object = dict[str, Any]
ImageChange = Callable[[str], str]
"""Given an image's name, another that is to run instead."""


def with_other_image(objects: Sequence[Object], change: ImageChange) -> list[Object]:
    """The objects with another image wherever they have that of the training containers, in init containers too.

    Raises:
        UsageError: the job's replicas have several, or none.
    """
    found = {str(one.get("image") or "") for one in _containers(objects) if one.get("name") == TRAINING_CONTAINER}
    if len(found) != 1 or not all(found):
        shown = ", ".join(f"`{image}`" for image in sorted(found) if image) or "none"
        hint = "give all replicas one image, or push it by itself with `kfjob push-image`"
        cause = f"its training containers have {shown}"
        raise UsageError("an image can be exchanged where a job has one", cause=cause, hint=hint)
    (old,) = found
    new, made = change(old), deepcopy(list(objects))
    for container in _containers(made):
        if container.get("image") == old:
            container["image"] = new
    return made


def _containers(objects: Sequence[Object]) -> Iterator[Object]:
    for one in objects:
        if one["kind"] == api_objects.PYTORCHJOB:
            for replica in one["spec"]["pytorchReplicaSpecs"].values():
                pod = replica["template"]["spec"]
                yield from (*(pod.get("initContainers") or ()), *(pod.get("containers") or ()))
