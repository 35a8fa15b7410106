"""Credentials, plugins and files of a kubeconfig that cannot be used are one error each. `kubernetes` runs the plugins."""

from __future__ import annotations

import base64
import json
import stat
import tempfile
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from kfjob.backends.base import CommandStreams
from kfjob.base.errors import Forbidden, Unreachable
from kfjob.cluster.connect import connect
from kfjob.cluster.remote_command import run_command
from kfjob.cluster.requests import execute
from tests.hostile_server import json_answer, serve
from tests.unit.cluster.test_client import GET
from tests.unit.cluster.test_connect import kubeconfig

PRINTED = "c2VjcmV0LXRva2Vu.c2VjcmV0"
API = "client.authentication.k8s.io/v1beta1"
BAD_TEXTS = {
    "second line": f"{PRINTED}\nX-Header: a",
    "zero byte": f"{PRINTED}\0",
    "Latin-1": f"é{PRINTED}",
}


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


@pytest.mark.parametrize("text", BAD_TEXTS.values(), ids=BAD_TEXTS.keys())
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


def test_a_kubeconfig_without_an_end_is_one_error():
    with pytest.raises(Unreachable, match="is not a regular file"):
        connect(kubeconfig="/dev/zero")


def test_redirect_of_a_command_does_not_take_the_token_elsewhere(tmp_path):
    """websocket-client would follow it, with the token, also from TLS to plain text."""
    with serve(lambda *_: json_answer({})) as other:
        elsewhere = (("Location", other.url.replace("http", "ws")),)
        with serve(lambda *_: json_answer({}, status=302, headers=elsewhere)) as hostile:
            client = connect(kubeconfig=kubeconfig(tmp_path, hostile.url, {"token": PRINTED})).client
            request = execute("ml", "p", "pytorch", ["ls"], stdin=False, terminal=False)
            with tempfile.TemporaryFile() as output:
                streams = CommandStreams(stdout=output.fileno(), stderr=output.fileno())
                with pytest.raises(Unreachable, match="Redirect limit exhausted"):
                    run_command(client, request, streams)
            client.close()
            assert hostile.received[0].headers["authorization"] == f"Bearer {PRINTED}"
        assert other.received == []


def write_plugin(folder: Path, script: str) -> dict[str, Any]:
    file = folder / "get-token"
    file.write_text(f"#!/bin/sh\n{script}\n")
    file.chmod(file.stat().st_mode | stat.S_IXUSR)
    return {"exec": {"apiVersion": API, "command": str(file), "args": ["eks", "get-token"]}}


def printing(**status: Any) -> str:
    document = {"apiVersion": API, "kind": "ExecCredential", "status": status}
    return f"cat <<'END'\n{json.dumps(document)}\nEND"


BAD: dict[str, tuple[str, str]] = {
    "fails": (f"echo {PRINTED}; echo 'not logged in' >&2; exit 3", "process returned 3. not logged in"),
    "prints no JSON": (f"echo token {PRINTED}", "failed to decode"),
    "no token": (printing(), "missing token"),
    "a token with a newline": (printing(token=f"{PRINTED}\nX-Header: a"), "characters that no token has"),
}


@pytest.mark.parametrize(("script", "cause"), BAD.values(), ids=BAD.keys())
def test_a_bad_plugin_is_one_error(script, cause, tmp_path):
    with pytest.raises(Forbidden, match=f"(?s)the kubeconfig.*{cause}") as caught:
        connect(kubeconfig=kubeconfig(tmp_path, user=write_plugin(tmp_path, script)))
    assert PRINTED not in str(caught.value)
    assert "hint: " in str(caught.value)


def test_a_plugin_that_is_not_installed_is_named(tmp_path):
    user = {"exec": {"apiVersion": API, "command": "no-such-plugin", "args": []}}
    with pytest.raises(Forbidden, match="credential plugin") as caught:
        connect(kubeconfig=kubeconfig(tmp_path, user=user))
    assert "no-such-plugin" in (caught.value.cause or "")


def test_a_token_is_sent_and_renewed_before_it_ends(tmp_path, monkeypatch):
    """A plugin counts its runs; the time before the end is extended instead of waited for."""
    expiry = datetime.fromtimestamp(time.time() + 900, UTC).isoformat().replace("+00:00", "Z")
    counted = f"echo x >> {tmp_path}/runs\ncount=$(wc -l < {tmp_path}/runs)"
    document = {"apiVersion": API, "kind": "ExecCredential", "status": {"token": "N", "expirationTimestamp": expiry}}
    start, end = json.dumps(document).split('"N"')
    user = write_plugin(tmp_path, f"{counted}\nprintf '%s\"token-%s\"%s' '{start}' $count '{end}'")
    with serve(lambda *_: json_answer({"metadata": {"name": "p", "uid": "u"}})) as hostile:
        client = connect(kubeconfig=kubeconfig(tmp_path, hostile.url, user)).client
        client.call(GET)
        client.call(GET)
        monkeypatch.setattr("kubernetes.config.kube_config.EXPIRY_SKEW_PREVENTION_DELAY", timedelta(seconds=1000))
        client.call(GET)
        client.call(GET)
        client.close()
        tokens = [received.headers.get("Authorization") for received in hostile.received]
    assert tokens[:2] == ["Bearer token-1", "Bearer token-1"]
    assert len(set(tokens)) > 1
