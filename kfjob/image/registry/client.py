"""One registry over the OCI distribution API (v1.1): manifests, blobs, tags. What is read is checked against its digest."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self
from urllib.parse import urljoin, urlsplit

from kfjob.errors import KfjobError, Refused
from kfjob.image.registry.authorization import Authorization, Scopes
from kfjob.image.registry.documents import ACCEPTED_TYPES, INDEX_TYPES, MANIFEST_TYPES, Document
from kfjob.image.registry.endpoints import Endpoint
from kfjob.image.registry.errors import Operation, RetryableError, make_response_error
from kfjob.image.registry.secrets import LoginSource, anonymous
from kfjob.image.registry.transport import DEFAULT_RETRIES, Response, RetryPolicy, Transport

_PARTIAL, _REDIRECTS, _ERROR, _UNAUTHORIZED, _FORBIDDEN, _NOT_FOUND = 206, range(300, 400), 400, 401, 403, 404
_ENDED = b"authorization token has expired"
"""How ECR says that a login has come to its end: with 403, and no challenge."""
ABSENT = (_NOT_FOUND,)
_MOST_REDIRECTS = 5
_LARGEST_DOCUMENT = 4 * 1024 * 1024  # the specification's limit for a manifest
_LARGEST_CONFIG = 32 * 1024 * 1024
_PIECE = 256 * 1024


@dataclass(frozen=True, kw_only=True)
class Request:
    """One request."""

    operation: Operation
    method: str
    url: str
    scopes: Scopes
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = field(default=None, repr=False)
    stream: bool = False
    accepted_statuses: frozenset[int] = frozenset()  # errors that are answers


class Registry:
    """A registry, as whoever `login` says. Close it, or use it in a `with`. Several threads may ask at the same time."""

    def __init__(self, endpoint: Endpoint, *, login: LoginSource = anonymous, retries: RetryPolicy = DEFAULT_RETRIES) -> None:
        self.endpoint, self.retries = endpoint, retries
        self._transport = Transport(endpoint, retries)
        self._authorization = Authorization(self._transport, login)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, err: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Give the connections back."""
        self._transport.close()

    def get_manifest(self, repository: str, tag_or_digest: str) -> Document:
        """The manifest or index of a tag or digest.

        Raises:
            NotFound: there is none.
            Refused: it is of a kind that is no image, or not what its digest says.
        """
        call = self.make_request(
            "pull", repository, "GET", f"manifests/{tag_or_digest}", headers={"Accept": ACCEPTED_TYPES}, stream=True
        )
        with self.open_stream(call) as answer:
            body = answer.read(_LARGEST_DOCUMENT + 1)
            media_type = answer.headers.get("Content-Type", "").partition(";")[0].strip()
            promised = tag_or_digest if ":" in tag_or_digest else answer.headers.get("Docker-Content-Digest", "")
        if len(body) > _LARGEST_DOCUMENT:
            raise Refused(f"the manifest of `{call.operation.name}` is larger than 4 MiB")
        found = Document(media_type=media_type, body=body)
        _check(body, promised, call.operation)
        if media_type not in (*INDEX_TYPES, *MANIFEST_TYPES):
            cause = f"its manifest is a `{media_type}`"
            hint = (
                "images of Docker's first schema are to be pushed again by a builder of today" if "v1" in media_type else None
            )
            raise Refused(f"`{call.operation.name}` is not an image that can be read", cause=cause, hint=hint)
        return found

    def get_digest(self, repository: str, tag_or_digest: str) -> str | None:
        """The digest that a tag (or digest) has in the registry; None: it is not there."""
        call = self.make_request(
            "pull",
            repository,
            "HEAD",
            f"manifests/{tag_or_digest}",
            headers={"Accept": ACCEPTED_TYPES},
            accepted_statuses=ABSENT,
        )
        answer = self.send(call)
        if answer.status == _NOT_FOUND:
            return None
        return answer.headers.get("Docker-Content-Digest") or self.get_manifest(repository, tag_or_digest).digest

    def put_manifest(self, repository: str, tag_or_digest: str, manifest: Document) -> None:
        """Store a manifest under a tag or its digest. Its blobs must be there."""
        headers = {"Content-Type": manifest.media_type}
        self.send(
            self.make_request("push", repository, "PUT", f"manifests/{tag_or_digest}", headers=headers, body=manifest.body)
        )

    def has_blob(self, repository: str, digest: str) -> bool:
        """Whether a blob is in the repository."""
        return (
            self.send(self.make_request("pull", repository, "HEAD", f"blobs/{digest}", accepted_statuses=ABSENT)).status
            != _NOT_FOUND
        )

    def get_blob(self, repository: str, digest: str) -> bytes:
        """A small blob, a config say.

        Raises:
            NotFound: there is none.
            Refused: it is not what its digest says.
        """
        call = self.make_request("pull", repository, "GET", f"blobs/{digest}", stream=True)
        with self.open_stream(call) as answer:
            body = answer.read(_LARGEST_CONFIG)
        _check(body, digest, call.operation)
        return body

    def stream_blob(self, repository: str, digest: str, offset: int = 0) -> Iterator[bytes]:
        """A blob from a byte on, in pieces; not checked: who stores it does that."""
        headers = {"Range": f"bytes={offset}-"} if offset else {}
        call = self.make_request("pull", repository, "GET", f"blobs/{digest}", headers=headers, stream=True)
        with self.open_stream(call) as answer:
            skip = 0 if answer.status == _PARTIAL else offset
            for piece in answer.stream(_PIECE):
                yield piece[skip:]
                skip = max(0, skip - len(piece))

    def list_tags(self, repository: str) -> Iterator[str]:
        """Every tag of a repository, a page at a time."""
        url: str | None = self.make_url(repository, "tags/list?n=1000")
        while url:
            answer = self.send(self.make_request("pull", repository, "GET", "", url=url))
            yield from json.loads(answer.data).get("tags") or ()
            link = answer.headers.get("Link", "")
            url = urljoin(url, link.partition("<")[2].partition(">")[0]) if 'rel="next"' in link else None

    def make_url(self, repository: str, rest: str) -> str:
        """Of something in a repository."""
        return f"{self.endpoint.url}/v2/{repository}/{rest}"

    def make_request(
        self,
        use: str,
        repository: str,
        method: str,
        rest: str,
        *,
        url: str = "",
        headers: Mapping[str, str] | None = None,
        body: bytes | None = None,
        stream: bool = False,
        accepted_statuses: Iterable[int] = (),
        more_scopes: Scopes = (),
    ) -> Request:
        """A request about a repository. `use` is `pull` or `push`; `expected`: statuses that are an answer and no error."""
        doing = "push to" if use == "push" else "read"
        return Request(
            operation=Operation(action=doing, host=self.endpoint.host, repository=repository),
            method=method,
            url=url or self.make_url(repository, rest),
            scopes=(f"repository:{repository}:{'pull,push' if use == 'push' else 'pull'}", *more_scopes),
            headers=headers or {},
            body=body,
            stream=stream,
            accepted_statuses=frozenset(accepted_statuses),
        )

    def send(self, call: Request) -> Response:
        """The answer, after as many tries as patience allows.

        Raises:
            KfjobError: there was none, or it is an error.
        """
        for failures in range(1, self.retries.attempts):
            try:
                return self.send_once(call)
            except RetryableError as broken:
                self.retries.wait(failures, retry_after=broken.retry_after)
        try:
            return self.send_once(call)
        except RetryableError as broken:
            raise broken.error from broken

    @contextmanager
    def open_stream(self, call: Request) -> Iterator[Response]:
        """The answer to a call that streams; its connection is given back afterwards."""
        answer = self.send(call)
        try:
            yield answer
        finally:
            answer.close()
            answer.release_conn()

    def send_once(self, call: Request) -> Response:
        """The answer to one try, logged in where the registry wants that, and from where it redirects to.

        Raises:
            Broken: the request may be repeated.
            KfjobError: the answer is an error.
        """
        ours = _same_place(call.url, self.endpoint.url)  # an address that the registry gave may be anywhere
        said = self._authorization.get_headers(call.scopes) if ours else {}
        answer = self._once(call, call.url, said)
        if answer.status == _UNAUTHORIZED and ours:
            refusal = make_response_error(call.operation, answer.status, _whole(answer))
            if not self._authorization.answer_challenge(answer.headers, call.scopes, said):
                raise refusal
            said = self._authorization.get_headers(call.scopes)
            answer = self._once(call, call.url, said)
        if (
            answer.status == _FORBIDDEN
            and ours
            and _may_have_ended(call, answer)
            and self._authorization.renew(call.scopes, said)
        ):
            answer = self._once(call, call.url, self._authorization.get_headers(call.scopes))
        answer = self._redirected(call, answer)
        if answer.status >= _ERROR and answer.status not in call.accepted_statuses:
            raise make_response_error(call.operation, answer.status, _whole(answer))
        return answer

    def _redirected(self, call: Request, answer: Response) -> Response:
        url = call.url
        for _ in range(_MOST_REDIRECTS):
            if answer.status not in _REDIRECTS or call.method not in ("GET", "HEAD") or not answer.headers.get("Location"):
                return answer
            answer.drain_conn()
            url = urljoin(url, answer.headers["Location"])
            ours = _same_place(url, self.endpoint.url)
            answer = self._once(call, url, self._authorization.get_headers(call.scopes) if ours else {})
        raise KfjobError(f"`{call.operation.host}` redirects in a circle")

    def _once(self, call: Request, url: str, authorization: Mapping[str, str]) -> Response:
        headers = {"User-Agent": "kfjob", **call.headers, **authorization}
        return self._transport.send(call.operation, call.method, url, headers, call.body, stream=call.stream)


def _may_have_ended(call: Request, answer: Response) -> bool:
    """Whether a refusal may mean that the login has come to its end; to HEAD it has no words."""
    return call.method == "HEAD" or (not call.stream and _ENDED in answer.data)


def _whole(answer: Response) -> bytes:
    """The body of an error; its connection is free again."""
    body = answer.data
    answer.release_conn()
    return body


def _check(body: bytes, promised: str, asked: Operation) -> None:
    algorithm, _, wanted = promised.partition(":")
    if wanted and hashlib.new(algorithm, body).hexdigest() != wanted:
        raise Refused(f"`{asked.name}` gives other bytes than their digest says", cause=f"wanted {promised}")


def _same_place(url: str, endpoint: str) -> bool:
    one, other = urlsplit(url), urlsplit(endpoint)
    return (one.scheme, one.netloc) == (other.scheme, other.netloc)
