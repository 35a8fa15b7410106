"""Credential plugins of a kubeconfig: what they get, and one clear error for each that hangs or fails."""

from __future__ import annotations

import base64
import json
import stat
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from kfjob.base.errors import Forbidden
from kfjob.cluster import exec_plugin
from kfjob.cluster.connect import connect
from tests.hostile_server import json_answer, serve
from tests.image.registries import make_certificate
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


def other(**fields: Any) -> str:
    return f"echo '{json.dumps({'apiVersion': API, 'kind': 'ExecCredential', 'status': {'token': PRINTED}} | fields)}'"


BAD: dict[str, tuple[str, str]] = {
    "hangs": ("sleep 600", r"it has not ended after 0\.3 s"),
    "hangs after its output": (f"{printing(token=PRINTED)}\nsleep 600", r"it has not ended after 0\.3 s"),
    "leaves a child": ("sleep 600 &", r"it has not ended after 0\.3 s"),
    "prints without an end": ("while :; do echo " + PRINTED * 200 + "; done", "it printed more than 1 MiB"),
    "prints errors without an end": ("while :; do echo no >&2; done", r"it has not ended after 0\.3 s"),
    "fails": (f"echo {PRINTED}; echo 'not logged in' >&2; exit 3", "it exited with code 3\n *not logged in"),
    "fails with many lines": ("seq 1 5000 >&2; exit 1", "it exited with code 1"),
    "prints nothing": ("true", "its output is not JSON"),
    "prints no JSON": (f"echo token {PRINTED}", "its output is not JSON"),
    "prints no text": (r"printf '\377\376'", "its output is not JSON"),
    "prints deep JSON": ("yes '[' | head -n 100000 | tr -d '\\n'", "its output is not"),
    "prints a list": ("echo '[]'", "is not an ExecCredential"),
    "prints a number as the token": (printing(token=5), "is not an ExecCredential"),
    "another version": (other(apiVersion="v9"), "not an ExecCredential of client"),
    "another kind": (other(kind="Secret"), "its output is a `Secret`"),
    "no token": (printing(), "neither a token nor"),
    "no status": (other(status={}), "neither a token nor"),
    "a certificate without its key": (printing(clientCertificateData="x"), "only one of"),
    "a token with a newline": (printing(token=f"{PRINTED}\nX-Header: a"), "characters that no token has"),
    "an odd time": (printing(token=PRINTED, expirationTimestamp="soon"), "is not a time"),
}


@pytest.mark.parametrize(("script", "cause"), BAD.values(), ids=BAD.keys())
def test_a_bad_plugin_is_one_error(script, cause, tmp_path, monkeypatch):
    monkeypatch.setattr(exec_plugin, "PLUGIN_SECONDS", 0.3 if "0\\.3" in cause else 30.0)
    path = kubeconfig(tmp_path, user=write_plugin(tmp_path, script))
    with pytest.raises(Forbidden, match=f"(?s)credential plugin.*{cause}") as caught:
        connect(kubeconfig=path)
    message = str(caught.value)
    assert f"{tmp_path}/get-token eks get-token" in message
    assert "`kubectl get pods` runs the same plugin" in message
    assert PRINTED not in message
    assert len(message) < 2000


@pytest.mark.parametrize(
    "settings", ["aws", ["aws"], {"command": "aws"}, {"apiVersion": API}, {"command": 3, "apiVersion": API}], ids=str
)
def test_settings_that_are_no_plugin_are_an_error(settings, tmp_path):
    with pytest.raises(Forbidden, match=r"credential plugin is not valid") as caught:
        connect(kubeconfig=kubeconfig(tmp_path, user={"exec": settings}))
    assert "user.exec" in str(caught.value)


def test_a_missing_plugin_shows_its_install_hint(tmp_path):
    plugin = {"exec": {"apiVersion": API, "command": "no-such-plugin", "installHint": "install it with `brew`"}}
    with pytest.raises(Forbidden, match="install it with `brew`"):
        connect(kubeconfig=kubeconfig(tmp_path, user=plugin))


def test_a_plugin_that_needs_a_terminal_is_an_error_without_one(tmp_path):
    plugin = write_plugin(tmp_path, printing(token=PRINTED), interactiveMode="Always")
    with pytest.raises(Forbidden, match="it needs a terminal"):
        connect(kubeconfig=kubeconfig(tmp_path, user=plugin))


def test_a_plugin_gets_its_environment_and_the_cluster(tmp_path, monkeypatch):
    monkeypatch.setenv("AWS_REGION", "here")
    script = f'printf "%s" "$KUBERNETES_EXEC_INFO" > {tmp_path}/info; echo $AWS_PROFILE $AWS_REGION > {tmp_path}/env'
    variables = [{"name": "AWS_PROFILE", "value": "training"}]
    user = write_plugin(tmp_path, f"{script}\n{printing(token=PRINTED)}", env=variables, provideClusterInfo=True)
    path = kubeconfig(tmp_path, "http://127.0.0.1:1", user)
    authority = make_certificate(tmp_path)
    config = yaml.safe_load(path.read_text())
    extensions = [{"name": "client.authentication.k8s.io/exec", "extension": {"audience": "a"}}]
    config["clusters"][0]["cluster"] |= {"certificate-authority": authority.name, "extensions": extensions}
    path.write_text(yaml.safe_dump(config))
    before = path.read_text()
    connect(kubeconfig=path)
    assert (tmp_path / "env").read_text() == "training here\n"
    assert json.loads((tmp_path / "info").read_text()) == {
        "apiVersion": API,
        "kind": "ExecCredential",
        "spec": {
            "interactive": False,
            "cluster": {
                "server": "http://127.0.0.1:1",
                "certificate-authority-data": base64.b64encode(authority.read_bytes()).decode(),
                "config": {"audience": "a"},
            },
        },
    }
    assert path.read_text() == before, "the token is not stored"


def test_a_command_with_a_slash_is_relative_to_the_kubeconfig(tmp_path):
    user = write_plugin(tmp_path, printing(token=PRINTED))
    user["exec"]["command"] = "./get-token"
    connect(kubeconfig=kubeconfig(tmp_path, "http://127.0.0.1:1", user))


@pytest.mark.parametrize("nulls", [{"args": None, "env": None, "provideClusterInfo": None}, {}])
def test_fields_without_a_value_are_allowed(nulls, tmp_path):
    connect(kubeconfig=kubeconfig(tmp_path, "http://127.0.0.1:1", write_plugin(tmp_path, printing(token=PRINTED), **nulls)))


def test_a_token_is_sent_and_renewed_before_it_ends(tmp_path, monkeypatch):
    """A plugin counts its runs; time is moved instead of waited for."""
    expiry = datetime.fromtimestamp(time.time() + 900, UTC).isoformat().replace("+00:00", "Z")
    counted = f"echo x >> {tmp_path}/runs\ncount=$(wc -l < {tmp_path}/runs)"
    document = {"apiVersion": API, "kind": "ExecCredential", "status": {"token": "N", "expirationTimestamp": expiry}}
    start, end = json.dumps(document).split('"N"')
    user = write_plugin(tmp_path, f"{counted}\nprintf '%s\"token-%s\"%s' '{start}' $count '{end}'")
    clock = time.time()
    monkeypatch.setattr(time, "time", lambda: clock)
    with serve(lambda *_: json_answer({"metadata": {"name": "p", "uid": "u"}})) as hostile:
        client = connect(kubeconfig=kubeconfig(tmp_path, hostile.url, user)).client
        client.call(GET)
        client.call(GET)
        clock += 880
        client.call(GET)
        client.call(GET)
        client.close()
        tokens = [received.headers.get("Authorization") for received in hostile.received]
    assert tokens == ["Bearer token-1", "Bearer token-1", "Bearer token-2", "Bearer token-2"]
