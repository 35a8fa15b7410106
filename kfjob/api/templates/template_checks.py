"""What is wrong with the objects of a template before any lint rule: for kfjob, the API server, the operator and the system."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Literal

from kfjob.api.settings import Settings
from kfjob.api.templates.template_files import Template
from kfjob.backends.resources import is_creatable
from kfjob.base.errors import Problem
from kfjob.base.text import plural
from kfjob.kinds.manifests import ManifestReader
from kfjob.kinds.registry import find_importable, list_user_kinds, select_user_jobs
from kfjob.lint.images import find_image_problems
from kfjob.objects.containers import find_containers
from kfjob.shell import syntax as shell_syntax
from kfjob.source.manifest import ManifestObject, find_namespaces, find_unfilled


def check_template_job(job: ManifestObject, reader: ManifestReader, *, is_submitted: bool) -> Iterator[Problem]:
    """Yield what the API server and the job's controller would refuse."""
    unfilled = dict(find_unfilled(job.value.get("spec"), ("spec",)))
    for path in unfilled:
        title = "a reference stays in a field that no program in the pod reads"
        yield job.locate(Problem(title=title, hint="give the name a value, and leave it out of `--keep`"), path)
    for problem in reader.find_problems(job.value):
        if problem.path in unfilled:
            continue
        is_error = is_submitted or not problem.is_unknown_field
        severity: Literal["error", "warning"] = "error" if is_error else "warning"
        located = job.locate(Problem(title=problem.title, hint=problem.hint), problem.path, at_key=problem.is_at_key)
        yield replace(located, severity=severity)


def say_once(problems: Iterable[Problem]) -> list[Problem]:
    """Return the problems without those that an alias repeats: the same text of the template, for the Master and the Worker."""
    places: dict[object, Problem] = {}
    for problem in problems:
        title = re.sub(r"\b(Master|Worker)\b", "", problem.title)
        places.setdefault((title, problem.file, problem.line, problem.column) if problem.line else id(problem), problem)
    return list(places.values())


def check_containers(objects: Sequence[ManifestObject], reader: ManifestReader, settings: Settings) -> Iterator[Problem]:
    """Yield the images that nobody can pull and the commands that no system has; the lint rules check only those of the job."""
    for item in objects:
        for path, container in find_containers(item.value):
            image, command = container.get("image"), container.get("command")
            for problem in find_image_problems(image) if isinstance(image, str) else ():
                if problem.rule not in settings.ignore:
                    yield item.locate(problem, (*path, "image"))
            words = [word for word in command if isinstance(word, str)] if isinstance(command, list) else []
            if syntax := shell_syntax.find_in_words(words):
                yield item.locate(reader.use_manifest_names(Problem(title=syntax.title, hint=syntax.hint)), (*path, "command"))


def _suggest_import(objects: Sequence[ManifestObject], template: Template) -> str | None:
    """Return the command that makes a spec of a job inside one of the objects; None if none has one."""
    if not (found := find_importable(objects)):
        return None
    item, reader = found
    command = f"kfjob import {reader.import_format} {item.positions.file}"
    if template.values or template.exported:
        command = f"kfjob render --template {item.positions.file} … | kfjob import {reader.import_format} -"
    return f"`{command}` makes a spec of the job in it"


def explain_structure(problem: Problem, template: Template) -> Problem:
    """Return the problem, with a hint if a reference is where a list or a mapping must be."""
    text = next((text for name, text in template.files if name == problem.file), "")
    lines = text.split("\n")
    if problem.hint or not problem.title.endswith((" must be a list", " must be a mapping")) or not problem.line:
        return problem
    if problem.line > len(lines) or lines[problem.line - 1][(problem.column or 1) - 1 :][:1] != "$":
        return problem
    hint = "a value never makes structure: write the list or mapping in the template, with a reference for each of its values"
    return replace(problem, hint=hint)


def find_object_problems(objects: Sequence[ManifestObject], template: Template, namespace: str | None) -> Iterator[Problem]:
    """Yield why the objects are not one job, in one namespace, of kinds that kfjob creates."""
    jobs = select_user_jobs(objects)
    if len(jobs) != 1:
        kinds, wanted = ", ".join(item.kind for item in objects) or "nothing", " or ".join(list_user_kinds())
        title = f"a template needs exactly one {wanted}, this has {plural(len(jobs), wanted)}: {kinds}"
        yield Problem(title=title, file=template.name, hint=None if jobs else _suggest_import(objects, template))
    for item in objects:
        if not is_creatable(item.value):
            hint = _suggest_import([item], template) or "take it out of the template, and create it with kubectl"
            yield item.locate(Problem(title=f"kfjob cannot create {item.title}", hint=hint), ("kind",))
        if namespace and item.namespace not in (None, namespace):
            title = f"{item.title} is in namespace `{item.namespace}`, but the selected namespace is `{namespace}`"
            hint = "write `namespace: ${KFJOB_NAMESPACE}`, or remove it"
            yield item.locate(Problem(title=title, hint=hint), ("metadata", "namespace"))
    if not namespace and len(namespaces := find_namespaces(objects)) > 1:
        names = ", ".join(f"`{name}`" for name in namespaces)
        other = next(item for item in objects if item.namespace == namespaces[1])
        title = f"all objects of a job need the same namespace, these have {names}"
        yield other.locate(Problem(title=title), ("metadata", "namespace"))
