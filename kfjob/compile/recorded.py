"""What travels with a job that was submitted as objects, so that it can be relaunched without its template. Pure.

The PyTorchJob carries all objects of the template in an annotation, as they were submitted. The launch id, which a template has
from `KFJOB_LAUNCH`, is unique, so another launch is the same text with another id.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from kfjob.compile.images import ImageChange, with_other_image
from kfjob.errors import UsageError
from kfjob.spec import api_objects

Object = dict[str, Any]

MOST_BYTES = 200_000
"""Kubernetes allows 256 KiB for all annotations of an object (apimachinery, validation/objectmeta.go)."""


def with_record(objects: Sequence[Object], *, launch: str) -> tuple[Object, ...]:
    """The objects, their PyTorchJob with the launch's label and with a record of them all; without one if it is too large.

    A Secret is recorded by name alone: annotations are read by people who may not read secrets.
    """
    said = json.dumps([_without_secrets(one) for one in objects], ensure_ascii=False, separators=(",", ":"))
    labels = {api_objects.LABEL_MANAGED_BY: api_objects.FIELD_MANAGER, api_objects.LABEL_LAUNCH: launch}
    record = {api_objects.ANNOTATION_MANIFEST: said} if len(said.encode()) <= MOST_BYTES else {}
    return tuple(_labelled(one, labels, record) if one["kind"] == api_objects.PYTORCHJOB else one for one in objects)


def again(record: str, *, before: str, launch: str, image: ImageChange | None = None) -> tuple[Object, ...]:
    """The objects of a record as another launch, with another `image` in the place of theirs if one is to be made of it.

    Raises:
        UsageError: a Secret is among them, which is not in the record.
    """
    objects: list[Object] = json.loads(record.replace(before, launch) if before else record)
    if secrets := [one["metadata"]["name"] for one in objects if one["kind"] == "Secret"]:
        shown = ", ".join(f"`{name}`" for name in secrets)
        raise UsageError(
            f"the template of this job makes secret {shown}, and secrets are not recorded with a job",
            hint="stop the job and submit its template again, or keep the secret apart from the template",
        )
    return with_record(with_other_image(objects, image) if image else objects, launch=launch)


def _without_secrets(one: Object) -> Object:
    return {key: one[key] for key in ("apiVersion", "kind", "metadata")} if one["kind"] == "Secret" else one


def _labelled(one: Object, labels: dict[str, str], annotations: dict[str, str]) -> Object:
    metadata = dict(one["metadata"])
    metadata["labels"] = {**(metadata.get("labels") or {}), **labels}
    metadata["annotations"] = {**(metadata.get("annotations") or {}), **annotations}
    return {**one, "metadata": metadata}
