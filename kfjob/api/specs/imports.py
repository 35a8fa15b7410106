"""Import the text of a manifest as a spec, and check the spec of a conversion."""

from __future__ import annotations

from dataclasses import replace

from kfjob.base.errors import SpecError
from kfjob.convert.conversion import Conversion
from kfjob.kinds.manifests import ANY_JOB, JobChoice
from kfjob.kinds.registry import find_reader
from kfjob.source.foreign_formats import find_template_problem
from kfjob.source.manifest import list_objects
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


def check_conversion(conversion: Conversion, *, image: str | None = None) -> Conversion:
    """Validate the spec of a conversion, with the image if one is given, and return the conversion.

    Raises:
        SpecError: the spec is not valid; with all problems.
    """
    if image:
        conversion = replace(conversion, spec={"name": conversion.spec["name"], "image": image} | conversion.spec)
    JobSpec.model_validate(conversion.spec)
    return conversion
