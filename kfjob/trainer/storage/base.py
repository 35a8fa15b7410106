"""The protocol of a storage, and the check of a file."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from kfjob.trainer.manifest import Manifest

CHECKPOINT_NAME = re.compile(r"step-(\d+)$")


class Storage(Protocol):
    """Stores checkpoints. Its errors are KfjobErrors that name the location."""

    @property
    def location(self) -> str:
        """The folder or URL."""

    def prepare(self) -> None:
        """Create the location and remove the files of killed runs; rank 0 calls it before any search."""

    def list_names(self) -> list[str]:
        """Return the names of possible checkpoints."""

    def read_manifest(self, name: str) -> Manifest:
        """Return the manifest of a checkpoint."""

    def find_damage(self, name: str, manifest: Manifest, *, rank: int = 0, world_size: int = 1) -> str | None:
        """Return the first problem of a checkpoint's files, or None; rank r of W checks every W-th file."""

    def stage(self, name: str, token: str) -> Path:
        """Return a local folder for the shards of a rank; `token` is the same on all ranks and new for each save."""

    def upload(self, staging: Path, name: str, token: str, files: list[str]) -> None:
        """Upload this rank's files."""

    def commit(self, staging: Path, name: str, token: str, manifest: Manifest) -> None:
        """Make the checkpoint visible, in place of one with the same name; only rank 0 calls it."""

    def delete(self, name: str) -> None:
        """Delete a checkpoint; a kill halfway leaves no damaged checkpoint visible."""

    def quarantine(self, name: str) -> None:
        """Rename a damaged checkpoint, so that a person can inspect it and retention does not count it."""

    def read_bytes(self, name: str, manifest: Manifest, file: str) -> bytes:
        """Return the content of a checkpoint's file."""

    def dcp_reader(self, name: str, manifest: Manifest) -> Any:
        """Return DCP's storage reader for a checkpoint."""

    def write_file(self, name: str, text: str, *, overwrite: bool) -> bool:
        """Write a small file next to the checkpoints, atomically; return False if it exists and `overwrite` is not set."""

    def remove_file(self, name: str) -> None:
        """Remove such a file, if it exists."""


def check_file(name: str, expected: dict[str, Any], size: int | None, digest: Callable[[], str]) -> str | None:
    """Return the problem of a file, or None; the digest is computed only if the size is right."""
    if size is None:
        return f"{name} is missing"
    if size != expected["bytes"]:
        return f"{name} has {size} of {expected['bytes']} bytes"
    return None if digest() == expected["sha256"] else f"{name} does not match its checksum"
