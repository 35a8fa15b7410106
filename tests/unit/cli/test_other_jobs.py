"""What is printed when the list is empty, or a job was stopped, leads to the job."""

from __future__ import annotations

from pathlib import Path

import pytest

from kfjob.api.settings import Settings
from kfjob.api.target import make_target
from kfjob.backends import folder
from kfjob.cli.commands import run
from kfjob.cli.jobs_list import _find_other_jobs
from kfjob.joblog.events import JobChanged, JobPhase, JobSnapshot


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


def test_commands_in_messages_have_the_options_that_they_need(state: Path, capsys: pytest.CaptureFixture[str]):
    assert run(["stop", "old", "--backend", "local", "-n", "team-a"]) == 3
    assert "hint: `kfjob list -n team-a` shows the jobs" in capsys.readouterr().err
    (state / "archive" / "team-a" / "old" / "launch").mkdir(parents=True)
    assert run(["stop", "old", "--backend", "local", "-n", "team-a"]) == 3
    assert "`kfjob status -n team-a old` reads its archive, `kfjob relaunch -n team-a old`" in capsys.readouterr().err
    assert run(["stop", "old", "--backend", "local"]) == 3
    assert "-n team-a" not in capsys.readouterr().err


def test_the_list_of_a_cluster_names_the_jobs_of_this_machine(tmp_path: Path):
    (tmp_path / "local" / "default" / "mine").mkdir(parents=True)
    target = make_target(Settings(state=tmp_path, namespace="default"), "kubernetes")
    assert list(_find_other_jobs(target, is_empty=False)) == ["1 job on this machine: `kfjob list --backend local`"]
    chosen = make_target(Settings(state=tmp_path, namespace="default", backend="kubernetes"), "kubernetes")
    assert list(_find_other_jobs(chosen, is_empty=False)) == []


def test_commands_that_change_a_job_take_no_other_place_than_the_context(kfjob, cluster, monkeypatch):
    monkeypatch.setattr("kfjob.api.target.Target.has_local_twin", lambda *_arguments: True)
    for command in ("stop", "relaunch"):
        assert kfjob(command, "mine") == 3
        assert "hint: this machine has a job `mine`: `--backend local` selects it" in kfjob.err
    assert cluster.created == []


def test_relaunch_starts_a_stopped_job_where_it_ran(kfjob, cluster, here):
    path = here / "state" / "archive" / "default" / "mine" / "l1"
    path.mkdir(parents=True)
    job = JobChanged(phase=JobPhase.STOPPED)
    spec = '{"name": "mine", "image": "a:1", "command": ["true"]}'
    snapshot = JobSnapshot(name="mine", namespace="default", job=job, pods=(), spec=spec, launch="l1", backend="local")
    folder.write_snapshot(path, snapshot)
    assert kfjob("relaunch", "mine") == 2
    assert "error: the last launch of job `mine` ran on this machine, and this command would start it on a cluster" in kfjob.err
    assert cluster.created == []
