"""Credentials and files of a kubeconfig: what no header can hold, and files without an end, are one error each."""

from __future__ import annotations

import base64
import os
from pathlib import Path

import pytest
import yaml

from kfjob.base.errors import Forbidden, Unreachable
from kfjob.cluster.connect import connect
from tests.hostile_server import json_answer, serve
from tests.unit.cluster.test_client import GET
from tests.unit.cluster.test_connect import kubeconfig

PRINTED = "c2VjcmV0LXRva2Vu.c2VjcmV0"
BAD_TEXTS = {
    "second line": f"{PRINTED}\nX-Header: a",
    "second line of Windows": f"{PRINTED}\r\n b",
    "zero byte": f"{PRINTED}\0",
    "colour": f"{PRINTED}\x1b[1m",
    "delete": f"{PRINTED}\x7f",
    "Latin-1": f"é{PRINTED}",
    "other script": f"{PRINTED}ł",
}
bad_texts = pytest.mark.parametrize("text", BAD_TEXTS.values(), ids=BAD_TEXTS.keys())


def get_authorization(folder: Path, user: dict[str, str]) -> str | None:
    """Return the header of a request with this user."""
    with serve(lambda *_: json_answer({"metadata": {"name": "p", "uid": "u"}})) as hostile:
        client = connect(kubeconfig=kubeconfig(folder, hostile.url, user)).client
        client.call(GET)
        client.close()
        return hostile.received[0].headers.get("Authorization")


def check_refusal(folder: Path, user: dict[str, str], name: str) -> None:
    with pytest.raises(Forbidden, match=f"its {name} has characters that no {name} has") as caught:
        connect(kubeconfig=kubeconfig(folder, user=user))
    assert PRINTED not in str(caught.value)
    assert str(folder) in str(caught.value)


@pytest.mark.parametrize("text", [f"{PRINTED}\n", f"\n  {PRINTED}\r\n", f"\t{PRINTED} "])
def test_white_space_around_a_token_is_stripped(text, tmp_path):
    assert get_authorization(tmp_path, {"token": text}) == f"Bearer {PRINTED}"
    (tmp_path / "token").write_text(text)
    assert get_authorization(tmp_path, {"tokenFile": "token"}) == f"Bearer {PRINTED}"
    assert get_authorization(tmp_path, {"tokenFile": str(tmp_path / "token")}) == f"Bearer {PRINTED}"


def test_a_password_is_sent_as_basic_authentication(tmp_path):
    header = get_authorization(tmp_path, {"username": "me", "password": PRINTED})
    assert header == f"Basic {base64.b64encode(f'me:{PRINTED}'.encode()).decode()}"


@bad_texts
def test_a_credential_that_no_header_holds_is_one_error(text, tmp_path):
    check_refusal(tmp_path, {"token": text}, "token")
    (tmp_path / "token").write_text(text)
    check_refusal(tmp_path, {"tokenFile": "token"}, "token")


def test_a_token_file_that_is_replaced_by_a_bad_one_is_an_error(tmp_path):
    (tmp_path / "token").write_text(PRINTED)
    with serve(lambda *_: json_answer({}, status=401)) as hostile:
        client = connect(kubeconfig=kubeconfig(tmp_path, hostile.url, {"tokenFile": "token"})).client
        (tmp_path / "token").write_text(BAD_TEXTS["second line"])
        with pytest.raises(Forbidden) as caught:
            client.call(GET)
        client.close()
    assert PRINTED not in str(caught.value)


FILES = {
    "tokenFile": lambda file: ({"tokenFile": file}, {}),
    "client-certificate": lambda file: ({"client-certificate": file, "client-key-data": "eA=="}, {}),
    "client-key": lambda file: ({"client-certificate-data": "eA==", "client-key": file}, {}),
    "certificate-authority": lambda file: ({"token": PRINTED}, {"certificate-authority": file}),
    "certificate-authority of a plugin": lambda file: (
        {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": "true", "provideClusterInfo": True}},
        {"certificate-authority": file},
    ),
}


@pytest.mark.parametrize("make_user", FILES.values(), ids=FILES.keys())
@pytest.mark.parametrize("kind", ["device", "FIFO", "large file", "folder"])
def test_a_file_without_an_end_is_one_error(kind, make_user, tmp_path):
    file = Path("/dev/zero") if kind == "device" else tmp_path / "file"
    if kind == "FIFO":
        os.mkfifo(file)
    elif kind == "folder":
        file.mkdir()
    elif kind == "large file":
        with file.open("wb") as sparse:
            sparse.truncate(2**30)
    user, cluster = make_user(str(file))
    path = kubeconfig(tmp_path, user=user)
    config = yaml.safe_load(path.read_text())
    config["clusters"][0]["cluster"] |= cluster
    path.write_text(yaml.safe_dump(config))
    cause = "is larger than 1 MiB" if kind == "large file" else "is not a regular file"
    with pytest.raises(Unreachable, match=f"(?s)cannot be used.*`{file.name}` {cause}"):
        connect(kubeconfig=path)


def test_a_kubeconfig_without_an_end_is_one_error(tmp_path, monkeypatch):
    with pytest.raises(Unreachable, match="is not a regular file"):
        connect(kubeconfig="/dev/zero")
    monkeypatch.setattr("kfjob.backends.kubeconfig.MAX_KUBECONFIG_BYTES", 10)
    with pytest.raises(Unreachable, match="is larger than"):
        connect(kubeconfig=kubeconfig(tmp_path))
