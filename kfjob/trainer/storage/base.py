"""The protocol of a storage, a checkpoint in it, and the check of a file."""

from __future__ import annotations

import errno
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from kfjob.base.errors import KfjobError
from kfjob.base.units import MIB
from kfjob.trainer.manifest import Manifest

CHECKPOINT_NAME = re.compile(r"step-(\d+)$")
MAX_FILE = MIB
"""Bytes of a small file next to the checkpoints, such as the lease; a larger one is not kfjob's."""

MAX_CONTENT = 2048 * MIB
"""Bytes of a checkpoint's metadata, which is read as a whole; that of 100,000 tensors in 8 shards has 118 MiB."""


class Storage(Protocol):
    """Stores checkpoints. Its errors are KfjobErrors that name the location."""

    @property
    def location(self) -> str:
        """The folder or URL."""

    def create(self) -> None:
        """Create the location."""

    def probe(self, name: str) -> None:
        """Do all that a save does with a small file `name`, which stays: write, read, and rename it or write it in parts.

        Raises:
            KfjobError: one of these is not possible.
        """

    def prepare(self) -> None:
        """Remove what killed runs left unfinished. Rank 0 calls it after `create` and `probe`, while it holds the lease."""

    def list_names(self) -> list[str]:
        """Return the names of possible checkpoints."""

    def read_manifest(self, name: str) -> Manifest:
        """Return the manifest of a checkpoint.

        Raises:
            DamagedError: it is missing, or its content is wrong.
            KfjobError: it cannot be read, or is of another version.
        """

    def find_damage(self, name: str, manifest: Manifest, *, rank: int = 0, world_size: int = 1) -> str | None:
        """Return the first problem of a checkpoint's files, or None; rank r of W checks every W-th file.

        Raises:
            KfjobError: a file cannot be read.
        """

    def stage(self, name: str, token: str) -> Path:
        """Return a local folder for the shards of a rank; `token` is the same on all ranks and new for each save."""

    def upload(self, staging: Path, name: str, token: str, files: list[str]) -> None:
        """Upload this rank's files."""

    def discard_staging(self, staging: Path) -> None:
        """Remove the folder of a save that failed."""

    def commit(self, staging: Path, name: str, token: str, manifest: Manifest) -> None:
        """Make the checkpoint visible, in place of one with the same name; only rank 0 calls it."""

    def delete(self, name: str) -> None:
        """Delete a checkpoint; a kill halfway leaves no damaged checkpoint visible."""

    def set_aside(self, name: str, prefix: str) -> str:
        """Rename a checkpoint to `PREFIX-NAME-TOKEN` and return that name: no run resumes from it or deletes it any more."""

    def read_bytes(self, name: str, manifest: Manifest, file: str) -> bytes:
        """Return the content of a checkpoint's file.

        Raises:
            KfjobError: it cannot be read, is not a regular file, or has more than `MAX_CONTENT` bytes.
        """

    def dcp_reader(self, name: str, manifest: Manifest) -> Any:
        """Return DCP's storage reader for a checkpoint."""

    def write_file(self, name: str, text: str, *, overwrite: bool) -> bool:
        """Write a small file next to the checkpoints, atomically; return False if it exists and `overwrite` is not set."""

    def read_file(self, name: str) -> str | None:
        """Return the content of such a file; None if it does not exist."""

    def list_files(self, prefix: str) -> list[str]:
        """Return the names of such files that begin with `prefix`."""

    def remove_file(self, name: str) -> None:
        """Remove such a file, if it exists."""


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """A checkpoint: complete and verified if `find_checkpoint` returned it, perhaps unfinished if `save` did."""

    storage: Storage
    name: str
    """`step-000050`."""
    manifest: Manifest

    @property
    def path(self) -> str:
        """Its folder or URL."""
        return f"{self.storage.location.rstrip('/')}/{self.name}"


def check_file(name: str, expected: dict[str, Any], size: int | None, digest: Callable[[], str]) -> str | None:
    """Return the problem of a file, or None; the digest is computed only if the size is right."""
    if size is None:
        return f"{name} is missing"
    if size != expected["bytes"]:
        return f"{name} has {size} of {expected['bytes']} bytes"
    return None if digest() == expected["sha256"] else f"{name} does not match its checksum"


def not_shared(location: str, file: str) -> KfjobError:
    """Return the error for ranks that see different folders at the same path."""
    hint = "use a volume that every pod mounts at the same path"
    return KfjobError(f"the ranks do not share `{location}`: {file} is missing", location="checkpoint_dir", hint=hint)


PROBE = b"kfjob writes this to prove that it can.\n"


def describe_write_error(error: BaseException, folder: Path) -> tuple[str, str] | None:
    """Return the title and a hint for an error of a full disk; None if `folder` still has space."""
    is_full = getattr(error, "errno", None) in (errno.ENOSPC, errno.EDQUOT) or "No space left on device" in str(error)
    if not is_full and (not folder.parent.is_dir() or shutil.disk_usage(folder.parent).free >= MIB):
        return None
    hint = "delete files there, or use a larger volume or a smaller `keep_last`; `on_save_error: continue` trains on without it"
    return f"no space left in `{folder.parent}`", hint
