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
from kfjob.image.registry.documents import ACCEPTED, INDEXES, MANIFESTS, Document
from kfjob.image.registry.endpoints import Endpoint
from kfjob.image.registry.faults import Asked, Broken, answered
from kfjob.image.registry.secrets import LoginSource, anonymous
from kfjob.image.registry.transport import PATIENT, Answer, Patience, Transport

_PARTIAL, _REDIRECTS, _ERROR, _UNAUTHORIZED, _FORBIDDEN, _NOT_FOUND = 206, range(300, 400), 400, 401, 403, 404
_ENDED = b"authorization token has expired"
"""How ECR says that a login has come to its end: with 403, and no challenge."""
ABSENT = (_NOT_FOUND,)
_MOST_REDIRECTS = 5
_LARGEST_DOCUMENT = 4 * 1024 * 1024  # the specification's limit for a manifest
_LARGEST_CONFIG = 32 * 1024 * 1024
_PIECE = 256 * 1024


@dataclass(frozen=True, kw_only=True)
class Call:
    """One request."""

    asked: Asked
    method: str
    url: str
    scopes: Scopes
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = field(default=None, repr=False)
    stream: bool = False
    expected: frozenset[int] = frozenset()  # errors that are answers


class Registry:
    """A registry, as whoever `login` says. Close it, or use it in a `with`."""

    def __init__(self, endpoint: Endpoint, *, login: LoginSource = anonymous, patience: Patience = PATIENT) -> None:
        self.endpoint, self.patience = endpoint, patience
        self._transport = Transport(endpoint, patience)
        self._authorization = Authorization(self._transport, login)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, err: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Give the connections back."""
        self._transport.close()

    def manifest(self, repository: str, wanted: str) -> Document:
        """The manifest or index of a tag or digest.

        Raises:
            NotFound: there is none.
            Refused: it is of a kind that is no image, or not what its digest says.
        """
        call = self.call("pull", repository, "GET", f"manifests/{wanted}", headers={"Accept": ACCEPTED}, stream=True)
        with self.opened(call) as answer:
            body = answer.read(_LARGEST_DOCUMENT + 1)
            media_type = answer.headers.get("Content-Type", "").partition(";")[0].strip()
            promised = wanted if ":" in wanted else answer.headers.get("Docker-Content-Digest", "")
        if len(body) > _LARGEST_DOCUMENT:
            raise Refused(f"the manifest of `{call.asked.name}` is larger than 4 MiB")
        found = Document(media_type=media_type, body=body)
        _check(body, promised, call.asked)
        if media_type not in (*INDEXES, *MANIFESTS):
            cause = f"its manifest is a `{media_type}`"
            hint = (
                "images of Docker's first schema are to be pushed again by a builder of today" if "v1" in media_type else None
            )
            raise Refused(f"`{call.asked.name}` is not an image that can be read", cause=cause, hint=hint)
        return found

    def digest_of(self, repository: str, wanted: str) -> str | None:
        """The digest that a tag (or digest) has in the registry; None: it is not there."""
        call = self.call("pull", repository, "HEAD", f"manifests/{wanted}", headers={"Accept": ACCEPTED}, expected=ABSENT)
        answer = self.send(call)
        if answer.status == _NOT_FOUND:
            return None
        return answer.headers.get("Docker-Content-Digest") or self.manifest(repository, wanted).digest

    def put_manifest(self, repository: str, name: str, found: Document) -> None:
        """Store a manifest under a tag or its digest. Its blobs must be there."""
        headers = {"Content-Type": found.media_type}
        self.send(self.call("push", repository, "PUT", f"manifests/{name}", headers=headers, body=found.body))

    def has_blob(self, repository: str, digest: str) -> bool:
        """Whether a blob is in the repository."""
        return self.send(self.call("pull", repository, "HEAD", f"blobs/{digest}", expected=ABSENT)).status != _NOT_FOUND

    def blob(self, repository: str, digest: str) -> bytes:
        """A small blob, a config say.

        Raises:
            NotFound: there is none.
            Refused: it is not what its digest says.
        """
        call = self.call("pull", repository, "GET", f"blobs/{digest}", stream=True)
        with self.opened(call) as answer:
            body = answer.read(_LARGEST_CONFIG)
        _check(body, digest, call.asked)
        return body

    def pieces(self, repository: str, digest: str, offset: int = 0) -> Iterator[bytes]:
        """A blob from a byte on, in pieces; not checked: who stores it does that."""
        headers = {"Range": f"bytes={offset}-"} if offset else {}
        call = self.call("pull", repository, "GET", f"blobs/{digest}", headers=headers, stream=True)
        with self.opened(call) as answer:
            skip = 0 if answer.status == _PARTIAL else offset
            for piece in answer.stream(_PIECE):
                yield piece[skip:]
                skip = max(0, skip - len(piece))

    def tags(self, repository: str) -> Iterator[str]:
        """Every tag of a repository, a page at a time."""
        url: str | None = self.url(repository, "tags/list?n=1000")
        while url:
            answer = self.send(self.call("pull", repository, "GET", "", url=url))
            yield from json.loads(answer.data).get("tags") or ()
            link = answer.headers.get("Link", "")
            url = urljoin(url, link.partition("<")[2].partition(">")[0]) if 'rel="next"' in link else None

    def url(self, repository: str, rest: str) -> str:
        """Of something in a repository."""
        return f"{self.endpoint.url}/v2/{repository}/{rest}"

    def call(
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
        expected: Iterable[int] = (),
        more_scopes: Scopes = (),
    ) -> Call:
        """A request about a repository. `use` is `pull` or `push`; `expected`: statuses that are an answer and no error."""
        doing = "push to" if use == "push" else "read"
        return Call(
            asked=Asked(doing=doing, host=self.endpoint.host, repository=repository),
            method=method,
            url=url or self.url(repository, rest),
            scopes=(f"repository:{repository}:{'pull,push' if use == 'push' else 'pull'}", *more_scopes),
            headers=headers or {},
            body=body,
            stream=stream,
            expected=frozenset(expected),
        )

    def send(self, call: Call) -> Answer:
        """The answer, after as many tries as patience allows.

        Raises:
            KfjobError: there was none, or it is an error.
        """
        for failures in range(1, self.patience.tries):
            try:
                return self.send_once(call)
            except Broken as broken:
                self.patience.pause(failures, asked=broken.after)
        try:
            return self.send_once(call)
        except Broken as broken:
            raise broken.fault from broken

    @contextmanager
    def opened(self, call: Call) -> Iterator[Answer]:
        """The answer to a call that streams; its connection is given back afterwards."""
        answer = self.send(call)
        try:
            yield answer
        finally:
            answer.close()
            answer.release_conn()

    def send_once(self, call: Call) -> Answer:
        """The answer to one try, logged in where the registry wants that, and from where it redirects to.

        Raises:
            Broken: the request may be repeated.
            KfjobError: the answer is an error.
        """
        ours = _same_place(call.url, self.endpoint.url)  # an address that the registry gave may be anywhere
        answer = self._once(call, call.url, self._authorization.headers(call.scopes) if ours else {})
        if answer.status == _UNAUTHORIZED and ours:
            refusal = answered(call.asked, answer.status, _whole(answer))
            if not self._authorization.answer(answer.headers, call.scopes):
                raise refusal
            answer = self._once(call, call.url, self._authorization.headers(call.scopes))
        if answer.status == _FORBIDDEN and ours and not call.stream and _ENDED in answer.data and self._authorization.renew():
            answer = self._once(call, call.url, self._authorization.headers(call.scopes))
        answer = self._redirected(call, answer)
        if answer.status >= _ERROR and answer.status not in call.expected:
            raise answered(call.asked, answer.status, _whole(answer))
        return answer

    def _redirected(self, call: Call, answer: Answer) -> Answer:
        url = call.url
        for _ in range(_MOST_REDIRECTS):
            if answer.status not in _REDIRECTS or call.method not in ("GET", "HEAD") or not answer.headers.get("Location"):
                return answer
            answer.drain_conn()
            url = urljoin(url, answer.headers["Location"])
            ours = _same_place(url, self.endpoint.url)
            answer = self._once(call, url, self._authorization.headers(call.scopes) if ours else {})
        raise KfjobError(f"`{call.asked.host}` redirects in a circle")

    def _once(self, call: Call, url: str, authorization: Mapping[str, str]) -> Answer:
        headers = {"User-Agent": "kfjob", **call.headers, **authorization}
        return self._transport.once(call.asked, call.method, url, headers, call.body, stream=call.stream)


def _whole(answer: Answer) -> bytes:
    """The body of an error; its connection is free again."""
    body = answer.data
    answer.release_conn()
    return body


def _check(body: bytes, promised: str, asked: Asked) -> None:
    algorithm, _, wanted = promised.partition(":")
    if wanted and hashlib.new(algorithm, body).hexdigest() != wanted:
        raise Refused(f"`{asked.name}` gives other bytes than their digest says", cause=f"wanted {promised}")


def _same_place(url: str, endpoint: str) -> bool:
    one, other = urlsplit(url), urlsplit(endpoint)
    return (one.scheme, one.netloc) == (other.scheme, other.netloc)
