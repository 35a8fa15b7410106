"""A login goes to the registry and to the token server that it names, over TLS; a token goes to the registry alone."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing, suppress
from types import SimpleNamespace
from typing import Any

import pytest
import urllib3
from hypothesis import given, settings
from hypothesis import strategies as st
from urllib3.util import parse_url

from kfjob.base.errors import KfjobError
from kfjob.base.http import Limits
from kfjob.image.registry.client import Registry
from kfjob.image.registry.endpoints import Endpoint
from kfjob.image.registry.secrets import REFRESH_TOKEN, Login, Secret
from kfjob.image.registry.uploads import BytesBlob, upload_blob

HOST = "registry.example:5000"
DIGEST = "sha256:" + "0" * 64
PASSWORD, TOKEN = "correct-horse", "battery-staple"
LIMITS = Limits(attempts=2, pause=0.0)
NAMES = st.sampled_from(
    [HOST, "registry.example", "registry.example:443", "evil.example", "registry.example.evil.example", "[::1]:5000", ""]
)
MARKS = st.sampled_from(
    ["@", "\\@", "%40", "#@", "?@", "/@", ":pw@", "\uff20", "\uff0f", "\u3002", "\t", "\n", " ", "..", "//", "\\", ":"]
)
SCHEMES = st.sampled_from(
    [
        "https://",
        "http://",
        "//",
        "HTTPS://",
        "https:/",
        "https:\\\\",
        "ftp://",
        " https://",
        "h\tttps://",
        "https:",
        "/",
        "\\\\",
    ]
)
ADDRESSES = st.builds(
    lambda scheme, first, mark, second, path: scheme + first + mark + second + path,
    *(SCHEMES, NAMES, MARKS | st.just(""), NAMES, st.sampled_from(["/v2/a/blobs/uploads/x", "", "?a=b", "/\u00e9", "#f"])),
)


class Wire:
    """Stands in for the network: it answers each request from a list, and keeps what would have been sent and where."""

    def __init__(self, answers: list[tuple[int, dict[str, str]]]) -> None:
        self.answers: Iterator[tuple[int, dict[str, str]]] = iter(answers)
        self.sent: list[tuple[str, str, int | None, str]] = []  # scheme, host, port and everything in the request

    def request(self, _method: str, url: str, headers: Any, body: Any, **_: Any) -> Any:
        target = parse_url(url)  # urllib3 connects to what this returns
        content = body if isinstance(body, bytes) else b""
        self.sent.append((target.scheme or "", target.host or "", target.port, f"{url} {dict(headers)} {content!r}"))
        status, answer = next(self.answers, (404, {}))
        data = json.dumps({"token": TOKEN}).encode()
        return SimpleNamespace(
            status=status,
            headers=urllib3.HTTPHeaderDict(answer),
            stream=lambda *_, **__: iter([data]),
            close=lambda: None,
            release_conn=lambda: None,
            shutdown=lambda: None,
        )

    def clear(self) -> None:
        """Close nothing."""


def send(answers: list[tuple[int, dict[str, str]]], *, method: str, user: str = "me", scheme: str = "https") -> Wire:
    login, wire = Login(user=user, password=Secret(PASSWORD)), Wire(answers)
    with closing(Registry(Endpoint(url=f"{scheme}://{HOST}"), login=lambda: login, limits=LIMITS)) as registry:
        registry._transport._http._pool = wire  # type: ignore[assignment]
        with suppress(KfjobError):
            if method == "push":
                upload_blob(registry, "team/train", BytesBlob(digest=DIGEST, content=b"x"))
            else:
                registry.get_blob("team/train", DIGEST)
    return wire


def find_leaks(wire: Wire, *allowed: tuple[str, str, int | None]) -> list[tuple[str, str, int | None, str]]:
    """Return the requests with credentials that go elsewhere."""
    secrets = (PASSWORD, TOKEN, "Authorization", "refresh_token")
    return [sent for sent in wire.sent if any(text in sent[3] for text in secrets) and sent[:3] not in allowed]


OWN = ("https", "registry.example", 5000)
BASIC = (401, {"WWW-Authenticate": "Basic realm=x"})
BEARER = (401, {"WWW-Authenticate": 'Bearer realm="https://registry.example:5000/token",service=x'})


@settings(max_examples=25)  # each makes a TLS context
@given(
    st.lists(ADDRESSES, min_size=1, max_size=4),
    st.sampled_from([[BASIC], [BEARER, (200, {})]]),
    st.sampled_from(["push", "pull"]),
    st.sampled_from([200, 202, 301, 307, 308, 401]),
)
def test_location_that_a_registry_sends_gets_no_credentials(addresses, login, method, status):
    answers = [*login, *[(status, {"Location": address, "WWW-Authenticate": "Basic realm=x"}) for address in addresses]]
    wire = send(answers, method=method)
    assert find_leaks(wire, OWN) == []
    assert any("Authorization" in sent[3] for sent in wire.sent)


@settings(max_examples=25)  # each makes a TLS context
@given(ADDRESSES, st.sampled_from(["me", REFRESH_TOKEN]), st.sampled_from(["push", "pull"]))
def test_login_goes_over_tls_to_the_token_server_alone(realm, user, method):
    quoted = realm.replace("\\", "\\\\")
    wire = send(
        [(401, {"WWW-Authenticate": f'Bearer realm="{quoted}",service=x'}), (200, {}), (200, {})], method=method, user=user
    )
    assert [sent for sent in wire.sent if PASSWORD in sent[3] and sent[0] != "https"] == []
    servers = [sent[:3] for sent in wire.sent[1:2]]
    assert find_leaks(wire, OWN, *servers) == []
    assert [sent for sent in find_leaks(wire, OWN) if TOKEN in sent[3]] == [], "the token goes to the registry only"


@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_token_server_that_redirects_is_not_followed(status):
    redirect = (status, {"Location": "https://evil.example/token"})
    wire = send([BEARER, redirect], method="pull")
    assert find_leaks(wire, OWN) == []
    assert all(sent[1] == "registry.example" for sent in wire.sent)


@pytest.mark.parametrize("answers", [[BASIC, (200, {})], [BEARER, (200, {}), (200, {})]], ids=["basic", "bearer"])
@pytest.mark.parametrize("method", ["push", "pull"])
def test_registry_without_tls_gets_no_login(answers, method):
    assert find_leaks(send(answers, method=method, scheme="http")) == []


def test_this_test_notices_a_leak(monkeypatch):
    monkeypatch.setattr("kfjob.image.registry.client._is_same_origin", lambda *_: True)
    assert find_leaks(send([BASIC, (202, {"Location": "https://evil.example/x"})], method="push"), OWN)
