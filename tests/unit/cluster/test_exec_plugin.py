"""Credential plugins of a kubeconfig, which the `kubernetes` package runs: one clear error for each that fails."""

from __future__ import annotations

import json
import stat
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from kfjob.base.errors import Forbidden
from kfjob.cluster.connect import connect
from tests.hostile_server import json_answer, serve
from tests.unit.cluster.test_client import GET
from tests.unit.cluster.test_connect import kubeconfig

API = "client.authentication.k8s.io/v1beta1"
PRINTED = "k8s-aws-v1.c2VjcmV0LXRva2Vu"


def write_plugin(folder: Path, script: str, **settings: Any) -> dict[str, Any]:
    file = folder / "get-token"
    file.write_text(f"#!/bin/sh\n{script}\n")
    file.chmod(file.stat().st_mode | stat.S_IXUSR)
    return {"exec": {"apiVersion": API, "command": str(file), "args": ["eks", "get-token"], **settings}}


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
