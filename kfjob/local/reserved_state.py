"""The state of a job on a full disk: a file of the launch folder whose blocks are taken before the job starts.

Writing over these blocks needs no free space on most file systems (not on those that copy on write, such as btrfs). The file is
blank as long as `status.json` can be written.
"""

from __future__ import annotations

import os
from pathlib import Path

from msgspec import json
from msgspec.structs import replace

from kfjob.backends import folder
from kfjob.base.file_access import open_private
from kfjob.base.parsing import ParseError, decode_json, read_document
from kfjob.joblog.events import JobSnapshot

FILE = "outcome"
_BYTES = 4096
_BYTES_PER_POD = 2048


def reserve(launch: Path, *, pods: int) -> None:
    """Create the blank file."""
    with open_private(launch / folder.RUN / FILE, "wb") as file:
        file.write(b" " * (_BYTES + pods * _BYTES_PER_POD))
        file.flush()
        os.fsync(file.fileno())  # some file systems take the blocks only now


def write(launch: Path, snapshot: JobSnapshot) -> None:
    """Write the snapshot over the blank; without the pods if they do not fit.

    Raises:
        OSError: the file system needs free space even for this.
    """
    short = replace(snapshot, spec=None, manifest=None)
    with (launch / folder.RUN / FILE).open("r+b", buffering=0) as file:
        size = file.seek(0, os.SEEK_END)
        data = json.encode(short)
        data = data if len(data) <= size else json.encode(replace(short, pods=()))
        os.pwrite(file.fileno(), data[:size].ljust(size), 0)
        os.fsync(file.fileno())


def clear(launch: Path) -> None:
    """Make the file blank again."""
    with (launch / folder.RUN / FILE).open("r+b", buffering=0) as file:
        os.pwrite(file.fileno(), b" " * file.seek(0, os.SEEK_END), 0)


def read(launch: Path, snapshot: JobSnapshot) -> JobSnapshot:
    """Return the job's newest snapshot: the one in the file, or `snapshot` (from `status.json`) if the file is blank."""
    try:
        text = read_document(launch / folder.RUN / FILE).strip()
        newest = decode_json(text, JobSnapshot) if text else None
    except (OSError, ParseError):  # a job of an earlier version, or a write in progress
        return snapshot
    if newest is None or newest.uid != snapshot.uid:
        return snapshot
    return replace(newest, spec=snapshot.spec, manifest=snapshot.manifest, pods=newest.pods or snapshot.pods)
