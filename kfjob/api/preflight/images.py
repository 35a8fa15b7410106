"""Whether every image of a job is there, for the processors of the nodes."""

from __future__ import annotations

from collections.abc import Iterator

from kfjob.api.images.check import ImageCheck, ImageInspector, format_rejected_secret, inspect_images, read_named_secrets
from kfjob.api.images.required_images import find_required_images
from kfjob.api.preflight.cluster import Wanted
from kfjob.api.preflight.result import Checked
from kfjob.api.target import Target
from kfjob.backends.resources import CORE
from kfjob.errors import Forbidden


def check(wanted: Wanted, target: Target, found: Checked, *, inspector: ImageInspector | None = None) -> None:
    """Ask the registries, all of them whatever one says."""
    instance = wanted.plan.instance.architecture if wanted.plan.instance else ""
    needed = find_required_images(wanted.objects, architecture=instance)
    if not target.settings.image_check:
        for one in needed:
            found.skip(f"image `{one.image}`", "`image_check` is off")
        return
    asked = inspector or ImageInspector(profile=target.settings.aws_profile)
    places, nodes = dict(_places(wanted)), _processors(wanted, found)
    for answer in inspect_images(needed, asked, read_named_secrets(target, needed, wanted.plan.namespace)):
        _tell(answer, places.get(answer.required.image, "overrides"), nodes, found)


def _tell(answer: ImageCheck, path: str, nodes: frozenset[str], found: Checked) -> None:
    image = answer.required.image
    whose = f" of {answer.required.container}" if answer.required.container else ""
    if (err := answer.error) and not answer.is_certain:
        found.skip(f"image `{image}`{whose}", err.title)
    elif err:
        found.error(
            f"{err.title}{f' ({answer.required.container})' if whose else ''}",
            path,
            detail=err.cause or "",
            hint=err.hint or "",
        )
    elif misfit := answer.explain_mismatch(nodes):
        hint = "build it with `--platform linux/…` for them, or choose other nodes"
        found.error(f"image `{image}`{whose} is not for the processor of the nodes", path, detail=misfit, hint=hint)
    elif answer.inspection:
        found.good.append(f"image{whose} {answer.inspection.metadata.digest}")
    for secret in answer.inspection.rejected_secrets if answer.inspection else ():
        found.warning(format_rejected_secret(secret, answer.required).removeprefix("warning: "), path)


def _processors(wanted: Wanted, found: Checked) -> frozenset[str]:
    try:
        nodes = wanted.cluster.list_objects(CORE, "nodes", namespaced=False)
    except Forbidden:
        found.skip("architecture of the nodes", "not allowed to see them with these rights")
        return frozenset()
    return frozenset((node["status"].get("nodeInfo") or {}).get("architecture") or "" for node in nodes) - {""}


def _places(wanted: Wanted) -> Iterator[tuple[str, str]]:
    """Where in the spec an image is named."""
    for field in ("sidecars", "init_containers"):
        for index, container in enumerate(getattr(wanted.spec.pod, field)):
            yield str(container.get("image", "")), f"pod.{field}.{index}"
    yield wanted.plan.own_etcd_image, "rendezvous"
    yield wanted.plan.image, "image"
