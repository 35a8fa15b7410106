"""The job that a command names, live or saved."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from kfjob.cli.options import Settings, notify
from kfjob.errors import UsageError

if TYPE_CHECKING:
    from kfjob.api.run import Run


def open_run(job: str | None, folder: str | None, settings: Settings) -> Run:
    """Return the job with this name, or the saved job in `folder`.

    Raises:
        UsageError: neither was named.
        NotFound: the job or the folder does not exist.
    """
    if folder is not None:
        from kfjob.api.run import from_folder

        return from_folder(Path(folder), settings=settings)
    if job is None:
        raise UsageError("JOB or `--from` is missing", hint="`kfjob list` shows the jobs; `--from DIR` reads saved logs")
    from kfjob.api.attach import attach

    return attach(job, settings=settings, notify=notify)
