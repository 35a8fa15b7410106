"""What a registry or the way to it says, in our own words. No address is shown whole: its query may hold a signature."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

import urllib3

from kfjob.errors import AlreadyExists, Forbidden, KfjobError, NotFound, Refused, Unreachable

_UNAUTHORIZED, _FORBIDDEN, _NOT_FOUND, _CONFLICT, _TOO_LARGE = 401, 403, 404, 409, 413
_WHO = "`docker login` (for ECR `aws sso login`) as somebody who may, and check the account and region in the image's name"
RETRIED_STATUSES = frozenset({408, 429, 500, 502, 503, 504})
"""Statuses after which the same request may do better: the registry is busy, or fell over."""


class RetryableError(Exception):
    """There was no answer, or one of `REPEATED`: the request may be repeated. Never leaves this package."""

    def __init__(self, fault: KfjobError, *, after: float = 0.0) -> None:
        super().__init__(fault.title)
        self.error = fault
        self.retry_after = after  # seconds that the registry asked for


@dataclass(frozen=True, kw_only=True)
class Operation:
    """What was asked of whom, for messages: `push to` `registry.example` about `team/train`."""

    action: str
    host: str
    repository: str

    @property
    def name(self) -> str:
        """The repository with its registry."""
        return f"{self.host}/{self.repository}" if self.repository else self.host


def make_response_error(asked: Operation, status: int, body: bytes) -> KfjobError:
    """The error that an answer with a status of 400 or more is."""
    said = _said(body)
    codes, cause = {code for code, _ in said}, "; ".join(text for _, text in said) or f"it answered {status}"
    taken = status == _CONFLICT or any("immutable" in text.lower() for _, text in said)
    kinds: tuple[tuple[bool, type[KfjobError], str | None], ...] = (
        (status == _UNAUTHORIZED, Forbidden, _WHO),
        (status == _FORBIDDEN, Forbidden, "the policy of the repository, or of the user, does not allow it"),
        ("NAME_UNKNOWN" in codes, NotFound, "is the repository there? `kfjob push-image` makes one in ECR"),
        (status == _NOT_FOUND, NotFound, None),
        (taken, AlreadyExists, "the tag is taken and may not be changed: push under another"),
        (status == _TOO_LARGE, Refused, "it is too large for the registry, or for a proxy before it"),
        (status in RETRIED_STATUSES, Unreachable, "the registry is busy or unwell: try again later"),
        (True, Refused, None),
    )
    kind, hint = next((kind, hint) for holds, kind, hint in kinds if holds)
    return kind(f"cannot {asked.action} `{asked.name}`", cause=cause, hint=hint)


def make_connection_error(asked: Operation, err: Exception) -> KfjobError:
    """The error of a connection that was not made, not trusted, or broke."""
    if isinstance(err, urllib3.exceptions.SSLError):
        hint = f"its authority's certificate belongs in a `certs.d/{asked.host}/ca.crt`, as Docker and containerd keep it"
        return Unreachable(f"registry `{asked.host}` is not to be trusted", cause=_first_line(err), hint=hint)
    return Unreachable(f"registry `{asked.host}` does not answer", cause=_first_line(err))


def is_retryable(err: Exception) -> bool:
    """Whether a connection's fault may be gone the next time. A certificate stays what it is."""
    return isinstance(err, urllib3.exceptions.HTTPError) and not isinstance(err, urllib3.exceptions.SSLError)


def _said(body: bytes) -> list[tuple[str, str]]:
    """(code, text) of each error in an answer of the form that the distribution specification gives."""
    try:
        errors: Any = json.loads(body)["errors"]
        return [(str(e.get("code", "")), _one(e)) for e in errors]
    except (ValueError, KeyError, TypeError, AttributeError):
        return []


def _one(error: dict[str, Any]) -> str:
    text, detail = str(error.get("message") or error.get("code") or "no reason"), error.get("detail")
    return f"{text} ({detail})" if isinstance(detail, str) and detail and detail != text else text


def _first_line(err: Exception) -> str:
    """The reason, without what urllib3 puts before it: the connection as an object, and the URL."""
    text = str(getattr(err, "reason", None) or err).partition("\n")[0] or type(err).__name__
    text = re.sub(r"^<?\w+(\.\w+)*(\(.*?\)| object at 0x\w+)>?: ", "", text)
    return text.partition("?")[0]
