from __future__ import annotations

import base64
import json
import pickle
from pathlib import Path

import pytest
from msgspec.structs import asdict

from kfjob.base.errors import Forbidden, UsageError
from kfjob.image.registry import docker_config
from kfjob.image.registry.docker_config import find_stored_login
from kfjob.image.registry.secrets import REFRESH_TOKEN, Login, Secret

HOST = "registry.example:5000"
HELPER = """#!/bin/sh
[ "$1" = get ] || exit 9
read server
case $server in
  registry.example:5000) echo '{"ServerURL":"x","Username":"helped","Secret":"from-the-helper"}' ;;
  https://index.docker.io/v1/) echo '{"Username":"<token>","Secret":"refresh"}' ;;
  *) echo "credentials not found in native keychain"; exit 1 ;;
esac
"""


def auth(user: str, password: str) -> dict[str, str]:
    return {"auth": base64.b64encode(f"{user}:{password}".encode()).decode()}


@pytest.fixture
def environ(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    helper = tmp_path / "bin" / "docker-credential-test"
    helper.parent.mkdir()
    helper.write_text(HELPER)
    helper.chmod(0o755)
    monkeypatch.setenv("PATH", f"{helper.parent}:/usr/bin:/bin")
    return {"HOME": str(tmp_path)}


def store(environ: dict[str, str], config: object) -> None:
    file = Path(environ["HOME"]) / ".docker" / "config.json"
    file.parent.mkdir(exist_ok=True)
    file.write_text(json.dumps(config))


@pytest.mark.parametrize(
    ("config", "user", "password"),
    [
        ({"auths": {HOST: auth("me", "a:b")}}, "me", "a:b"),
        ({"auths": {f"https://{HOST}": auth("me", "x")}}, "me", "x"),
        ({"auths": {f"https://{HOST}/v1/": {"username": "me", "password": "y"}}}, "me", "y"),
        ({"auths": {HOST: auth("all", "x"), f"{HOST}/team": auth("team", "z")}}, "team", "z"),
        ({"auths": {HOST: {"identitytoken": "t"}}}, REFRESH_TOKEN, "t"),
        ({"auths": {HOST: {}}, "credHelpers": {HOST: "test"}}, "helped", "from-the-helper"),
        ({"auths": {HOST: {}}, "credsStore": "test"}, "helped", "from-the-helper"),
    ],
)
def test_stored_login_is_found(environ, config, user, password):
    store(environ, config)
    assert find_stored_login(HOST, "team/train", environ) == Login(user=user, password=Secret(password))


@pytest.mark.parametrize(
    "config", [{}, {"auths": {}}, {"auths": {"other": auth("a", "b")}}, {"credHelpers": {"other": "none"}}]
)
def test_missing_login_is_none(environ, config):
    assert find_stored_login(HOST, "a", environ) is None
    store(environ, config)
    assert find_stored_login(HOST, "a", environ) is None


def test_docker_hub_key_is_found(environ):
    store(environ, {"credsStore": "test"})
    assert find_stored_login("docker.io", "library/python", environ) == Login(user=REFRESH_TOKEN, password=Secret("refresh"))
    assert find_stored_login("quay.io", "a", environ) is None
    store(environ, {"auths": {"https://index.docker.io/v1/": auth("hub", "b")}})
    assert find_stored_login("docker.io", "library/python", environ) == Login(user="hub", password=Secret("b"))


def test_podman_file_is_read(environ, tmp_path):
    (tmp_path / "auth.json").write_text(json.dumps({"auths": {HOST: auth("pod", "man")}}))
    login = find_stored_login(HOST, "a", {**environ, "REGISTRY_AUTH_FILE": str(tmp_path / "auth.json")})
    assert login == Login(user="pod", password=Secret("man"))


def test_missing_or_failing_helper_is_an_error(environ):
    store(environ, {"credHelpers": {HOST: "absent"}})
    with pytest.raises(Forbidden, match="docker-credential-absent"):
        find_stored_login(HOST, "a", environ)
    store(environ, {"credHelpers": {HOST: "test"}})
    helper = Path(environ["HOME"]) / "bin" / "docker-credential-test"
    for script in ('echo \'{"Secret": "seen-by-nobody"\'', "echo seen-by-nobody; echo keyring locked >&2; exit 3"):
        helper.write_text(f"#!/bin/sh\n{script}\n")
        with pytest.raises(Forbidden) as caught:
            find_stored_login(HOST, "a", environ)
        assert "seen-by-nobody" not in str(caught.value)
    assert caught.value.cause == "keyring locked"


def test_unreadable_files_are_errors(environ):
    for config in ({"auths": {HOST: {"auth": "%%%"}}}, {"auths": {HOST: {"auth": 5}}}):
        store(environ, config)
        with pytest.raises(UsageError, match="cannot be read"):
            find_stored_login(HOST, "a", environ)
    (Path(environ["HOME"]) / ".docker" / "config.json").write_text("not json, a-secret")
    with pytest.raises(UsageError) as caught:
        find_stored_login(HOST, "a", environ)
    assert "a-secret" not in str(caught.value)


def test_secret_is_not_shown():
    login = Login(user="me", password=Secret("very-secret"))
    for shown in (str(login), repr(login), f"{login.password}", f"{login.password!r:>20}", str(asdict(login))):
        assert "very-secret" not in shown
    with pytest.raises(TypeError):
        pickle.dumps(login.password)
    with pytest.raises(TypeError):
        hash(login.password)
    assert login.password.reveal() == "very-secret"
    assert login.password == Secret("very-secret")
    assert login.password != Secret("other")


HELPERS = {
    "endless": ("yes", "it printed more than 1 MiB"),
    "endless errors": ("yes >&2", "it has not ended after 0.5 s"),
    "hangs": ("sleep 600", "it has not ended after 0.5 s"),
    "hangs with a child": ("sleep 600 & wait", "it has not ended after 0.5 s"),
    "deep": ("head -c 100000 /dev/zero | tr '\\0' '['", "its output is not a login in JSON"),
    "a list": ("echo []", "its output is not a login in JSON"),
    "wrong types": ("""echo '{"Username": 5, "Secret": {}}'""", "its output is not a login in JSON"),
    "bytes": ("printf '\\377'", "its output is not a login in JSON"),
}  # fmt: skip


@pytest.mark.parametrize(("script", "cause"), HELPERS.values(), ids=HELPERS.keys())
def test_hostile_helper_is_one_error(environ, monkeypatch, script, cause):
    monkeypatch.setattr(docker_config, "HELPER_SECONDS", 0.5 if "0.5 s" in cause else 20.0)
    store(environ, {"credHelpers": {HOST: "test"}})
    (Path(environ["HOME"]) / "bin" / "docker-credential-test").write_text(f"#!/bin/sh\n{script}\n")
    with pytest.raises(Forbidden) as caught:
        find_stored_login(HOST, "a", environ)
    assert caught.value.cause == cause


@pytest.mark.parametrize(
    "config",
    [
        {"auths": []}, {"auths": {HOST: 5}}, {"auths": {HOST: []}}, {"credHelpers": "x"}, {"credHelpers": {HOST: 5}},
        {"credsStore": {}},
        {"auths": {HOST: {"identitytoken": 5}}}, {"credHelpers": {HOST: "a\0b"}}, {"credsStore": "/" * 9000},
        {"auths": {HOST: {"auth": "\u00e9"}}}, {"auths": {HOST: {"auth": "/w=="}}},
    ],
)  # fmt: skip
def test_odd_configuration_is_one_error(environ, config):
    store(environ, config)
    with pytest.raises((UsageError, Forbidden)):
        find_stored_login(HOST, "a", environ)


@pytest.mark.parametrize("content", ["[" * 100_000, '{"auths":' * 50_000, "[]", "x" * 5_000_000])
def test_odd_file_is_one_error_or_ignored(environ, content):
    store(environ, {})
    (Path(environ["HOME"]) / ".docker" / "config.json").write_text(content)
    if content == "[]":
        assert find_stored_login(HOST, "a", environ) is None
        return
    with pytest.raises(UsageError, match="cannot be read"):
        find_stored_login(HOST, "a", environ)
