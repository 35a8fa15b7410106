"""Kubeconfigs, settings and code folders that a hostile person prepared: one error each, within limits."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from kfjob.base.errors import KfjobError
from kfjob.image.folder import MAX_DEPTH, read_folder
from tests.hostile_server import json_answer, serve
from tests.unit.api.conftest import Shell
from tests.unit.conftest import KUBECONFIG_OF_A_PORT

CLUSTER = "current-context: a\ncontexts: [{name: a, context: {cluster: a, user: a}}]\n"
SERVER = CLUSTER + "clusters: [{name: a, cluster: {server: 'https://127.0.0.1:1'%s}}]\nusers: [{name: a, user: %s}]\n"
KUBECONFIGS = {
    "deep": "a: " + "[" * 60_000,
    "deep and closed": "a: " + "[" * 2000 + "]" * 2000,
    "alias of itself": "&a\ncurrent-context: a\ncontexts: *a\n",
    "alias of itself in a cluster": CLUSTER + "clusters: &a [{name: a, cluster: *a}]\nusers: []\n",
    "laughs": "a: &a [x,x,x,x,x,x,x,x,x]\n"
    + "".join(
        f"{b}: &{b} [{','.join(['*' + a] * 9)}]\n" for a, b in zip("abcdefgh", "bcdefghi", strict=True)
    ),
    "a list": "[]",
    "contexts that are text": "current-context: a\ncontexts: x\n",
    "contexts of nothing": "current-context: a\ncontexts: [null, 5]\n",
    "context that is text": "current-context: a\ncontexts: [{name: a, context: x}]\n",
    "context that is a number": "current-context: 5\ncontexts: [{name: 5, context: {}}]\n",
    "no clusters": CLUSTER,
    "clusters that are text": CLUSTER + "clusters: x\nusers: y\n",
    "authority that is a folder": SERVER % (", certificate-authority: /etc", "{token: a}"),
    "authority that is a device": SERVER % (", certificate-authority: /dev/null", "{token: a}"),
    "authority that is not there": SERVER % (", certificate-authority: /nowhere", "{token: a}"),
    "authority that is not base64": SERVER % (", certificate-authority-data: '%%%'", "{token: a}"),
    "certificate that is a folder": SERVER % ("", "{client-certificate: /etc, client-key: /etc}"),
    "token file that is a folder": SERVER % ("", "{tokenFile: /etc}"),
    "token with line ends": SERVER % ("", '{token: "a\\r\\nX: b"}'),
    "plugin that is text": SERVER % ("", "{exec: x}"),
    "not UTF-8": "\udcff",
    "NUL": "a: \0",
}  # fmt: skip


@pytest.mark.parametrize("text", KUBECONFIGS.values(), ids=KUBECONFIGS.keys())
def test_hostile_kubeconfig_is_one_error(kfjob: Shell, here: Path, text: str):
    (here / "kubeconfig").write_bytes(text.encode(errors="surrogateescape"))
    for command in ("list", "status train"):
        assert kfjob(*command.split(), "--backend", "kubernetes") in (2, 3, 4, 5), kfjob.out
        assert kfjob.err.count("error:") == 1
        assert len(kfjob.err) < 5000


def test_large_kubeconfig_is_one_error(kfjob: Shell, here: Path):
    with (here / "kubeconfig").open("wb") as file:
        file.truncate(1 << 40)
    assert kfjob("list", "--backend", "kubernetes") == 5
    assert "is larger than 16 MiB" in kfjob.err


def test_deep_folder_is_one_error(tmp_path: Path):
    folder = tmp_path / "code"
    here = Path.cwd()
    folder.mkdir()
    try:
        os.chdir(folder)
        for _ in range(250):
            Path("d").mkdir()
            os.chdir("d")
    finally:
        os.chdir(here)
    with pytest.raises(KfjobError, match=f"more than {MAX_DEPTH} folders deep"):
        read_folder(folder)


def test_many_files_with_odd_names_are_read(tmp_path: Path):
    for index in range(2000):
        (tmp_path / f"{index}\n\x1b]0;a\x07").touch()
    assert len(read_folder(tmp_path).entries) == 2000


@pytest.mark.parametrize("kind", ["fifo", "socket", "broken link"])
def test_special_file_is_one_error(kfjob: Shell, here: Path, kind: str):
    code = here / "code"
    code.mkdir()
    if kind == "fifo":
        os.mkfifo(code / "a")
    elif kind == "socket":
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(str(code / "a"))
    else:
        (code / "a").symlink_to("/nowhere\n\x1b]0;a\x07")
    argv = ["push-image", "--code", "code", "--onto", "127.0.0.1:1/a:1", "--to", "127.0.0.1:1/b:1"]
    assert kfjob(*argv) in (1, 2, 5)
    assert kfjob.err.count("error:") == 1
    assert "\x1b]" not in kfjob.err


def test_loop_of_links_is_packed_as_links(tmp_path: Path):
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    assert [entry.link_target for entry in read_folder(tmp_path).entries] == ["b", "a"]


def test_file_that_becomes_a_fifo_is_one_error(tmp_path: Path):
    (tmp_path / "a").write_text("x")
    (entry,) = read_folder(tmp_path).entries
    (tmp_path / "a").unlink()
    os.mkfifo(tmp_path / "a")
    with pytest.raises(KfjobError, match="changed while it was read"):
        list(entry.read_pieces())


COMMANDS = ["watch train", "logs train --follow", "wait train", "status train"]


@pytest.mark.parametrize("command", COMMANDS)
def test_waiting_command_ends_when_the_server_answers_nonsense(kfjob: Shell, here: Path, command: str):
    with serve(lambda *_: json_answer(b"[" * 100_000)) as hostile:
        port = int(hostile.url.rpartition(":")[2])
        (here / "kubeconfig").write_text(KUBECONFIG_OF_A_PORT.format(port=port).replace("https://", "http://"))
        assert kfjob(*command.split(), "--backend", "kubernetes") in (1, 5)
    assert kfjob.err.count("error:") == 1


SETTINGS = {
    "NUL in the state": 'state = "a\\u0000b"',
    "home of nobody": 'state = "~nobody-at-all/x"',
    "NUL in the namespace": 'namespace = "a\\u0000"',
    "path as namespace": 'namespace = "../../x"',
    "lines in the namespace": 'namespace = "a\\nerror: x"',
    "long namespace": f'namespace = "{"x" * 100_000}"',
    "long context": f'context = "{"x" * 100_000}"',
    "escape in the context": 'context = "\\u001b[31m"',
    "lines in a name": '"a\\nerror: fake" = 1',
    "long name": f'"{"x" * 100_000}" = 1',
    "long backend": f'backend = "{"x" * 3000}"',
    "long switch": f'strict = "{"x" * 3000}"',
    "number": "namespace = 5",
    "not UTF-8": "\udcff",
    "unknown": "x = 1",
    "not TOML": "namespace",
    "NUL": 'namespace = "\0"',
    "table": "[namespace]\na = 1",
    "nested": "namespace = " + "[" * 60_000 + "]" * 60_000,
    "deep": ".".join(["a"] * 5000) + " = 1",
}


@pytest.mark.parametrize("text", SETTINGS.values(), ids=SETTINGS.keys())
@pytest.mark.parametrize("command", ["list", "status train"])
def test_hostile_settings_are_one_short_error(
    kfjob: Shell, here: Path, monkeypatch: pytest.MonkeyPatch, text: str, command: str
):
    monkeypatch.delenv("KFJOB_STATE")
    monkeypatch.setenv("XDG_STATE_HOME", str(here))
    (here / "kfjob.toml").write_bytes(text.encode(errors="surrogateescape"))
    (here / "kfjob.toml").chmod(0o600)
    assert kfjob(*command.split()) == 2
    assert [line[:6] for line in kfjob.err.splitlines()].count("error:") == 1
    assert len(kfjob.err) < 1000


@pytest.mark.parametrize("namespace", ["../../x", "a/b", ".", "", "A"])
def test_namespace_never_leads_out_of_the_state_folder(kfjob: Shell, here: Path, namespace: str):
    (here / "x" / ".staging-1").mkdir(parents=True)
    (here / "state" / "local").mkdir(parents=True)
    assert kfjob("list", "--backend", "local", "--namespace", namespace) == (2 if namespace else 0)
    assert (here / "x" / ".staging-1").exists()
