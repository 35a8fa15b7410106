"""Checkpoints in a folder that all ranks share."""

from __future__ import annotations

import errno
import os
import secrets
import shutil
import stat
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from kfjob.base.errors import KfjobError
from kfjob.base.parsing import ParseError, read_document
from kfjob.trainer.manifest import Manifest, describe_file, sync_folder, unreadable
from kfjob.trainer.storage.base import (
    CHECKPOINT_NAME,
    MAX_CONTENT,
    MAX_FILE,
    PROBE,
    check_file,
    describe_write_error,
    not_shared,
)

_TEMPORARY = (".staging-", ".discarded-", ".probe-", ".deleting-", ".temporary-")
_REPLACED = ".replaced-"


@dataclass(frozen=True)
class FolderStorage:
    """A folder that all ranks share."""

    location: str

    @property
    def path(self) -> Path:
        """The path of the folder."""
        return Path(self.location)

    def create(self) -> None:
        """Create the folder."""
        with self._wrap_errors():
            self.path.mkdir(parents=True, exist_ok=True)

    def probe(self, name: str) -> None:
        """Write, flush, rename and read a file."""
        temporary = self.path / f"{name}-temporary"
        with self._wrap_errors():
            with temporary.open("wb") as file:
                file.write(PROBE)
                file.flush()
                os.fsync(file.fileno())
            temporary.rename(self.path / name)
            sync_folder(self.path)
            if (self.path / name).read_bytes() != PROBE:
                raise KfjobError(f"`{self.location}` does not return what was written", location="checkpoint_dir")

    def prepare(self) -> None:
        """Restore a checkpoint whose replacement was interrupted by a kill, and remove temporary files and folders."""
        with self._wrap_errors():
            for path in self.path.iterdir():
                if path.name.startswith(_REPLACED):
                    target = self.path / path.name.removeprefix(_REPLACED).rpartition("-")[0]
                    path.rename(target if not target.exists() else self._hidden_path(path.name))
            for path in self.path.iterdir():
                if path.name.startswith(_TEMPORARY):
                    shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)

    def list_names(self) -> list[str]:
        """Return the folders with the name of a checkpoint."""
        return [name for name in self.list_files("") if CHECKPOINT_NAME.match(name)]

    def read_manifest(self, name: str) -> Manifest:
        """Return the manifest of a checkpoint."""
        return Manifest.read(self.path / name)

    def find_damage(self, name: str, manifest: Manifest, *, rank: int = 0, world_size: int = 1) -> str | None:
        """Return the first problem of this rank's share of the files."""
        for file in sorted(manifest.files)[rank::world_size]:
            path = self.path / name / manifest.shards / file
            try:
                if not self._is_inside(name, path):
                    return f"{file} is a link to a file outside the checkpoint"
                if problem := check_file(file, manifest.files[file], _file_size(path), partial(_file_digest, path)):
                    return problem
            except OSError as error:
                raise unreadable(str(path), str(error)) from error
        return None

    def stage(self, name: str, token: str) -> Path:
        """Return a hidden folder next to the checkpoints."""
        staging = self.path / f".staging-{name}-{token}"
        with self._wrap_errors():
            staging.mkdir(exist_ok=True)
        return staging

    def upload(self, staging: Path, name: str, token: str, files: list[str]) -> None:
        """Do nothing: the files are already in the shared folder."""

    def discard_staging(self, staging: Path) -> None:
        """Remove the folder."""
        shutil.rmtree(staging, ignore_errors=True)

    def commit(self, staging: Path, name: str, token: str, manifest: Manifest) -> None:
        """Write the manifest and rename the folder; after a kill in between, `prepare` restores a replaced checkpoint."""
        with self._wrap_errors():
            for file in manifest.files:
                if not (staging / file).exists():
                    raise not_shared(self.location, file)
            manifest.write(staging)
            target, replaced = self.path / name, self.path / f"{_REPLACED}{name}-{token}"
            if target.exists():
                target.rename(replaced)
            try:
                staging.rename(target)
            except OSError:
                if replaced.exists():
                    replaced.rename(target)
                raise
            sync_folder(self.path)
            shutil.rmtree(replaced, ignore_errors=True)

    def delete(self, name: str) -> None:
        """Hide the folder, then delete it."""
        with self._wrap_errors():
            hidden = (self.path / name).rename(self._hidden_path(name))
            shutil.rmtree(hidden, ignore_errors=True)

    def set_aside(self, name: str, prefix: str) -> str:
        """Rename the folder."""
        target = f"{prefix}-{name}-{secrets.token_hex(2)}"
        with self._wrap_errors():
            (self.path / name).rename(self.path / target)
        return target

    def read_bytes(self, name: str, manifest: Manifest, file: str) -> bytes:
        """Return the content of a checkpoint's file."""
        with self._wrap_errors("read"):
            self._check_inside(name, manifest, [file])
            try:
                return read_document(self.path / name / manifest.shards / file, max_bytes=MAX_CONTENT)
            except ParseError as error:
                title = f"cannot read checkpoint `{self.path / name}`"
                raise KfjobError(title, location="checkpoint_dir", cause=str(error)) from error

    def dcp_reader(self, name: str, manifest: Manifest) -> Any:
        """Return a reader of files."""
        from torch.distributed.checkpoint.filesystem import FileSystemReader

        with self._wrap_errors("read"):
            self._check_inside(name, manifest, manifest.files)
        return FileSystemReader(self.path / name / manifest.shards)

    def write_file(self, name: str, text: str, *, overwrite: bool) -> bool:
        """Rename a temporary file, or link it if nothing must be overwritten."""
        target, temporary = self.path / name, self.path / f".temporary-{name}-{os.getpid()}-{time.time_ns()}"
        with self._wrap_errors():
            self.path.mkdir(parents=True, exist_ok=True)
            temporary.write_text(text)
            if overwrite:
                temporary.replace(target)
                return True
            try:
                target.hardlink_to(temporary)
            except FileExistsError:
                return False
            finally:
                temporary.unlink()
        return True

    def read_file(self, name: str) -> str | None:
        """Read the file."""
        with self._wrap_errors("read"):
            try:
                return read_document(self.path / name, max_bytes=MAX_FILE).decode(errors="replace")
            except FileNotFoundError:
                return None
            except ParseError as error:
                hint = "remove it if no job uses this folder"
                title = f"cannot read `{self.location}/{name}`"
                raise KfjobError(title, location="checkpoint_dir", cause=str(error), hint=hint) from error

    def list_files(self, prefix: str) -> list[str]:
        """Return the names with the prefix."""
        with self._wrap_errors("read"):
            return [path.name for path in self.path.iterdir() if path.name.startswith(prefix)] if self.path.is_dir() else []

    def remove_file(self, name: str) -> None:
        """Unlink the file."""
        with self._wrap_errors():
            (self.path / name).unlink(missing_ok=True)

    def _check_inside(self, name: str, manifest: Manifest, files: Iterable[str]) -> None:
        """Refuse a file that is a link to another place: its content does not belong to the checkpoint."""
        folder = self.path / name
        for file in files:
            if not self._is_inside(name, folder / manifest.shards / file):
                title = f"`{file}` of checkpoint `{folder}` is a link to a file outside the checkpoint"
                raise KfjobError(title, location="checkpoint_dir")

    def _is_inside(self, name: str, path: Path) -> bool:
        try:
            return path.resolve().is_relative_to((self.path / name).resolve())
        except RuntimeError as error:  # links that lead to each other; Python 3.13 raises an OSError when the file is opened
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path)) from error

    def _hidden_path(self, name: str) -> Path:
        return self.path / f".discarded-{name}-{secrets.token_hex(4)}"

    @contextmanager
    def _wrap_errors(self, action: str = "write to") -> Iterator[None]:
        """Turn errors of the file system into KfjobErrors."""
        try:
            yield
        except OSError as error:
            if action == "write to" and (full := describe_write_error(error, self.path / "file")):
                raise KfjobError(full[0], location="checkpoint_dir", cause=str(error), hint=full[1]) from error
            raise KfjobError(
                f"cannot {action} `{self.location}`",
                location="checkpoint_dir",
                cause=str(error),
                hint="use a folder that every rank can write to, such as one in a mounted volume"
                if action == "write to"
                else None,
            ) from error


def _file_size(path: Path) -> int | None:
    """Return the size of a regular file; None if there is none."""
    try:
        status = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    return status.st_size if stat.S_ISREG(status.st_mode) else None


def _file_digest(path: Path) -> str:
    return str(describe_file(path)["sha256"])
