from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.image.aws import ACCOUNT, HOST, MotoAws, moto_aws
from tests.image.builders import Buildah, buildah, context
from tests.image.registries import RealRegistry, real_registry
from tests.image.tunnel import tunnel

MOTO_TOKEN = f"{ACCOUNT}-auth-token"
MOTO_TOKEN_HASHED = (  # with bcrypt
    "$2b$04$nxf7wjmz2VoyLwXXV4XGteboLr2xiQDo8VCEwy0Eyp5n7nhZCaRTW"  # noqa: S105 - moto's token is public
)


@pytest.hookimpl(tryfirst=True)  # before `-m` deselects tests
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker("registry")


@pytest.fixture(scope="session")
def moto_server() -> Iterator[MotoAws]:
    with moto_aws() as server:
        yield server


@pytest.fixture
def aws(moto_server: MotoAws, monkeypatch: pytest.MonkeyPatch) -> Iterator[MotoAws]:
    """Log this process in to an empty AWS account."""
    clear_aws(monkeypatch)
    moto_server.reset()
    for name, value in moto_server.environment().items():
        monkeypatch.setenv(name, value)
    yield moto_server
    moto_server.post("/moto-api/reset-auth", b"inf")


def clear_aws(monkeypatch: pytest.MonkeyPatch) -> None:
    """Remove the machine's own AWS variables."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)


@pytest.fixture
def profile(aws: MotoAws, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Log in with an AWS profile of the region ap-south-1 alone."""
    for name in ("AWS_REGION", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    (tmp_path / "config").write_text("[profile work]\nregion = ap-south-1\n")
    (tmp_path / "credentials").write_text("[work]\naws_access_key_id = a\naws_secret_access_key = b\n")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    return "work"


@pytest.fixture(scope="module")
def builder(tmp_path_factory: pytest.TempPathFactory) -> Buildah:
    return buildah(tmp_path_factory.mktemp("buildah"))


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealRegistry]:
    with real_registry(tmp_path_factory.mktemp("plain")) as registry:
        yield registry


@pytest.fixture(scope="module")
def private(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealRegistry]:
    with real_registry(tmp_path_factory.mktemp("private"), tls=True) as registry:
        yield registry


@pytest.fixture(scope="module")
def ecr_registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealRegistry]:
    """Yield the registry behind ECR's host name, with TLS, user AWS and moto's token."""
    with real_registry(tmp_path_factory.mktemp("ecr"), tls=True) as registry:
        (registry.folder / "htpasswd").write_text(f"AWS:{MOTO_TOKEN_HASHED}\n")
        yield registry


@pytest.fixture
def building(builder: Buildah, monkeypatch: pytest.MonkeyPatch) -> Buildah:
    for name, value in builder.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("PATH", f"{builder.program.parent}:{os.environ['PATH']}")
    return builder


@pytest.fixture
def in_ecr(aws: MotoAws, building: Buildah, ecr_registry: RealRegistry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Lead ECR's host name to the test registry."""
    folder = tmp_path / "certs.d" / HOST
    folder.mkdir(parents=True)
    (folder / "hosts.toml").write_text(f'server = "https://{HOST}"\nca = "{ecr_registry.ca}"\n')
    monkeypatch.setenv("KFJOB_REGISTRY_CERTS", str(tmp_path / "certs.d"))
    with tunnel({HOST: ecr_registry.port}) as environment:
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        yield aws


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return context(tmp_path / "source")


@pytest.fixture
def name() -> str:
    return f"team/{os.urandom(4).hex()}"
