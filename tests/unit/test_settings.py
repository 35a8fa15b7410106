"""Settings, the kubeconfig's context, and the choice of the backend."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kfjob.api.planning import make_launch_id
from kfjob.api.settings import load_settings
from kfjob.api.target import choose_backend, make_target
from kfjob.backends.kubeconfig import KubeContext, find_kube_context
from kfjob.base.errors import SpecError, Unreachable

KUBECONFIG = """
current-context: b
contexts:
  - {name: a, context: {cluster: x, namespace: team-a}}
  - {name: b, context: {cluster: x}}
"""


@pytest.fixture
def home(tmp_path: Path) -> dict[str, str]:
    return {"XDG_CONFIG_HOME": str(tmp_path / "config"), "XDG_STATE_HOME": str(tmp_path / "state")}


def test_precedence_of_settings(tmp_path, home):
    (tmp_path / "config/kfjob").mkdir(parents=True)
    (tmp_path / "config/kfjob/kfjob.toml").write_text(
        'backend = "local"\nnamespace = "user"\ncontext = "user"\netcd_image = "user"'
    )
    deep = tmp_path / "project/deep"
    deep.mkdir(parents=True)
    (tmp_path / "project/kfjob.toml").write_text('namespace = "project"\ncontext = "project"\netcd_image = "project"')
    settings = load_settings(
        environ=home | {"KFJOB_CONTEXT": "env", "KFJOB_NAMESPACE": "env"}, folder=deep, namespace="flag", context=None
    )
    assert (settings.namespace, settings.context, settings.etcd_image, settings.backend) == ("flag", "env", "project", "local")
    assert settings.state == tmp_path / "state/kfjob"


def test_pyproject_with_a_kfjob_table_is_read(tmp_path, home):
    (tmp_path / "pyproject.toml").write_text('[tool.kfjob]\nbackend = "local"\n')
    assert load_settings(environ=home, folder=tmp_path).backend == "local"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("bakend = 'local'", "did you mean `backend`"),
        ("backend = 3", "must be text"),
        ("backend =", "cannot be read"),
        ("backend = 'slurm'", "unknown backend `slurm`"),
    ],
)
def test_invalid_settings_file_is_an_error(tmp_path, home, text, message):
    (tmp_path / "kfjob.toml").write_text(text)
    with pytest.raises(SpecError, match=message):
        load_settings(environ=home, folder=tmp_path)


def test_kubeconfig_context_and_namespace(tmp_path):
    file = tmp_path / "kubeconfig"
    file.write_text(KUBECONFIG)
    environ = {"KUBECONFIG": f"{tmp_path}/missing:{file}"}
    assert find_kube_context(environ) == KubeContext("b", "default")
    assert find_kube_context(environ, "a") == KubeContext("a", "team-a")
    assert find_kube_context(environ, "zzz") is None
    assert find_kube_context({"KUBECONFIG": f"{tmp_path}/missing"}) is None


def test_backend_is_kubernetes_if_a_kubeconfig_exists(tmp_path, home, monkeypatch):
    notices: list[str] = []
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    settings = load_settings(environ=home, folder=tmp_path)
    assert choose_backend(settings, notify=notices.append) == "local"
    assert "running on this machine" in notices[0]
    (tmp_path / "none").write_text(KUBECONFIG)
    assert choose_backend(settings, notify=notices.append) == "kubernetes"
    assert len(notices) == 1


def test_missing_kubeconfig_is_an_error_with_a_hint(tmp_path, home, monkeypatch):
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    with pytest.raises(Unreachable, match="no kubeconfig") as caught:
        _ = make_target(load_settings(environ=home, folder=tmp_path), "kubernetes").cluster
    assert caught.value.exit_code == 5
    assert "--backend local" in str(caught.value.hint)


def test_launch_ids_are_distinct_and_fit_in_a_label():
    launches = {make_launch_id() for _ in range(200)}
    assert len(launches) > 190  # 27**4 suffixes per second, so two of 200 are sometimes equal
    assert all(re.fullmatch(r"\d{8}-\d{6}-[a-z0-9]{4}", launch) for launch in launches)


@pytest.mark.parametrize(
    ("text", "python"),
    [
        ('local_python = ".venv"', "project/.venv"),
        ('local_python = "/opt/py/bin/python"', "/opt/py/bin/python"),
        ('state = "jobs"', None),
    ],
)
def test_paths_of_a_settings_file_are_relative_to_it(tmp_path, home, monkeypatch, text, python):
    deep = tmp_path / "project/deep"
    deep.mkdir(parents=True)
    monkeypatch.chdir(deep)
    (tmp_path / "project/kfjob.toml").write_text(text)
    settings = load_settings(environ=home, folder=deep)
    assert settings.local_python == (tmp_path / python if python else None)
    assert settings.state == (tmp_path / "project/jobs" if not python else tmp_path / "state/kfjob")
    flag = load_settings(environ=home | {"KFJOB_LOCAL_PYTHON": "env/bin/python"}, folder=deep)
    assert flag.local_python == deep / "env/bin/python"
