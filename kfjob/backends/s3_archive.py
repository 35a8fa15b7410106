"""A copy of the archive in S3: the layout of `backends.folder`, with the paths of the files as names of objects.

The guard uploads what it writes, and a command on any machine reads it. boto3 is imported where it is used. It finds the
credentials, and `AWS_ENDPOINT_URL` names another store that speaks S3.
"""

from __future__ import annotations

import os
import re
import tempfile
import weakref
from collections.abc import Iterator
from contextlib import AbstractContextManager, suppress
from functools import cached_property
from itertools import islice
from pathlib import Path
from shutil import rmtree
from typing import Any, NamedTuple

from kfjob.backends import folder
from kfjob.backends.saved_logs import MAX_UNPACKED_BYTES
from kfjob.base.aws import open_session, translate_errors
from kfjob.base.concurrency import map_parallel
from kfjob.base.errors import BackendError, NotFound, Refused, UsageError
from kfjob.base.file_access import open_private, open_regular
from kfjob.base.text import plural
from kfjob.base.units import MIB

SCHEME = "s3://"
MAX_PAGES = 20
"""Answers of S3 to one list; each names at most 1,000 objects."""
THREADS = 8
"""Objects to download at the same time."""
CONNECT_SECONDS, READ_SECONDS, ATTEMPTS = 5, 60, 3
"""Timeouts of one request, and how often it is sent."""
_ADDRESS = re.compile(r"s3://([a-z0-9][a-z0-9.-]{1,61}[a-z0-9])((?:/[^/\x00-\x1f\x7f]+)*)/?")
_MAX_DEPTH = 2
"""A launch has files, and folders of pods with files."""


class StoredFile(NamedTuple):
    """An object, by its name below the launch or the job that was listed."""

    name: str
    size: int  # bytes
    modified: float  # seconds since the epoch


class _Budget:
    """The bytes that one download may still write; S3 may send more than it has listed."""

    def __init__(self) -> None:
        self._left = MAX_UNPACKED_BYTES

    def take(self, size: int) -> None:
        self._left -= size
        if self._left < 0:
            raise Refused(f"S3 sends more than it has listed, and more than {MAX_UNPACKED_BYTES // MIB} MiB")


Stamp = tuple[int, int]
"""Time of the last change and size of a file."""


class S3Archive:
    """The objects below one address."""

    def __init__(self, address: str, *, profile: str | None = None) -> None:
        """Send nothing yet; `profile` is one of the AWS configuration.

        Raises:
            UsageError: the address is not `s3://BUCKET/PREFIX`.
        """
        self.address = check_address(address)
        self._profile = profile
        bucket, _, self._prefix = self.address.removeprefix(SCHEME).partition("/")
        self._bucket = {"Bucket": bucket}

    def find_launches(self, namespace: str, job: str) -> list[Path]:
        """Return a temporary folder of each launch of a job, oldest first, with its status alone; `download` completes it.

        Raises:
            KfjobError: S3 does not answer, or refuses.
        """
        if not (folder.is_name(namespace) and folder.is_name(job)):
            return []
        root, name = self.temporary / "archive", f"{namespace}/{job}"
        names = [file.name.split("/") for file in self.list_files(name)]
        launches = [parts[0] for parts in names if parts[1:] == [folder.STATUS] and folder.is_name(parts[0])]
        budget = _Budget()
        map_parallel(
            lambda launch: self._download(f"{name}/{launch}", root / name / launch, folder.STATUS, budget),
            launches,
            threads=THREADS,
            name="s3",
        )
        return folder.list_launches(root, namespace, job)

    def download(self, name: str, path: Path) -> list[str]:
        """Download the files of a launch that `path` lacks, and return why others are left out.

        The names and the sizes of the objects are not trusted: a name cannot lead out of `path`.

        Raises:
            NotFound: there are no files of a launch.
            KfjobError: S3 does not answer or refuses, or the files cannot be written.
        """
        wanted: list[StoredFile] = []
        left_out: list[str] = []
        total, budget = 0, _Budget()
        files = self.list_files(name)
        folders = {file.name.rpartition("/")[0] for file in files}
        named = [file for file in files if is_file_of_launch(file.name) and file.name not in folders]
        if not named:
            hint = f"name one launch, such as `{SCHEME}BUCKET/PREFIX/NAMESPACE/JOB/LAUNCH`"
            cause = f"{plural(len(files), 'object')} there, and none has the name of a launch's file" if files else None
            raise NotFound(f"`{self.locate(name)}` holds no launch", cause=cause, hint=hint)
        if others := len(files) - len(named):
            left_out.append(f"{plural(others, 'object')} with a name that no file of a launch has")
        for file in sorted(named, key=lambda file: file.size):
            total += file.size
            if total > MAX_UNPACKED_BYTES:
                left_out.append(f"`{file.name}` (all files are longer than {MAX_UNPACKED_BYTES // MIB} MiB)")
            elif not (path / file.name).exists():
                wanted.append(file)
        map_parallel(
            lambda file: self._download(name, path, file.name, budget, modified=file.modified),
            wanted,
            threads=THREADS,
            name="s3",
        )
        return left_out

    def upload_changes(self, path: Path, name: str, uploaded: dict[str, Stamp]) -> None:
        """Upload the files of a launch that have changed since `uploaded`, which this call updates; the status is the last.

        A log that is longer in S3 stays, unless this process has uploaded it: another guard has read more of it.

        Raises:
            KfjobError: S3 does not answer, or refuses.
            OSError: a file cannot be read.
        """
        files = {f"{name}/{file.relative_to(path)}": file for file in _list_files(path)}
        stored = {}
        if not files.keys() <= uploaded.keys():  # of an earlier guard, or of one that acts too
            stored = {f"{name}/{item.name}": item for item in self.list_files(name)}
        for key, file in files.items():
            with suppress(FileNotFoundError):  # the guard has appended it to the log of an earlier container
                status = file.stat()
                stamp = (status.st_mtime_ns, status.st_size)
                copy = None if key in uploaded else stored.get(key)
                if uploaded.get(key) == stamp or (copy and file.suffix == ".log" and copy.size > status.st_size):
                    continue
                if copy is None or copy.size != status.st_size or copy.modified < status.st_mtime:
                    self._upload(file, key)
                uploaded[key] = stamp

    def list_files(self, name: str = "") -> list[StoredFile]:
        """Return the objects below a name; those of folders are left out.

        Raises:
            Refused: there are more than kfjob reads, or S3 refuses.
            KfjobError: S3 does not answer, or does not accept the credentials.
        """
        prefix = "".join(f"{part}/" for part in (self._prefix, name) if part)
        files: list[StoredFile] = []
        page: dict[str, Any] = {}
        with self._translating("ListBucket", self.locate(name)):
            pages = self._client.get_paginator("list_objects_v2").paginate(**self._bucket, Prefix=prefix)
            for page in islice(pages, MAX_PAGES):
                files += [
                    StoredFile(item["Key"].removeprefix(prefix), item["Size"], item["LastModified"].timestamp())
                    for item in page.get("Contents", ())
                    if item["Key"].startswith(prefix) and not item["Key"].endswith("/")
                ]
        if page.get("IsTruncated"):
            hint = f"name one launch, such as `--from {SCHEME}BUCKET/PREFIX/NAMESPACE/JOB/LAUNCH`"
            raise Refused(f"`{self.locate(name)}` has more than {len(files)} objects", hint=hint)
        return files

    @cached_property
    def temporary(self) -> Path:
        """A private folder that ends with this object."""
        try:
            path = Path(tempfile.mkdtemp(prefix="kfjob-"))
        except OSError as err:
            hint = "set TMPDIR to another folder"
            raise BackendError("a folder for downloaded logs cannot be created", cause=str(err), hint=hint) from err
        weakref.finalize(self, rmtree, path, ignore_errors=True)
        return path

    def _upload(self, file: Path, key: str) -> None:
        from boto3.s3.transfer import TransferConfig

        key = "/".join(filter(None, (self._prefix, key)))
        with self._translating("PutObject", f"{SCHEME}{self._bucket['Bucket']}/{key}"), open_regular(file) as content:
            # of an open file: the guard replaces the status while it is uploaded
            self._client.upload_fileobj(content, **self._bucket, Key=key, Config=TransferConfig(use_threads=False))

    def _download(self, name: str, path: Path, file: str, budget: _Budget, *, modified: float | None = None) -> None:
        """Write an object to `path / file`, which no reader sees before it is complete."""
        target = path / file
        part = target.with_name(f".{target.name[:240]}.part")  # a name on Linux has 255 bytes
        key = "/".join(filter(None, (self._prefix, name, file)))
        try:
            folder.make_private(target.parent)
            part.unlink(missing_ok=True)
            with self._translating("GetObject", self.locate(name)), open_private(part, "xb") as out:
                for chunk in self._client.get_object(**self._bucket, Key=key)["Body"].iter_chunks(MIB):
                    budget.take(len(chunk))
                    out.write(chunk)
            if modified is not None:
                os.utime(part, (modified, modified))  # so that `upload_changes` finds it unchanged
            part.replace(target)
        except OSError as err:
            cause = err.strerror or str(err)
            raise BackendError(f"`{self.locate(name)}` cannot be downloaded", location=str(target), cause=cause) from err

    @cached_property
    def _client(self) -> Any:
        from botocore.config import Config

        config = Config(
            connect_timeout=CONNECT_SECONDS,
            read_timeout=READ_SECONDS,
            retries={"mode": "standard", "total_max_attempts": ATTEMPTS},
        )
        return open_session(profile=self._profile).client("s3", config=config)

    def locate(self, name: str) -> str:
        """Return the address of what is below a name."""
        return f"{self.address}/{name}" if name else self.address

    def _translating(self, action: str, place: str) -> AbstractContextManager[None]:
        return translate_errors(f"s3:{action}", place, profile=self._profile, region="")


def check_address(address: str) -> str:
    """Return the address of an archive in S3 without a slash at its end.

    Raises:
        UsageError: it is not `s3://BUCKET/PREFIX`.
    """
    if not _ADDRESS.fullmatch(address):
        hint = f"write `{SCHEME}BUCKET/PREFIX`; the prefix is optional"
        raise UsageError(f"`{address[:80]}` is not an address of S3", hint=hint)
    return address.rstrip("/")


def is_file_of_launch(name: str) -> bool:
    """Return whether a file of the folder of a launch can have this path.

    The recorded spec is not copied: it has secrets, and a bucket must not decide what `relaunch` starts.
    """
    parts = name.split("/")
    is_path = len(parts) <= _MAX_DEPTH and all(folder.is_name(part) for part in parts)
    return is_path and name not in (folder.SPEC, folder.MANIFEST)


def _list_files(path: Path) -> Iterator[Path]:
    """Yield the files of a launch, its status last: a launch with a status has the logs that it names."""
    files = [file for file in path.glob("**/*") if is_file_of_launch(str(file.relative_to(path))) and file.is_file()]
    yield from sorted(files, key=lambda file: (file.name == folder.STATUS, file))
