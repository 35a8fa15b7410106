"""Storage of checkpoints: a folder that all ranks mount, or a prefix of an object store.

A rename makes a checkpoint in a folder visible. On an object store the manifest does, which is written last and atomically.
"""

from __future__ import annotations

import hashlib
import importlib
import os
import re
import secrets
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import IO, Any, Protocol

from kfjob.errors import KfjobError
from kfjob.trainer.manifest import MANIFEST_FILE, Manifest, describe_file, sync_folder

_CHECKPOINT_NAME = re.compile(r"step-(\d+)$")
_TEMPORARY = (".staging-", ".discarded-")
_REPLACED = ".replaced-"


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

    def dcp_reader(self, name: str, manifest: Manifest) -> Any:
        """Return DCP's storage reader for a checkpoint."""

    def write_file(self, name: str, text: str, *, overwrite: bool) -> bool:
        """Write a small file next to the checkpoints, atomically; return False if it exists and `overwrite` is not set."""

    def remove_file(self, name: str) -> None:
        """Remove such a file, if it exists."""


def open_storage(location: str) -> Storage:
    """Return the storage at a URL that fsspec supports, or in a folder."""
    return ObjectStorage(location.rstrip("/")) if "://" in location else FolderStorage(str(Path(location).expanduser()))


def split_location(location: str) -> tuple[Storage, str]:
    """Return the storage and the name of the checkpoint at a path or URL."""
    parent, _, name = location.rstrip("/").rpartition("/")
    return open_storage(parent or "."), name


def _check_file(name: str, expected: dict[str, Any], size: int | None, digest: Callable[[], str]) -> str | None:
    """Return the problem of a file, or None; the digest is computed only if the size is right."""
    if size is None:
        return f"{name} is missing"
    if size != expected["bytes"]:
        return f"{name} has {size} of {expected['bytes']} bytes"
    return None if digest() == expected["sha256"] else f"{name} does not match its checksum"


def _file_digest(path: Path) -> str:
    return str(describe_file(path)["sha256"])


@dataclass(frozen=True)
class FolderStorage:
    """A folder that all ranks share."""

    location: str

    @property
    def path(self) -> Path:
        """The path of the folder."""
        return Path(self.location)

    def prepare(self) -> None:
        """Restore a checkpoint whose replacement was interrupted by a kill, and remove temporary folders."""
        with self._wrap_errors():
            self.path.mkdir(parents=True, exist_ok=True)
            for path in self.path.iterdir():
                if path.name.startswith(_REPLACED):
                    target = self.path / path.name.removeprefix(_REPLACED).rpartition("-")[0]
                    path.rename(target if not target.exists() else self._hidden_path(path.name))
            for path in self.path.iterdir():
                if path.name.startswith(_TEMPORARY):
                    shutil.rmtree(path)

    def list_names(self) -> list[str]:
        """Return the folders with the name of a checkpoint."""
        return [path.name for path in self.path.iterdir() if _CHECKPOINT_NAME.match(path.name)] if self.path.is_dir() else []

    def read_manifest(self, name: str) -> Manifest:
        """Return the manifest of a checkpoint."""
        return Manifest.read(self.path / name)

    def find_damage(self, name: str, manifest: Manifest, *, rank: int = 0, world_size: int = 1) -> str | None:
        """Return the first problem of this rank's share of the files."""
        for file in sorted(manifest.files)[rank::world_size]:
            path = self.path / name / file
            size = path.stat().st_size if path.is_file() else None
            if problem := _check_file(file, manifest.files[file], size, partial(_file_digest, path)):
                return problem
        return None

    def stage(self, name: str, token: str) -> Path:
        """Return a hidden folder next to the checkpoints."""
        staging = self.path / f".staging-{name}-{token}"
        with self._wrap_errors():
            staging.mkdir(exist_ok=True)
        return staging

    def upload(self, staging: Path, name: str, token: str, files: list[str]) -> None:
        """Do nothing: the files are already in the shared folder."""

    def commit(self, staging: Path, name: str, token: str, manifest: Manifest) -> None:
        """Write the manifest and rename the folder; after a kill in between, `prepare` restores a replaced checkpoint."""
        with self._wrap_errors():
            for file in manifest.files:
                if not (staging / file).exists():
                    hint = "use a volume that every pod mounts at the same path"
                    title = f"the ranks do not share `{self.location}`: {file} is missing"
                    raise KfjobError(title, location="checkpoint_dir", hint=hint)
            manifest.write(staging)
            target, replaced = self.path / name, self.path / f"{_REPLACED}{name}-{token}"
            if target.exists():
                target.rename(replaced)
            staging.rename(target)
            sync_folder(self.path)
            shutil.rmtree(replaced, ignore_errors=True)

    def delete(self, name: str) -> None:
        """Hide the folder, then delete it."""
        with self._wrap_errors():
            hidden = (self.path / name).rename(self._hidden_path(name))
            shutil.rmtree(hidden, ignore_errors=True)

    def quarantine(self, name: str) -> None:
        """Rename the folder."""
        with self._wrap_errors():
            (self.path / name).rename(self.path / f"damaged-{name}-{secrets.token_hex(2)}")

    def dcp_reader(self, name: str, manifest: Manifest) -> Any:
        """Return a reader of files."""
        from torch.distributed.checkpoint.filesystem import FileSystemReader

        return FileSystemReader(self.path / name / manifest.shards)

    def write_file(self, name: str, text: str, *, overwrite: bool) -> bool:
        """Rename a temporary file, or link it if nothing must be overwritten."""
        self.path.mkdir(parents=True, exist_ok=True)
        target, temporary = self.path / name, self.path / f".{name}-{os.getpid()}-{time.time_ns()}"
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

    def remove_file(self, name: str) -> None:
        """Unlink the file."""
        with self._wrap_errors():
            (self.path / name).unlink(missing_ok=True)

    def _hidden_path(self, name: str) -> Path:
        return self.path / f".discarded-{name}-{secrets.token_hex(4)}"

    @contextmanager
    def _wrap_errors(self) -> Iterator[None]:
        """Turn errors of the file system into KfjobErrors."""
        try:
            yield
        except OSError as error:
            raise KfjobError(f"cannot write to `{self.location}`", location="checkpoint_dir", cause=str(error)) from error


@dataclass(frozen=True)
class ObjectStorage:
    """A prefix that fsspec can access (`s3://bucket/folder` needs kfjob's extra `s3`).

    Each save has a new folder below the checkpoint's name. A second save of a step changes nothing of the first one until its
    manifest replaces the first one's, which the store does atomically.
    """

    location: str

    @cached_property
    def _fs(self) -> Any:
        """The file system, without any cache of listings."""
        from fsspec.core import url_to_fs

        with self._wrap_errors():
            return url_to_fs(self.location, use_listings_cache=False, skip_instance_cache=True)[0]

    def prepare(self) -> None:
        """Remove the files of saves that no manifest names."""
        with self._wrap_errors():
            committed = {name: self._committed_folder(name) for name in self.list_names()}
            for name in self._list_entries():
                for entry in self._list_entries(name) if _CHECKPOINT_NAME.match(name) else ():
                    if entry not in (MANIFEST_FILE, committed.get(name)):
                        self._fs.rm(self._path(name, entry), recursive=True)

    def list_names(self) -> list[str]:
        """Return the prefixes with a manifest."""
        with self._wrap_errors():
            candidates = [name for name in self._list_entries() if _CHECKPOINT_NAME.match(name)]
            return [name for name in candidates if self._fs.exists(self._path(name, MANIFEST_FILE))]

    def read_manifest(self, name: str) -> Manifest:
        """Return the manifest of a checkpoint."""
        with self._wrap_errors():
            text = self._fs.cat_file(self._path(name, MANIFEST_FILE)).decode(errors="replace")
        return Manifest.from_json(text, f"{self.location}/{name}")

    def find_damage(self, name: str, manifest: Manifest, *, rank: int = 0, world_size: int = 1) -> str | None:
        """Return the first problem of this rank's share of the files, which it reads completely."""
        with self._wrap_errors():
            sizes = {Path(path).name: facts["size"] for path, facts in self._list_files(name, manifest.shards).items()}
            for file in sorted(manifest.files)[rank::world_size]:
                path = self._path(name, manifest.shards, file)
                if problem := _check_file(file, manifest.files[file], sizes.get(file), partial(self._digest, path)):
                    return problem
        return None

    def stage(self, name: str, token: str) -> Path:
        """Return a temporary folder of this rank."""
        return Path(tempfile.mkdtemp(prefix=f"kfjob-{name}-{token}-"))

    def upload(self, staging: Path, name: str, token: str, files: list[str]) -> None:
        """Upload the files and delete the temporary folder."""
        with self._wrap_errors():
            for file in files:
                self._fs.put_file(str(staging / file), self._path(name, token, file))
        shutil.rmtree(staging, ignore_errors=True)

    def commit(self, staging: Path, name: str, token: str, manifest: Manifest) -> None:  # noqa: ARG002 -- the protocol's
        """Check that all files exist, upload the manifest, and delete the save that it replaces."""
        with self._wrap_errors():
            sizes = {Path(path).name: facts["size"] for path, facts in self._list_files(name, token).items()}
            if missing := [file for file, facts in manifest.files.items() if sizes.get(file) != facts["bytes"]]:
                title = f"`{self.location}/{name}` lacks an uploaded file: {missing[0]}"
                raise KfjobError(title, location="checkpoint_dir")
            self._fs.pipe_file(self._path(name, MANIFEST_FILE), replace(manifest, shards=token).to_json().encode())
            for entry in self._list_entries(name):
                if entry not in (MANIFEST_FILE, token):
                    self._fs.rm(self._path(name, entry), recursive=True)

    def delete(self, name: str) -> None:
        """Delete the manifest first, then the files."""
        with self._wrap_errors():
            self._fs.rm_file(self._path(name, MANIFEST_FILE))
            self._fs.rm(self._path(name), recursive=True)

    def quarantine(self, name: str) -> None:
        """Copy the checkpoint to another name and delete the original."""
        with self._wrap_errors():
            target = f"damaged-{name}-{secrets.token_hex(2)}"
            self._fs.copy(self._path(name), self._path(target), recursive=True)
        self.delete(name)

    def dcp_reader(self, name: str, manifest: Manifest) -> Any:
        """Return a reader of fsspec files."""
        try:
            module = importlib.import_module("torch.distributed.checkpoint.fsspec_filesystem")
        except ImportError:  # torch 2.11
            module = importlib.import_module("torch.distributed.checkpoint._fsspec_filesystem")
        return module.FsspecReader(f"{self.location}/{name}/{manifest.shards}")

    def write_file(self, name: str, text: str, *, overwrite: bool) -> bool:
        """Write one object."""
        with self._wrap_errors():
            if not overwrite and self._fs.exists(self._path(name)):
                return False
            self._fs.pipe_file(self._path(name), text.encode())
        return True

    def remove_file(self, name: str) -> None:
        """Delete the object."""
        with self._wrap_errors():
            if self._fs.exists(self._path(name)):
                self._fs.rm_file(self._path(name))

    def _path(self, *parts: str) -> str:
        return "/".join([self._fs._strip_protocol(self.location), *filter(None, parts)])  # noqa: SLF001 -- fsspec has no public name for it

    def _list_entries(self, *parts: str) -> list[str]:
        try:
            return [entry.rstrip("/").rpartition("/")[2] for entry in self._fs.ls(self._path(*parts), detail=False)]
        except FileNotFoundError:
            return []

    def _list_files(self, *parts: str) -> dict[str, Any]:
        files: dict[str, Any] = self._fs.find(self._path(*parts), detail=True)
        return files

    def _committed_folder(self, name: str) -> str | None:
        try:
            return self.read_manifest(name).shards
        except KfjobError:  # the manifest is damaged: keep the files, so that a person can inspect them
            return next((entry for entry in self._list_entries(name) if entry != MANIFEST_FILE), None)

    def _digest(self, path: str) -> str:
        file: IO[bytes]
        with self._fs.open(path, "rb") as file:
            digest = hashlib.sha256()
            while part := file.read(2**24):
                digest.update(part)
        return digest.hexdigest()

    @contextmanager
    def _wrap_errors(self) -> Iterator[None]:
        """Turn errors of the store into KfjobErrors; every file system of fsspec has its own exceptions."""
        try:
            yield
        except KfjobError:
            raise
        except Exception as error:
            cause = f"{type(error).__name__}: {error}"
            raise KfjobError(
                f"cannot use `{self.location}`", location="checkpoint_dir", cause=cause, hint=_access_hint(error)
            ) from error


def _access_hint(error: Exception) -> str | None:
    if isinstance(error, ImportError):
        return "install the package that the cause names; for a pod, in the Dockerfile"
    return "set AWS_* variables, a profile or the pod's role" if "Credentials" in type(error).__name__ else None
