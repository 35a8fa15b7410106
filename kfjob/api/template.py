"""Manifest templates: rendered with an env file's values, checked, and submitted as the objects that they are."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace

from kfjob.api import context
from kfjob.api.config import Settings
from kfjob.api.place import Notice, cluster_of, place
from kfjob.api.run import Run
from kfjob.backends.kubernetes.requests import RESOURCES
from kfjob.compile import template
from kfjob.compile.template import Object
from kfjob.errors import Problem, SpecError
from kfjob.observe.config import ObserveConfig
from kfjob.spec import names


def render_template(
    text: str, *, file: str, values: Mapping[str, str], keep: Collection[str], settings: Settings, notice: Notice
) -> tuple[Object, ...]:
    """The objects of a template, each with its namespace, as they are submitted.

    `KFJOB_LAUNCH` and `KFJOB_NAMESPACE` have a value too: a launch id, to make a rendezvous id of, and where the job goes.

    Raises:
        SpecError: names without a value, or objects that do not make one job.
    """
    where = context.namespace(settings, "kubernetes")
    known = {"KFJOB_LAUNCH": context.new_launch_id(), "KFJOB_NAMESPACE": where}
    rendered = template.render(text, values=known | dict(values), keep=keep, file=file)
    if rendered.left:
        notice(f"{', '.join(f'`${name}`' for name in rendered.left)} stays as it is: no value was given")
    if problems := list(_problems(rendered.objects, file, settings.namespace)):
        raise SpecError(problems)
    return tuple(one | {"metadata": {"namespace": where} | one["metadata"]} for one in rendered.objects)


def submit_objects(objects: Sequence[Object], *, settings: Settings, notice: Notice) -> Run:
    """Create the objects; the PyTorchJob owns the others, so that `kfjob stop` ends them with it.

    Raises:
        AlreadyExists: a job of this name is there; nothing was changed.
    """
    at = place(settings, notice=notice)
    ref, there = cluster_of(at).create(objects)
    for one in there:
        notice(f"{one['kind']} `{one['metadata']['name']}` is there already and is left as it is; it stays when the job goes")
    (job,) = (one for one in objects if one["kind"] == names.KIND)
    return Run(replace(at, namespace=ref.namespace), ref, _config(job))


def _problems(objects: Sequence[Object], file: str, namespace: str | None) -> Iterator[Problem]:
    jobs = [one for one in objects if one["kind"] == names.KIND]
    if len(jobs) != 1:
        kinds = ", ".join(one["kind"] for one in objects) or "nothing"
        yield Problem(
            title=f"a template describes one {names.KIND} and what belongs to it, this has {len(jobs)}: {kinds}", file=file
        )
    for one in objects:
        what, place_of = f"{one['kind']} `{one['metadata']['name']}`", one["metadata"].get("namespace")
        if one["kind"] not in RESOURCES:
            hint = f"create it with kubectl; known here: {', '.join(RESOURCES)}"
            yield Problem(title=f"{what} is of a kind that kfjob does not create", file=file, hint=hint)
        if namespace and place_of not in (None, namespace):
            title = f"{what} is in namespace `{place_of}`, and `{namespace}` was asked for"
            yield Problem(title=title, file=file, hint="write `namespace: ${KFJOB_NAMESPACE}`, or leave it out")
    if len(spread := {one["metadata"].get("namespace") for one in objects}) > 1:
        shown = ", ".join(f"`{name}`" for name in sorted(map(str, spread)))
        yield Problem(title=f"a job and what belongs to it are in one namespace, these are in {shown}", file=file)


def _config(job: Object) -> ObserveConfig:
    """What observation needs of a PyTorchJob that was never a spec."""
    spec = job.get("spec") or {}
    replicas = spec.get("pytorchReplicaSpecs") or {}
    pods = [
        names.pod_name(job["metadata"]["name"], kind, index)
        for kind in ("Master", "Worker")
        if kind in replicas
        for index in range((replicas[kind] or {}).get("replicas", 1))
    ]
    return ObserveConfig(workers=tuple(pods), rendezvous=(spec.get("elasticPolicy") or {}).get("rdzvBackend") or "")
