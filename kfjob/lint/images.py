"""Rules for the names of images."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from kfjob.base.common_types import JsonMapping
from kfjob.base.errors import Problem, UsageError
from kfjob.image.placeholders import find_placeholder
from kfjob.image.references import parse_reference
from kfjob.lint.job import CONTAINER_LISTS, Job
from kfjob.lint.rules import Violation, rule


@rule("latest-image", "warning")
def latest_image(job: Job) -> Iterator[Violation]:
    """Images have a version or a digest.

    `latest`, which is also the default tag, changes over time. A pod that is replaced in the middle of a run can get another
    image than the other pods, and a relaunch another image than the one that was tested.
    """
    for path, image in _images(job):
        with suppress(UsageError):
            if (ref := parse_reference(image)).is_latest:
                reason = "is `latest`" if ref.tag else "has no tag, which means `latest`"
                hint = "use a version or a digest; `kfjob push-image` prints one"
                yield Violation(path=path, message=f"image `{image}` {reason}", hint=hint)


@rule("image-name", "error")
def image_name(job: Job) -> Iterator[Violation]:
    """Names of images are valid.

    A pod with an invalid name stays in InvalidImageName, and the job stays Created.
    """
    yield from _find_violations(job, "image-name")


PLACEHOLDER = "image-placeholder"


@rule(PLACEHOLDER, "error")
def image_placeholder(job: Job) -> Iterator[Violation]:
    """Names of images are not placeholders.

    Nobody can pull an image of an example: with the word `your` in its name, a host in `example.com`, a host of ECR whose
    account is no number of 12 digits, or a tag such as `TAG`.
    """
    yield from _find_violations(job, PLACEHOLDER)


IMAGE_RULES = frozenset(("image-name", PLACEHOLDER))
"""The rules that need only the name of an image."""


def find_image_problems(image: str) -> Iterator[Problem]:
    """Yield why nobody can pull an image of this name, with the ids of the rules."""
    try:
        parse_reference(image)
    except UsageError as err:
        yield Problem(title=err.title, detail=err.cause, hint=err.hint, rule="image-name")
    if reason := find_placeholder(image):
        title, hint = f"image `{image}` is a placeholder: {reason}", "write the image that the pods run"
        yield Problem(title=title, hint=hint, rule=PLACEHOLDER)


def _find_violations(job: Job, rule_id: str) -> Iterator[Violation]:
    for path, image in _images(job):
        for problem in find_image_problems(image):
            if problem.rule == rule_id:
                yield Violation(path=path, message=problem.title, detail=problem.detail, hint=problem.hint)


def _images(job: Job) -> Iterator[tuple[str, str]]:
    """Yield the path and the image of each container; an image of several containers has the path of the first."""
    parts = (pod.get(key) or () for pod in job.pods for key in CONTAINER_LISTS)
    containers: dict[str, JsonMapping] = {}
    for container in (container for part in parts for container in part):
        if container.get("image"):
            containers.setdefault(container["image"], container)
    for image, container in containers.items():
        is_added = not job.is_user_manifest and job.spec.pod.init_containers
        path = "pod" if is_added else job.find_container_path(container, "image")
        yield "image" if image == job.plan.image else path, image
