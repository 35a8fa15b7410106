"""The manifest of a checkpoint. A folder without a valid one is not a checkpoint.

step-000050/
    manifest.json     step, data position, parameter shapes, size and SHA-256 of every other file, its own checksum
    .metadata         DCP's
    __0_0.distcp …    DCP's, one or more for each rank
    model.pt          the full weights, with `full_state_dict`

On an object store the files are in a folder below that, which the manifest names, because an object cannot be renamed.
"""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import asdict, dataclass, field
from math import prod
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, Field, TypeAdapter, ValidationError

from kfjob.errors import KfjobError
from kfjob.parsing import parse_json, read_document

MANIFEST_FILE = "manifest.json"
VERSION = 1
MAX_STEP = 2**53
"""Steps of a run; a manifest with a larger number is damaged."""
MAX_ELEMENTS = 2**36
"""Elements of one parameter; a manifest with a larger number is damaged."""


def _check_elements(shape: list[int]) -> list[int]:
    if prod(shape) > MAX_ELEMENTS:
        raise ValueError(f"a parameter has at most {MAX_ELEMENTS} elements")
    return shape


Shape = Annotated[list[Annotated[int, Field(ge=0, le=MAX_ELEMENTS)]], Field(max_length=64), AfterValidator(_check_elements)]


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """Everything in a checkpoint but its tensors."""

    step: Annotated[int, Field(ge=0, le=MAX_STEP)]
    loss: float | None
    run_id: str
    """torchrun's rendezvous id of the launch that wrote the checkpoint."""
    global_batch: int
    """Samples in an optimiser step, over all ranks."""
    parameters: dict[str, Shape]
    """The shape of every parameter, frozen ones too: a checkpoint does not load into a model with other shapes."""
    data_identity: dict[str, Any]
    data_position: dict[str, Any]
    spec: dict[str, Any]
    torch_version: str
    attention: dict[str, int] = field(default_factory=dict)
    """The numbers of attention heads, which `parameters` does not show."""
    base: dict[str, str] = field(default_factory=dict)
    """The name, the revision and the checksum of the frozen base model; empty if all weights are trained."""
    loss_scale: dict[str, Any] = field(default_factory=dict)
    """The state of fp16's loss scaler."""
    plateau: dict[str, Any] = field(default_factory=dict)
    """The state of the schedule `plateau`."""
    shards: str = ""
    """The folder of the files below the checkpoint's folder; empty means the checkpoint's folder itself."""
    files: dict[str, dict[str, Any]] = field(default_factory=dict)
    version: int = VERSION

    def count_parameters(self) -> int:
        """Return the number of the model's parameters."""
        return sum(map(prod, self.parameters.values()))

    def to_json(self) -> str:
        """Return the manifest as JSON with a checksum."""
        body = asdict(self)
        return json.dumps(body | {"checksum": _checksum(body)})

    @classmethod
    def from_json(cls, text: str, checkpoint: str) -> Manifest:
        """Parse the manifest of the checkpoint at the path or URL `checkpoint`.

        Raises:
            KfjobError: the manifest is damaged or has another version.
        """
        try:
            body = parse_json(text)
            is_intact = body.pop("checksum") == _checksum(body)
        except (ValueError, KeyError, AttributeError, TypeError) as error:
            raise KfjobError(f"`{checkpoint}` has no readable {MANIFEST_FILE}", cause=str(error)) from error
        if not is_intact:
            raise KfjobError(f"`{checkpoint}/{MANIFEST_FILE}` does not match its own checksum")
        if body.get("version") != VERSION:
            raise KfjobError(f"`{checkpoint}` has version {body.get('version')}, this trainer reads {VERSION}")
        try:
            manifest = _TYPE.validate_python(body)
        except ValidationError as error:
            raise KfjobError(f"`{checkpoint}/{MANIFEST_FILE}` is not a manifest", cause=_first_problem(error)) from error
        if foreign := [name for name in (*manifest.files, manifest.shards) if "/" in name or name == ".."]:
            raise KfjobError(f"`{checkpoint}/{MANIFEST_FILE}` names `{foreign[0]}`, which is outside the checkpoint")
        return manifest

    def write(self, folder: Path) -> None:
        """Write the manifest to `folder` and flush it to the disk."""
        with (folder / MANIFEST_FILE).open("w") as file:
            file.write(self.to_json())
            file.flush()
            os.fsync(file.fileno())
        sync_folder(folder)

    @classmethod
    def read(cls, folder: Path) -> Manifest:
        """Read the manifest of a folder.

        Raises:
            KfjobError: the manifest is missing or damaged, or has another version.
        """
        try:
            text = read_document(folder / MANIFEST_FILE).decode()
        except (OSError, ValueError) as error:
            raise KfjobError(f"`{folder}` has no readable {MANIFEST_FILE}", cause=str(error)) from error
        return cls.from_json(text, str(folder))


_TYPE = TypeAdapter(Manifest)


def _first_problem(error: ValidationError) -> str:
    problem = error.errors(include_url=False)[0]
    return f"{'.'.join(map(str, problem['loc']))}: {problem['msg']}"


def describe_file(path: Path) -> dict[str, Any]:
    """Return the size and SHA-256 of a file."""
    with path.open("rb") as file:
        return {"bytes": path.stat().st_size, "sha256": hashlib.file_digest(file, "sha256").hexdigest()}


def sync_folder(folder: Path) -> None:
    """Flush the folder's entries to the disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _checksum(body: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
