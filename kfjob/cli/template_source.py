"""The job of `--template`, for the commands that take a spec or a template."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kfjob.base.errors import UsageError
from kfjob.cli.options import Settings, notify
from kfjob.cli.spec_source import Source

if TYPE_CHECKING:
    from kfjob.api.specs.template import PlannedTemplate
    from kfjob.api.specs.template_files import Template


def plan_source(source: Source, settings: Settings) -> PlannedTemplate:
    """Return the job of the templates.

    Raises:
        SpecError: a variable has no value, or the objects do not make one job in one namespace.
        UsageError: the templates have no PyTorchJob.
    """
    from kfjob.api.specs.template import plan_template

    return plan_template(read_job_template(source, settings), settings, notify=notify)


def read_job_template(source: Source, settings: Settings) -> Template:
    """Return the templates of the source, which have a PyTorchJob.

    Raises:
        SpecError: a variable has no value.
        UsageError: there is no PyTorchJob.
    """
    from kfjob.api.specs.template import has_inner_job, list_kinds
    from kfjob.objects.api_objects import PYTORCHJOB

    template = source.read_template()
    kinds = list_kinds(template, settings)
    if PYTORCHJOB not in kinds:
        command = f"kfjob render {source.format_template_options()} | kubectl apply -f -"
        title = f"`{source.name}` has no {PYTORCHJOB}: {', '.join(dict.fromkeys(kinds)) or 'it is empty'}"
        hint = f"`{command}` creates its objects"
        if has_inner_job(template, settings):
            has_values = template.values or template.exported
            importing = f"kfjob render {source.format_template_options()} | kfjob import pytorchjob -"
            importing = importing if has_values else f"kfjob import pytorchjob {source.name}"
            hint += f"; `{importing}` makes a spec of the job"
        raise UsageError(title, hint=hint)
    return template
