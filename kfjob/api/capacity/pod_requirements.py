"""Read what the pods of a job refer to and request, from the manifests: `overrides` count too. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Literal

from msgspec import Struct

from kfjob.base.common_types import JsonMapping
from kfjob.base.units import GIB, parse_quantity
from kfjob.kinds.base import PodTemplate
from kfjob.spec.job import JobSpec

Kind = Literal["secret", "config map", "claim", "service account", "priority class"]
ReferenceKey = tuple[str, str, str]
"""Kind, name, and key of a secret or config map."""


class Reference(Struct, frozen=True, kw_only=True):
    """An object that must exist before a pod can start."""

    kind: Kind
    name: str
    key: str = ""  # in a secret or config map; empty: the whole object
    path: str = ""  # in the spec


def find_references(templates: Iterable[PodTemplate], spec: JobSpec) -> list[Reference]:
    """Return what the pods refer to, without duplicates and without optional references."""
    paths = dict(_spec_paths(spec))
    references = {}
    for template in templates:
        for kind, name, key in _pod_references(template.spec):
            path = paths.get((kind, name, key)) or paths.get((kind, name, ""), "overrides" if spec.overrides else "")
            references[kind, name, key] = Reference(kind=kind, name=name, key=key, path=path)
    return list(references.values())


def _pod_references(pod: JsonMapping) -> Iterator[tuple[Kind, str, str]]:
    if pod.get("serviceAccountName"):
        yield "service account", pod["serviceAccountName"], ""
    if pod.get("priorityClassName"):
        yield "priority class", pod["priorityClassName"], ""
    for pull_secret in pod.get("imagePullSecrets") or ():
        if pull_secret.get("name"):
            yield "secret", pull_secret["name"], ""
    for volume in pod.get("volumes") or ():
        secret, config = volume.get("secret") or {}, volume.get("configMap") or {}
        if secret.get("secretName") and not secret.get("optional"):
            yield "secret", secret["secretName"], ""
        if config.get("name") and not config.get("optional"):
            yield "config map", config["name"], ""
        if claim := (volume.get("persistentVolumeClaim") or {}).get("claimName"):
            yield "claim", claim, ""
    for container in (*(pod.get("initContainers") or ()), *(pod.get("containers") or ())):
        yield from _container_references(container)


def _container_references(container: JsonMapping) -> Iterator[tuple[Kind, str, str]]:
    kinds: tuple[tuple[Kind, str, str], ...] = (
        ("secret", "secretKeyRef", "secretRef"),
        ("config map", "configMapKeyRef", "configMapRef"),
    )
    for kind, key_field, object_field in kinds:
        for variable in container.get("env") or ():
            reference = (variable.get("valueFrom") or {}).get(key_field)
            if reference and not reference.get("optional"):
                yield kind, reference["name"], reference["key"]
        for source in container.get("envFrom") or ():
            if (reference := source.get(object_field)) and not reference.get("optional"):
                yield kind, reference["name"], ""


def _spec_paths(spec: JobSpec) -> Iterator[tuple[ReferenceKey, str]]:
    """Yield every reference of a spec with its path."""
    yield from _list_paths(spec)
    keys = {"hub_token": spec.hub_token, "wandb_key": spec.wandb_key}
    keys |= {"rendezvous.user": spec.rendezvous.user, "rendezvous.password": spec.rendezvous.password}
    for path, reference in keys.items():
        if reference:
            yield ("secret", reference.secret, reference.key), path
    objects = (
        ("secret", spec.rendezvous.tls and spec.rendezvous.tls.secret, "rendezvous.tls.secret"),
        ("service account", spec.service_account, "service_account"),
        ("priority class", spec.scheduling.priority_class, "scheduling.priority_class"),
    )
    for kind, name, path in objects:
        if name:
            yield (kind, name, ""), path


def _list_paths(spec: JobSpec) -> Iterator[tuple[ReferenceKey, str]]:
    for index, secret in enumerate(spec.image_pull_secrets):
        yield ("secret", secret, ""), f"image_pull_secrets.{index}"
    for index, volume in enumerate(spec.volumes):
        for kind, name in (("secret", volume.secret), ("config map", volume.config_map), ("claim", volume.claim)):
            if name and not volume.optional:
                yield (kind, name, ""), f"volumes.{index}"
    for index, source in enumerate(spec.env_from):
        if not source.optional:
            kind, name = ("secret", source.secret) if source.secret else ("config map", source.config_map)
            yield (kind, name or "", ""), f"env_from.{index}"
    for variable, value in spec.env.items():
        if not isinstance(value, str) and value.key and (name := value.secret or value.config_map):
            yield ("secret" if value.secret else "config map", name, value.key), f"env.{variable}"


def sum_requests(pod: JsonMapping) -> dict[str, float]:
    """Return the requests of a pod as the scheduler counts them.

    These are the sum of all containers and sidecars, or the request of an init container where it is larger.
    """
    total: dict[str, float] = {}
    for container in _running_containers(pod):
        for name, amount in _container_requests(container).items():
            total[name] = total.get(name, 0.0) + amount
    for container in pod.get("initContainers") or ():
        for name, amount in _container_requests(container).items():
            total[name] = max(total.get(name, 0.0), amount)
    return total


def sum_limits(pod: JsonMapping) -> dict[str, float]:
    """Return the limits of all containers and sidecars of a pod."""
    total: dict[str, float] = {}
    for container in _running_containers(pod):
        for name, value in ((container.get("resources") or {}).get("limits") or {}).items():
            total[name] = total.get(name, 0.0) + parse_quantity(value)
    return total


def format_amount(resource: str, amount: float) -> str:
    """Return an amount of a resource or of a quota's item: bytes in Gi, others as a plain number."""
    name = resource.removeprefix("requests.").removeprefix("limits.")
    is_bytes = name in ("memory", "ephemeral-storage", "storage") or name.startswith("hugepages-")
    return f"{amount / GIB:.4g}Gi" if is_bytes else f"{amount:g}"


def _running_containers(pod: JsonMapping) -> list[JsonMapping]:
    sidecars = [container for container in pod.get("initContainers") or () if container.get("restartPolicy") == "Always"]
    return [*(pod.get("containers") or ()), *sidecars]


def _container_requests(container: JsonMapping) -> dict[str, float]:
    resources = container.get("resources") or {}
    values = {**(resources.get("limits") or {}), **(resources.get("requests") or {})}  # a limit without a request is both
    return {name: parse_quantity(value) for name, value in values.items()}
