"""The list of what a complete checkpoint holds. A folder without one that is right is no checkpoint.

step-000050/
    manifest.json     step, position in the data, the model's parameters, size and SHA-256 of every other file, its own checksum
    .metadata         DCP's
    __0_0.distcp …    DCP's, one or more for each rank
"""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from kfjob.errors import KfjobError

NAME = "manifest.json"
VERSION = 1


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """What a checkpoint is, beside its tensors."""

    step: int
    loss: float | None
    run_id: str
    """torchrun's rendezvous id of the launch that wrote it."""
    global_batch: int
    """Samples in an optimiser step, over all ranks."""
    parameters: dict[str, list[int]]
    """Shape of every parameter: a model of another shape must not be loaded into."""
    data_identity: dict[str, Any]
    data_position: dict[str, Any]
    spec: dict[str, Any]
    torch_version: str
    loss_scale: dict[str, Any] = field(default_factory=dict)
    """Of fp16."""
    plateau: dict[str, Any] = field(default_factory=dict)
    """Of the schedule that goes by evaluations."""
    files: dict[str, dict[str, Any]] = field(default_factory=dict)
    version: int = VERSION

    def write(self, folder: Path) -> None:
        """Write it, so that it is on the disk when this returns."""
        body = asdict(self)
        with (folder / NAME).open("w") as file:
            json.dump(body | {"checksum": _checksum(body)}, file)
            file.flush()
            os.fsync(file.fileno())
        sync_folder(folder)

    @classmethod
    def read(cls, folder: Path) -> Manifest:
        """Read it back.

        Raises:
            KfjobError: it is not there, is not whole, or another version wrote it.
        """
        try:
            body = json.loads((folder / NAME).read_text())
            checksum = body.pop("checksum")
        except (OSError, ValueError, KeyError, AttributeError) as error:
            raise KfjobError(f"`{folder}` has no readable {NAME}", cause=str(error)) from error
        if checksum != _checksum(body):
            raise KfjobError(f"`{folder / NAME}` does not match its own checksum")
        if body["version"] != VERSION:
            raise KfjobError(f"`{folder}` has version {body['version']}, this trainer reads {VERSION}")
        return cls(**body)


def describe(path: Path) -> dict[str, Any]:
    """Size and SHA-256 of a file."""
    with path.open("rb") as file:
        return {"bytes": path.stat().st_size, "sha256": hashlib.file_digest(file, "sha256").hexdigest()}


def damage(folder: Path, manifest: Manifest, *, share: int = 0, of: int = 1) -> str | None:
    """What is wrong with the files of a checkpoint, None if nothing; the rank `share` reads every `of`-th file."""
    for name in sorted(manifest.files)[share::of]:
        promised, path = manifest.files[name], folder / name
        if not path.exists():
            return f"{name} is missing"
        if path.stat().st_size != promised["bytes"]:
            return f"{name} has {path.stat().st_size} of {promised['bytes']} bytes"
        if describe(path) != promised:
            return f"{name} does not match its checksum"
    return None


def sync_folder(folder: Path) -> None:
    """Have the folder's entries on the disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _checksum(body: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
