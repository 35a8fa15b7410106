"""A record says on which backend its job ran."""

from __future__ import annotations

import pytest

from kfjob.api.lifecycle.wait import follow_job, wait_for
from kfjob.api.reader import ArchiveReader, LiveReader, open_folder, open_view
from kfjob.api.settings import Settings
from kfjob.api.target import Target
from kfjob.api.view import read_view
from kfjob.backends import folder
from kfjob.joblog.events import JobChanged, JobPhase, JobSnapshot, PodChanged, PodPhase
from kfjob.joblog.observe_config import ObserveConfig
from tests.fakes.backend import FakeBackend
from tests.unit.api import script


@pytest.mark.parametrize(
    ("recorded", "target", "is_here"),
    [("local", "kubernetes", True), ("kubernetes", "local", False), (None, "kubernetes", False), (None, "local", True)],
)
def test_backend_is_that_of_the_record_and_not_of_the_command(tmp_path, recorded, target, is_here):
    pods = (PodChanged(pod="a-worker-0", phase=PodPhase.FAILED),)
    job = JobChanged(phase=JobPhase.FAILED)
    folder.write_snapshot(tmp_path, JobSnapshot(name="a", namespace="default", job=job, pods=pods, backend=recorded))
    reader = ArchiveReader(tmp_path, Target(Settings(state=tmp_path), target, "default"))
    assert reader.ref.backend == (recorded or target)
    assert open_view(reader).local == is_here


def test_backend_of_saved_logs_is_unknown(tmp_path):
    (tmp_path / "a-worker-0.log").write_text("hello\n")
    assert not open_view(open_folder(tmp_path, Settings(state=tmp_path))).local


@pytest.fixture
def local(fake: FakeBackend, monkeypatch: pytest.MonkeyPatch) -> FakeBackend:
    """Return the scripted backend as the local one, with a job that lacks a module."""
    monkeypatch.setattr(FakeBackend, "name", "local")
    error = script.line(0, "ModuleNotFoundError: No module named 'tokenisers'", 3)
    fake.play("train", *script.STARTING, error, script.pod(0, PodPhase.FAILED), script.job(JobPhase.FAILED), spec=script.SPEC)
    return fake


def test_every_view_of_a_local_job_says_where_it_runs(local, here):
    target = Target(Settings(state=here), "kubernetes", "default")  # the scripted backend stands in for a cluster's
    ref = local.play("train", *local.jobs["default", "train"].script)
    reader = LiveReader(target, ref, ObserveConfig(), secrets=frozenset())
    assert [view.local for view, _ in follow_job(reader)] == [True] * (len(local.jobs["default", "train"].script) + 1)
    views = [read_view(reader)]
    wait_for(reader, on_view=views.append)
    assert all(view.local for view in views)


@pytest.mark.parametrize("form", ["plain", "json"])
@pytest.mark.usefixtures("local")
def test_remedy_of_a_followed_local_job_is_one_for_this_machine(kfjob, form):
    kfjob("watch", "train", "-o", form)
    assert "tokenisers" in kfjob.out + kfjob.err
    assert "pip install" in kfjob.out + kfjob.err
    assert "push-image" not in kfjob.out + kfjob.err
