from __future__ import annotations

from pathlib import Path

import pytest

KUBECONFIG = "current-context: test\ncontexts: [{name: test, context: {cluster: c, namespace: default}}]\n"
KUBECONFIG_OF_A_PORT = """
apiVersion: v1
kind: Config
current-context: test
clusters: [{{name: test, cluster: {{server: "http://127.0.0.1:{port}"}}}}]
users: [{{name: test, user: {{}}}}]
contexts: [{{name: test, context: {{cluster: test, user: test}}}}]
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder, and settings of nobody."""
    for name in ("KFJOB_BACKEND", "KFJOB_CONTEXT", "KFJOB_NAMESPACE", "KFJOB_ETCD_IMAGE"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "kubeconfig").write_text(KUBECONFIG)
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))
    monkeypatch.setenv("KFJOB_STATE", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.chdir(tmp_path)
    return tmp_path
