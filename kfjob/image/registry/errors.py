"""Errors of a registry and of the connection to it. A URL is never shown with its query, which may hold a signature."""

from __future__ import annotations

from typing import Any
from urllib.parse import urljoin, urlsplit

from msgspec import Struct

from kfjob.base.errors import AlreadyExists, Forbidden, KfjobError, NotFound, Refused, Unreachable
from kfjob.base.http import BUSY_STATUSES, ConnectionLost
from kfjob.base.parsing import parse_json

_UNAUTHORIZED, _FORBIDDEN, _NOT_FOUND, _CONFLICT, _TOO_LARGE = 401, 403, 404, 409, 413
_LOGIN_HINT = "`docker login` (for ECR `aws sso login`) as a user with the right, and check the registry in the image's name"


class Operation(Struct, frozen=True, kw_only=True):
    """What a request does, for messages: `push to` `registry.example/team/train`."""

    action: str
    host: str
    repository: str

    @property
    def name(self) -> str:
        """The repository with its registry."""
        return f"{self.host}/{self.repository}" if self.repository else self.host


def make_response_error(operation: Operation, status: int, body: bytes) -> KfjobError:
    """Return the error that a response with a status of 400 or more means."""
    errors = _parse_errors(body)
    codes, cause = {code for code, _ in errors}, "; ".join(text for _, text in errors) or f"the registry answered {status}"
    is_taken = status == _CONFLICT or any("immutable" in text.lower() for _, text in errors)
    kinds: tuple[tuple[bool, type[KfjobError], str | None], ...] = (
        (status == _UNAUTHORIZED, Forbidden, _LOGIN_HINT),
        (status == _FORBIDDEN, Forbidden, "the policy of the repository or of the user must allow it"),
        ("NAME_UNKNOWN" in codes, NotFound, "check that the repository exists; `kfjob push-image` creates one in ECR"),
        (status == _NOT_FOUND, NotFound, None),
        (is_taken, AlreadyExists, "the tag exists and is immutable: push under another tag"),
        (status == _TOO_LARGE, Refused, "it is too large for the registry, or for a proxy in front of it"),
        (status in BUSY_STATUSES, Unreachable, "the registry is busy or fails: try again later"),
        (True, Refused, None),
    )
    kind, hint = next((kind, hint) for matches, kind, hint in kinds if matches)
    return kind(f"cannot {operation.action} `{operation.name}`", cause=cause, hint=hint)


def join_url(operation: Operation, base: str, location: str) -> str:
    """Return the URL of a location that a registry sent.

    Raises:
        Refused: it is not a URL.
    """
    try:
        url = urljoin(base, location)
        _ = urlsplit(url).port  # parses the rest
    except ValueError:
        raise Refused(f"cannot {operation.action} `{operation.name}`", cause="it sends an address that is not a URL") from None
    return url


def make_connection_error(operation: Operation, lost: ConnectionLost) -> Unreachable:
    """Return the error for a connection that was not established, not trusted, or lost."""
    if lost.untrusted:
        hint = f"put the certificate of its authority at `certs.d/{operation.host}/ca.crt`, as for Docker and containerd"
        return Unreachable(f"the certificate of registry `{operation.host}` is not trusted", cause=lost.cause, hint=hint)
    file = f"certs.d/{operation.host}/hosts.toml"
    hint = f"check its name; if this machine reaches it at another address, name that in `{file}`, with `push` for `--code`"
    return Unreachable(f"registry `{operation.host}` does not answer", cause=lost.cause, hint=hint)


def _parse_errors(body: bytes) -> list[tuple[str, str]]:
    """Return (code, text) of each error in a response, in the form of the distribution specification."""
    try:
        errors: Any = parse_json(body)["errors"]
        return [(str(error.get("code", "")), _format_error(error)) for error in errors]
    except (ValueError, KeyError, TypeError, AttributeError):
        return []


def _format_error(error: dict[str, Any]) -> str:
    text, detail = str(error.get("message") or error.get("code") or "no reason"), error.get("detail")
    return f"{text} ({detail})" if isinstance(detail, str) and detail and detail != text else text
