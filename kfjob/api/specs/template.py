"""Manifest templates: rendered with an env file's values, checked, and submitted as the objects that they are."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace

from kfjob.api import context, observe_config
from kfjob.api.images.check import check_images
from kfjob.api.planning import linted
from kfjob.api.run import Run
from kfjob.api.settings import Settings
from kfjob.api.specs.imports import checked, import_objects
from kfjob.api.target import cluster_of, find_target
from kfjob.backends.resources import CREATABLE_KINDS
from kfjob.common_types import JsonObject, Notify
from kfjob.compile import template
from kfjob.compile.images import ImageChange, replace_image
from kfjob.compile.launch_record import add_record
from kfjob.errors import Problem, SpecError
from kfjob.plan import resolve
from kfjob.spec import api_objects
from kfjob.spec.job import JobSpec
from kfjob.spec.source import LoadedSpec, Positions


def render_template(
    text: str,
    *,
    file: str,
    values: Mapping[str, str],
    keep: Collection[str],
    settings: Settings,
    notify: Notify,
    image: ImageChange | None = None,
) -> tuple[JsonObject, ...]:
    """The objects of a template, each with its namespace, as they are submitted; `image` makes another of their own.

    `KFJOB_LAUNCH` and `KFJOB_NAMESPACE` have a value too: a launch id, to make a rendezvous id of, and where the job goes.

    Raises:
        SpecError: names without a value, or objects that do not make one job.
        UsageError: there is no one image in whose place another could be put.
    """
    where = context.namespace(settings, "kubernetes")
    launch = context.new_launch_id()
    known = {"KFJOB_LAUNCH": launch, "KFJOB_NAMESPACE": where}
    rendered = template.render(text, values=known | dict(values), keep=keep, file=file)
    if rendered.unresolved:
        notify(f"{', '.join(f'`${name}`' for name in rendered.unresolved)} stays as it is: no value was given")
    if problems := list(_problems(rendered.objects, file, settings.namespace)):
        raise SpecError(problems)
    objects = [one | {"metadata": {"namespace": where} | one["metadata"]} for one in rendered.objects]
    _lint(objects, file, launch, settings=settings, notify=notify)
    return add_record(replace_image(objects, image) if image else objects, launch=launch)


def submit_objects(objects: Sequence[JsonObject], *, settings: Settings, notify: Notify) -> Run:
    """Create the objects; the PyTorchJob owns the others, so that `kfjob stop` ends them with it.

    Raises:
        AlreadyExists: a job of this name is there; nothing was changed.
        NotFound, Refused: an image is not there, or not for the nodes.
    """
    target = find_target(settings, notify=notify)
    check_images(target, objects, notify=notify)
    ref, there = cluster_of(target).create(objects)
    for one in there:
        notify(f"{one['kind']} `{one['metadata']['name']}` is there already and is left as it is; it stays when the job goes")
    (job,) = (one for one in objects if one["kind"] == api_objects.PYTORCHJOB)
    return Run(replace(target, namespace=ref.namespace), ref, observe_config.of_job(job))


def _lint(objects: Sequence[JsonObject], file: str, launch: str, *, settings: Settings, notify: Notify) -> None:
    """Run the rules over the spec that the PyTorchJob would come from.

    Raises:
        SpecError: a rule found an error, or anything at all and the settings are strict.
    """
    (job,) = (one for one in objects if one["kind"] == api_objects.PYTORCHJOB)
    try:
        spec = _with_id(JobSpec.model_validate(checked(import_objects(objects, file=file)).spec), job, objects, launch)
        plan = resolve(spec, context.plan_context(settings, "kubernetes"))
    except SpecError as err:
        notify(f"`{file}` cannot be linted, because no spec can be made of it: {err.problems[0].title}")
        return
    linted(LoadedSpec(spec, Positions(file)), plan, settings=settings, notify=notify, written=job)


def _with_id(spec: JobSpec, job: JsonObject, objects: Sequence[JsonObject], launch: str) -> JobSpec:
    """The spec with the job's own rendezvous id (torch's is `none`), if launches share it, and the store that keeps it."""
    policy = job["spec"].get("elasticPolicy") or {}
    fixed = policy.get("rdzvId") or "none"
    goes_with_it = any(one["kind"] == "Service" and one["metadata"]["name"] == policy.get("rdzvHost") for one in objects)
    return (
        spec
        if launch in fixed or goes_with_it
        else spec.model_copy(update={"rendezvous": spec.rendezvous.model_copy(update={"id": fixed})})
    )


def _problems(objects: Sequence[JsonObject], file: str, namespace: str | None) -> Iterator[Problem]:
    jobs = [one for one in objects if one["kind"] == api_objects.PYTORCHJOB]
    if len(jobs) != 1:
        kinds = ", ".join(one["kind"] for one in objects) or "nothing"
        yield Problem(
            title=f"a template describes one {api_objects.PYTORCHJOB} and what belongs to it, this has {len(jobs)}: {kinds}",
            file=file,
        )
    for one in objects:
        what, place_of = f"{one['kind']} `{one['metadata']['name']}`", one["metadata"].get("namespace")
        if one["kind"] not in CREATABLE_KINDS:
            hint = f"create it with kubectl; known here: {', '.join(CREATABLE_KINDS)}"
            yield Problem(title=f"{what} is of a kind that kfjob does not create", file=file, hint=hint)
        if namespace and place_of not in (None, namespace):
            title = f"{what} is in namespace `{place_of}`, and `{namespace}` was asked for"
            yield Problem(title=title, file=file, hint="write `namespace: ${KFJOB_NAMESPACE}`, or leave it out")
    if len(spread := {one["metadata"].get("namespace") for one in objects}) > 1:
        shown = ", ".join(f"`{name}`" for name in sorted(map(str, spread)))
        yield Problem(title=f"a job and what belongs to it are in one namespace, these are in {shown}", file=file)
