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
import math
import os
from dataclasses import asdict, dataclass, field
from math import prod
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, Field, TypeAdapter, ValidationError

from kfjob.base.errors import KfjobError
from kfjob.base.parsing import parse_json, read_document
from kfjob.trainer.process_identity import ProcessIdentity

MANIFEST_FILE = "manifest.json"
NO_CHECKPOINT_HINT = "use a checkpoint, such as `checkpoints/step-000100`, or the `checkpoint_dir` of a training"
VERSION = 1
MAX_STEP = 2**53
"""Steps of a run; a manifest with a larger number is damaged."""
MAX_ELEMENTS = 2**36
"""Elements of one parameter; a manifest with a larger number is damaged."""


class DamagedError(KfjobError):
    """The content of a checkpoint is wrong or missing. One that cannot be read, or is of a newer trainer, is not damaged."""


def _check_elements(shape: list[int]) -> list[int]:
    if prod(shape) > MAX_ELEMENTS:
        raise ValueError(f"a parameter has at most {MAX_ELEMENTS} elements")
    return shape


Shape = Annotated[list[Annotated[int, Field(ge=0, le=MAX_ELEMENTS)]], Field(max_length=64), AfterValidator(_check_elements)]


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MAX_STEP


def _check_name(name: str) -> str:
    if name in (".", "..") or "/" in name or "\0" in name or len(name.encode()) > 255:
        raise ValueError(f"`{name[:255]}` is outside the checkpoint")
    return name


def _check_facts(facts: dict[str, Any]) -> dict[str, Any]:
    if not _is_count(facts.get("bytes")) or not isinstance(facts.get("sha256"), str):
        raise ValueError("a file has `bytes` and `sha256`")
    return facts


def _check_position(position: dict[str, Any]) -> dict[str, Any]:
    if not _is_count(position.get("next", 0)) or not isinstance(position.get("lanes", {}), dict):
        raise ValueError("a position has the number of samples `next`, and the cursors `lanes`")
    return position


def _check_plateau(plateau: dict[str, Any]) -> dict[str, Any]:
    numbers = [plateau.get(name) for name in ("factor", "best")] if plateau else []
    if not all(isinstance(number, (int, float)) and math.isfinite(number) for number in numbers):
        raise ValueError("`factor` and `best` are numbers")
    if not _is_count(plateau.get("borne", None if plateau else 0)):
        raise ValueError("`borne` is a number of evaluations")
    return plateau


FileName = Annotated[str, Field(min_length=1), AfterValidator(_check_name)]


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """Everything in a checkpoint but its tensors."""

    step: Annotated[int, Field(ge=0, le=MAX_STEP)]
    loss: float | None
    run_id: str
    """torchrun's rendezvous id of the launch that wrote the checkpoint."""
    agents: list[ProcessIdentity] = field(default_factory=list)
    """torchrun's agents of that launch; checkpoints of earlier versions do not tell."""
    global_batch: Annotated[int, Field(ge=1, le=MAX_STEP)]
    """Samples in an optimiser step, over all ranks."""
    parameters: dict[str, Shape]
    """The shape of every parameter, frozen ones too: a checkpoint does not load into a model with other shapes."""
    data_identity: dict[str, Any]
    data_position: Annotated[dict[str, Any], AfterValidator(_check_position)]
    spec: dict[str, Any]
    torch_version: str
    model_settings: dict[str, Any] = field(default_factory=dict)
    """What else changes the model's results and is not in `parameters`; checkpoints of earlier versions do not tell."""
    base: dict[str, str] = field(default_factory=dict)
    """The name, the revision and the checksum of the frozen base model; empty if all weights are trained."""
    loss_scale: dict[str, Any] = field(default_factory=dict)
    """The state of fp16's loss scaler."""
    plateau: Annotated[dict[str, Any], AfterValidator(_check_plateau)] = field(default_factory=dict)
    """The state of the schedule `plateau`."""
    evaluation_due: bool = False
    """Whether the evaluation after the step was interrupted; the run that resumes makes up for it."""
    shards: Annotated[str, AfterValidator(_check_name)] = ""
    """The folder of the files below the checkpoint's folder; empty means the checkpoint's folder itself."""
    files: dict[FileName, Annotated[dict[str, Any], AfterValidator(_check_facts)]] = field(default_factory=dict)
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
            DamagedError: the content is wrong.
            KfjobError: the manifest has another version.
        """
        try:
            body = parse_json(text)
            version = body.get("version")
            is_intact = body.pop("checksum") == _checksum(body)
        except (ValueError, KeyError, AttributeError, TypeError) as error:
            raise no_manifest(checkpoint, error) from error
        if isinstance(version, int) and version != VERSION:  # its checksum may be another one, too
            raise KfjobError(
                f"`{checkpoint}` has version {version}, this trainer reads {VERSION}",
                location="checkpoint_dir",
                hint="use the version of kfjob that wrote it, or another `checkpoint_dir`; nothing was changed",
            )
        if not is_intact:
            raise DamagedError(f"`{checkpoint}/{MANIFEST_FILE}` does not match its own checksum")
        try:
            return _TYPE.validate_python(body)
        except ValidationError as error:
            raise DamagedError(f"`{checkpoint}/{MANIFEST_FILE}` is not a manifest", cause=_first_problem(error)) from error

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
            DamagedError: the manifest is missing, or its content is wrong.
            KfjobError: the manifest cannot be read, or has another version.
        """
        try:
            text = read_document(folder / MANIFEST_FILE).decode()
        except (FileNotFoundError, NotADirectoryError, ValueError) as error:
            raise no_manifest(str(folder), error) from error
        except OSError as error:
            raise unreadable(f"{folder}/{MANIFEST_FILE}", str(error)) from error
        return cls.from_json(text, str(folder))


_TYPE = TypeAdapter(Manifest)


def _first_problem(error: ValidationError) -> str:
    problem = error.errors(include_url=False)[0]
    return f"{'.'.join(map(str, problem['loc']))}: {problem['msg']}"


def no_manifest(checkpoint: str, error: Exception) -> DamagedError:
    """Return the error for a path or URL without a manifest, or with one that is no JSON."""
    hint = NO_CHECKPOINT_HINT if isinstance(error, (FileNotFoundError, NotADirectoryError)) else None
    return DamagedError(f"`{checkpoint}` has no readable {MANIFEST_FILE}", cause=str(error), hint=hint)


def unreadable(path: str, cause: str) -> KfjobError:
    """Return the error for a file of a checkpoint that exists, but cannot be read: it may be as good as new."""
    hint = "give this process read access, repair the storage, or move the checkpoint away; nothing was changed"
    return KfjobError(f"cannot read `{path}`", location="checkpoint_dir", cause=cause, hint=hint)


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
