"""Find what answers at a host name among the objects of a manifest. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from kfjob.base.common_types import JsonMapping


class Workload(NamedTuple):
    """What answers at a host name: a Service, and the object whose pods it selects."""

    service: JsonMapping
    pods: JsonMapping
    image: str


def find_workload(objects: Iterable[JsonMapping], host: str) -> Workload | None:
    """Return what is behind the Service that a host name stands for; None if the objects have no such Service or its pods.

    The Service's selector decides, as in the cluster; of several containers, it is the one with the Service's target port.
    A part of an object that does not have the shape that Kubernetes requires selects nothing.
    """
    objects = list(objects)
    name = host.partition(".")[0]
    services = (item for item in objects if item["kind"] == "Service" and _get(item, "metadata", "name") == name)
    service: JsonMapping = next(services, {})
    selector = _get(service, "spec", "selector")
    if not isinstance(selector, dict) or not selector:
        return None
    ports = [_get(port, "targetPort") or _get(port, "port") for port in _read_list(_get(service, "spec", "ports"))]
    for item in objects:
        pod = item if item["kind"] == "Pod" else _get(item, "spec", "template")
        if all(_get(pod, "metadata", "labels", key) == value for key, value in selector.items()):
            return Workload(service, item, _select_image(_read_list(_get(pod, "spec", "containers")), ports))
    return None


def find_selector(objects: Any, host: str) -> str:
    """Return the label selector of the Service that a host name stands for, if its pods are among the objects; else ""."""
    items = [item for item in _read_list(objects) if isinstance(item, dict) and "kind" in item]
    workload = find_workload(items, host)
    return ",".join(f"{key}={value}" for key, value in workload.service["spec"]["selector"].items()) if workload else ""


def _select_image(containers: list[Any], ports: list[Any]) -> str:
    for container in containers:
        for port in _read_list(_get(container, "ports")):
            if any(value is not None and value in ports for value in (_get(port, "containerPort"), _get(port, "name"))):
                return str(_get(container, "image") or "")
    return str(_get(containers[0], "image") or "") if containers else ""


def _get(value: Any, *path: str) -> Any:
    """Return the value at a path; None if a part of the path is missing or is not a mapping."""
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def _read_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
