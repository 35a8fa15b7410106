"""The folders for temporary files (TMPDIR): each agent has its own, as each pod has its own `/tmp`."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Collection, Sequence
from contextlib import suppress
from pathlib import Path

from kfjob.backends import folder
from kfjob.base.parsing import read_document

FILE = "temporary"
"""File of a launch with the path of the folder that has the folders of all agents."""


def make_folders(launch: Path, pods: Sequence[str], *, uid: str) -> dict[str, str]:
    """Make a folder for each pod of the job with this uid, and return their paths; none if the disk is full.

    They are not in the state folder, because the path of a socket (108 bytes) would not fit below it.
    """
    made = None
    try:
        made = Path(tempfile.mkdtemp(prefix=_make_prefix(uid)))
        folder.replace_file(launch / folder.RUN / FILE, str(made))
        folders = {pod: made / str(index) for index, pod in enumerate(pods)}
        for path in folders.values():
            path.mkdir(mode=0o700)
    except OSError:
        if made:
            shutil.rmtree(made, ignore_errors=True)
        return {}
    return {pod: str(path) for pod, path in folders.items()}


def remove_folders(launch: Path, *, uid: str, folders: Collection[str] = ()) -> None:
    """Remove the folders of a job: the result of `make_folders` if that is known, else those that the launch folder names.

    A job can change the file with their path, so nothing without its uid is removed.
    """
    for parent in {Path(path).parent for path in folders}:
        shutil.rmtree(parent, ignore_errors=True)
    with suppress(OSError, ValueError):
        made = Path(read_document(launch / folder.RUN / FILE).decode())
        if made.is_absolute() and made.name.startswith(_make_prefix(uid)) and not made.is_symlink():
            shutil.rmtree(made, ignore_errors=True)


def _make_prefix(uid: str) -> str:
    return f"kfjob-{uid[:8]}-"
