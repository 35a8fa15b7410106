"""The job that a command names, live or saved, and its names for kubectl."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import click
from msgspec.structs import replace

from kfjob.base.errors import NotFound, UsageError
from kfjob.base.text import join_names
from kfjob.cli.options import Settings, notify
from kfjob.cli.output import hide_secrets, repeat_backend

MAX_NAMES = 5
"""Files that a note names."""
POD_PREFIX = "pod/"
_HINT = "`-o json` prints the names"

if TYPE_CHECKING:
    from kfjob.api.reader import ArchiveReader, JobReader, LiveReader
    from kfjob.api.target import Target
    from kfjob.joblog.events import JobSnapshot


def open_reader(job: str | None, folder: str | None, settings: Settings, *, pattern: str | None = None) -> JobReader:
    """Return the job with this name, or the saved job in `folder`, whose progress lines `pattern` may describe.

    Raises:
        UsageError: neither was named, or the pattern is wrong or not for saved logs.
        NotFound: the job or the folder does not exist.
        KfjobError: the saved job cannot be downloaded from S3.
    """
    from kfjob.api.reader import open_saved

    if pattern is not None:
        _check_pattern(pattern, folder)
    if folder is not None:
        saved = open_saved(folder, settings)
        saved.config = saved.config if pattern is None else replace(saved.config, progress_pattern=pattern)
        hide_secrets(saved.secrets)
        if saved.left_out:
            notify(f"left out: {join_names(saved.left_out, limit=MAX_NAMES)}")
        return saved
    if job is None:
        from kfjob.cli.completion import suggest_jobs

        jobs = suggest_jobs(click.get_current_context())
        hint = f"{jobs or '`kfjob list` shows the jobs; '}`--from PATH` reads saved logs"
        raise UsageError("JOB or `--from` is missing", hint=hint)
    try:
        return open_live_or_archived(job, settings)
    except NotFound as err:
        if not Path(job).exists() and job != "-":
            raise
        raise NotFound(err.title, cause=err.cause, hint=f"`--from {shlex.quote(job)}` reads saved logs") from err


def _check_pattern(pattern: str, folder: str | None) -> None:
    from kfjob.joblog.progress.pattern import refuse_pattern

    if folder is None:
        hint = "`kfjob progress JOB --progress PATTERN` tries a pattern on a job; `progress` in the spec keeps it"
        raise UsageError("`--progress` needs `--from`", hint=hint)
    refuse_pattern(pattern)


def open_live_or_archived(job: str, settings: Settings) -> LiveReader | ArchiveReader:
    """Return the job with this name, and hide its secrets in the output.

    Raises:
        NotFound: neither the backend nor the archive has the job.
    """
    from kfjob.api.reader import open_job
    from kfjob.api.target import explain_backend

    reader = open_job(job, settings, notify=notify)
    if not settings.backend and reader.target.name != explain_backend(settings)[0]:
        repeat_backend(reader.target.name)
    hide_secrets(reader.secrets)
    return reader


def name_pod(pod: str) -> str:
    """Return what `kubectl logs`, `exec`, `port-forward` and `describe` take for a pod."""
    return f"{POD_PREFIX}{pod}"


def name_job(job: JobSnapshot) -> str:
    """Return what `kubectl get` and `kubectl describe` take for a job, as `kubectl get pytorchjobs -o name` prints it."""
    from kfjob.kinds.registry import find_kind

    kind = find_kind(job.job_kind)
    return f"{kind.name.lower()}{kind.group and f'.{kind.group}'}/{job.name}"


def check_has_pods(reader: JobReader) -> None:
    """Check that kubectl can reach the pods of a job.

    Raises:
        UsageError: the job runs on this machine, or only its logs are left.
    """
    if reader.archived:
        raise UsageError("`-o name` prints names for kubectl, and only the logs of this job are left", hint=_HINT)
    check_is_cluster(reader.target)


def check_is_cluster(target: Target) -> None:
    """Check that kubectl can reach the jobs of a target.

    Raises:
        UsageError: the jobs run on this machine.
    """
    if not target.capabilities.has_api_server:
        raise UsageError("`-o name` prints names for kubectl, which does not know the jobs of this machine", hint=_HINT)
