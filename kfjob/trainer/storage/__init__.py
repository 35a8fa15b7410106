"""Storage of checkpoints: a folder that all ranks mount, or a prefix of an object store.

A rename makes a checkpoint in a folder visible. On an object store the manifest does, which is written last and atomically.
"""

from __future__ import annotations

from pathlib import Path

from kfjob.trainer.storage.base import Checkpoint, Storage
from kfjob.trainer.storage.folder import FolderStorage
from kfjob.trainer.storage.object_store import ObjectStorage

__all__ = ["Checkpoint", "FolderStorage", "ObjectStorage", "Storage", "open_storage", "split_location"]


def open_storage(location: str) -> Storage:
    """Return the storage at a URL that fsspec supports, or in a folder."""
    return ObjectStorage(location.rstrip("/")) if "://" in location else FolderStorage(str(Path(location).expanduser()))


def split_location(location: str) -> tuple[Storage, str]:
    """Return the storage and the name of the checkpoint at a path or URL."""
    parent, _, name = location.rstrip("/").rpartition("/")
    return open_storage(parent or ("/" if location.startswith("/") else ".")), name
