"""Blobs into a registry: mounted from a neighbour, or sent in chunks and taken up again where a connection broke.

After a break the registry is asked how far it came (distribution specification, "Pushing a blob in chunks"). ECR and registries
behind a buffering proxy keep what was acknowledged; Debian's docker-registry 2.8 drops a session that broke within a chunk
("upload resumed at wrong offset"), and then the blob is sent from its beginning, in a new session.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol
from urllib.parse import urlencode, urljoin

from kfjob.errors import Forbidden, KfjobError, NotFound, Refused, Unreachable
from kfjob.image.registry.client import Registry
from kfjob.image.registry.errors import RetryableError
from kfjob.image.registry.transport import Response

CHUNK_SIZE = 8 * 1024 * 1024
"""Bytes of a chunk: ECR takes parts of 5 MiB and more, and what a broken connection costs is no more than this."""
_CREATED, _NOT_FOUND, _WRONG_RANGE = 201, 404, 416
_PIECE = 1024 * 1024

ReportProgress = Callable[[str, int, int], None]
"""Told the digest, the bytes that are there, and how many there will be."""


def ignore_progress(_digest: str, _done: int, _size: int) -> None:
    """Progress is for terminals."""


class Blob(Protocol):
    """Something to upload, which can be read again from any byte."""

    @property
    def digest(self) -> str:
        """Of all of it."""

    @property
    def size(self) -> int:
        """In bytes."""

    def read_pieces(self, offset: int) -> Iterator[bytes]:
        """From a byte on."""


@dataclass(frozen=True, kw_only=True)
class BytesBlob:
    """A blob in memory."""

    digest: str
    content: bytes

    @property
    def size(self) -> int:
        """In bytes."""
        return len(self.content)

    def read_pieces(self, offset: int) -> Iterator[bytes]:
        """In one piece."""
        yield self.content[offset:]


@dataclass(frozen=True, kw_only=True)
class FileBlob:
    """A blob in a file."""

    digest: str
    size: int
    file: Path

    def read_pieces(self, offset: int) -> Iterator[bytes]:
        """As they are read."""
        with self.file.open("rb") as stream:
            stream.seek(offset)
            while piece := stream.read(_PIECE):
                yield piece


@dataclass(frozen=True, kw_only=True)
class RemoteBlob:
    """A blob in another repository: copied without a file between."""

    digest: str
    size: int
    registry: Registry
    repository: str

    def read_pieces(self, offset: int) -> Iterator[bytes]:
        """As they come."""
        return self.registry.stream_blob(self.repository, self.digest, offset)


class _Lost(Exception):
    """The registry has forgotten the session."""


def mount_blob(registry: Registry, repository: str, digest: str, *, source: str) -> bool:
    """Let a blob of another repository of the same registry be one of this; False: the registry would rather have it sent."""
    query = urlencode({"mount": digest, "from": source})
    scopes = (f"repository:{source}:pull",)
    try:
        answer = registry.send(registry.make_request("push", repository, "POST", f"blobs/uploads/?{query}", more_scopes=scopes))
    except (Refused, Forbidden, NotFound):
        return False  # if nothing may be pushed at all, sending it will say so
    if answer.status == _CREATED:
        return True
    if location := answer.headers.get("Location"):  # a session was opened instead, which nobody will use
        _cancel(registry, repository, urljoin(registry.make_url(repository, ""), location))
    return False


def upload_blob(
    registry: Registry, repository: str, blob: Blob, *, progress: ReportProgress = ignore_progress, chunk: int = CHUNK_SIZE
) -> None:
    """Send a blob.

    Raises:
        Unreachable: the connection breaks again and again, without coming further.
        KfjobError: the registry does not take it.
    """
    for failures in range(1, registry.retries.attempts + 1):
        session = _Session(registry, repository, blob, progress, chunk)
        try:
            session.run()
        except _Lost:
            if registry.has_blob(repository, blob.digest):  # it was the answer that was lost
                progress(blob.digest, blob.size, blob.size)
                return
            registry.retries.wait(failures)
        else:
            return
    raise Unreachable(
        f"`{registry.endpoint.host}/{repository}` did not take blob {blob.digest[:19]} of {blob.size} bytes",
        cause=f"the upload broke off {registry.retries.attempts} times",
    )


class _Session:
    """One upload session: an address that changes with each answer, and how far it is."""

    def __init__(self, registry: Registry, repository: str, blob: Blob, progress: ReportProgress, chunk: int) -> None:
        self.registry, self.repository, self.blob, self.progress = registry, repository, blob, progress
        answer = registry.send(registry.make_request("push", repository, "POST", "blobs/uploads/", body=b""))
        self.offset, self.location = 0, registry.make_url(repository, "")
        self._moved(answer)
        self.chunk = max(chunk, int(answer.headers.get("OCI-Chunk-Min-Length") or 0))

    def run(self) -> None:
        self.progress(self.blob.digest, 0, self.blob.size)
        if self.blob.size <= self.chunk:
            self._close(b"".join(self.blob.read_pieces(0)))
        else:
            while self.offset < self.blob.size:
                self._send_from(self.offset)
            self._close(b"")
        self.progress(self.blob.digest, self.blob.size, self.blob.size)

    def _send_from(self, offset: int) -> None:
        """Chunks until all are sent, or the registry's own count differs from ours after a break."""
        for content in _chunks(self.blob.read_pieces(offset), self.chunk):
            offset += len(content)
            self._send_chunk(content)
            if self.offset != offset:
                return

    def _send_chunk(self, content: bytes) -> None:
        start, failures = self.offset, 0
        headers = {"Content-Type": "application/octet-stream", "Content-Range": f"{start}-{start + len(content) - 1}"}
        while self.offset == start:
            try:
                answer = self._send("PATCH", self.location, headers, content)
            except RetryableError as broken:
                failures += 1
                if failures == self.registry.retries.attempts:
                    raise broken.error from broken
                self.registry.retries.wait(failures, retry_after=broken.retry_after)
                self._ask_how_far()
            else:
                self.offset += len(content)
                self._moved(answer)
        self.progress(self.blob.digest, self.offset, self.blob.size)

    def _ask_how_far(self) -> None:
        """After a break only the registry can know."""
        call = self.registry.make_request(
            "push", self.repository, "GET", "", url=self.location, accepted_statuses=(_NOT_FOUND,)
        )
        try:
            answer = self.registry.send(call)
        except Refused as err:
            raise _Lost from err
        end = answer.headers.get("Range", "0-0").rpartition("-")[2]
        there = int(end) + 1 if end.isdecimal() and end != "0" else 0
        if answer.status == _NOT_FOUND or there < self.offset:
            raise _Lost
        self.offset = there
        self._moved(answer)

    def _close(self, content: bytes) -> None:
        url = f"{self.location}{'&' if '?' in self.location else '?'}{urlencode({'digest': self.blob.digest})}"
        try:
            self._send("PUT", url, {"Content-Type": "application/octet-stream"}, content)
        except RetryableError as broken:
            raise _Lost from broken

    def _send(self, method: str, url: str, headers: dict[str, str], content: bytes) -> Response:
        lost = (_NOT_FOUND, _WRONG_RANGE)
        call = self.registry.make_request(
            "push", self.repository, method, "", url=url, headers=headers, body=content, accepted_statuses=lost
        )
        answer = self.registry.send_once(call)
        if answer.status in lost:
            raise _Lost
        return answer

    def _moved(self, answer: Response) -> None:
        if location := answer.headers.get("Location"):
            self.location = urljoin(self.location, location)


def _chunks(pieces: Iterator[bytes], size: int) -> Iterator[bytes]:
    waiting = bytearray()
    for piece in pieces:
        waiting += piece
        while len(waiting) >= size:
            yield bytes(waiting[:size])
            del waiting[:size]
    if waiting:
        yield bytes(waiting)


def _cancel(registry: Registry, repository: str, location: str) -> None:
    try:
        registry.send_once(
            registry.make_request("push", repository, "DELETE", "", url=location, accepted_statuses=(_NOT_FOUND,))
        )
    except (KfjobError, RetryableError):
        return  # registries drop what nobody goes on with
