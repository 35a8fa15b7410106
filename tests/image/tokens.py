"""A token server for a registry (distribution specification, token authentication), as cloud registries have."""

from __future__ import annotations

import base64
import datetime as dt
import json
import ssl
import time
import uuid
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature

from tests.hostile_server import Answer, HostileServer, Received, json_answer, serve
from tests.image.registries import PASSWORD, USER, make_certificate


@dataclass
class TokenServer:
    url: str
    folder: Path
    life: float = 300.0
    password: str = PASSWORD
    gives_everybody: str = ""  # actions that need no login, as public registries have it
    asked: list[list[str]] = field(default_factory=list)  # the scopes of each token

    def configuration(self) -> dict[str, Any]:
        """Return the registry's settings."""
        bundle = str(self.folder / "tokens.pem")
        return {
            "token": {
                "realm": f"{self.url}/token",
                "service": "test",
                "issuer": "tests",
                "rootcertbundle": bundle,
            }
        }


@contextmanager
def token_server(folder: Path) -> Iterator[TokenServer]:
    """Yield a token server with TLS and the certificate in the folder, `cert.pem`, which it makes if there is none."""
    if not (folder / "cert.pem").exists():
        make_certificate(folder)
    key = ec.generate_private_key(ec.SECP256R1())
    certificate = _self_signed(key)
    (folder / "tokens.pem").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))

    def respond(_: HostileServer, request: Received) -> Answer:
        expected = b64encode(f"{USER}:{tokens.password}".encode()).decode()
        payload, scopes = request.headers.get("Authorization"), parse_qs(urlsplit(request.path).query).get("scope", [])
        nobody = payload is None and tokens.gives_everybody
        if not nobody and payload != f"Basic {expected}":
            return Answer(status=401)
        tokens.asked.append(scopes)
        if nobody:
            scopes = [f"{scope.rpartition(':')[0]}:{tokens.gives_everybody}" for scope in scopes]
        return json_answer({"token": _signed(key, certificate, scopes, tokens.life), "expires_in": 300})

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "cert.pem", folder / "key.pem")
    with serve(respond, tls=context) as server:
        tokens = TokenServer(server.url, folder)
        yield tokens


def _self_signed(key: ec.EllipticCurvePrivateKey) -> x509.Certificate:
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "tests")])
    now, day = dt.datetime.now(dt.UTC), dt.timedelta(days=1)
    certificate = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    certificate = certificate.serial_number(1).not_valid_before(now - day).not_valid_after(now + day)
    return certificate.sign(key, hashes.SHA256())


def _signed(key: ec.EllipticCurvePrivateKey, certificate: x509.Certificate, scopes: list[str], life: float) -> str:
    access = []
    for scope in scopes:
        kind, name, actions = scope.split(":")
        access.append({"type": kind, "name": name, "actions": actions.split(",")})
    der = certificate.public_bytes(serialization.Encoding.DER)
    now = int(time.time())
    head = {"typ": "JWT", "alg": "ES256", "x5c": [base64.b64encode(der).decode()]}
    times = {"exp": now + int(life), "nbf": now - 10, "iat": now - 10}
    payload = {"iss": "tests", "sub": USER, "aud": "test", "jti": uuid.uuid4().hex, "access": access, **times}
    text = f"{_encoded(head)}.{_encoded(payload)}"
    r, s = decode_dss_signature(key.sign(text.encode(), ec.ECDSA(hashes.SHA256())))
    return f"{text}.{_raw(r.to_bytes(32) + s.to_bytes(32))}"


def _encoded(value: dict[str, Any]) -> str:
    return _raw(json.dumps(value).encode())


def _raw(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
