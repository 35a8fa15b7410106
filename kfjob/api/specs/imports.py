"""Import the text of a manifest as a spec, and check the spec of a conversion."""

from __future__ import annotations

from dataclasses import replace

from kfjob.base.errors import SpecError
from kfjob.convert.conversion import Conversion
from kfjob.kinds.pytorchjob.importer.import_job import import_objects
from kfjob.kinds.pytorchjob.importer.job_search import ANY_JOB, Choice
from kfjob.source.foreign_formats import find_template_problem
from kfjob.source.manifest import list_objects
from kfjob.source.template import fill as template
from kfjob.spec.job import JobSpec


def import_pytorchjob(text: str, *, file: str | None = None, choice: Choice = ANY_JOB) -> Conversion:
    """Return the spec of the PyTorchJob in a manifest, which may contain other objects, also around the job.

    Raises:
        SpecError: the text is not a manifest, does not contain exactly one PyTorchJob that fits the choice, or no spec can
            express it.
    """
    try:
        return import_objects(list(list_objects(template.parse(text, file=file))), file=file, choice=choice)
    except SpecError as error:
        if problem := find_template_problem(text, error.problems, file):
            raise SpecError([problem]) from error
        raise


def check_conversion(conversion: Conversion, *, image: str | None = None) -> Conversion:
    """Validate the spec of a conversion, with the image if one is given, and return the conversion.

    Raises:
        SpecError: the spec is not valid; with all problems.
    """
    if image:
        conversion = replace(conversion, spec={"name": conversion.spec["name"], "image": image} | conversion.spec)
    JobSpec.model_validate(conversion.spec)
    return conversion
