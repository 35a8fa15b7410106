"""Answer a registry's challenge, Basic or Bearer (distribution specification, docs/spec/auth).

The login is fetched when a registry sends a challenge, and again when it refuses the current login: an ECR token expires after
twelve hours, and a push may last longer.
"""

from __future__ import annotations

import base64
import re
import threading
import time
from collections.abc import Mapping, Sequence
from urllib.parse import urlencode, urlsplit

from kfjob.base.common_types import JsonObject
from kfjob.base.errors import Forbidden, KfjobError
from kfjob.base.parsing import parse_json
from kfjob.image.registry.errors import Operation, join_url, make_response_error
from kfjob.image.registry.secrets import REFRESH_TOKEN, Login, LoginSource, Secret
from kfjob.image.registry.transport import Transport

_PARAMETER = re.compile(r'(?<![a-zA-Z_])([a-zA-Z_]+)=(?:"((?:[^"\\]|\\.)*)"|([^",\s]+))')
_SCHEME = re.compile(r"(?:^|,\s*)(bearer|basic)(?:\s+|$)", re.IGNORECASE)
_DEFAULT_LIFETIME_SECONDS = 60.0
"""Lifetime of a token whose server names none."""
_MARGIN = 10.0
_ERROR = 400

Scopes = tuple[str, ...]  # "repository:team/train:pull,push"


class Authorization:
    """The credentials and tokens for a registry."""

    def __init__(self, transport: Transport, login: LoginSource) -> None:
        self._transport, self._login, self._lock = transport, login, threading.Lock()
        self._basic: Secret | None = None
        self._tokens: dict[Scopes, tuple[Secret, float]] = {}

    def get_headers(self, scopes: Scopes) -> dict[str, str]:
        """Return the authorization header for these scopes; empty before the first challenge."""
        token, expiry = self._tokens.get(scopes, (None, 0.0))
        if token and time.monotonic() < expiry:
            return {"Authorization": f"Bearer {token.reveal()}"}
        return {"Authorization": f"Basic {self._basic.reveal()}"} if self._basic else {}

    def answer_challenge(self, challenge: Mapping[str, str], scopes: Scopes, sent: Mapping[str, str]) -> bool:
        """Get credentials for a challenge to a request with the headers `sent`; return whether the headers are new.

        Raises:
            Forbidden: the token server refuses the login, or the registry or the token server has no TLS.
        """
        with self._lock:  # of parallel requests, one answers the challenge, and the others use its token
            return self._is_renewed(scopes, sent) or self._answer(challenge, scopes)

    def _is_renewed(self, scopes: Scopes, sent: Mapping[str, str]) -> bool:
        """Return whether another thread has got new credentials since the request."""
        headers = self.get_headers(scopes)
        return bool(headers) and headers != sent

    def _answer(self, challenge: Mapping[str, str], scopes: Scopes) -> bool:
        challenges = _parse_challenges(challenge.get("WWW-Authenticate", ""))
        if "bearer" in challenges:
            self._tokens.pop(scopes, None)
            self._tokens[scopes] = self._request_token(challenges["bearer"], scopes)
            return True
        login = self._find_login(self._transport.endpoint.url) if "basic" in challenges else None
        if not login:
            return False
        basic = _encode_basic(login)
        is_new, self._basic = basic != self._basic, basic
        return is_new

    def _find_login(self, url: str) -> Login | None:
        """Return the login to send to a URL.

        Raises:
            Forbidden: there is a login, and the registry or the URL has no TLS.
        """
        endpoint, login = self._transport.endpoint, self._login()
        if login and not endpoint.has_tls:
            raise _make_no_tls_error(endpoint.host, f"its address is `http://{endpoint.host}`")
        if login and urlsplit(url).scheme != "https":
            raise _make_no_tls_error(endpoint.host, f"its token server is `{urlsplit(url).scheme}://{_get_host(url)}`")
        return login

    def renew(self, scopes: Scopes, sent: Mapping[str, str]) -> bool:
        """Get a new login after a refusal without a challenge, as for an expired one; return whether the headers are new."""
        with self._lock:
            return self._is_renewed(scopes, sent) or self._renew()

    def _renew(self) -> bool:
        login = self._login() if self._basic else None
        is_new = login is not None and _encode_basic(login) != self._basic
        self._basic = _encode_basic(login) if login else self._basic
        return is_new

    def _request_token(self, challenge: dict[str, str], scopes: Scopes) -> tuple[Secret, float]:
        """Return a token and its expiry from the token server that the challenge names."""
        endpoint = self._transport.endpoint
        operation = Operation(action="log in to", host=endpoint.host, repository="")
        realm = join_url(operation, endpoint.url, challenge.get("realm", ""))
        login = self._find_login(realm)
        query = [("service", challenge["service"])] if "service" in challenge else []
        query += [("scope", scope) for scope in scopes or tuple(filter(None, [challenge.get("scope")]))]
        return self._fetch_token(realm, query, login)

    def _fetch_token(self, realm: str, query: Sequence[tuple[str, str]], login: Login | None) -> tuple[Secret, float]:
        operation = Operation(action="log in to", host=_get_host(realm), repository="")
        if login and login.user == REFRESH_TOKEN:
            form = [
                *query,
                ("grant_type", "refresh_token"),
                ("client_id", "kfjob"),
                ("refresh_token", login.password.reveal()),
            ]
            headers = {"Content-Type": "application/x-www-form-urlencoded"}
            stream = self._transport.open(operation, "POST", realm, headers, urlencode(form).encode())
        else:
            headers = {"Authorization": f"Basic {_encode_basic(login).reveal()}"} if login else {}
            url = f"{realm}{'&' if '?' in realm else '?'}{urlencode(query)}" if query else realm
            stream = self._transport.open(operation, "GET", url, headers)
        response = self._transport.read(operation, stream)
        if response.status >= _ERROR:
            raise make_response_error(operation, response.status, response.body)
        return _parse_token(response.body, operation)


def _parse_token(body: bytes, operation: Operation) -> tuple[Secret, float]:
    try:
        data: JsonObject = parse_json(body)
        token, lifetime = data.get("token") or data["access_token"], float(data.get("expires_in") or _DEFAULT_LIFETIME_SECONDS)
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError):
        raise KfjobError(f"cannot log in to `{operation.host}`", cause="its response has no token") from None
    return Secret(str(token)), time.monotonic() + max(lifetime - _MARGIN, 1.0)


def _parse_challenges(header: str) -> dict[str, dict[str, str]]:
    """Return the parameters of each challenge, by its scheme in lower case."""
    _, *parts = _SCHEME.split(header.strip())
    return {
        scheme.lower(): {name.lower(): quoted or plain for name, quoted, plain in _PARAMETER.findall(parameters)}
        for scheme, parameters in zip(parts[::2], parts[1::2], strict=True)
    }


def _encode_basic(login: Login) -> Secret:
    return Secret(base64.b64encode(f"{login.user}:{login.password.reveal()}".encode()).decode())


def _make_no_tls_error(host: str, cause: str) -> Forbidden:
    hint = f"give the registry a certificate, and put its authority at `certs.d/{host}/ca.crt`"
    return Forbidden(f"registry `{host}` requests the login without TLS", cause=cause, hint=hint)


def _get_host(url: str) -> str:
    return urlsplit(url).netloc.rpartition("@")[2]
