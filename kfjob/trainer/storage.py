"""Where checkpoints are kept: a folder that all ranks mount, or a prefix of an object store. Nothing else knows which it is.

In a folder a checkpoint appears by a rename, on an object store by its manifest, which is put there last and at once.
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
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import IO, Any, Protocol

from kfjob.errors import KfjobError
from kfjob.trainer import manifest
from kfjob.trainer.manifest import Manifest

_NAME = re.compile(r"step-(\d+)$")
_LITTER = (".staging-", ".discarded-")
_REPLACED = ".replaced-"


class Storage(Protocol):
    """What checkpoints ask of the place they are kept in. Errors are KfjobErrors that name the place."""

    @property
    def place(self) -> str:
        """A folder or a URL."""

    def prepare(self) -> None:
        """Make the place and remove what killed runs have left; rank 0 calls it before anything is looked for."""

    def names(self) -> list[str]:
        """What may be checkpoints."""

    def read(self, name: str) -> Manifest:
        """The manifest of a checkpoint."""

    def damage(self, name: str, about: Manifest, *, share: int = 0, of: int = 1) -> str | None:
        """What is wrong with a checkpoint's files, None if nothing; the rank `share` reads every `of`-th file."""

    def stage(self, name: str, token: str) -> Path:
        """A local folder for the shards of a rank; `token` is the same on all ranks and new each time."""

    def put(self, staging: Path, name: str, token: str, files: list[str]) -> None:
        """Each rank hands its files over."""

    def commit(self, staging: Path, name: str, token: str, about: Manifest) -> None:
        """Rank 0 makes the checkpoint visible, in place of one that has the name already."""

    def discard(self, name: str) -> None:
        """Delete a checkpoint so that a kill half-way does not leave a damaged one in sight."""

    def set_aside(self, name: str) -> None:
        """Keep a damaged one for a person to look at, where retention cannot take it for one that is worth keeping."""

    def reader(self, name: str, about: Manifest) -> Any:
        """DCP's reader of a checkpoint."""

    def write(self, name: str, text: str, *, overwrite: bool) -> bool:
        """A small file beside the checkpoints, whole or not at all; False if it is there and not to be overwritten."""

    def remove(self, name: str) -> None:
        """Remove such a file, if there is one."""


def storage_of(place: str) -> Storage:
    """The storage that a spec means: a URL that fsspec knows, or a folder."""
    return ObjectStore(place.rstrip("/")) if "://" in place else Folder(str(Path(place).expanduser()))


def split(place: str) -> tuple[Storage, str]:
    """A checkpoint's storage and name."""
    parent, _, name = place.rstrip("/").rpartition("/")
    return storage_of(parent or "."), name


def wrong(name: str, promised: dict[str, Any], size: int | None, digest: Any) -> str | None:
    """What is wrong with one file; `digest` is asked for only when the size is right."""
    if size is None:
        return f"{name} is missing"
    if size != promised["bytes"]:
        return f"{name} has {size} of {promised['bytes']} bytes"
    return None if digest() == promised["sha256"] else f"{name} does not match its checksum"


@dataclass(frozen=True)
class Folder:
    """A folder, the same one for all ranks."""

    place: str

    @property
    def path(self) -> Path:
        """Where it is."""
        return Path(self.place)

    def prepare(self) -> None:
        """Put back what was about to be replaced when a run was killed, and remove the rest."""
        with self._errors():
            self.path.mkdir(parents=True, exist_ok=True)
            for path in self.path.iterdir():
                if path.name.startswith(_REPLACED):
                    target = self.path / path.name.removeprefix(_REPLACED).rpartition("-")[0]
                    path.rename(target if not target.exists() else self._discarded(path.name))
            for path in self.path.iterdir():
                if path.name.startswith(_LITTER):
                    shutil.rmtree(path)

    def names(self) -> list[str]:
        """Folders that are named like checkpoints."""
        return [path.name for path in self.path.iterdir() if _NAME.match(path.name)] if self.path.is_dir() else []

    def read(self, name: str) -> Manifest:
        """The manifest."""
        return Manifest.read(self.path / name)

    def damage(self, name: str, about: Manifest, *, share: int = 0, of: int = 1) -> str | None:
        """The first fault of a share of the files."""
        for file in sorted(about.files)[share::of]:
            path = self.path / name / file
            size = path.stat().st_size if path.is_file() else None
            if fault := wrong(file, about.files[file], size, lambda path=path: manifest.describe(path)["sha256"]):
                return fault
        return None

    def stage(self, name: str, token: str) -> Path:
        """A hidden folder beside the checkpoints."""
        staging = self.path / f".staging-{name}-{token}"
        with self._errors():
            staging.mkdir(exist_ok=True)
        return staging

    def put(self, staging: Path, name: str, token: str, files: list[str]) -> None:
        """They are where they must be."""

    def commit(self, staging: Path, name: str, token: str, about: Manifest) -> None:
        """Write the manifest and rename. What has the name already is put back by `prepare` after a kill between the two."""
        with self._errors():
            for file in about.files:
                if not (staging / file).exists():
                    hint = "a volume that every pod mounts at the same path"
                    title = f"the ranks do not share `{self.place}`: {file} is not there"
                    raise KfjobError(title, location="checkpoint_dir", hint=hint)
            about.write(staging)
            target, replaced = self.path / name, self.path / f"{_REPLACED}{name}-{token}"
            if target.exists():
                target.rename(replaced)
            staging.rename(target)
            manifest.sync_folder(self.path)
            shutil.rmtree(replaced, ignore_errors=True)

    def discard(self, name: str) -> None:
        """Hide it, then delete it."""
        with self._errors():
            hidden = (self.path / name).rename(self._discarded(name))
            shutil.rmtree(hidden, ignore_errors=True)

    def set_aside(self, name: str) -> None:
        """Rename it."""
        with self._errors():
            (self.path / name).rename(self.path / f"damaged-{name}-{secrets.token_hex(2)}")

    def reader(self, name: str, about: Manifest) -> Any:
        """Of files."""
        from torch.distributed.checkpoint.filesystem import FileSystemReader

        return FileSystemReader(self.path / name / about.shards)

    def write(self, name: str, text: str, *, overwrite: bool) -> bool:
        """By a rename, or by a link where nothing is to be overwritten."""
        self.path.mkdir(parents=True, exist_ok=True)
        target, staged = self.path / name, self.path / f".{name}-{os.getpid()}-{time.time_ns()}"
        staged.write_text(text)
        if overwrite:
            staged.replace(target)
            return True
        try:
            target.hardlink_to(staged)
        except FileExistsError:
            return False
        finally:
            staged.unlink()
        return True

    def remove(self, name: str) -> None:
        """Unlink it."""
        with self._errors():
            (self.path / name).unlink(missing_ok=True)

    def _discarded(self, name: str) -> Path:
        return self.path / f".discarded-{name}-{secrets.token_hex(4)}"

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Say in our words what the disk says."""
        try:
            yield
        except OSError as error:
            raise KfjobError(f"cannot write to `{self.place}`", location="checkpoint_dir", cause=str(error)) from error


@dataclass(frozen=True)
class ObjectStore:
    """A prefix that fsspec can reach (`s3://bucket/folder` needs kfjob's extra `s3`).

    Each save has a fresh folder below the checkpoint's name, so that a second save of a step touches nothing of the first one
    until its manifest replaces the first one's, which a store does at once or not at all.
    """

    place: str

    @cached_property
    def _fs(self) -> Any:
        """The file system; nothing of it is remembered from one question to the next."""
        from fsspec.core import url_to_fs

        with self._errors():
            return url_to_fs(self.place, use_listings_cache=False, skip_instance_cache=True)[0]

    def prepare(self) -> None:
        """Remove attempts that no manifest names."""
        with self._errors():
            named = {name: self._shards(name) for name in self.names()}
            for name in self._entries():
                for attempt in self._entries(name) if _NAME.match(name) else ():
                    if attempt not in (manifest.NAME, named.get(name)):
                        self._fs.rm(self._path(name, attempt), recursive=True)

    def names(self) -> list[str]:
        """Prefixes with a manifest."""
        with self._errors():
            candidates = [name for name in self._entries() if _NAME.match(name)]
            return [name for name in candidates if self._fs.exists(self._path(name, manifest.NAME))]

    def read(self, name: str) -> Manifest:
        """The manifest."""
        with self._errors():
            text = self._fs.cat_file(self._path(name, manifest.NAME)).decode(errors="replace")
        return Manifest.parse(text, f"{self.place}/{name}")

    def damage(self, name: str, about: Manifest, *, share: int = 0, of: int = 1) -> str | None:
        """The first fault of a share of the files, which are read through."""
        with self._errors():
            sizes = {Path(path).name: facts["size"] for path, facts in self._files(name, about.shards).items()}
            for file in sorted(about.files)[share::of]:
                path = self._path(name, about.shards, file)
                if fault := wrong(file, about.files[file], sizes.get(file), lambda path=path: self._digest(path)):
                    return fault
        return None

    def stage(self, name: str, token: str) -> Path:
        """A temporary folder of this rank's own."""
        return Path(tempfile.mkdtemp(prefix=f"kfjob-{name}-{token}-"))

    def put(self, staging: Path, name: str, token: str, files: list[str]) -> None:
        """Upload them."""
        with self._errors():
            for file in files:
                self._fs.put_file(str(staging / file), self._path(name, token, file))
        shutil.rmtree(staging, ignore_errors=True)

    def commit(self, staging: Path, name: str, token: str, about: Manifest) -> None:  # noqa: ARG002 -- the protocol's
        """Put the manifest there, after a look at whether all files are; then what it has replaced can go."""
        with self._errors():
            there = {Path(path).name: facts["size"] for path, facts in self._files(name, token).items()}
            if missing := [file for file, facts in about.files.items() if there.get(file) != facts["bytes"]]:
                raise KfjobError(
                    f"`{self.place}/{name}` has not all that was put there: {missing[0]}", location="checkpoint_dir"
                )
            self._fs.pipe_file(self._path(name, manifest.NAME), replace(about, shards=token).text().encode())
            for attempt in self._entries(name):
                if attempt not in (manifest.NAME, token):
                    self._fs.rm(self._path(name, attempt), recursive=True)

    def discard(self, name: str) -> None:
        """The manifest goes first."""
        with self._errors():
            self._fs.rm_file(self._path(name, manifest.NAME))
            self._fs.rm(self._path(name), recursive=True)

    def set_aside(self, name: str) -> None:
        """Rename the manifest, and the prefix is no checkpoint any more; the next start removes its files."""
        with self._errors():
            aside = f"damaged-{name}-{secrets.token_hex(2)}"
            self._fs.copy(self._path(name), self._path(aside), recursive=True)
        self.discard(name)

    def reader(self, name: str, about: Manifest) -> Any:
        """Of fsspec's files."""
        try:
            module = importlib.import_module("torch.distributed.checkpoint.fsspec_filesystem")
        except ImportError:  # torch 2.11
            module = importlib.import_module("torch.distributed.checkpoint._fsspec_filesystem")
        return module.FsspecReader(f"{self.place}/{name}/{about.shards}")

    def write(self, name: str, text: str, *, overwrite: bool) -> bool:
        """One object."""
        with self._errors():
            if not overwrite and self._fs.exists(self._path(name)):
                return False
            self._fs.pipe_file(self._path(name), text.encode())
        return True

    def remove(self, name: str) -> None:
        """Delete it."""
        with self._errors():
            if self._fs.exists(self._path(name)):
                self._fs.rm_file(self._path(name))

    def _path(self, *parts: str) -> str:
        return "/".join([self._fs._strip_protocol(self.place), *filter(None, parts)])  # noqa: SLF001 -- fsspec has no public name for it

    def _entries(self, *parts: str) -> list[str]:
        try:
            return [entry.rstrip("/").rpartition("/")[2] for entry in self._fs.ls(self._path(*parts), detail=False)]
        except FileNotFoundError:
            return []

    def _files(self, *parts: str) -> dict[str, Any]:
        found: dict[str, Any] = self._fs.find(self._path(*parts), detail=True)
        return found

    def _shards(self, name: str) -> str | None:
        try:
            return self.read(name).shards
        except KfjobError:  # it is damaged: its files are left for a person to look at
            return next((entry for entry in self._entries(name) if entry != manifest.NAME), None)

    def _digest(self, path: str) -> str:
        file: IO[bytes]
        with self._fs.open(path, "rb") as file:
            digest = hashlib.sha256()
            while part := file.read(2**24):
                digest.update(part)
        return digest.hexdigest()

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Say in our words what the store says; every file system of fsspec has exceptions of its own."""
        try:
            yield
        except KfjobError:
            raise
        except Exception as error:
            cause = f"{type(error).__name__}: {error}"
            raise KfjobError(f"cannot use `{self.place}`", location="checkpoint_dir", cause=cause, hint=_hint(error)) from error


def _hint(error: Exception) -> str | None:
    if isinstance(error, ImportError):
        return "pip install 'kfjob[s3]' in the image, or the package that fsspec names"
    return "AWS_* variables, a profile or the pod's role" if "Credentials" in type(error).__name__ else None
