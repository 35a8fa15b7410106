"""Reads a checkpoint's tensors with torch's DCP, as data: nothing in a checkpoint can run code.

DCP pickles its metadata and every value that is not a tensor, and unpickles them without any restriction (torch 2.15
`filesystem.py` read_metadata, `default_planner.py` load_bytes). The checksums of a manifest prove only that the files are
complete: whoever can write to the storage can also write a manifest. So `metadata_unpickler` reads the metadata. Values are
loaded with `weights_only=True`, and must be plain data: torch's restricted unpickler can set attributes of new objects, and DCP
would unpickle a copy of them without restrictions.
"""

from __future__ import annotations

import io
import pickle
from collections import OrderedDict
from math import prod
from typing import Any

import torch
from torch.distributed.checkpoint import metadata as dcp
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner
from torch.distributed.checkpoint.planner import ReadItem
from torch.distributed.checkpoint.state_dict_loader import load

from kfjob.base.errors import KfjobError
from kfjob.trainer.garbage import pause_collection
from kfjob.trainer.metadata_unpickler import MetadataUnpickler, UnknownTypeError
from kfjob.trainer.storage import Checkpoint

METADATA_FILE = ".metadata"
_SCALARS = (type(None), bool, int, float, complex, str, bytes, torch.dtype, torch.device, torch.Size)
_MAX_PARTS = 1_000_000
"""Parts of a value that is no tensor. A part that is held twice counts twice, so a list that holds itself has no end."""


class _DataPlanner(DefaultLoadPlanner):
    """Loads values that are not tensors with `weights_only=True`."""

    def load_bytes(self, read_item: ReadItem, value: io.BytesIO) -> None:
        """Pass on the value that torch's restricted unpickler returns."""
        checked = io.BytesIO()
        torch.save(_check_plain(torch.load(value, weights_only=True)), checked)
        checked.seek(0)
        super().load_bytes(read_item, checked)


def read_metadata(checkpoint: Checkpoint, *, trusted: bool = False) -> dcp.Metadata:
    """Return DCP's metadata of a checkpoint. A `trusted` one is unpickled without restrictions, and can run code.

    Raises:
        KfjobError: the metadata is damaged, holds an unknown type, or names a file outside the checkpoint.
    """
    if METADATA_FILE not in checkpoint.manifest.files:
        raise KfjobError(f"the manifest of `{checkpoint.path}` does not list {METADATA_FILE}", location="resume")
    content = io.BytesIO(checkpoint.storage.read_bytes(checkpoint.name, checkpoint.manifest, METADATA_FILE))
    try:
        metadata = _unpickle(content, trusted=trusted)
        files = {_check_file_name(entry.relative_path) for entry in metadata.storage_data.values()}
    except UnknownTypeError as error:
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
    _check_complete(checkpoint, metadata)
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


def _check_complete(checkpoint: Checkpoint, metadata: dcp.Metadata) -> None:
    """Check that each tensor has all of its data: DCP leaves what it does not read as it was in memory."""
    for name, entry in metadata.state_dict_metadata.items():
        if isinstance(entry, dcp.TensorStorageMetadata):
            sizes = {tuple(chunk.offsets): chunk.sizes for chunk in entry.chunks}
            stored = (dcp.MetadataIndex(name, offsets) in metadata.storage_data for offsets in sizes)
            if sum(map(prod, sizes.values())) < prod(entry.size) or not all(stored):
                raise KfjobError(f"checkpoint `{checkpoint.path}` has not all data of `{name}`", location="resume")


def _unpickle(content: io.BytesIO, *, trusted: bool) -> dcp.Metadata:
    if content.read(1) != pickle.PROTO:
        raise pickle.UnpicklingError("it is not a pickle of protocol 2 or newer")
    content.seek(0)
    unpickler = pickle.Unpickler(content) if trusted else MetadataUnpickler(content)  # noqa: S301 -- the user trusts it
    with pause_collection():  # it would walk the growing metadata again and again: half of the time for a large one
        metadata: dcp.Metadata = unpickler.load()
    return metadata


def _check_plain(value: Any) -> Any:
    """Return the value, if it consists of plain data only: an object's own attributes can decide how it is pickled again.

    Raises:
        pickle.UnpicklingError: it holds another type, an object with attributes, or too many parts, such as itself.
    """
    parts, count = [value], 0
    while parts:
        part, count = parts.pop(), count + 1
        if count > _MAX_PARTS:
            raise pickle.UnpicklingError(f"a value with more than {_MAX_PARTS:,} parts")
        if type(part) in (dict, OrderedDict):
            parts += [*part.keys(), *part.values()]
        elif type(part) in (list, tuple, set):
            parts += part
        elif type(part) not in (*_SCALARS, torch.Tensor):
            raise pickle.UnpicklingError(f"a value of the type {type(part).__name__}")
        if getattr(part, "__dict__", None):
            raise pickle.UnpicklingError(f"attributes of a {type(part).__name__}")
    return value


def _check_file_name(name: object) -> str:
    """Return the name, which is a plain string as DCP writes it: a path object can print another name than it opens."""
    if type(name) is not str:
        raise pickle.UnpicklingError(f"a file name is a {type(name).__name__} instead of a string")
    return name


def _untrusted(checkpoint: Checkpoint, cause: str) -> KfjobError:
    title = f"checkpoint `{checkpoint.path}` holds more than data, and loading it could run code"
    hint = "`--trust-checkpoint` loads it; use it only if you trust everyone with write access to that location"
    return KfjobError(title, location="resume", cause=cause, hint=hint)
