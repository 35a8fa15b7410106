"""A record says on which backend its job ran."""

from __future__ import annotations

import pytest

from kfjob.api.reader import ArchiveReader, open_folder, runs_on_this_machine
from kfjob.api.settings import Settings
from kfjob.api.target import Target
from kfjob.backends import folder
from kfjob.events import JobChanged, JobPhase, JobSnapshot, PodChanged, PodPhase


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
    assert runs_on_this_machine(reader) == is_here


def test_backend_of_saved_logs_is_unknown(tmp_path):
    (tmp_path / "a-worker-0.log").write_text("hello\n")
    assert not runs_on_this_machine(open_folder(tmp_path, Settings(state=tmp_path)))
