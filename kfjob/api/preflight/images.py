"""Check that every image of a job exists for the processor of the nodes."""

from __future__ import annotations

from collections.abc import Iterator

from kfjob.api.images.check import (
    ImageCheck,
    ImageInspector,
    find_hidden_by_volumes,
    format_rejected_secret,
    inspect_images,
    read_named_secrets,
)
from kfjob.api.images.required_images import find_required_images
from kfjob.api.preflight.cluster import PreflightJob
from kfjob.api.preflight.result import CheckResults
from kfjob.api.target import Target
from kfjob.backends.resources import CORE
from kfjob.base.errors import Forbidden


def check_images(job: PreflightJob, target: Target, results: CheckResults, *, inspector: ImageInspector | None = None) -> None:
    """Check every image in its registry, even if one registry fails, and add to the results."""
    images = find_required_images(job.prepared.objects, architecture=job.prepared.architecture)
    if not target.settings.image_check:
        for image in images:
            results.skip(f"image `{image.image}`", "`image_check` is off")
        return
    paths, architectures = dict(_image_paths(job)), _node_architectures(job, results)
    secrets = read_named_secrets(target, images, job.plan.namespace)
    checks = inspect_images(images, inspector or ImageInspector(profile=target.settings.aws_profile), secrets)
    results.problems += find_hidden_by_volumes(job.prepared, checks)
    for check in checks:
        _add_result(check, paths.get(check.required.image, "overrides"), architectures, results)


def _add_result(check: ImageCheck, path: str, architectures: frozenset[str], results: CheckResults) -> None:
    image, container = check.required.image, check.required.container
    suffix = f" of {container}" if container else ""
    if (err := check.error) and not check.is_certain:
        results.skip(f"image `{image}`{suffix}", err.title)
    elif err:
        title = f"{err.title} ({container})" if container else err.title
        results.error(title, path, detail=err.cause or "", hint=err.hint or "")
    elif mismatch := check.explain_mismatch(architectures):
        hint = "build it with `--platform linux/…` for the nodes, or choose other nodes"
        results.error(f"image `{image}`{suffix} does not support the processor of the nodes", path, detail=mismatch, hint=hint)
    elif check.inspection:
        results.ok(f"image{suffix} {check.inspection.metadata.digest}")
    for secret in check.inspection.rejected_secrets if check.inspection else ():
        results.warning(format_rejected_secret(secret, check.required).removeprefix("warning: "), path)


def _node_architectures(job: PreflightJob, results: CheckResults) -> frozenset[str]:
    try:
        nodes = job.cluster.list_objects(CORE, "nodes", namespaced=False)
    except Forbidden:
        results.skip("architecture of the nodes", "not allowed to list nodes")
        return frozenset()
    return frozenset((node["status"].get("nodeInfo") or {}).get("architecture") or "" for node in nodes) - {""}


def _image_paths(job: PreflightJob) -> Iterator[tuple[str, str]]:
    """Yield each image with its path in the spec."""
    for field in ("sidecars", "init_containers"):
        for index, container in enumerate(getattr(job.prepared.spec.pod, field)):
            yield str(container.get("image", "")), f"pod.{field}.{index}"
    yield job.plan.own_etcd_image, "rendezvous"
    for role in job.plan.roles:
        yield role.image, "image" if role.image == job.plan.image else "master.image"
