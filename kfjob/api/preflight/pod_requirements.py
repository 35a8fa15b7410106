"""What the objects of a job ask for, read off the objects themselves: what overrides add counts too. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from kfjob.compile.pod_templates import PodTemplate
from kfjob.spec.job import JobSpec

Object = Mapping[str, Any]
Kind = Literal["secret", "config map", "claim", "service account", "priority class"]
_SCALE = {"n": 1e-9, "u": 1e-6, "m": 1e-3, "": 1, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15, "E": 1e18}
_SCALE |= {f"{letter}i": 1024.0**power for power, letter in enumerate("KMGTPE", start=1)}


@dataclass(frozen=True, kw_only=True)
class Reference:
    """Something of the namespace that a pod cannot start without."""

    kind: Kind
    name: str
    key: str = ""  # of a secret or config map; "" is the whole of it
    path: str = ""  # where the spec says so; "" if its overrides do


def references(pods: Iterable[PodTemplate], spec: JobSpec) -> list[Reference]:
    """What the pods refer to, each once; optional things are left out."""
    places = dict(_places(spec))
    found = {}
    for pod in pods:
        for kind, name, key in _referred(pod.spec):
            path = places.get((kind, name, key)) or places.get((kind, name, ""), "overrides" if spec.overrides else "")
            found[kind, name, key] = Reference(kind=kind, name=name, key=key, path=path)
    return list(found.values())


def _referred(pod: Object) -> Iterator[tuple[Kind, str, str]]:
    if pod.get("serviceAccountName"):
        yield "service account", pod["serviceAccountName"], ""
    if pod.get("priorityClassName"):
        yield "priority class", pod["priorityClassName"], ""
    for one in pod.get("imagePullSecrets") or ():
        yield "secret", one["name"], ""
    for volume in pod.get("volumes") or ():
        secret, config = volume.get("secret") or {}, volume.get("configMap") or {}
        if secret.get("secretName") and not secret.get("optional"):
            yield "secret", secret["secretName"], ""
        if config.get("name") and not config.get("optional"):
            yield "config map", config["name"], ""
        if claim := (volume.get("persistentVolumeClaim") or {}).get("claimName"):
            yield "claim", claim, ""
    for container in (*(pod.get("initContainers") or ()), *(pod.get("containers") or ())):
        yield from _of_a_container(container)


def _of_a_container(container: Object) -> Iterator[tuple[Kind, str, str]]:
    kinds: tuple[tuple[Kind, str, str], ...] = (
        ("secret", "secretKeyRef", "secretRef"),
        ("config map", "configMapKeyRef", "configMapRef"),
    )
    for kind, one_key, all_keys in kinds:
        for variable in container.get("env") or ():
            reference = (variable.get("valueFrom") or {}).get(one_key)
            if reference and not reference.get("optional"):
                yield kind, reference["name"], reference["key"]
        for source in container.get("envFrom") or ():
            if (reference := source.get(all_keys)) and not reference.get("optional"):
                yield kind, reference["name"], ""


Target = tuple[tuple[str, str, str], str]


def _places(spec: JobSpec) -> Iterator[Target]:
    """Where in a spec a thing is named."""
    yield from _places_in_lists(spec)
    keys = {"hub_token": spec.hub_token, "wandb_key": spec.wandb_key}
    keys |= {"rendezvous.user": spec.rendezvous.user, "rendezvous.password": spec.rendezvous.password}
    for path, reference in keys.items():
        if reference:
            yield ("secret", reference.secret, reference.key), path
    whole = (
        ("secret", spec.rendezvous.tls and spec.rendezvous.tls.secret, "rendezvous.tls.secret"),
        ("service account", spec.service_account, "service_account"),
        ("priority class", spec.scheduling.priority_class, "scheduling.priority_class"),
    )
    for kind, name, path in whole:
        if name:
            yield (kind, name, ""), path


def _places_in_lists(spec: JobSpec) -> Iterator[Target]:
    for index, secret in enumerate(spec.image_pull_secrets):
        yield ("secret", secret, ""), f"image_pull_secrets.{index}"
    for index, volume in enumerate(spec.volumes):
        for kind, name in (("secret", volume.secret), ("config map", volume.config_map), ("claim", volume.claim)):
            if name:
                yield (kind, name, ""), f"volumes.{index}"
    for variable, said in spec.env.items():
        if not isinstance(said, str) and said.key and (whole := said.secret or said.config_map):
            yield ("secret" if said.secret else "config map", whole, said.key), f"env.{variable}"


def quantity(text: object) -> float:
    """The number that any Kubernetes quantity stands for; also those that a spec cannot say (`100n`, `1Ei`, `1e3`)."""
    said = str(text)
    unit = next((unit for unit in sorted(_SCALE, key=len, reverse=True) if said.endswith(unit)), "")
    return float(said.removesuffix(unit)) * _SCALE[unit]


def requests(pod: Object) -> dict[str, float]:
    """What the scheduler counts for a pod: all containers and sidecars, or what an init container asks for if that is more."""
    most: dict[str, float] = {}
    for container in _running(pod):
        for name, wanted in _asked(container).items():
            most[name] = most.get(name, 0.0) + wanted
    for container in pod.get("initContainers") or ():
        for name, wanted in _asked(container).items():
            most[name] = max(most.get(name, 0.0), wanted)
    return most


def limits(pod: Object) -> dict[str, float]:
    """The same for limits, of the containers that run."""
    total: dict[str, float] = {}
    for container in _running(pod):
        for name, value in ((container.get("resources") or {}).get("limits") or {}).items():
            total[name] = total.get(name, 0.0) + quantity(value)
    return total


def _running(pod: Object) -> Sequence[Object]:
    beside = [one for one in pod.get("initContainers") or () if one.get("restartPolicy") == "Always"]
    return [*(pod.get("containers") or ()), *beside]


def _asked(container: Object) -> dict[str, float]:
    resources = container.get("resources") or {}
    said = {**(resources.get("limits") or {}), **(resources.get("requests") or {})}  # a limit alone is the request too
    return {name: quantity(value) for name, value in said.items()}
