"""The job that a command names, live or saved."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from kfjob.cli.options import Settings, notify
from kfjob.errors import UsageError

if TYPE_CHECKING:
    from kfjob.api.reader import JobReader


def open_reader(job: str | None, folder: str | None, settings: Settings) -> JobReader:
    """Return the job with this name, or the saved job in `folder`.

    Raises:
        UsageError: neither was named.
        NotFound: the job or the folder does not exist.
    """
    from kfjob.api.reader import open_folder, open_job

    if folder is not None:
        return open_folder(Path(folder), settings)
    if job is None:
        raise UsageError("JOB or `--from` is missing", hint="`kfjob list` shows the jobs; `--from DIR` reads saved logs")
    return open_job(job, settings, notify=notify)
