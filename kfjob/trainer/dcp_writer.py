"""Writes a checkpoint with torch's DCP, and its metadata so that torch's restricted unpickler can read it: see `dcp_reader`."""

from __future__ import annotations

import copyreg
import os
import pickle
from pathlib import Path
from typing import Any

from torch.distributed.checkpoint import metadata as dcp
from torch.distributed.checkpoint.filesystem import FileSystemWriter

METADATA_FILE = ".metadata"
METADATA_PROTOCOL = 2
"""The protocol of pickle that `torch.load` reads with `weights_only=True`. DCP would use Python's default."""

# Python 3.11.0 to 3.11.3 pickle a member of an enum as a call of `getattr`, which the restricted unpickler refuses
copyreg.pickle(dcp._MEM_FORMAT_ENCODING, lambda member: (type(member), (member.value,)))  # noqa: SLF001


class CheckpointFilesWriter(FileSystemWriter):
    """Writes a file for each rank, and flushes it to the disk."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, single_file_per_rank=True, sync_files=True)
        self._metadata_file = folder / METADATA_FILE

    def finish(self, metadata: dcp.Metadata, results: Any) -> None:
        """Write the metadata, which DCP completes when it writes it in its own way."""
        super().finish(metadata, results)
        with self._metadata_file.open("wb") as file:
            pickle.dump(metadata, file, METADATA_PROTOCOL)
            file.flush()
            os.fsync(file.fileno())
