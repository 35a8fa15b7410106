"""The spec of an imported job as another kind of job: what this kind cannot have is left out, each with a note. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from functools import reduce
from types import MappingProxyType
from typing import Any

from msgspec.structs import replace

from kfjob.base.capabilities import TargetName
from kfjob.base.common_types import JsonObject
from kfjob.base.errors import Problem, SpecError
from kfjob.convert.conversion import Conversion, Note
from kfjob.kinds.base import JobKind
from kfjob.kinds.registry import KINDS, find_kind, find_target_kind
from kfjob.objects.differences import differences, format_path
from kfjob.plan import Context, resolve
from kfjob.spec.job import JobSpec
from kfjob.validation.field_paths import join_path, list_leaves

_INSTEAD: Mapping[str, Any] = MappingProxyType({"restarts.policy": "OnFailure"})
"""Values that another kind can have, and that come closest to the one it cannot have."""
_SECRET_PLACES = frozenset({"env", "command", "args", "annotations"})
"""Parts of a spec in which a value may be a secret, so that a note names only its place."""
_SHOWN = 100
"""Characters of a value that a note shows."""


def change_kind(conversion: Conversion, target: TargetName) -> Conversion:
    """Return the conversion as a job of another kind: a note names each part that this kind cannot have, with the reason.

    The names under which the pods reach each other become those of the new kind.

    Raises:
        SpecError: the job cannot be of this kind whatever is left out, for example because its name is too long.
    """
    kind = find_kind(find_target_kind(target))
    conversion = replace(conversion, spec=conversion.spec | {"target": target})
    return leave_out(_rename_hosts(conversion, kind), kind)


def leave_out(conversion: Conversion, kind: JobKind) -> Conversion:
    """Return the conversion without what a kind of job cannot have, with a note for each part.

    Raises:
        SpecError: the rest is not valid.
    """
    spec, notes = deepcopy(conversion.spec), list[Note]()
    if spec.get("overrides") and list(kind.find_override_problems(spec["overrides"])):
        notes += _explain_overrides(spec.pop("overrides"), kind)
    while problems := _find_problems(spec, kind):
        before = deepcopy(spec)
        for problem in problems:
            notes += _solve(spec, problem)
        if spec == before:
            raise SpecError(problems)
    return replace(conversion, spec=spec, notes=(*conversion.notes, *notes))


def _find_problems(spec: JsonObject, kind: JobKind) -> list[Problem]:
    """Return what a kind of job cannot express of a spec."""
    context = Context(backend="kubernetes", launch="import", name_pods=kind.name_hosts)
    return list(kind.find_plan_problems(resolve(JobSpec.model_validate(spec), context)))


def _solve(spec: JsonObject, problem: Problem) -> Iterator[Note]:
    """Change the field that a problem is about to one that the kind can have, or remove it."""
    *path, field = problem.path.split(".")
    section = reduce(lambda value, key: value.get(key) or {}, path, spec)
    if field not in section or problem.path == "name":
        return
    value, title = section.pop(field), problem.title
    if problem.path == "scheduling.hyperpod":
        section[field] = {key: item for key, item in value.items() if key == "healthy_nodes"} | {"auto_resume": False}
        yield Note(item=f"{problem.path}.auto_resume", reason=f"becomes false: {title}")
        if "max_retries" in value:
            yield Note(item=f"{problem.path}.max_retries: {value['max_retries']}", reason=f"left out: {title}")
    elif problem.path == "scheduling.gang.priority_class":
        spec["scheduling"].setdefault("priority_class", value)
        yield Note(item=f"{problem.path}: {value}", reason=f"becomes `scheduling.priority_class`: {title}")
    elif problem.path in _INSTEAD:
        section[field] = _INSTEAD[problem.path]
        yield Note(item=f"{problem.path}: {value}", reason=f"becomes `{section[field]}`: {title}")
    elif field == "master" and isinstance(value, dict):
        for part in differences({name: spec.get(name) for name in value}, value, ignore_empty=True):
            yield Note(item=_name_part(f"{field}.{format_path(part.path)}", part.new), reason=f"left out: {title}")
    else:
        yield Note(item=_name_part(problem.path, value), reason=f"left out: {title}")
    if path and not section:
        del spec[path[0]]


def _explain_overrides(overrides: JsonObject, kind: JobKind) -> Iterator[Note]:
    for parts, value in list_leaves(overrides, lambda value: isinstance(value, list)):
        path = join_path(parts)
        reason = f"left out: no field of a spec has it, and a {kind.name} has no `overrides`"
        if path.endswith(".containers") and isinstance(value, list) and len(value) > 1:
            reason += "; `pod.sidecars` has containers beside the one that trains"
        yield Note(item=_name_part(path, value), reason=reason)


def _name_part(path: str, value: Any) -> str:
    """Return a part with its value, unless that is long or may be secret."""
    is_short = isinstance(value, str | int | float) and len(str(value)) <= _SHOWN
    return f"{path}: {value}" if is_short and not _SECRET_PLACES.intersection(path.split(".")) else path


def _rename_hosts(conversion: Conversion, kind: JobKind) -> Conversion:
    """Return the conversion with the host names of another kind's pods replaced, as in `--master_addr=train-worker-0`."""
    spec = JobSpec.model_validate(conversion.spec)
    new = kind.name_hosts(spec.name, spec.max_nodes, master=spec.has_master)
    others = (one.name_hosts(spec.name, spec.max_nodes, master=spec.has_master) for one in KINDS.values() if one is not kind)
    pairs = {old: name for hosts in others for old, name in zip(hosts, new, strict=True) if old != name}
    found: dict[str, str] = {}
    fields = {field: _rename_in(value, pairs, found) for field, value in conversion.spec.items() if field != "name"}
    reason = f"becomes the name of the same pod of a {kind.name}"
    notes = [Note(item=old, reason=f"{reason}, `{name}`") for old, name in found.items()]
    return replace(conversion, spec=conversion.spec | fields, notes=(*conversion.notes, *notes))


def _rename_in(value: Any, pairs: Mapping[str, str], found: dict[str, str]) -> Any:
    """Return a value with the host names in all of its texts replaced; `found` gets those that it has."""
    if isinstance(value, dict):
        return {key: _rename_in(item, pairs, found) for key, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_rename_in(item, pairs, found) for item in value]
    if isinstance(value, str):
        for old in [old for old in pairs if old in value]:
            value, count = re.subn(rf"(?<![\w.-]){re.escape(old)}(?![\w-])", pairs[old], value)
            if count:
                found[old] = pairs[old]
    return value
