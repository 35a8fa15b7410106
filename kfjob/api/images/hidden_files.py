"""Find the volumes that hide what a job runs: a volume hides all that the image has in the folder where it is mounted. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Literal

from msgspec import Struct

from kfjob.api.prepared import PreparedJob, sort_problems
from kfjob.base.common_types import JsonMapping, Notify
from kfjob.base.errors import Problem, SpecError
from kfjob.kinds.registry import get_job, get_kind
from kfjob.lint.check import find_role_path
from kfjob.lint.storage import HIDES_PROGRAM
from kfjob.plan.job_scripts import find_program_file
from kfjob.spec.job import make_master_spec
from kfjob.validation.field_paths import join_path

if TYPE_CHECKING:
    from kfjob.image.metadata import ImageMetadata

_DRIVER_FOLDER = "/usr/local/nvidia"
"""The folder on the search path of images over which clusters mount the driver of the node."""


class ImageCode(Struct, frozen=True, kw_only=True):
    """The code in an image."""

    folder: str  # absolute
    origin: str  # how it came there, in messages
    files: frozenset[str] | None = None  # relative paths; None: unknown
    is_workdir: bool = True  # whether the folder is the image's own working directory


class _Mount(Struct, frozen=True):
    """A volume in the training container of a role."""

    name: str
    folder: str
    path: str  # of the field that sets the folder, in the spec or in the manifest

    def hides(self, path: str) -> bool:
        return bool(path) and PurePosixPath(path).is_relative_to(self.folder)


class _Container(Struct, frozen=True):
    """The training container of a role."""

    command: tuple[str, ...]
    args: tuple[str, ...]
    working_dir: str  # "": that of the image
    mounts: tuple[_Mount, ...]


def check_code(job: PreparedJob, image: str, code: ImageCode, notify: Notify) -> None:
    """Refuse volumes that hide the code in an image of a job. `notify` receives those that hide other files of the folder.

    Raises:
        SpecError: every such volume, with its position.
    """
    detail = _explain_folder(job, image, code)
    report(_finish(job, image, lambda container: _find_hidden_code(container, code, detail)), notify)


def _explain_folder(job: PreparedJob, image: str, code: ImageCode) -> str:
    """Return why the code is in its folder, and where the user set that."""
    if not code.is_workdir:
        return f"`--workdir` names `{code.folder}`"
    (place,) = job.locate([Problem(title="", path="image")])
    where = f" ({place.location()})" if place.line else ""
    return f"`{code.folder}` is the working directory of image `{image}`{where}"


def report(problems: Sequence[Problem], notify: Notify) -> None:
    """Send warnings to `notify`.

    Raises:
        SpecError: a problem is an error.
    """
    if any(problem.severity == "error" for problem in problems):
        raise SpecError(sort_problems(problems))
    for problem in problems:
        notify("\n".join(problem.lines()))


def find_hidden_files(job: PreparedJob, image: str, metadata: ImageMetadata) -> list[Problem]:
    """Return the volumes that hide what the job runs of an image: errors if that is certain, else warnings."""
    code = ImageCode(folder=metadata.workdir, origin=f"the code in image `{image}`, which `--code` has added")
    detail = _explain_folder(job, image, code)

    def find(container: _Container) -> Iterator[Problem]:
        if metadata.has_code and metadata.workdir:
            yield from _find_hidden_code(container, code, detail)
        else:
            yield from _find_hidden_script(container, image, metadata)
        yield from _find_hidden_programs(container, image, metadata)

    return _finish(job, image, find)


def _finish(job: PreparedJob, image: str, find: Callable[[_Container], Iterator[Problem]]) -> list[Problem]:
    """Return what `find` yields for the containers with the image, once each, with positions.

    A warning is left out if lint has given one of that volume, without the image.
    """
    ignored = {*job.target.settings.ignore, *(job.spec.lint.ignore if job.resolved else ())}
    if HIDES_PROGRAM in ignored:
        return []
    problems = {problem.title: problem for container in _list_containers(job, image) for problem in find(container)}
    located = job.locate(replace(problem, rule=HIDES_PROGRAM) for problem in problems.values())
    known = {(finding.rule, finding.line, finding.severity) for finding in job.findings}
    return [problem for problem in located if (problem.rule, problem.line, problem.severity) not in known]


def _find_hidden_code(container: _Container, code: ImageCode, detail: str) -> Iterator[Problem]:
    start = container.working_dir or code.folder
    script = find_program_file((*container.command, *container.args))
    program = str(PurePosixPath(start, script)) if script else ""
    for mount in container.mounts:
        if mount.hides(code.folder):
            yield Problem(
                title=f"volume `{mount.name}` at `{mount.folder}` hides {code.origin}: it is in `{code.folder}`",
                path=mount.path,
                detail=detail,
                hint="mount the volume at another path, for example `/data`, or add the code to a folder that no volume hides: "
                "`--code DIR --workdir /code`",
            )
        elif names := _list_hidden(mount, code):
            severity: Literal["error", "warning"] = "error" if mount.hides(program) else "warning"
            yield Problem(
                title=f"volume `{mount.name}` at `{mount.folder}` hides `{names[0]}`{' and more' if names[1:] else ''} "
                f"of {code.origin}",
                path=mount.path,
                hint="mount the volume at another path, or exclude these files in `.dockerignore`",
                severity=severity,
            )
    if str(PurePosixPath(script)) in (code.files or ()) and not PurePosixPath(program).is_relative_to(code.folder):
        title = f"the pods start `{program}`, and {code.origin} is in `{code.folder}`"
        hint = f"remove `pod.working_dir`, or add the code there: `--workdir {start}`"
        yield Problem(title=title, path="pod.working_dir", hint=hint)


def _list_hidden(mount: _Mount, code: ImageCode) -> list[str]:
    return sorted(name for name in code.files or () if mount.hides(str(PurePosixPath(code.folder, name))))


def _find_hidden_script(container: _Container, image: str, metadata: ImageMetadata) -> Iterator[Problem]:
    """Yield the volume over the working directory of an image that may have the script there, or the volume."""
    script = find_program_file((*container.command, *container.args))
    if not script or container.working_dir or PurePosixPath(script).is_absolute():
        return
    for mount in container.mounts:
        if mount.hides(str(PurePosixPath(metadata.workdir, script)) if metadata.workdir else ""):
            yield Problem(
                title=f"volume `{mount.name}` at `{mount.folder}` hides `{metadata.workdir}`, the working directory of image "
                f"`{image}`: the pods start `{script}` of the volume, not that of the image",
                path=mount.path,
                hint="mount the volume at another path, for example `/data`; if the script is on the volume, "
                f"set `pod: {{working_dir: {metadata.workdir}}}`",
                severity="warning",
            )


def _find_hidden_programs(container: _Container, image: str, metadata: ImageMetadata) -> Iterator[Problem]:
    """Yield the volumes over the image's own entry point, or over a folder with its programs."""
    words = () if container.command else metadata.entry_point
    files = [words[0], find_program_file(words)] if words else []
    starts = [str(PurePosixPath(metadata.workdir or "/", file)) for file in files if "/" in file or file.endswith(".py")]
    folders = [folder for folder in metadata.search_path if not folder.startswith(_DRIVER_FOLDER)]
    for mount in container.mounts:
        if hidden := next(filter(mount.hides, starts), ""):
            title = f"volume `{mount.name}` at `{mount.folder}` hides `{hidden}`, the entry point of image `{image}`"
            yield Problem(title=title, path=mount.path, hint="mount the volume at another path, for example `/data`")
        elif folder := next(filter(mount.hides, folders), ""):
            title = f"volume `{mount.name}` at `{mount.folder}` hides the programs in `{folder}` of image `{image}`"
            hint = "mount the volume at another path, for example `/data`, unless it has the same programs"
            yield Problem(title=title, path=mount.path, hint=hint, severity="warning")


def _list_containers(job: PreparedJob, image: str) -> list[_Container]:
    """Return the training containers with the image; all of them if a build gives them another image first."""
    manifest = get_job(job.compiled)
    found: list[tuple[str, _Container]] = []
    for template in get_kind(manifest).read_pod_templates(manifest, job.compiled):
        for index, item in enumerate(template.spec.get("containers") or ()):
            if item.get("name") == template.training_container:
                path = join_path(("overrides", *template.path, "containers", index, "volumeMounts"))
                found.append((str(item.get("image") or ""), _read_container(job, template.role, item, path)))
    return [container for name, container in found if name == image] or [container for _, container in found]


def _read_container(job: PreparedJob, role: str, container: JsonMapping, path: str) -> _Container:
    mounts = enumerate(container.get("volumeMounts") or ())
    return _Container(
        command=tuple(container.get("command") or ()),
        args=tuple(container.get("args") or ()),
        working_dir=container.get("workingDir") or "",
        mounts=tuple(
            _Mount(mount["name"], mount["mountPath"], _find_field(job, role, mount, f"{path}.{index}.mountPath"))
            for index, mount in mounts
        ),
    )


def _find_field(job: PreparedJob, role: str, mount: JsonMapping, manifest_path: str) -> str:
    """Return the path of the field that sets where a volume is mounted: in the spec, or else in the user's manifest."""
    if not job.records_spec:
        return manifest_path
    own = make_master_spec(job.spec) if role == "Master" else None
    for index, volume in enumerate((own or job.spec).volumes):
        if volume.mount_path == mount["mountPath"]:
            path = f"volumes.{index}.mount_path"
            return find_role_path(path, job.spec) if own else path
    return "overrides"
