"""Anonymous access to public registries (ECR and Docker Hub): their names map to a real registry with a token server."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from kfjob.api.images.check import ImageInspector
from kfjob.api.images.push_code import push_code
from kfjob.base.errors import Forbidden
from tests.image.conftest import clear_aws
from tests.image.images import push_image
from tests.image.registries import HURRIED, RealRegistry, known, real_registry, store_login
from tests.image.tokens import TokenServer, token_server
from tests.image.tunnel import tunnel

NAMES = {"public.ecr.aws/alias/train:1": "alias/train", "docker.io/alice/train:1": "alice/train", "python:1": "library/python"}


@dataclass(frozen=True)
class Public:
    registry: RealRegistry
    tokens: TokenServer
    home: Path


@pytest.fixture
def public(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Public]:
    clear_aws(monkeypatch)
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, "/nonexistent")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("KFJOB_REGISTRY_CERTS", str(tmp_path / "certs.d"))
    with ExitStack() as stack:
        tokens = stack.enter_context(token_server(tmp_path))
        registry = stack.enter_context(real_registry(tmp_path, tls=True, auth=tokens.configuration()))
        hosts = {"public.ecr.aws": "public.ecr.aws", "docker.io": "registry-1.docker.io"}  # as containerd calls Docker Hub
        environment = stack.enter_context(tunnel(dict.fromkeys(hosts.values(), registry.port)))
        for variable, value in environment.items():
            monkeypatch.setenv(variable, value)
        for name, host in hosts.items():
            folder = tmp_path / "certs.d" / name
            folder.mkdir(parents=True)
            (folder / "hosts.toml").write_text(f'server = "https://{host}"\nca = "{registry.ca}"\n')
        with registry.open(login=known) as opened:
            for repository in NAMES.values():
                push_image(opened, repository, "1", "oci")
        tokens.asked.clear()
        tokens.gives_everybody = "pull"
        yield Public(registry, tokens, tmp_path)


@pytest.mark.parametrize("image", NAMES)
def test_images_are_read_without_a_login(public: Public, image: str):
    assert ImageInspector().inspect(image).metadata.platforms == ("linux/amd64",)
    assert public.tokens.asked[0] == [f"repository:{NAMES[image]}:pull"]


@pytest.mark.parametrize("image", NAMES)
def test_anonymous_push_is_forbidden(public: Public, image: str):
    (public.home / "src").mkdir()
    (public.home / "src" / "train.py").write_text("")
    with pytest.raises(Forbidden) as caught:
        push_code(public.home / "src", image, limits=HURRIED)
    if "ecr" in image:
        assert caught.value.title == "no AWS credentials were found"


def test_login_is_used_for_public_image(public: Public):
    public.tokens.gives_everybody = ""
    with pytest.raises(Forbidden):
        ImageInspector().inspect("public.ecr.aws/alias/train:1")
    store_login(public.home, "public.ecr.aws")
    assert ImageInspector().inspect("public.ecr.aws/alias/train:1").metadata.size
