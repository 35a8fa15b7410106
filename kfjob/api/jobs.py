"""The functions of the Python API, which start, change, find and stop jobs: `submit`, `attach`, `list_jobs` and others.

Nothing in `api` imports this module; each function calls the one that the CLI calls.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from kfjob.api.reader import open_job
from kfjob.api.run import Run, make_code_layer
from kfjob.api.settings import STOP_TIMEOUT, Settings, load_current_settings
from kfjob.api.target import find_target
from kfjob.base.common_types import JsonMapping, JsonObject, Notify, ignore_notice
from kfjob.base.errors import NotFound
from kfjob.base.parsing import read_named_text
from kfjob.joblog.events import JobSnapshot
from kfjob.redaction import cut_text

if TYPE_CHECKING:
    from kfjob.api.compare import Comparison
    from kfjob.api.launches import Launch
    from kfjob.api.spec_source import SpecSource
    from kfjob.source.spec_text import LoadedSpec
    from kfjob.spec.job import JobSpec

MAX_NAME = 80
"""Characters of the name of a spec that an error quotes."""
MAX_LAUNCHES = 20
"""Newest launches of a job that `history` returns."""


def submit(
    spec: JobSpec | JsonMapping | str | Path,
    *,
    backend: str | None = None,
    context: str | None = None,
    namespace: str | None = None,
    settings: Settings | None = None,
    strict: bool = False,
    code: str | Path | None = None,
    replace: bool = False,
    notify: Notify = ignore_notice,
) -> Run:
    """Start a job and return its launch.

    A launch of the same user that has ended gives its name to the new one; its logs go to the archive. If a job with the same
    spec runs already, its launch is returned.

    Args:
        spec: the job, a mapping with the fields of a spec, or the path of a spec file.
        backend: `kubernetes` or `local`; default: the settings decide, else the kubeconfig.
        context: the kubeconfig context.
        namespace: the namespace; default: that of the kubeconfig context.
        settings: all settings at once, instead of the three arguments above.
        strict: treat lint warnings as errors.
        code: a folder to add to the spec's image.
        replace: stop the launch that has this name now, once everything that can be checked has been checked.
        notify: receives lint warnings and notices.

    Raises:
        SpecError: every problem of the spec.
        AlreadyExists: a job with this name and another spec runs, another user's job has the name, or another command has
            started the job in the meantime; that job was not changed.
    """
    from dataclasses import replace as replace_fields

    from kfjob.api.lifecycle.submit import submit as submit_source

    current = settings or load_current_settings(backend=backend, context=context, namespace=namespace)
    target = find_target(replace_fields(current, strict=current.strict or strict), notify=notify)
    source = _open_spec(spec)
    return Run(submit_source(source, target, code=make_code_layer(code), replace=replace, notify=notify).reader)


def apply(
    spec: JobSpec | JsonMapping | str | Path,
    *,
    backend: str | None = None,
    context: str | None = None,
    namespace: str | None = None,
    settings: Settings | None = None,
    notify: Notify = ignore_notice,
) -> Run:
    """Change a live job to the spec, where that is possible in place, and return its launch, which stays the same.

    Raises:
        SpecError: every problem of the spec.
        NotFound: the job does not exist.
        Refused: the change needs a relaunch.
    """
    from kfjob.api.lifecycle.start import apply as apply_source

    current = settings or load_current_settings(backend=backend, context=context, namespace=namespace)
    return Run(apply_source(_open_spec(spec), find_target(current, notify=notify), notify=notify))


def render(
    spec: JobSpec | JsonMapping | str | Path,
    *,
    context: str | None = None,
    namespace: str | None = None,
    settings: Settings | None = None,
    notify: Notify = ignore_notice,
) -> list[JsonObject]:
    """Return the manifests that `submit` would create on a cluster, in the order of their creation; nothing is sent.

    Raises:
        SpecError: every problem of the spec.
    """
    current = settings or load_current_settings(context=context, namespace=namespace)
    return list(_open_spec(spec).render(current, notify=notify))


def attach(
    job: str,
    *,
    backend: str | None = None,
    context: str | None = None,
    namespace: str | None = None,
    settings: Settings | None = None,
    notify: Notify = ignore_notice,
) -> Run:
    """Return the live launch of a job; of a job that was stopped, its last launch from the archive.

    Raises:
        NotFound: neither the backend nor the archive has the job.
    """
    current = settings or load_current_settings(backend=backend, context=context, namespace=namespace)
    return Run(open_job(job, current, notify=notify))


def list_jobs(
    *,
    all_namespaces: bool = False,
    backend: str | None = None,
    context: str | None = None,
    namespace: str | None = None,
    settings: Settings | None = None,
    notify: Notify = ignore_notice,
) -> list[JobSnapshot]:
    """Return the jobs of a namespace, or with `all_namespaces` of all, oldest first, without their pods."""
    current = settings or load_current_settings(backend=backend, context=context, namespace=namespace)
    target = find_target(current, notify=notify)
    return target.backend.list(namespace=None if all_namespaces else target.namespace)


def history(
    job: str,
    *,
    last: int = MAX_LAUNCHES,
    backend: str | None = None,
    context: str | None = None,
    namespace: str | None = None,
    settings: Settings | None = None,
    notify: Notify = ignore_notice,
) -> list[Launch]:
    """Return the `last` launches of a job, oldest first: the live one, and those in the archive on this machine.

    Raises:
        NotFound: neither the backend nor the archive has the job.
    """
    from kfjob.api.launches import find_launches, read_launches

    current = settings or load_current_settings(backend=backend, context=context, namespace=namespace)
    return read_launches(find_launches(job, current, notify=notify)[-max(last, 1) :])


def compare(
    jobs: list[str],
    *,
    folders: list[str] | None = None,
    backend: str | None = None,
    context: str | None = None,
    namespace: str | None = None,
    settings: Settings | None = None,
    notify: Notify = ignore_notice,
) -> Comparison:
    """Return launches side by side: losses by step, and the fields of the specs that differ. It reads all logs.

    Args:
        jobs: names of jobs. A job stands for its newest launch, a job alone for all, `train@2` for its second.
        folders: folders or files with saved logs.
        backend: `kubernetes` or `local`.
        context: the kubeconfig context.
        namespace: the namespace.
        settings: all settings at once, instead of the three arguments above.
        notify: receives notices.

    Raises:
        NotFound: a job, a launch or a folder does not exist.
        UsageError: there are fewer than two launches.
    """
    from kfjob.api.compare import compare_launches
    from kfjob.api.launches import check_count, read_launches, select_launches

    current = settings or load_current_settings(backend=backend, context=context, namespace=namespace)
    launches = select_launches(jobs, folders or [], current, notify=notify)
    check_count(launches)
    return compare_launches(read_launches(launches, every_line=True))


def stop(
    job: str,
    *,
    backend: str | None = None,
    context: str | None = None,
    namespace: str | None = None,
    settings: Settings | None = None,
    timeout: float = STOP_TIMEOUT,
    notify: Notify = ignore_notice,
) -> Path | None:
    """Stop a job, remove it and return the folder of its archive.

    Raises:
        NotFound: the job does not exist.
        WaitTimeout: its pods still exist after `timeout` seconds.
    """
    from kfjob.api.lifecycle.stop import stop as stop_job

    current = settings or load_current_settings(backend=backend, context=context, namespace=namespace)
    return stop_job(find_target(current, notify=notify), job, timeout=timeout)


def _open_spec(spec: JobSpec | JsonMapping | str | Path) -> SpecSource:
    from kfjob.api.spec_source import SpecSource

    return SpecSource(_load_spec(spec))


def _load_spec(spec: JobSpec | JsonMapping | str | Path) -> LoadedSpec:
    """Return the spec of a model, of a mapping with its fields, or of a file."""
    from kfjob.api.user_files import record_file
    from kfjob.source.foreign_formats import describe_spec
    from kfjob.source.spec_text import LoadedSpec, Positions, draft_fields, load_spec
    from kfjob.spec.job import JobSpec

    if isinstance(spec, JobSpec):
        return LoadedSpec(spec, Positions())
    if isinstance(spec, Mapping):
        return draft_fields(spec).finish()
    try:
        text = read_named_text(Path(spec))
    except FileNotFoundError as err:
        raise NotFound(f"spec `{spec}` does not exist", hint=describe_spec()) from err
    except (OSError, ValueError) as err:  # ValueError: the path contains NUL, or the text is not UTF-8
        title = f"spec `{cut_text(str(spec), MAX_NAME)}` cannot be read"
        raise NotFound(title, cause=str(err), hint=describe_spec()) from err
    return replace(load_spec(text, file=str(spec)), file_record=record_file(Path(spec), text))
