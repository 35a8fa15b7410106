"""Copy the archive of the guard to S3 while it runs: a thread uploads the files that have changed.

The folder of the guard is the original. S3 may fail for hours, and the thread tries again; nothing waits for it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from kfjob.api.settings import Settings
from kfjob.backends import folder
from kfjob.backends.s3_archive import S3Archive, Stamp
from kfjob.base.errors import Forbidden, KfjobError, NotFound, Unreachable, explain_os_error
from kfjob.joblog.events import JobSnapshot

UPLOAD_SECONDS = 300.0
"""Time between two uploads of a launch that runs: S3 has no append, so each uploads whole logs, of 100 MB in long jobs."""
RETRY_SECONDS = 30.0
"""Time until the next attempt after a failure."""


class ArchiveUploads:
    """Uploads the archived launches of the jobs that this guard has seen; the same folder may hold those of others."""

    def __init__(self, settings: Settings, say: Callable[[str], None]) -> None:
        """Send nothing yet; `settings.archive` is an address of S3, and `say` receives what the guard's log shows."""
        self._copy = S3Archive(settings.archive or "", profile=settings.aws_profile)
        self._root = settings.archive_folder
        self._paths: dict[Path, None] = {}  # of the launches
        self._say = say
        self._uploaded: dict[str, Stamp] = {}
        self._failure = ""
        self._wake = threading.Event()

    def start(self) -> None:
        """Upload in a thread, without an end."""
        threading.Thread(target=self._run, name="kfjob-guard-uploads", daemon=True).start()

    def add(self, job: JobSnapshot) -> None:
        """Upload the launch too, once it is archived."""
        self._paths[self._locate(job)] = None

    def wake(self) -> None:
        """Upload soon."""
        self._wake.set()

    def restore(self, job: JobSnapshot) -> None:
        """Download what an earlier guard has uploaded of a launch, if its folder is gone: the logs of pods that are gone."""
        path = self._locate(job)
        if path.exists():
            return
        try:
            folder.check_state_folder(self._root.parent, self._root.name)
            staged = path.with_name(f".{path.name}.part")  # a second attempt continues it
            with suppress(NotFound):
                self._copy.download(str(path.relative_to(self._root)), staged)
                staged.replace(path)
        except (KfjobError, OSError) as err:
            self._say(f"{job.name}: the logs in S3 of this launch are not downloaded: {_explain(err).title}")

    def upload(self) -> bool:
        """Upload what has changed, and return whether all of it was uploaded. A failure is said once."""
        failure = None
        for path in list(self._paths):
            try:
                self._copy.upload_changes(path, str(path.relative_to(self._root)), self._uploaded)
            except (KfjobError, OSError) as err:
                failure = _explain(err)
            if isinstance(failure, Unreachable | Forbidden):  # the next launch would fail too
                break
        self._report(failure)
        return failure is None

    def _run(self) -> None:
        is_complete = True
        while True:
            if self._wake.wait(UPLOAD_SECONDS if is_complete else RETRY_SECONDS):
                self._wake.clear()
            is_complete = self.upload()

    def _locate(self, job: JobSnapshot) -> Path:
        return folder.launch_folder(self._root, job.namespace, job.name, job.launch or job.uid)

    def _report(self, failure: KfjobError | None) -> None:
        title = failure.title if failure else ""
        if failure and title != self._failure:
            cause = f": {failure.cause}" if failure.cause else ""
            self._say(f"the archive is not copied to {self._copy.address}, the guard tries again: {title}{cause}")
        if self._failure and not failure:
            self._say(f"the archive is copied to {self._copy.address} again")
        self._failure = title


def _explain(err: KfjobError | OSError) -> KfjobError:
    return explain_os_error(err) if isinstance(err, OSError) else err
