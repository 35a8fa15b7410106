"""Two PyTorchJobs compared by what they mean, and the overrides that make one of the other. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

from kfjob.compile.merge import items_by_name
from kfjob.convert.pod import is_shared_memory
from kfjob.spec import api_objects
from kfjob.spec.api_objects import find_training_container
from kfjob.spec.names import SHARED_MEMORY_VOLUME

Object = dict[str, Any]

MISSING: Any = object()


@dataclass(frozen=True)
class Named:
    """A step of a path: the item of a list that has this name."""

    name: str


Path = tuple["str | Named", ...]


@dataclass(frozen=True, kw_only=True)
class Gap:
    """A path at which the original is not what was made of it. MISSING: it is not there."""

    path: Path
    original: Any
    made: Any


def shown(path: Path) -> str:
    """`spec.template.spec.containers[pytorch].image`."""
    return "".join(f"[{part.name}]" if isinstance(part, Named) else f".{part}" for part in path).removeprefix(".")


def gaps(original: Any, made: Any, path: Path = ()) -> Iterator[Gap]:
    """Where two values differ; lists of named things are compared by name. What is empty is not there."""
    if isinstance(original, dict) and isinstance(made, dict):
        steps: dict[Any, tuple[Any, Any]] = {
            key: (original.get(key, MISSING), made.get(key, MISSING)) for key in dict.fromkeys([*original, *made])
        }
    elif (old := items_by_name(original)) is not None and (new := items_by_name(made)) is not None:
        steps = {Named(name): (old.get(name, MISSING), new.get(name, MISSING)) for name in dict.fromkeys([*old, *new])}
    else:
        if original != made and not (_is_empty(original) and _is_empty(made)):
            yield Gap(path=path, original=original, made=made)
        return
    for step, (one, other) in steps.items():
        yield from gaps(one, other, (*path, step))


def override(tree: Object, path: Path, value: Any) -> None:
    """Put a value into overrides at a path; None removes."""
    here: Any = tree
    for step, following in zip(path, (*path[1:], None), strict=True):
        if following is None:
            if isinstance(step, Named):
                here.append(value)
            else:
                here[step] = value
        elif isinstance(step, Named):
            here = _item(here, step.name)
        else:
            here = here.setdefault(step, [] if isinstance(following, Named) else {})


def _item(items: list[Object], name: str) -> Object:
    for item in items:
        if item["name"] == name:
            return item
    items.append({"name": name})
    return items[-1]


def _is_empty(value: Any) -> bool:
    return value is MISSING or value in (None, "", {}, [])


def normal(job: Object) -> Object:
    """A PyTorchJob without what the cluster and each launch put into it, and with one way of saying each thing."""
    job = deepcopy({key: job[key] for key in ("metadata", "spec")})
    job["metadata"] = _metadata(job["metadata"], ("name", "namespace"))
    policy = job["spec"].get("elasticPolicy") or {}
    policy.pop("rdzvId", None)
    if "rdzvConf" in policy:
        policy["rdzvConf"] = sorted(policy["rdzvConf"], key=lambda pair: str(pair.get("key")))
    for replica in job["spec"]["pytorchReplicaSpecs"].values():
        template = (replica or {}).get("template") or {}
        template["metadata"] = _metadata(template.get("metadata") or {}, ())
        _pod(template.get("spec") or {})
    cleaned: Object = without_nulls(job)
    return cleaned


def _metadata(metadata: Object, keys: tuple[str, ...]) -> Object:
    made = {key: metadata[key] for key in keys if key in metadata}
    for part in ("labels", "annotations"):
        said = metadata.get(part) or {}
        made[part] = {key: value for key, value in said.items() if key not in _NOT_THE_USERS}
    return made


_NOT_THE_USERS = frozenset(
    {
        api_objects.LABEL_MANAGED_BY,
        api_objects.LABEL_LAUNCH,
        api_objects.LABEL_SPEC_HASH,
        api_objects.ANNOTATION_SPEC,
        api_objects.ANNOTATION_SPEC_VERSION,
        "kubectl.kubernetes.io/last-applied-configuration",
    }
)


def _pod(spec: Object) -> None:
    container: Any = find_training_container(spec)
    if container.get("command") and container.get("args"):
        container["command"] = [*container["command"], *container.pop("args")]
    for toleration in spec.get("tolerations") or ():
        toleration.setdefault("operator", "Equal")
    resources = container.get("resources") or {}
    for part, amounts in resources.items():
        if part in ("limits", "requests"):
            resources[part] = {key: str(amount) for key, amount in (amounts or {}).items()}
    for variable in container.get("env") or ():
        if "valueFrom" not in variable:
            variable["value"] = str(variable.get("value", ""))
    _rename_shared_memory(spec, container)


def _rename_shared_memory(spec: Object, container: Object) -> None:
    volumes = {volume["name"]: volume for volume in spec.get("volumes") or ()}
    for mount in container.get("volumeMounts") or ():
        volume = volumes.get(mount["name"], {})
        if is_shared_memory(volume, mount):
            volume["name"] = mount["name"] = SHARED_MEMORY_VOLUME


def without_nulls(value: Any) -> Any:
    """A value without the keys that say nothing."""
    if isinstance(value, dict):
        return {key: without_nulls(inner) for key, inner in value.items() if inner is not None}
    return [without_nulls(item) for item in value] if isinstance(value, list) else value
