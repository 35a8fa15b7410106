"""Every value of a template's job, and its position: what the manifest says, and what the operator adds to it."""

from __future__ import annotations

from msgspec import Struct

from kfjob.api.prepared import PreparedJob
from kfjob.api.specs.explain import Explanation, Value, explain_spec, format_value
from kfjob.api.templates.template_source import PreparedTemplate
from kfjob.base.errors import NotFound, Problem
from kfjob.objects.containers import show_path
from kfjob.redaction import Redactor, collect_secrets
from kfjob.source.manifest import ManifestObject
from kfjob.validation.field_paths import Path, list_leaves


class TemplateExplanation(Struct, frozen=True, kw_only=True):
    """The values of a template's objects, and what was found in them."""

    prepared: PreparedTemplate
    values: tuple[Value, ...]

    @property
    def findings(self) -> tuple[Problem, ...]:
        """What the API server, the operator and the lint rules have against the job."""
        return self.prepared.findings

    @property
    def pods(self) -> tuple[str, ...]:
        """The names of the pods by node rank.

        Raises:
            SpecError: the job has errors that leave no plan.
        """
        return self.prepared.plan.pods

    def operator_environment(self, node_rank: int) -> dict[str, str]:
        """Return what the job's controller will add to the environment of one pod.

        Raises:
            NotFound: the job has no such pod.
            SpecError: the job has errors that leave no plan.
        """
        if not 0 <= node_rank < len(self.pods):
            raise NotFound(f"there is no node rank {node_rank}", hint=f"the ranks are 0 to {len(self.pods) - 1}")
        return self.prepared.reader.list_variables(self.prepared.job.value, self.prepared.plan, node_rank)


def explain(job: PreparedJob) -> Explanation | TemplateExplanation:
    """Return every value of a job: what its spec or its template says, and what kfjob and the operator add to it."""
    return explain_template(job) if isinstance(job, PreparedTemplate) else explain_spec(job)


def explain_template(prepared: PreparedTemplate) -> TemplateExplanation:
    """Return the values of the job and of the objects beside it, in the order of the files."""
    values: list[Value] = []
    for item in prepared.manifest_objects:
        prefix = "" if item is prepared.job else f"{item.title.replace('`', '')}: "
        redactor = Redactor(collect_secrets(item.value))
        hide = item.kind == "Secret"
        for path, value in list_leaves(item.value):
            if value is not None:
                values.append(_explain(item, path, format_value(value), prefix=prefix, redactor=redactor, hide=hide))
    values += [
        Value(path=show_path(prepared.job.value, path), value=value, origin="operator", reason="its default")
        for path, value in prepared.reader.list_defaults(prepared.job.value)
    ]
    return TemplateExplanation(prepared=prepared, values=tuple(values))


def _explain(
    item: ManifestObject,
    path: Path,
    value: str,
    *,
    prefix: str,
    redactor: Redactor,
    hide: bool,
) -> Value:
    position = item.positions.values.get((*item.path, *path))
    file = item.positions.file or ""
    shown = "(hidden)" if hide and path[0] in ("data", "stringData") else redactor.value(value, str(path[-1]))
    if position is None:
        reason = "the namespace of the job's objects" if path == ("metadata", "namespace") else ""
        return Value(path=prefix + show_path(item.value, path), value=shown, origin="kfjob", reason=reason)
    name = item.positions.variables.get((*item.path, *path))
    location = f"{file}:{position[0]}:{position[1]}"
    return Value(
        path=prefix + show_path(item.value, path),
        value=shown,
        origin="variable" if name else "template",
        reason=f"{location}, value of `{name}`" if name else "",
        location=location,
    )
