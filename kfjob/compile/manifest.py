"""The objects of a manifest with their positions in the text, and the one namespace of a job's objects. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from kfjob.common_types import JsonMapping, JsonObject
from kfjob.compile.template import Rendered
from kfjob.errors import Problem
from kfjob.spec.api_objects import PYTORCHJOB, describe_object
from kfjob.spec.paths import Path, join_path
from kfjob.spec.yaml_text import Positions


@dataclass(frozen=True, kw_only=True)
class ManifestObject:
    """One object and where its fields are in the text."""

    value: JsonObject
    positions: Positions = field(default_factory=Positions)
    path: Path = ()
    """The object's path in its document, for an item of a List."""

    @property
    def kind(self) -> str:
        """The object's kind."""
        return str(self.value["kind"])

    @property
    def title(self) -> str:
        """Kind and name, for messages."""
        return describe_object(self.value)

    @property
    def namespace(self) -> str | None:
        """The namespace that the manifest names; None without one."""
        return self.value["metadata"].get("namespace") or None

    def locate(self, problem: Problem, path: Path = (), *, at_key: bool = False) -> Problem:
        """Return the problem with a path in the object and the position of that path, or of its nearest parent."""
        located = self.positions.locate(problem, (*self.path, *path), at_key=at_key)
        return replace(located, path=join_path(path))

    def with_namespace(self, namespace: str) -> ManifestObject:
        """Return the object with the namespace, if it names none."""
        return replace(self, value=self.value | {"metadata": {"namespace": namespace} | self.value["metadata"]})


def list_objects(rendered: Rendered) -> Iterator[ManifestObject]:
    """Yield the objects of a manifest; a List stands for its items."""
    for value, positions in zip(rendered.objects, rendered.positions, strict=True):
        yield from _flatten(ManifestObject(value=value, positions=positions))


def _flatten(item: ManifestObject) -> Iterator[ManifestObject]:
    if not isinstance(items := item.value.get("items"), list):
        yield item
        return
    for index, value in enumerate(items):
        yield from _flatten(ManifestObject(value=value, positions=item.positions, path=(*item.path, "items", index)))


def select_jobs(objects: Iterable[ManifestObject]) -> list[ManifestObject]:
    """Return the PyTorchJobs."""
    return [item for item in objects if item.kind == PYTORCHJOB]


def find_namespaces(objects: Iterable[ManifestObject]) -> list[str]:
    """Return the namespaces that the objects name, in their order."""
    return list(dict.fromkeys(item.namespace for item in objects if item.namespace))


class Workload(NamedTuple):
    """What answers at a host name: a Service, and the object whose pods it selects."""

    service: JsonMapping
    pods: JsonMapping
    image: str


def find_workload(objects: Iterable[JsonMapping], host: str) -> Workload | None:
    """Return what is behind the Service that a host name stands for; None if the objects have no such Service or its pods.

    The Service's selector decides, as in the cluster; of several containers, it is the one with the Service's target port.
    """
    objects = list(objects)
    name = host.partition(".")[0]
    services = (item for item in objects if item["kind"] == "Service" and item["metadata"].get("name") == name)
    service: JsonMapping = next(services, {})
    selector = (service.get("spec") or {}).get("selector") or {}
    ports = {port.get("targetPort", port.get("port")) for port in (service.get("spec") or {}).get("ports") or ()}
    for item in objects if selector else ():
        pod = item if item["kind"] == "Pod" else (item.get("spec") or {}).get("template")
        labels = ((pod.get("metadata") or {}).get("labels") or {}) if isinstance(pod, dict) else {}
        if isinstance(pod, dict) and selector.items() <= labels.items():
            return Workload(service, item, _select_image((pod.get("spec") or {}).get("containers") or (), ports))
    return None


def _select_image(containers: Iterable[JsonMapping], ports: set[Any]) -> str:
    containers = list(containers)
    for container in containers:
        declared = {value for port in container.get("ports") or () for value in (port.get("containerPort"), port.get("name"))}
        if declared & ports:
            return str(container.get("image") or "")
    return str(containers[0].get("image") or "") if containers else ""


def find_images(value: Any, path: Path = ()) -> Iterator[tuple[Path, str]]:
    """Yield the image of every container in an object, with its path."""
    if isinstance(value, dict):
        for key, inner in value.items():
            if key in ("containers", "initContainers") and isinstance(inner, list):
                for index, container in enumerate(inner):
                    if isinstance(container, dict) and isinstance(container.get("image"), str):
                        yield (*path, key, index, "image"), container["image"]
            else:
                yield from find_images(inner, (*path, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from find_images(item, (*path, index))
