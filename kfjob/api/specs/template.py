"""Render manifest templates with the values of an env file, lint them, and submit their objects unchanged."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace

from kfjob.api import observe_config
from kfjob.api.images.check import check_images
from kfjob.api.planning import make_launch_id, plan_manifest
from kfjob.api.reader import LiveReader
from kfjob.api.settings import Settings
from kfjob.api.specs.imports import check_conversion, import_objects
from kfjob.api.target import Target, find_target, make_target
from kfjob.backends.resources import CREATABLE_KINDS
from kfjob.common_types import JsonObject, Notify
from kfjob.compile import template
from kfjob.compile.images import ImageChange, replace_image
from kfjob.compile.launch_record import add_record
from kfjob.errors import Problem, SpecError, UsageError
from kfjob.spec import api_objects
from kfjob.spec.job import JobSpec
from kfjob.spec.source import LoadedSpec, Positions
from kfjob.text import plural


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
    """Return the objects of a template, each with its namespace, as they are submitted; `image` changes the job's image.

    `KFJOB_LAUNCH` (a launch id, for a rendezvous id) and `KFJOB_NAMESPACE` (the job's namespace) also have values.

    Raises:
        SpecError: a variable has no value, or the objects do not make one job.
        UsageError: `image` cannot be applied, because the job does not have exactly one image.
    """
    target = make_target(settings, "kubernetes")
    launch = make_launch_id()
    variables = {"KFJOB_LAUNCH": launch, "KFJOB_NAMESPACE": target.namespace}
    rendered = template.render(text, values=variables | dict(values), keep=keep, file=file)
    if rendered.unresolved:
        notify(f"{', '.join(f'`${name}`' for name in rendered.unresolved)} is left unchanged, because it has no value")
    if problems := list(_find_problems(rendered.objects, file, settings.namespace)):
        raise SpecError(problems)
    objects = [item | {"metadata": {"namespace": target.namespace} | item["metadata"]} for item in rendered.objects]
    _lint(objects, file, launch, target=target, notify=notify)
    return add_record(replace_image(objects, image) if image else objects, launch=launch)


def check_template_target(settings: Settings) -> None:
    """Check that a template can be submitted to the target of the settings.

    Raises:
        UsageError: the target is this machine.
    """
    if not find_target(settings).kind.has_api_server:
        raise UsageError("this needs a cluster, and jobs run on this machine", hint="use `--backend kubernetes`")


def submit_objects(objects: Sequence[JsonObject], *, settings: Settings, notify: Notify) -> LiveReader:
    """Create the objects. The PyTorchJob owns the others, so `kfjob stop` removes them with it.

    Raises:
        AlreadyExists: a job with this name exists; nothing was changed.
        NotFound, Refused: an image does not exist, or not for the nodes' architecture.
    """
    target = find_target(settings, notify=notify)
    check_images(target, objects, notify=notify)
    ref, existing = target.cluster.create(objects)
    for item in existing:
        name = f"{item['kind']} `{item['metadata']['name']}`"
        notify(f"{name} exists already; it was not changed and stays when the job is removed")
    return LiveReader(replace(target, namespace=ref.namespace), ref, observe_config.from_pytorchjob(_find_job(objects)))


def _lint(objects: Sequence[JsonObject], file: str, launch: str, *, target: Target, notify: Notify) -> None:
    """Lint the spec that the PyTorchJob can be imported to.

    Raises:
        SpecError: a rule found an error; with the setting `strict`, any finding is an error.
    """
    job = _find_job(objects)
    try:
        conversion = check_conversion(import_objects(objects, file=file))
        spec = _keep_rendezvous_id(JobSpec.model_validate(conversion.spec), job, objects, launch)
        planned = plan_manifest(LoadedSpec(spec, Positions(file)), target, job)
    except SpecError as err:
        notify(f"`{file}` cannot be linted, because it cannot be imported as a spec: {err.problems[0].title}")
        return
    planned.check_findings(notify)


def _keep_rendezvous_id(spec: JobSpec, job: JsonObject, objects: Sequence[JsonObject], launch: str) -> JobSpec:
    """Return the spec with the job's own rendezvous id (torch's default is `none`), if launches share the id and its store."""
    policy = job["spec"].get("elasticPolicy") or {}
    rendezvous_id = policy.get("rdzvId") or "none"
    brings_store = any(item["kind"] == "Service" and item["metadata"]["name"] == policy.get("rdzvHost") for item in objects)
    if launch in rendezvous_id or brings_store:
        return spec
    return spec.model_copy(update={"rendezvous": spec.rendezvous.model_copy(update={"id": rendezvous_id})})


def _find_job(objects: Sequence[JsonObject]) -> JsonObject:
    return next(item for item in objects if item["kind"] == api_objects.PYTORCHJOB)


def _find_problems(objects: Sequence[JsonObject], file: str, namespace: str | None) -> Iterator[Problem]:
    jobs = [item for item in objects if item["kind"] == api_objects.PYTORCHJOB]
    if len(jobs) != 1:
        kinds = ", ".join(item["kind"] for item in objects) or "nothing"
        count = plural(len(jobs), api_objects.PYTORCHJOB)
        yield Problem(title=f"a template needs exactly one {api_objects.PYTORCHJOB}, this has {count}: {kinds}", file=file)
    for item in objects:
        name, item_namespace = f"{item['kind']} `{item['metadata']['name']}`", item["metadata"].get("namespace")
        if item["kind"] not in CREATABLE_KINDS:
            hint = f"create it with kubectl; kfjob creates {', '.join(CREATABLE_KINDS)}"
            yield Problem(title=f"kfjob cannot create {name}", file=file, hint=hint)
        if namespace and item_namespace not in (None, namespace):
            title = f"{name} is in namespace `{item_namespace}`, but the selected namespace is `{namespace}`"
            yield Problem(title=title, file=file, hint="write `namespace: ${KFJOB_NAMESPACE}`, or remove it")
    if len(namespaces := {item["metadata"].get("namespace") for item in objects}) > 1:
        names = ", ".join(f"`{name}`" for name in sorted(map(str, namespaces)))
        yield Problem(title=f"all objects of a job need the same namespace, these have {names}", file=file)
