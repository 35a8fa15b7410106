"""Reads a checkpoint's tensors with torch's DCP, as data: nothing in a checkpoint can run code.

DCP pickles its metadata and every value that is not a tensor, and unpickles them without any restriction (torch 2.15
`filesystem.py` read_metadata, `default_planner.py` load_bytes). The checksums of a manifest prove only that the files are
complete: whoever can write to the storage can also write a manifest. So metadata may hold the types that DCP itself writes, and
nothing else, and values are loaded with `weights_only=True`.
"""

from __future__ import annotations

import io
import pickle
from pathlib import PurePosixPath, PureWindowsPath
from typing import TYPE_CHECKING, Any

import torch
from torch.distributed.checkpoint import metadata as dcp
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner
from torch.distributed.checkpoint.filesystem import _StorageInfo
from torch.distributed.checkpoint.planner import ReadItem
from torch.distributed.checkpoint.state_dict_loader import load

from kfjob.errors import KfjobError

if TYPE_CHECKING:
    from kfjob.trainer.checkpoint import Checkpoint

METADATA_FILE = ".metadata"


class _UnknownTypeError(pickle.UnpicklingError):
    """The metadata refers to something that DCP does not write."""


def _find_member(kind: object, name: object) -> object:
    """Return a memory format by its name, as `getattr` does. Python 3.11.0 to 3.11.3 pickle members of an enum with it.

    Raises:
        pickle.UnpicklingError: it is not a name of a memory format.
    """
    if kind is dcp._MEM_FORMAT_ENCODING and isinstance(name, str) and name in dcp._MEM_FORMAT_ENCODING.__members__:  # noqa: SLF001
        return dcp._MEM_FORMAT_ENCODING[name]  # noqa: SLF001 -- DCP writes it
    raise _UnknownTypeError(f"getattr({kind}, {name!r})")


_DCP_TYPES = (
    dcp.BytesStorageMetadata,
    dcp.ChunkStorageMetadata,
    dcp.Metadata,
    dcp.MetadataIndex,
    dcp.StorageMeta,
    dcp.TensorProperties,
    dcp.TensorStorageMetadata,
    dcp._MEM_FORMAT_ENCODING,  # noqa: SLF001 -- DCP writes it
    _StorageInfo,
)
_TYPES: dict[tuple[str, str], Any] = {
    **{(kind.__module__, kind.__qualname__): kind for kind in _DCP_TYPES},
    **{("torch", name): dtype for name, dtype in vars(torch).items() if isinstance(dtype, torch.dtype)},
    ("builtins", "getattr"): _find_member,
    ("torch", "Size"): torch.Size,
    ("torch.serialization", "_get_layout"): torch.serialization._get_layout,  # noqa: SLF001 -- DCP writes it
    **{(module, "PosixPath"): PurePosixPath for module in ("pathlib", "pathlib._local")},
    **{(module, "WindowsPath"): PureWindowsPath for module in ("pathlib", "pathlib._local")},
}
"""Everything that the metadata of DCP refers to, by the module and the name under which Python finds it."""


class _MetadataUnpickler(pickle.Unpickler):
    """Finds the types of DCP's metadata, and imports nothing."""

    def find_class(self, module: str, name: str) -> Any:
        """Return a type of DCP's metadata."""
        if (module, name) not in _TYPES:
            raise _UnknownTypeError(f"{module}.{name}")
        return _TYPES[module, name]


class _DataPlanner(DefaultLoadPlanner):
    """Loads values that are not tensors with `weights_only=True`."""

    def load_bytes(self, read_item: ReadItem, value: io.BytesIO) -> None:
        """Pass on the value that torch's restricted unpickler returns."""
        checked = io.BytesIO()
        torch.save(torch.load(value, weights_only=True), checked)
        checked.seek(0)
        super().load_bytes(read_item, checked)


def read_metadata(checkpoint: Checkpoint, *, trusted: bool = False) -> dcp.Metadata:
    """Return DCP's metadata of a checkpoint. A `trusted` one is unpickled without restrictions, and can run code.

    Raises:
        KfjobError: the metadata is damaged, holds an unknown type, or names a file outside the checkpoint.
    """
    content = io.BytesIO(checkpoint.storage.read_bytes(checkpoint.name, checkpoint.manifest, METADATA_FILE))
    unpickler = pickle.Unpickler(content) if trusted else _MetadataUnpickler(content)  # noqa: S301 -- the user trusts it
    try:
        metadata: dcp.Metadata = unpickler.load()
        files = {_check_file_name(entry.relative_path) for entry in metadata.storage_data.values()}
    except _UnknownTypeError as error:
        raise _untrusted(checkpoint, f"its metadata holds `{error}`, which torch's DCP does not write") from error
    except Exception as error:  # a damaged pickle raises almost anything
        title = f"checkpoint `{checkpoint.path}` has no readable {METADATA_FILE}"
        raise KfjobError(title, cause=f"{type(error).__name__}: {error}") from error
    if foreign := files - checkpoint.manifest.files.keys():
        title = f"the metadata of `{checkpoint.path}` names the file `{min(foreign)}`, which its manifest lacks"
        raise KfjobError(title, location="resume")
    return metadata


def load_tensors(checkpoint: Checkpoint, tensors: dict[str, Any], *, trusted: bool = False, distributed: bool = True) -> None:
    """Load the checkpoint into `tensors`, in place; `trusted` as in `read_metadata`.

    Raises:
        KfjobError: the checkpoint holds more than data, or is damaged.
    """
    metadata = read_metadata(checkpoint, trusted=trusted)
    reader = checkpoint.storage.dcp_reader(checkpoint.name, checkpoint.manifest)
    reader.read_metadata = lambda *_args, **_kwargs: metadata
    planner = DefaultLoadPlanner() if trusted else _DataPlanner()
    try:
        load(tensors, storage_reader=reader, planner=planner, no_dist=not distributed)
    except CheckpointException as error:  # a BaseException
        rank, (problem, _) = next(iter(error.failures.items()))
        cause = f"rank {rank}: {type(problem).__name__}: {str(problem).partition(chr(10))[0]}"
        if isinstance(problem, pickle.UnpicklingError):
            raise _untrusted(checkpoint, cause) from error
        raise KfjobError(f"cannot load checkpoint `{checkpoint.path}`", location="resume", cause=cause) from error


def _check_file_name(name: object) -> str:
    """Return the name, which is a plain string as DCP writes it: a path object can print another name than it opens."""
    if type(name) is not str:
        raise pickle.UnpicklingError(f"a file name is a {type(name).__name__} instead of a string")
    return name


def _untrusted(checkpoint: Checkpoint, cause: str) -> KfjobError:
    title = f"checkpoint `{checkpoint.path}` holds more than data, and loading it could run code"
    hint = "`--trust-checkpoint` loads it; use it only if you trust everyone with write access to that location"
    return KfjobError(title, location="resume", cause=cause, hint=hint)
