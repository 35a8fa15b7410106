"""The list of what a complete checkpoint holds. A folder without one that is right is no checkpoint.

step-000050/
    manifest.json     step, position in the data, the model's parameters, size and SHA-256 of every other file, its own checksum
    .metadata         DCP's
    __0_0.distcp …    DCP's, one or more for each rank
    model.pt          the weights whole, with `full_state_dict`

On an object store the files stand in a folder of their own below that, named in the manifest, for an object cannot be renamed.
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
    shards: str = ""
    """The folder, below the checkpoint's own, that holds the files; empty is the checkpoint's own."""
    files: dict[str, dict[str, Any]] = field(default_factory=dict)
    version: int = VERSION

    def text(self) -> str:
        """As JSON with a checksum."""
        body = asdict(self)
        return json.dumps(body | {"checksum": _checksum(body)})

    @classmethod
    def parse(cls, text: str, where: str) -> Manifest:
        """Read `text`, which stands at `where`.

        Raises:
            KfjobError: it is not whole, or another version wrote it.
        """
        try:
            body = json.loads(text)
            checksum = body.pop("checksum")
        except (ValueError, KeyError, AttributeError, TypeError) as error:
            raise KfjobError(f"`{where}` has no readable {NAME}", cause=str(error)) from error
        if checksum != _checksum(body):
            raise KfjobError(f"`{where}/{NAME}` does not match its own checksum")
        if body["version"] != VERSION:
            raise KfjobError(f"`{where}` has version {body['version']}, this trainer reads {VERSION}")
        return cls(**body)

    def write(self, folder: Path) -> None:
        """Write it, so that it is on the disk when this returns."""
        with (folder / NAME).open("w") as file:
            file.write(self.text())
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
            text = (folder / NAME).read_text()
        except (OSError, ValueError) as error:
            raise KfjobError(f"`{folder}` has no readable {NAME}", cause=str(error)) from error
        return cls.parse(text, str(folder))


def describe(path: Path) -> dict[str, Any]:
    """Size and SHA-256 of a file."""
    with path.open("rb") as file:
        return {"bytes": path.stat().st_size, "sha256": hashlib.file_digest(file, "sha256").hexdigest()}


def sync_folder(folder: Path) -> None:
    """Have the folder's entries on the disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _checksum(body: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
