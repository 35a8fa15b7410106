"""Upload blobs: mount them from another repository, or send them in chunks and resume after a broken connection.

After a break, the registry is asked for its offset (distribution specification, "Pushing a blob in chunks"). ECR and registries
behind a buffering proxy keep the acknowledged bytes. Debian's docker-registry 2.8 drops a session that broke within a chunk
("upload resumed at wrong offset"); the blob is then sent from its beginning, in a new session.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol
from urllib.parse import urlencode

from msgspec import Struct
from msgspec.structs import replace

from kfjob.base.errors import BackendError, Forbidden, KfjobError, NotFound, Refused, Unreachable
from kfjob.base.http import Response
from kfjob.base.units import MIB
from kfjob.image.registry.client import Registry
from kfjob.image.registry.errors import join_url

CHUNK_SIZE = 8 * MIB
"""ECR accepts parts of 5 MiB and more; a broken connection costs at most one chunk."""
MAX_CHUNK_SIZE = 256 * MIB
"""The largest chunk that a registry can ask for."""
_CREATED, _NOT_FOUND, _WRONG_RANGE = 201, 404, 416
_LOST_STATUSES = (_NOT_FOUND, _WRONG_RANGE)
_PIECE = MIB

ReportProgress = Callable[[str, int, int], None]
"""Receives a digest, the bytes in the registry so far, and the size."""


def ignore_progress(_digest: str, _done: int, _size: int) -> None:
    """Drop the progress: the default of `progress` parameters."""


class Blob(Protocol):
    """Content to upload, which can be read again from any byte."""

    @property
    def digest(self) -> str:
        """The digest of the content."""

    @property
    def size(self) -> int:
        """The size in bytes."""

    def read_pieces(self, offset: int) -> Iterator[bytes]:
        """Yield the content from a byte on."""


class BytesBlob(Struct, frozen=True, kw_only=True):
    """A blob in memory."""

    digest: str
    content: bytes

    @property
    def size(self) -> int:
        """The size in bytes."""
        return len(self.content)

    def read_pieces(self, offset: int) -> Iterator[bytes]:
        """Yield the content in one piece."""
        yield self.content[offset:]


class FileBlob(Struct, frozen=True, kw_only=True):
    """A blob in a file."""

    digest: str
    size: int
    file: Path

    def read_pieces(self, offset: int) -> Iterator[bytes]:
        """Yield the content as it is read."""
        with self.file.open("rb") as stream:
            stream.seek(offset)
            while piece := stream.read(_PIECE):
                yield piece


class RemoteBlob(Struct, frozen=True, kw_only=True):
    """A blob in another repository; it is copied without a temporary file."""

    digest: str
    size: int
    registry: Registry
    repository: str

    def read_pieces(self, offset: int) -> Iterator[bytes]:
        """Yield the content as it arrives."""
        rest = self.size - offset
        for piece in self.registry.stream_blob(self.repository, self.digest, offset):
            rest -= len(piece)
            if rest < 0:
                cause = f"its image names {self.size} bytes"
                raise Refused(f"blob {self.digest[:19]} of `{self.repository}` is too long", cause=cause)
            yield piece


class _SessionLost(Exception):
    """The registry no longer knows the upload session."""


def mount_blob(registry: Registry, repository: str, digest: str, *, source: str) -> bool:
    """Mount a blob of another repository of the same registry; return False if the registry requires an upload."""
    query = urlencode({"mount": digest, "from": source})
    scopes = (f"repository:{source}:pull",)
    request = registry.make_request("push", repository, "POST", f"blobs/uploads/?{query}", more_scopes=scopes)
    try:
        response = registry.send(request)
    except (Refused, Forbidden, NotFound):
        return False  # the upload reports a missing right
    if response.status == _CREATED:
        return True
    if location := response.headers.get("Location"):  # the registry opened an upload session instead
        _cancel_session(registry, repository, join_url(request.operation, registry.make_url(repository, ""), location))
    return False


def upload_blob(
    registry: Registry,
    repository: str,
    blob: Blob,
    *,
    progress: ReportProgress = ignore_progress,
    chunk_size: int = CHUNK_SIZE,
) -> None:
    """Upload a blob.

    Raises:
        Unreachable: the connection breaks again and again.
        KfjobError: the registry refuses the blob.
    """
    for failures in range(1, registry.limits.attempts + 1):
        session = _Session(registry, repository, blob, progress, chunk_size)
        try:
            session.run()
        except _SessionLost:
            if registry.has_blob(repository, blob.digest):  # only the response was lost
                progress(blob.digest, blob.size, blob.size)
                return
            time.sleep(registry.backoff(failures))
        else:
            return
    raise Unreachable(
        f"`{registry.endpoint.host}/{repository}` did not accept blob {blob.digest[:19]} of {blob.size} bytes",
        cause=f"the upload was interrupted {registry.limits.attempts} times",
    )


class _Session:
    """An upload session: its URL, which changes with each response, and its offset."""

    def __init__(self, registry: Registry, repository: str, blob: Blob, progress: ReportProgress, chunk_size: int) -> None:
        self.registry, self.repository, self.blob, self.progress = registry, repository, blob, progress
        request = registry.make_request("push", repository, "POST", "blobs/uploads/", body=b"")
        response, self.operation = registry.send(request), request.operation
        self.offset, self.location = 0, registry.make_url(repository, "")
        self._update_location(response)
        self.chunk_size = max(chunk_size, _read_min_length(response))

    def run(self) -> None:
        self.progress(self.blob.digest, 0, self.blob.size)
        if self.blob.size <= self.chunk_size:
            self._finish(b"".join(self.blob.read_pieces(0)))
        else:
            while self.offset < self.blob.size:
                self._send_from(self.offset)
            self._finish(b"")
        self.progress(self.blob.digest, self.blob.size, self.blob.size)

    def _send_from(self, offset: int) -> None:
        """Send chunks until all are sent, or until the registry's offset differs after a break."""
        for content in _split_chunks(self.blob.read_pieces(offset), self.chunk_size):
            offset += len(content)
            self._send_chunk(content)
            del content  # frees the memory before the next chunk is made
            if self.offset != offset:
                return

    def _send_chunk(self, content: bytes) -> None:
        start, failures = self.offset, 0
        headers = {"Content-Type": "application/octet-stream", "Content-Range": f"{start}-{start + len(content) - 1}"}
        while self.offset == start:
            try:
                response = self._send("PATCH", self.location, headers, content)
            except Unreachable:
                failures += 1
                if failures == self.registry.limits.attempts:
                    raise
                time.sleep(self.registry.backoff(failures))
                self._update_offset()
            else:
                self.offset += len(content)
                self._update_location(response)
        self.progress(self.blob.digest, self.offset, self.blob.size)

    def _update_offset(self) -> None:
        """Ask the registry for its offset: after a break only the registry knows it."""
        request = self.registry.make_request(
            "push", self.repository, "GET", "", url=self.location, accepted_statuses=(_NOT_FOUND,)
        )
        try:
            response = self.registry.send(request)
        except Refused as err:
            raise _SessionLost from err
        end = _parse_count(response.headers.get("Range", "").rpartition("-")[2])
        offset = end + 1 if end else 0
        if response.status == _NOT_FOUND or not self.offset <= offset <= self.blob.size:
            raise _SessionLost
        self.offset = offset
        self._update_location(response)

    def _finish(self, content: bytes) -> None:
        url = f"{self.location}{'&' if '?' in self.location else '?'}{urlencode({'digest': self.blob.digest})}"
        try:
            self._send("PUT", url, {"Content-Type": "application/octet-stream"}, content)
        except Unreachable as err:
            raise _SessionLost from err

    def _send(self, method: str, url: str, headers: dict[str, str], content: bytes) -> Response:
        request = self.registry.make_request(
            "push", self.repository, method, "", url=url, headers=headers, body=content, accepted_statuses=_LOST_STATUSES
        )
        response = self.registry.send(request, limits=replace(self.registry.limits, attempts=1))
        if response.status in _LOST_STATUSES:
            raise _SessionLost
        return response

    def _update_location(self, response: Response) -> None:
        if location := response.headers.get("Location"):
            self.location = join_url(self.operation, self.location, location)


def _read_min_length(response: Response) -> int:
    """Return the smallest chunk that the registry accepts, which this machine holds in memory.

    Raises:
        BackendError: it is larger than `MAX_CHUNK_SIZE`.
    """
    size = _parse_count(response.headers.get("OCI-Chunk-Min-Length", ""))
    if size > MAX_CHUNK_SIZE:
        title = f"the registry asks for chunks of at least {size} bytes, and kfjob sends at most {MAX_CHUNK_SIZE // MIB} MiB"
        raise BackendError(title, hint="its setting for the smallest chunk is wrong")
    return size


def _parse_count(text: str) -> int:
    """Return the number of bytes in a header; 0 if it is not one."""
    try:
        return int(text)
    except ValueError:
        return 0


def _split_chunks(pieces: Iterator[bytes], size: int) -> Iterator[bytes]:
    buffer = bytearray()
    for piece in pieces:
        buffer += piece
        while len(buffer) >= size:
            yield _take(buffer, size)
    if buffer:
        yield bytes(buffer)


def _take(buffer: bytearray, size: int) -> bytes:
    """Remove and return the first bytes; a slice of the buffer would copy them twice, in each transfer thread."""
    with memoryview(buffer) as view:
        chunk = bytes(view[:size])
    del buffer[:size]
    return chunk


def _cancel_session(registry: Registry, repository: str, location: str) -> None:
    request = registry.make_request("push", repository, "DELETE", "", url=location, accepted_statuses=(_NOT_FOUND,))
    try:
        registry.send(request)
    except KfjobError:
        return  # registries delete abandoned sessions
