"""Real registries (Debian's docker-registry) on free ports of the loopback, plain or with TLS and a user."""

from __future__ import annotations

import hashlib
import json
import shutil
import socket
import ssl
import subprocess
import time
import urllib.error
import urllib.request
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from kfjob.base.http import Limits
from kfjob.image.registry.client import Registry
from kfjob.image.registry.endpoints import Endpoint
from kfjob.image.registry.secrets import Login, LoginSource, Secret, anonymous
from kfjob.local.machine import free_port
from tests.image.aws import HOST

USER, PASSWORD = "AWS", "a-password-that-must-never-be-seen"
_HASHED = "$2b$04$i2yioWjfCvz6d8LBptpWl.JFCV4r43VyNOAq7mEVYMNtEosYCl93C"  # of the password, by bcrypt
NEXT_PASSWORD = "the-next-password"  # noqa: S105 - of a test's registry
_NEXT_HASHED = "$2b$04$BO/bv80o24AwI74MYoY/YuELppP72Dk3iEdxe5sUqpq6ExG.2cLE2"
HURRIED = Limits(attempts=4, pause=0.01, connect_seconds=5.0, read_seconds=20.0)


@dataclass(frozen=True)
class RealRegistry:
    """A docker-registry process."""

    port: int
    folder: Path
    ca: Path | None = None

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.port}"

    def endpoint(self, port: int | None = None) -> Endpoint:
        """Return the endpoint of the registry, or of a proxy on a port."""
        scheme = "https" if self.ca else "http"
        return Endpoint(url=f"{scheme}://127.0.0.1:{port or self.port}", authorities=(self.ca,) if self.ca else ())

    def open(self, port: int | None = None, login: LoginSource | None = None, limits: Limits = HURRIED) -> Registry:
        return Registry(self.endpoint(port), login=login or (known if self.ca else anonymous), limits=limits)

    def get(self, path: str, accept: str = "*/*") -> bytes:
        """Send a request with code other than kfjob's."""
        url = f"{'https' if self.ca else 'http'}://{self.host}/v2/{path}"
        request = urllib.request.Request(url, headers={"Accept": accept})  # noqa: S310 - http or https
        context = ssl.create_default_context(cafile=self.ca) if self.ca else None
        if self.ca:
            request.add_header("Authorization", f"Basic {b64encode(f'{USER}:{PASSWORD}'.encode()).decode()}")
        with urllib.request.urlopen(request, timeout=20, context=context) as answer:  # noqa: S310
            return bytes(answer.read())

    def change_password(self) -> None:
        """Change the password to NEXT_PASSWORD."""
        (self.folder / "htpasswd").write_text(f"{USER}:{_NEXT_HASHED}\n")

    def checked_blob(self, repository: str, digest: str) -> bytes:
        body = self.get(f"{repository}/blobs/{digest}")
        assert f"sha256:{hashlib.sha256(body).hexdigest()}" == digest
        return body


CLOUD_HOSTS = (HOST, "public.ecr.aws", "registry-1.docker.io")


def known() -> Login:
    return Login(user=USER, password=Secret(PASSWORD))


def store_login(home: Path, host: str, user: str = USER, password: str = PASSWORD) -> None:
    """Write the login to the home folder, as `docker login` does."""
    auth = b64encode(f"{user}:{password}".encode()).decode()
    (home / ".docker").mkdir(exist_ok=True)
    (home / ".docker" / "config.json").write_text(json.dumps({"auths": {host: {"auth": auth}}}))


@contextmanager
def real_registry(folder: Path, *, tls: bool = False, auth: dict[str, Any] | None = None) -> Iterator[RealRegistry]:
    assert shutil.which("docker-registry"), "the tests of images need a registry\nhint: apt-get install docker-registry"
    port = free_port()
    config: dict[str, Any] = {
        "version": "0.1",
        "log": {"level": "warn"},
        "storage": {"filesystem": {"rootdirectory": str(folder / "data")}, "delete": {"enabled": True}},
        "http": {"addr": f"127.0.0.1:{port}"},
    }
    ca = None
    if tls:
        ca = folder / "cert.pem" if (folder / "cert.pem").exists() else make_certificate(folder)
        config["http"]["tls"] = {"certificate": str(folder / "cert.pem"), "key": str(folder / "key.pem")}
        config["auth"] = {"htpasswd": {"realm": "test", "path": str(_htpasswd(folder))}}
    if auth:
        config["auth"] = auth
    (folder / "config.yml").write_text(yaml.safe_dump(config))
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(["docker-registry", "serve", str(folder / "config.yml")], stdout=log, stderr=log)
    try:
        _wait(port, process, folder / "log")
        yield RealRegistry(port, folder, ca)
    finally:
        process.terminate()
        process.wait(20)


def _wait(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        assert process.poll() is None, log.read_text()
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.02)
    raise AssertionError(log.read_text())


def make_certificate(folder: Path) -> Path:
    """Write `cert.pem` and `key.pem`, and return the first: it is valid for the loopback and for the names in CLOUD_HOSTS."""
    names = ",".join(["subjectAltName=IP:127.0.0.1", "DNS:localhost", *(f"DNS:{host}" for host in CLOUD_HOSTS)])
    argv = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"]
    argv += [
        "-subj",
        "/CN=test registry",
        "-addext",
        names,
        "-keyout",
        str(folder / "key.pem"),
        "-out",
        str(folder / "cert.pem"),
    ]
    subprocess.run(argv, check=True, capture_output=True)
    return folder / "cert.pem"


def _htpasswd(folder: Path) -> Path:
    (folder / "htpasswd").write_text(f"{USER}:{_HASHED}\n")
    return folder / "htpasswd"


def manifest_of(registry: RealRegistry, repository: str, tag_or_digest: str) -> dict[str, object]:
    from kfjob.image.registry.documents import ACCEPTED_TYPES

    manifest: dict[str, object] = json.loads(registry.get(f"{repository}/manifests/{tag_or_digest}", ACCEPTED_TYPES))
    return manifest


def is_absent(registry: RealRegistry, path: str) -> bool:
    from kfjob.image.registry.documents import ACCEPTED_TYPES

    try:
        registry.get(path, ACCEPTED_TYPES)  # of a type that one does not accept the registry says that it is not there
    except urllib.error.HTTPError as err:
        return err.code == 404
    return False
