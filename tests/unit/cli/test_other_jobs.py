"""What is printed when the list is empty, or a job was stopped, leads to the job."""

from __future__ import annotations

from pathlib import Path

import pytest

from kfjob.api.settings import Settings
from kfjob.api.target import make_target
from kfjob.cli.commands import run
from kfjob.cli.status import _find_other_jobs


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, value in {"KFJOB_STATE": str(tmp_path), "KUBECONFIG": str(tmp_path / "none"), "HOME": str(tmp_path)}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("KFJOB_BACKEND", raising=False)
    return tmp_path


def test_an_empty_list_names_its_place_and_the_archive(state: Path, capsys: pytest.CaptureFixture[str]):
    assert run(["list", "--backend", "local"]) == 0
    assert capsys.readouterr().err == "note: there are no jobs in namespace `default` on this machine\n"
    (state / "archive" / "default" / "old" / "launch").mkdir(parents=True)
    assert run(["list", "--backend", "local"]) == 0
    assert "note: 1 stopped job in the archive, such as `old`: `kfjob status JOB` reads it" in capsys.readouterr().err


def test_a_stopped_job_is_not_just_missing(state: Path, capsys: pytest.CaptureFixture[str]):
    (state / "archive" / "default" / "old" / "launch").mkdir(parents=True)
    assert run(["stop", "old", "--backend", "local"]) == 3
    assert "hint: it was stopped: `kfjob status old` reads its archive" in capsys.readouterr().err


def test_the_list_of_a_cluster_names_the_jobs_of_this_machine(tmp_path: Path):
    (tmp_path / "local" / "default" / "mine").mkdir(parents=True)
    target = make_target(Settings(state=tmp_path, namespace="default"), "kubernetes")
    assert list(_find_other_jobs(target, is_empty=False)) == ["1 job on this machine: `kfjob list --backend local`"]
    chosen = make_target(Settings(state=tmp_path, namespace="default", backend="kubernetes"), "kubernetes")
    assert list(_find_other_jobs(chosen, is_empty=False)) == []
