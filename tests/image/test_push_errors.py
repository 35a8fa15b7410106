"""Errors of builds and pushes: clear messages, and no tag of a partial image."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from kfjob.api.images.push_image import Listener, build_and_push
from kfjob.base.errors import AlreadyExists, Forbidden, KfjobError, NotFound, Refused, UsageError
from kfjob.base.http import Limits
from kfjob.image import ecr
from kfjob.image.build import engine_process
from kfjob.image.registry.secrets import Login, Secret
from tests.image.aws import HOST, MotoAws
from tests.image.builders import Buildah
from tests.image.proxy import Cut, ProxiedRequest, Proxy, Reply, proxy_before
from tests.image.registries import RealRegistry, is_absent
from tests.image.test_push_image import spec
from tests.image.tunnel import tunnel


def test_missing_engine_is_a_usage_error(
    plain: RealRegistry, source: Path, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UsageError, match="no container engine is on PATH") as caught:
        build_and_push(spec(source, f"{plain.host}/{name}", builder=None))
    assert "docker, buildah, podman, nerdctl, finch" in str(caught.value.cause)
    assert "--code" in str(caught.value.hint)
    with pytest.raises(UsageError, match="builder `podman` is not on PATH"):
        build_and_push(spec(source, f"{plain.host}/{name}", builder="podman"))


def test_first_engine_on_path_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    for engine in ("podman", "nerdctl"):
        (tmp_path / engine).write_text("#!/bin/sh\n")
        (tmp_path / engine).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert engine_process.find_engine(None).name == "podman"
    assert engine_process.find_engine("nerdctl").name == "nerdctl"


def test_docker_without_daemon_is_skipped_unless_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    (tmp_path / "docker").write_text("#!/bin/sh\nexit 1\n")
    (tmp_path / "docker").chmod(0o755)
    assert engine_process.find_engine(None).name == "docker"  # whose own words say what is wrong
    shutil.copy(tmp_path / "docker", tmp_path / "podman")
    assert engine_process.find_engine(None).name == "podman"
    assert engine_process.find_engine("docker").name == "docker"


def test_missing_input_is_an_error_before_the_build(plain: RealRegistry, source: Path, name: str):
    with pytest.raises(NotFound, match=r"build context `.*` does not exist"):
        build_and_push(spec(source / "no", f"{plain.host}/{name}"))
    with pytest.raises(NotFound, match=r"Dockerfile `.*` does not exist"):
        build_and_push(spec(source / "code", f"{plain.host}/{name}"))
    with pytest.raises(NotFound, match="the file of secret `pip`"):
        build_and_push(spec(source, f"{plain.host}/{name}", secrets={"pip": "/nonexistent"}))


def test_secret_files_and_arguments_are_warnings(building: Buildah, plain: RealRegistry, source: Path, name: str):
    (source / ".env").write_text("A=1\n")
    (source / "code" / "id_rsa").write_text("x\n")
    lines: list[str] = []
    build_and_push(spec(source, f"{plain.host}/{name}", build_args={"HF_TOKEN": "12345678"}), Listener(notify=lines.append))
    text = "\n".join(lines)
    assert "`.env`" in text
    assert "`code/id_rsa`" in text
    assert "build argument `HF_TOKEN` stays in the image's history" in text


def test_context_change_during_the_build_is_refused(building: Buildah, plain: RealRegistry, source: Path, name: str):
    def change(_line: str) -> None:
        (source / "code" / "train.py").write_text("print('changed')\n")

    with pytest.raises(Refused, match="the context changed during the build"):
        build_and_push(spec(source, f"{plain.host}/{name}"), Listener(output=change))
    assert is_absent(plain, f"{name}/tags/list")


@pytest.fixture
def proxied(in_ecr: MotoAws, plain: RealRegistry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Lead ECR's name to a proxy that can answer like ECR."""
    (tmp_path / "tls").mkdir()
    with proxy_before(plain.port, tls_folder=tmp_path / "tls") as proxy, tunnel({HOST: proxy.port}) as environment:
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        (tmp_path / "certs.d" / HOST / "hosts.toml").write_text(f'server = "https://{HOST}"\nca = "{tmp_path}/tls/cert.pem"\n')
        yield proxy


def ecr_error(status: int, code: str, message: str) -> Reply:
    body = json.dumps({"errors": [{"code": code, "message": message}]}).encode()
    return Reply(status, body, {"Content-Type": "application/json"})


WHO = "arn:aws:iam::123456789012:user/dev"
PUSHING = {
    "ecr:BatchCheckLayerAvailability": lambda seen: seen.method == "HEAD" and "/blobs/" in seen.path,
    "ecr:InitiateLayerUpload": lambda seen: seen.method == "POST",
    "ecr:UploadLayerPart": lambda seen: seen.method in ("PATCH", "PUT") and "/uploads/" in seen.path,
    "ecr:CompleteLayerUpload": lambda seen: seen.method == "PUT" and "/uploads/" in seen.path,
    "ecr:PutImage": lambda seen: seen.method == "PUT" and "/manifests/" in seen.path,
}


@pytest.mark.parametrize("action", PUSHING)
def test_missing_right_of_a_push_is_named(proxied: Proxy, plain: RealRegistry, source: Path, name: str, action: str):
    text = f"User: {WHO} is not authorized to perform: {action} on resource: arn because no identity-based policy allows it"
    proxied.rule = lambda request: ecr_error(403, "DENIED", text) if PUSHING[action](request) else None
    if action == "ecr:BatchCheckLayerAvailability":  # a HEAD has no body: the registry can only say 403
        proxied.rule = lambda request: Reply(403) if PUSHING[action](request) else None
    with pytest.raises(Forbidden) as caught:
        build_and_push(spec(source, name))
    if action != "ecr:BatchCheckLayerAvailability":
        assert f"not allowed to `{action}` at `{HOST}/{name}`" in caught.value.title
        assert WHO in str(caught.value.hint)
    assert is_absent(plain, f"{name}/manifests/1")


def test_repository_policy_denies_the_push(proxied: Proxy, source: Path, name: str):
    text = f"User: {WHO} is not authorized to perform: ecr:PutImage with an explicit deny in a resource-based policy"
    proxied.rule = lambda request: ecr_error(403, "DENIED", text) if request.method == "POST" else None
    with pytest.raises(Forbidden) as caught:
        build_and_push(spec(source, name))
    assert "the repository's own policy must allow `ecr:PutImage`" in str(caught.value.hint)


def test_existing_immutable_tag_is_an_error(in_ecr: MotoAws, building: Buildah, source: Path, name: str):
    in_ecr.client("ecr").create_repository(repositoryName=name, imageTagMutability="IMMUTABLE")
    image_spec = spec(source, f"{name}:stable")
    build_and_push(image_spec)
    (source / "code" / "train.py").write_text("print('two')\n")
    with pytest.raises(AlreadyExists, match="exists already") as caught:
        build_and_push(image_spec)
    assert "--tag auto" in str(caught.value.hint)
    assert build_and_push(spec(source, name)).builder


def test_immutable_tag_reported_by_the_registry(proxied: Proxy, source: Path, name: str):
    text = f"The image tag '1' already exists in '{name}' and cannot be overwritten because the repository is immutable."
    proxied.rule = lambda request: ecr_error(400, "TAG_INVALID", text) if PUSHING["ecr:PutImage"](request) else None
    with pytest.raises(AlreadyExists):
        build_and_push(spec(source, f"{name}:1"))


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    from kfjob.image import auth

    limits = Limits(attempts=3, pause=0.01)
    defaults = auth.open_registry.__kwdefaults__ or {}
    monkeypatch.setattr(auth.open_registry, "__kwdefaults__", defaults | {"limits": limits})


@pytest.mark.usefixtures("hurried")
def test_registry_restart_during_a_push(proxied: Proxy, source: Path, name: str):
    """The second attempt sends only the missing blobs."""
    (source / "code" / "large").write_bytes(os.urandom(4 << 20))
    down = False

    def rule(request: ProxiedRequest) -> Cut | None:
        nonlocal down
        down = down or ("/manifests/" in request.path and request.method == "PUT")
        return Cut("buffered") if down else None

    proxied.rule = rule
    with pytest.raises(KfjobError) as caught:
        build_and_push(spec(source, name))
    assert caught.value.exit_code == 5
    proxied.rule = lambda _seen: None
    sent = proxied.body_bytes
    second = build_and_push(spec(source, name))
    assert second.reused_bytes > 4 << 20
    assert proxied.body_bytes - sent < 1 << 20


def test_expired_token_is_renewed_during_a_push(proxied: Proxy, source: Path, name: str, monkeypatch: pytest.MonkeyPatch):
    """ECR answers 403, not 401. Unlike moto's, its tokens differ."""
    numbers = iter(range(100))

    def token(_data: object) -> Login:
        return Login(user="AWS", password=Secret(f"token {next(numbers)}"))

    monkeypatch.setattr(ecr, "_parse_token", token)
    seen_logins: list[str] = []
    ended = ecr_error(403, "DENIED", "Your authorization token has expired. Reauthenticate and try again.")
    challenge = Reply(401, b"", {"WWW-Authenticate": 'Basic realm="ecr"'})

    def rule(request: ProxiedRequest) -> Reply | None:
        lines = request.headers.get("Authorization", "")
        if not lines:
            return challenge
        seen_logins.append(lines)
        return ended if len(seen_logins) == 4 else None

    proxied.rule = rule
    assert build_and_push(spec(source, name)).builder
    assert len(set(seen_logins)) == 2


def test_folder_without_a_name_is_a_usage_error(source: Path):
    with pytest.raises(UsageError, match="`--to NAME`"):
        build_and_push(
            spec(source, "").model_copy(update={"context": "/", "to": None, "dockerfile": str(source / "Dockerfile")})
        )
