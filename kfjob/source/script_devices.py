"""The argument `devices` of a published script inside a job spec: it must be the number of processes that the job has."""

from __future__ import annotations

from typing import Any

from kfjob.base.common_types import JsonMapping, JsonObject
from kfjob.base.errors import Problem
from kfjob.spec.instances import find_instance

_ALL = ("auto", "-1")
"""Values that mean all devices of a node."""


def check_devices(spec: JsonMapping) -> tuple[JsonObject, list[Problem]]:
    """Return the `train` section of a spec without `devices`, and the problem if the job has another number of processes."""
    train: JsonObject = dict(spec["train"])
    if "devices" not in train:
        return train, []
    devices = train.pop("devices")
    if str(devices) in _ALL:
        return train, []
    name, count = _find_processes(spec)
    if count is not None and str(devices) == str(count):
        return train, []
    title = f"`devices: {devices}` differs from `{name}: {count}`" if name else f"`devices: {devices}` starts no processes here"
    hint = f"set `processes_per_node: {devices}` at the top level of the spec, and remove `devices`"
    return train, [Problem(title=title, path="devices", hint=hint)]


def _find_processes(spec: JsonMapping) -> tuple[str, Any]:
    """Return the field that sets the processes of a node, and its value."""
    if spec.get("processes_per_node") is not None:
        return "processes_per_node", spec["processes_per_node"]
    resources = spec.get("resources")
    if isinstance(resources, dict) and resources.get("gpus") is not None:
        return "resources.gpus", resources["gpus"]
    instance = find_instance(str(spec.get("instance", "")))
    return ("instance", instance.gpus) if instance and instance.gpus else ("", None)
