"""Import the text of a manifest as a spec, and check the spec of a conversion."""

from __future__ import annotations

from msgspec.structs import replace

from kfjob.api.specs.kind_change import leave_out
from kfjob.base.errors import SpecError
from kfjob.convert.conversion import Conversion
from kfjob.kinds.manifests import ANY_JOB, JobChoice
from kfjob.kinds.registry import find_kind, find_reader
from kfjob.kinds.trainjob.importer import convert_trainjobs
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
    conversion = replace(conversion, spec=conversion.spec | fields, notes=(*notes, *conversion.notes))
    return leave_out(conversion, find_kind("TrainJob"))


def check_conversion(conversion: Conversion, *, image: str | None = None) -> Conversion:
    """Validate the spec of a conversion, with the image if one is given, and return the conversion.

    Raises:
        SpecError: the spec is not valid; with all problems.
    """
    if image:
        conversion = replace(conversion, spec={"name": conversion.spec["name"], "image": image} | conversion.spec)
    JobSpec.model_validate(conversion.spec)
    return conversion
