"""Checkpoints below a prefix of an object store."""

from __future__ import annotations

import errno
import hashlib
import importlib
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import IO, Any

from kfjob.base.errors import KfjobError, Unreachable
from kfjob.base.parsing import MAX_DOCUMENT_BYTES, ParseError
from kfjob.base.units import MIB
from kfjob.trainer.manifest import MANIFEST_FILE, Manifest, no_manifest, unreadable
from kfjob.trainer.storage.base import CHECKPOINT_NAME, MAX_CONTENT, MAX_FILE, PROBE, check_file
from kfjob.trainer.storage.staging import close_folder, open_folder

PART = 5 * MIB
"""The smallest part of an upload in parts."""


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

    def create(self) -> None:
        """Do nothing: a prefix needs no creation."""

    def probe(self, name: str) -> None:
        """Write an object in two parts, and read it; the error names the step that the store refuses."""
        path, content = self._path(name), PROBE.ljust(PART + 1)
        with self._wrap_errors("write to"), self._fs.open(path, "wb", block_size=PART) as file:
            file.write(content)
        with self._wrap_errors("read"):
            if self._read(path, len(content)) != content:
                raise KfjobError(f"`{self.location}` does not return what was written", location="checkpoint_dir")

    def prepare(self) -> None:
        """Remove the files of saves that no manifest names."""
        with self._wrap_errors():
            for name in self._list_entries():
                if name.startswith((".probe-", ".deleting-")):
                    self._fs.rm_file(self._path(name))
            for name in self._list_entries():
                for entry in self._list_left_over(name) if CHECKPOINT_NAME.match(name) else ():
                    self._fs.rm(self._path(name, entry), recursive=True)

    def list_names(self) -> list[str]:
        """Return the prefixes with a manifest."""
        with self._wrap_errors():
            candidates = [name for name in self._list_entries() if CHECKPOINT_NAME.match(name)]
            return [name for name in candidates if MANIFEST_FILE in self._list_entries(name)]

    def read_manifest(self, name: str) -> Manifest:
        """Return the manifest of a checkpoint."""
        path = f"{self.location}/{name}"
        try:
            text = self._read(self._path(name, MANIFEST_FILE), MAX_DOCUMENT_BYTES).decode(errors="replace")
        except (FileNotFoundError, ParseError) as error:
            raise no_manifest(path, error) from error
        except KfjobError:
            raise
        except Exception as error:  # every file system of fsspec has its own exceptions
            raise unreadable(f"{path}/{MANIFEST_FILE}", f"{type(error).__name__}: {error}") from error
        return Manifest.from_json(text, path)

    def find_damage(self, name: str, manifest: Manifest, *, rank: int = 0, world_size: int = 1) -> str | None:
        """Return the first problem of this rank's share of the files, which it reads completely."""
        with self._wrap_errors():
            sizes = {Path(path).name: facts["size"] for path, facts in self._list_files(name, manifest.shards).items()}
            for file in sorted(manifest.files)[rank::world_size]:
                path = self._path(name, manifest.shards, file)
                if problem := check_file(file, manifest.files[file], sizes.get(file), partial(self._digest, path)):
                    return problem
        return None

    def stage(self, name: str, token: str) -> Path:
        """Return a temporary folder of this rank; those of killed processes are removed."""
        with self._wrap_errors("write to"):
            return open_folder(f"{name}-{token}")

    def upload(self, staging: Path, name: str, token: str, files: list[str]) -> None:
        """Upload the files and delete the temporary folder."""
        try:
            with self._wrap_errors("write to"):
                for file in files:
                    self._fs.put_file(str(staging / file), self._path(name, token, file))
        finally:
            self.discard_staging(staging)

    def discard_staging(self, staging: Path) -> None:
        """Remove the folder."""
        close_folder(staging)

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

    def set_aside(self, name: str, prefix: str) -> str:
        """Copy the checkpoint to another name and delete the original."""
        target = f"{prefix}-{name}-{secrets.token_hex(2)}"
        with self._wrap_errors():
            self._fs.copy(self._path(name), self._path(target), recursive=True)
        self.delete(name)
        return target

    def read_bytes(self, name: str, manifest: Manifest, file: str) -> bytes:
        """Return the content of a checkpoint's file."""
        with self._wrap_errors():
            return self._read(self._path(name, manifest.shards, file), MAX_CONTENT)

    def dcp_reader(self, name: str, manifest: Manifest) -> Any:
        """Return a reader of fsspec files."""
        try:
            module = importlib.import_module("torch.distributed.checkpoint.fsspec_filesystem")
        except ImportError:  # torch 2.11
            module = importlib.import_module("torch.distributed.checkpoint._fsspec_filesystem")
        return module.FsspecReader("/".join(filter(None, (self.location, name, manifest.shards))))

    def write_file(self, name: str, text: str, *, overwrite: bool) -> bool:
        """Write one object."""
        with self._wrap_errors("write to"):
            if not overwrite and self._fs.exists(self._path(name)):
                return False
            self._fs.pipe_file(self._path(name), text.encode())
        return True

    def read_file(self, name: str) -> str | None:
        """Read the object."""
        with self._wrap_errors("read"):
            try:
                return self._read(self._path(name), MAX_FILE).decode(errors="replace")
            except FileNotFoundError:
                return None
            except ParseError as error:
                title = f"`{self.location}/{name}` is larger than {MAX_FILE // MIB} MiB"
                hint = "remove it if no job uses this location"
                raise KfjobError(title, location="checkpoint_dir", hint=hint) from error

    def list_files(self, prefix: str) -> list[str]:
        """Return the names with the prefix."""
        with self._wrap_errors("read"):
            return [name for name in self._list_entries() if name.startswith(prefix)]

    def remove_file(self, name: str) -> None:
        """Delete the object."""
        with self._wrap_errors("delete from"):
            if self._fs.exists(self._path(name)):
                self._fs.rm_file(self._path(name))

    def _path(self, *parts: str) -> str:
        return "/".join([self._fs._strip_protocol(self.location), *filter(None, parts)])  # noqa: SLF001 -- fsspec has no public name for it

    def _read(self, path: str, limit: int) -> bytes:
        """Return the content of an object. It asks for a range, because an object can grow after a request for its size.

        Raises:
            ParseError: the object has more than `limit` bytes.
            Exception: the file system's own.
        """
        try:
            content = bytes(self._fs.cat_file(path, start=0, end=limit + 1))
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
            content = b""  # S3 has no range of an empty object
        if len(content) > limit:
            raise ParseError(f"`{path}` is larger than {limit // MIB} MiB")
        return content

    def _list_entries(self, *parts: str) -> list[str]:
        try:
            return [entry.rstrip("/").rpartition("/")[2] for entry in self._fs.ls(self._path(*parts), detail=False)]
        except FileNotFoundError:
            return []

    def _list_files(self, *parts: str) -> dict[str, Any]:
        files: dict[str, Any] = self._fs.find(self._path(*parts), detail=True)
        return files

    def _list_left_over(self, name: str) -> list[str]:
        """Return the folders of saves that the manifest does not name, if it is missing or readable."""
        entries = self._list_entries(name)
        try:
            shards = self.read_manifest(name).shards if MANIFEST_FILE in entries else None
        except KfjobError:  # keep the files, so that a person can inspect them
            return []
        # files in the checkpoint's own folder are those of a copy from a folder
        return [] if shards == "" else [entry for entry in entries if entry not in (MANIFEST_FILE, shards)]

    def _digest(self, path: str) -> str:
        file: IO[bytes]
        with self._fs.open(path, "rb") as file:
            digest = hashlib.sha256()
            while part := file.read(2**24):
                digest.update(part)
        return digest.hexdigest()

    @contextmanager
    def _wrap_errors(self, action: str = "use") -> Iterator[None]:
        """Turn errors of the store into KfjobErrors; every file system of fsspec has its own exceptions."""
        try:
            yield
        except KfjobError:
            raise
        except Exception as error:
            cause = f"{type(error).__name__}: {error}"
            kind = KfjobError if isinstance(error, ImportError) else Unreachable  # a store may answer the next attempt
            raise kind(
                f"cannot {action} `{self.location}`", location="checkpoint_dir", cause=cause, hint=_access_hint(error)
            ) from error


def _access_hint(error: Exception) -> str | None:
    if isinstance(error, ImportError):
        return "install the package that the cause names; for a pod, in the Dockerfile"
    return "set AWS_* variables, a profile or the pod's role" if "Credentials" in type(error).__name__ else None
