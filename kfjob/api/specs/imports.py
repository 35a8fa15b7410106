"""Import the text of a manifest as a spec, change the kind of its job, and check the spec of a conversion."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from dataclasses import replace
from functools import reduce
from typing import Any

from kfjob.base.capabilities import TargetName
from kfjob.base.common_types import JsonObject
from kfjob.base.errors import Problem, SpecError
from kfjob.base.printable import encode_json
from kfjob.convert.conversion import Conversion, Note
from kfjob.kinds.base import JobKind
from kfjob.kinds.manifests import ANY_JOB, JobChoice
from kfjob.kinds.registry import find_kind, find_reader, find_target_kind
from kfjob.kinds.trainjob.importer import convert_trainjobs
from kfjob.plan import Context, resolve
from kfjob.source.foreign_formats import find_template_problem
from kfjob.source.manifest import ManifestObject, list_objects
from kfjob.source.template import fill as template
from kfjob.spec.job import JobSpec


def import_manifest(
    text: str, *, import_format: str = "pytorchjob", file: str | None = None, choice: JobChoice = ANY_JOB
) -> Conversion:
    """Return the spec of the job in a manifest, which may contain other objects, also around the job.

    `import_format` is the kind of job: the `import_format` of its reader.

    Raises:
        SpecError: the text is not a manifest, it does not contain exactly one job of this kind that fits the choice, or no
            spec can express the job.
    """
    try:
        return find_reader(import_format).import_objects(
            list(list_objects(template.parse(text, file=file))), file=file, choice=choice
        )
    except SpecError as error:
        if problem := find_template_problem(text, error.problems, file):
            raise SpecError([problem]) from error
        raise


def import_trainjob(text: str, *, file: str | None = None, name: str | None = None) -> Conversion:
    """Return the spec of the TrainJob in a manifest; its runtime is read if the manifest has it.

    Raises:
        SpecError: the text is not a manifest, it does not contain exactly one TrainJob (of this name), or no spec can express
            the job.
    """
    values, fields, notes = convert_trainjobs([item.value for item in list_objects(template.parse(text, file=file))], name)
    conversion = find_reader("pytorchjob").import_objects([ManifestObject(value=value) for value in values], file=file)
    return replace(conversion, spec=conversion.spec | fields, notes=(*notes, *conversion.notes))


def change_kind(conversion: Conversion, target: TargetName) -> Conversion:
    """Return the conversion as a job of another kind: a note names each part that this kind cannot have, with the reason.

    Raises:
        SpecError: the job cannot be of this kind whatever is left out, for example because its name is too long.
    """
    kind = find_kind(find_target_kind(target))
    spec, notes = deepcopy(conversion.spec) | {"target": target}, list(conversion.notes)
    if spec.get("overrides") and list(kind.find_override_problems(spec["overrides"])):
        overrides = spec.pop("overrides")
        reason = f"left out: no field of a spec has it, and a {kind.name} has no `overrides`"
        notes += [Note(item=item, reason=reason) for item in _list_leaves(overrides)]
    while problems := _find_problems(spec, kind):
        if any(problem.path == "name" for problem in problems):
            raise SpecError(problems)
        for problem in problems:
            *path, field = problem.path.split(".")
            section = reduce(lambda value, key: value.get(key) or {}, path, spec)
            if field not in section:  # an earlier problem has removed it, or the kind refuses a default
                continue
            notes.append(Note(item=f"{problem.path}: {_show(section.pop(field))}", reason=f"left out: {problem.title}"))
        if problems == _find_problems(spec, kind):
            raise SpecError(problems)
    return replace(conversion, spec=spec, notes=tuple(notes))


def _find_problems(spec: JsonObject, kind: JobKind) -> list[Problem]:
    """Return what a kind of job cannot express of a spec."""
    context = Context(backend="kubernetes", launch="import", name_pods=kind.name_hosts)
    return list(kind.find_plan_problems(resolve(JobSpec.model_validate(spec), context)))


def _list_leaves(value: Any, path: str = "") -> Iterator[str]:
    """Yield the paths and values in nested mappings, a list as one value."""
    if isinstance(value, dict) and value:
        for key, item in value.items():
            yield from _list_leaves(item, f"{path}.{key}" if path else key)
    else:
        yield f"{path}: {_show(value)}"


def _show(value: Any) -> str:
    return value if isinstance(value, str) else encode_json(value)


def check_conversion(conversion: Conversion, *, image: str | None = None) -> Conversion:
    """Validate the spec of a conversion, with the image if one is given, and return the conversion.

    Raises:
        SpecError: the spec is not valid; with all problems.
    """
    if image:
        conversion = replace(conversion, spec={"name": conversion.spec["name"], "image": image} | conversion.spec)
    JobSpec.model_validate(conversion.spec)
    return conversion
