"""Credentials and files of a kubeconfig: what no header can hold, and files without an end, are one error each."""

from __future__ import annotations

import base64
import tempfile
from pathlib import Path

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
