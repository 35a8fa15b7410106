"""Who asks: the answer to a registry's challenge, Basic or Bearer (distribution specification, docs/spec/auth).

A login is asked for when a registry wants one, and again when it refuses what it was told before: an ECR token ends after
twelve hours, a push may not.
"""

from __future__ import annotations

import base64
import json
import re
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlencode, urljoin, urlsplit

import urllib3

from kfjob.errors import Forbidden, KfjobError
from kfjob.image.registry.errors import Operation, RetryableError, make_response_error
from kfjob.image.registry.secrets import REFRESH_TOKEN, Login, LoginSource, Secret
from kfjob.image.registry.transport import Transport

_PARAMETER = re.compile(r'([a-zA-Z_]+)=(?:"((?:[^"\\]|\\.)*)"|([^",\s]+))')
_DEFAULT_LIFE = 60.0  # seconds, where a token server says none
_MARGIN = 10.0
_ERROR = 400

Scopes = tuple[str, ...]  # "repository:team/train:pull,push"


class Authorization:
    """What one registry was told and gave in return."""

    def __init__(self, transport: Transport, login: LoginSource) -> None:
        self._transport, self._login, self._lock = transport, login, threading.Lock()
        self._basic: Secret | None = None
        self._tokens: dict[Scopes, tuple[Secret, float]] = {}

    def get_headers(self, scopes: Scopes) -> dict[str, str]:
        """What is known to be wanted for these scopes; nothing before the first challenge."""
        token, end = self._tokens.get(scopes, (None, 0.0))
        if token and time.monotonic() < end:
            return {"Authorization": f"Bearer {token.reveal()}"}
        return {"Authorization": f"Basic {self._basic.reveal()}"} if self._basic else {}

    def answer_challenge(self, challenge: urllib3.HTTPHeaderDict, scopes: Scopes, said: Mapping[str, str]) -> bool:
        """Take up a challenge to what was `said`; whether there is now something else to say.

        Raises:
            Forbidden: the token server does not take the login, or would get it without TLS.
        """
        with self._lock:  # of several requests at the same time one is answered, and the others use what it was given
            return self._known_by_now(scopes, said) or self._answer(challenge, scopes)

    def _known_by_now(self, scopes: Scopes, said: Mapping[str, str]) -> bool:
        now = self.get_headers(scopes)
        return bool(now) and now != said

    def _answer(self, challenge: urllib3.HTTPHeaderDict, scopes: Scopes) -> bool:
        schemes = {scheme.lower(): said for scheme, said in _challenges(challenge.getlist("WWW-Authenticate"))}
        if "bearer" in schemes:
            self._tokens.pop(scopes, None)
            self._tokens[scopes] = self._token(schemes["bearer"], scopes)
            return True
        login = self._login() if "basic" in schemes else None
        if not login:
            return False
        new = _basic(login)
        changed, self._basic = new != self._basic, new
        return changed

    def renew(self, scopes: Scopes, said: Mapping[str, str]) -> bool:
        """Ask for another login, where a registry has no challenge for one that has ended; whether it is another."""
        with self._lock:
            return self._known_by_now(scopes, said) or self._renew()

    def _renew(self) -> bool:
        login = self._login() if self._basic else None
        changed = login is not None and _basic(login) != self._basic
        self._basic = _basic(login) if login else self._basic
        return changed

    def _token(self, said: dict[str, str], scopes: Scopes) -> tuple[Secret, float]:
        realm, login = urljoin(self._transport.endpoint.url, said.get("realm", "")), self._login()
        if login and urlsplit(realm).scheme == "http" and urlsplit(self._transport.endpoint.url).scheme == "https":
            raise Forbidden(
                f"registry `{self._transport.endpoint.host}` wants the login sent without TLS", cause=f"to {_place(realm)}"
            )
        wanted = [("service", said["service"])] if "service" in said else []
        wanted += [("scope", scope) for scope in scopes or tuple(filter(None, [said.get("scope")]))]
        for failures in range(1, self._transport.retries.attempts + 1):
            try:
                return self._fetched(realm, wanted, login)
            except RetryableError as broken:
                if failures == self._transport.retries.attempts:
                    raise broken.error from broken
                self._transport.retries.wait(failures, retry_after=broken.retry_after)
        raise AssertionError("there is at least one try")

    def _fetched(self, realm: str, wanted: Sequence[tuple[str, str]], login: Login | None) -> tuple[Secret, float]:
        asked = Operation(action="log in to", host=_place(realm), repository="")
        if login and login.user == REFRESH_TOKEN:
            form = [
                *wanted,
                ("grant_type", "refresh_token"),
                ("client_id", "kfjob"),
                ("refresh_token", login.password.reveal()),
            ]
            headers = {"Content-Type": "application/x-www-form-urlencoded"}
            answer = self._transport.send(asked, "POST", realm, headers, urlencode(form).encode(), stream=False)
        else:
            headers = {"Authorization": f"Basic {_basic(login).reveal()}"} if login else {}
            url = f"{realm}{'&' if '?' in realm else '?'}{urlencode(wanted)}" if wanted else realm
            answer = self._transport.send(asked, "GET", url, headers, None, stream=False)
        if answer.status >= _ERROR:
            raise make_response_error(asked, answer.status, answer.data)
        return _read_token(answer.data, asked)


def _read_token(body: bytes, asked: Operation) -> tuple[Secret, float]:
    try:
        said: dict[str, Any] = json.loads(body)
        token, life = said.get("token") or said["access_token"], float(said.get("expires_in") or _DEFAULT_LIFE)
    except (ValueError, KeyError, TypeError, AttributeError):
        raise KfjobError(f"cannot log in to `{asked.host}`", cause="its answer holds no token") from None
    return Secret(str(token)), time.monotonic() + max(life - _MARGIN, 1.0)


def _challenges(headers: Sequence[str]) -> list[tuple[str, dict[str, str]]]:
    found = []
    for header in headers:
        scheme, _, rest = header.strip().partition(" ")
        found.append((scheme, {name.lower(): quoted or plain for name, quoted, plain in _PARAMETER.findall(rest)}))
    return found


def _basic(login: Login) -> Secret:
    return Secret(base64.b64encode(f"{login.user}:{login.password.reveal()}".encode()).decode())


def _place(url: str) -> str:
    return urlsplit(url).netloc.rpartition("@")[2]
