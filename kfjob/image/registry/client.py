"""A client of the OCI distribution API (v1.1): manifests, blobs, tags. Content is verified against its digest."""

from __future__ import annotations

import dataclasses
import hashlib
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

from msgspec.structs import replace

from kfjob.base.errors import Refused
from kfjob.base.http import ConnectionLost, Limits, Response, Stream, backoff, is_success
from kfjob.base.units import MIB
from kfjob.image.references import is_digest
from kfjob.image.registry.authorization import Authorization, Scopes
from kfjob.image.registry.documents import ACCEPTED_TYPES, INDEX_TYPES, MANIFEST_TYPES, Document, TagList, parse_object
from kfjob.image.registry.endpoints import Endpoint, Use
from kfjob.image.registry.errors import Operation, join_url, make_connection_error, make_response_error
from kfjob.image.registry.secrets import LoginSource, anonymous
from kfjob.image.registry.transport import DEFAULT_LIMITS, Transport

_PARTIAL, _UNAUTHORIZED, _FORBIDDEN, _NOT_FOUND = 206, 401, 403, 404
_EXPIRED = b"authorization token has expired"
"""ECR's message for an expired login, with status 403 and without a challenge."""
ABSENT = (_NOT_FOUND,)
_MAX_CONFIG_BYTES = 32 * MIB
"""Size of an image's config."""
MAX_TAG_PAGES = 100
"""Pages of 1000 tags that one command reads."""


@dataclass(frozen=True, kw_only=True)
class Request:
    """A request to a registry."""

    operation: Operation
    method: str
    url: str
    scopes: Scopes
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = field(default=None, repr=False)
    accepted_statuses: frozenset[int] = frozenset()  # statuses of 400 and more that are no error


class Registry:
    """A client of a registry. Close it, or use it in a `with` block. Several threads may use it."""

    def __init__(self, endpoint: Endpoint, *, login: LoginSource = anonymous, limits: Limits = DEFAULT_LIMITS) -> None:
        self.endpoint, self.limits = endpoint, limits
        self._transport = Transport(endpoint, limits)
        self._authorization = Authorization(self._transport, login)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, err: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._transport.close()

    def get_manifest(self, repository: str, tag_or_digest: str) -> Document:
        """Return a manifest or an index.

        Raises:
            NotFound: the tag or digest does not exist.
            Refused: its media type is not an image's, or the content does not match the digest.
        """
        headers = {"Accept": ACCEPTED_TYPES}
        request = self.make_request("pull", repository, "GET", f"manifests/{tag_or_digest}", headers=headers)
        response = self.send(request)
        body = response.body
        media_type = response.headers.get("Content-Type", "").partition(";")[0].strip()
        digest = tag_or_digest if ":" in tag_or_digest else response.headers.get("Docker-Content-Digest", "")
        name = request.operation.name
        if digest:
            _verify_digest(body, digest, request.operation)
        if media_type not in (*INDEX_TYPES, *MANIFEST_TYPES):
            hint = "it has Docker's first schema: push it again with a current builder" if "v1" in media_type else None
            raise Refused(f"`{name}` is not an image that kfjob can read", cause=f"its media type is `{media_type}`", hint=hint)
        return Document(media_type=media_type, body=body)

    def get_digest(self, repository: str, tag_or_digest: str) -> str | None:
        """Return the digest of a tag (or digest); None if it does not exist."""
        headers = {"Accept": ACCEPTED_TYPES}
        path = f"manifests/{tag_or_digest}"
        response = self.send(self.make_request("pull", repository, "HEAD", path, headers=headers, accepted_statuses=ABSENT))
        if response.status == _NOT_FOUND:
            return None
        digest = response.headers.get("Docker-Content-Digest", "")
        return digest if is_digest(digest) else self.get_manifest(repository, tag_or_digest).digest

    def put_manifest(self, repository: str, tag_or_digest: str, manifest: Document) -> None:
        """Store a manifest under a tag or its digest. Its blobs must exist."""
        headers, path = {"Content-Type": manifest.media_type}, f"manifests/{tag_or_digest}"
        self.send(self.make_request("push", repository, "PUT", path, headers=headers, body=manifest.body))

    def has_blob(self, repository: str, digest: str) -> bool:
        """Return whether the repository has a blob."""
        request = self.make_request("pull", repository, "HEAD", f"blobs/{digest}", accepted_statuses=ABSENT)
        return self.send(request).status != _NOT_FOUND

    def get_blob(self, repository: str, digest: str) -> bytes:
        """Return a small blob, such as a config.

        Raises:
            NotFound: the blob does not exist.
            Refused: the content does not match the digest.
        """
        request = self.make_request("pull", repository, "GET", f"blobs/{digest}")
        body = self.send(request, limits=replace(self.limits, body_bytes=_MAX_CONFIG_BYTES)).body
        _verify_digest(body, digest, request.operation)
        return body

    def stream_blob(self, repository: str, digest: str, offset: int = 0) -> Iterator[bytes]:
        """Yield a blob from a byte on, in pieces. They are not verified: the registry that stores them does that.

        After a lost connection it continues where it ended.
        """
        request = self.make_request("pull", repository, "GET", f"blobs/{digest}")
        for failures in range(1, self.limits.attempts + 1):
            try:
                for piece in self._stream_once(request, offset):
                    offset += len(piece)
                    yield piece
            except ConnectionLost as lost:
                if failures == self.limits.attempts:
                    raise make_connection_error(request.operation, lost) from lost
                time.sleep(self.backoff(failures))
            else:
                return

    def _stream_once(self, request: Request, offset: int) -> Iterator[bytes]:
        ranged = dataclasses.replace(request, headers={"Range": f"bytes={offset}-"}) if offset else request
        with closing(self._open(ranged, self.limits)) as stream:
            skip = 0 if stream.status == _PARTIAL else offset
            for piece in stream.chunks():
                if rest := piece[skip:]:
                    yield rest
                skip = max(0, skip - len(piece))

    def list_tags(self, repository: str) -> Iterator[str]:
        """Yield the tags of a repository, fetched page by page, at most `MAX_TAG_PAGES`."""
        url = self.make_url(repository, "tags/list?n=1000")
        for _ in range(MAX_TAG_PAGES):
            request = self.make_request("pull", repository, "GET", "", url=url)
            response = self.send(request)
            yield from parse_object(response.body, "a list of tags", TagList).get("tags") or ()
            link = response.headers.get("Link", "")
            if 'rel="next"' not in link:
                return
            url = join_url(request.operation, url, link.partition("<")[2].partition(">")[0])

    def make_url(self, repository: str, path: str) -> str:
        """Return the URL of a path in a repository."""
        return f"{self.endpoint.url}/v2/{repository}/{path}"

    def make_request(
        self,
        use: Use,
        repository: str,
        method: str,
        path: str,
        *,
        url: str = "",
        headers: Mapping[str, str] | None = None,
        body: bytes | None = None,
        accepted_statuses: Iterable[int] = (),
        more_scopes: Scopes = (),
    ) -> Request:
        """Return a request about a repository; `url` replaces the URL of `path`."""
        action = "push to" if use == "push" else "read"
        return Request(
            operation=Operation(action=action, host=self.endpoint.host, repository=repository),
            method=method,
            url=url or self.make_url(repository, path),
            scopes=(f"repository:{repository}:{'pull,push' if use == 'push' else 'pull'}", *more_scopes),
            headers=headers or {},
            body=body,
            accepted_statuses=frozenset(accepted_statuses),
        )

    def send(self, request: Request, *, limits: Limits | None = None) -> Response:
        """Send a request, log in if the registry requires it, and return the complete response.

        Raises:
            KfjobError: there was no response, or it is an error.
        """
        limits = limits or self.limits
        return self._transport.read(request.operation, self._open(request, limits), limits=limits)

    def backoff(self, failures: int) -> float:
        """Return the seconds to wait after this many failures."""
        return backoff(failures, first=self.limits.pause, longest=self.limits.max_pause)

    def _open(self, request: Request, limits: Limits) -> Stream:
        is_own = _is_same_origin(request.url, self.endpoint.url)  # an upload's location may be on another host
        sent = self._authorization.get_headers(request.scopes) if is_own else {}
        stream = self._send(request, sent, limits)
        if is_own and stream.status in (_UNAUTHORIZED, _FORBIDDEN):
            refusal = self._transport.read(request.operation, stream)
            if not self._renew_login(request, refusal, sent):
                raise make_response_error(request.operation, refusal.status, refusal.body)
            stream = self._send(request, self._authorization.get_headers(request.scopes), limits)
        if not is_success(stream.status) and stream.status not in request.accepted_statuses:
            response = self._transport.read(request.operation, stream)
            raise make_response_error(request.operation, response.status, response.body)
        return stream

    def _renew_login(self, request: Request, refusal: Response, sent: Mapping[str, str]) -> bool:
        """Return whether there are new credentials for a request that was refused with the headers `sent`."""
        if refusal.status == _UNAUTHORIZED:
            return self._authorization.answer_challenge(refusal.headers, request.scopes, sent)
        may_be_expired = request.method == "HEAD" or _EXPIRED in refusal.body  # the response to HEAD has no message
        return may_be_expired and self._authorization.renew(request.scopes, sent)

    def _send(self, request: Request, authorization: Mapping[str, str], limits: Limits) -> Stream:
        headers = {**request.headers, **authorization}
        return self._transport.open(request.operation, request.method, request.url, headers, request.body, limits=limits)


def _verify_digest(body: bytes, digest: str, operation: Operation) -> None:
    if not is_digest(digest):
        raise Refused(f"`{operation.name}` has a digest that kfjob cannot verify", cause=f"it is `{digest[:100]}`")
    algorithm, _, expected = digest.partition(":")
    if hashlib.new(algorithm, body).hexdigest() != expected:
        raise Refused(f"`{operation.name}` returned content that does not match its digest", cause=f"expected `{digest}`")


def _is_same_origin(first: str, second: str) -> bool:
    parts, other = urlsplit(first), urlsplit(second)
    return (parts.scheme, parts.netloc) == (other.scheme, other.netloc)
