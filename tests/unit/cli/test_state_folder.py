"""The state folder belongs to the user: its files are for nobody else, and one that others can change is refused."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from kfjob.backends import folder
from kfjob.base.errors import Refused
from kfjob.base.file_access import find_foreign_access
from kfjob.joblog.events import JobPhase, PodPhase
from kfjob.local import launch_spec, reserved_state
from kfjob.local.launch_spec import LaunchSpec
from kfjob.local.log_writer import LogWriter
from tests.fakes.backend import FakeBackend
from tests.unit.api import script
from tests.unit.api.conftest import Shell, fake

__all__ = ["fake"]
OTHER = 54321
UNSAFE = {"all write": (0o777, 0, 0), "the group writes": (0o770, 0, OTHER), "another owner": (0o700, OTHER, 0)}
SAFE = {"private": (0o700, 0, 0), "readable": (0o755, 0, 0), "root's group writes": (0o775, 0, 0), "sticky": (0o1777, 0, 0)}


@pytest.fixture
def no_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def make(path: Path, kind: tuple[int, int, int]) -> Path:
    assert os.getuid() == 0, "the test gives folders to another user"
    mode, user, group = kind
    path.mkdir()
    os.chown(path, user, group)
    path.chmod(mode)
    return path


def find_readable(root: Path) -> list[str]:
    """Return the files that others may read."""
    return [path.name for path in root.rglob("*") if path.is_file() and stat.S_IMODE(path.stat().st_mode) & 0o077]


@pytest.mark.parametrize("kind", UNSAFE.values(), ids=UNSAFE.keys())
@pytest.mark.parametrize("name", ["", "local", "archive"])
def test_folder_that_others_can_change_is_refused(tmp_path: Path, kind: tuple[int, int, int], name: str):
    root = tmp_path / "state"
    if name:
        make(root, SAFE["sticky"])
    make(root / name, kind)
    with pytest.raises(Refused) as caught:
        folder.check_state_folder(root, name)
    assert caught.value.location == str(root / name)
    assert "KFJOB_STATE" in (caught.value.hint or "")


@pytest.mark.parametrize("kind", SAFE.values(), ids=SAFE.keys())
def test_folder_of_the_user_is_accepted(tmp_path: Path, kind: tuple[int, int, int]):
    root = make(tmp_path / "state", kind)
    make(root / "local", SAFE["private"])
    assert folder.check_state_folder(root, "local") == root
    assert folder.check_state_folder(tmp_path / "none") == tmp_path / "none"


def test_link_to_a_folder_of_the_user_is_accepted_and_one_of_others_is_not(tmp_path: Path):
    (tmp_path / "link").symlink_to(make(tmp_path / "state", SAFE["sticky"]))
    assert folder.check_state_folder(tmp_path / "link", "local")
    (tmp_path / "state" / "local").symlink_to(make(tmp_path / "mine", SAFE["private"]))
    os.chown(tmp_path / "state" / "local", OTHER, OTHER, follow_symlinks=False)
    with pytest.raises(Refused):
        folder.check_state_folder(tmp_path / "link", "local")


@pytest.mark.parametrize("members", [["me"], []])
def test_group_of_one_user_is_private(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, members: list[str]):
    status = os.stat_result((stat.S_IFDIR | 0o770, 0, 0, 1, 1000, 1000, 0, 0, 0, 0))
    monkeypatch.setattr("os.getuid", lambda: 1000)
    monkeypatch.setattr("os.getgid", lambda: 1000)
    monkeypatch.setattr("pwd.getpwuid", lambda _: type("User", (), {"pw_name": "me"}))
    group = {"gr_name": "me", "gr_mem": members}
    monkeypatch.setattr("grp.getgrgid", lambda _: type("Group", (), group))
    assert find_foreign_access(status) == ""
    group["gr_mem"] = ["me", "you"]
    assert find_foreign_access(status) == "other users may write it"
    group |= {"gr_name": "users", "gr_mem": []}
    assert find_foreign_access(status) == "other users may write it"


@pytest.mark.parametrize("command", ["list", "status train", "logs train", "stop train", "relaunch train"])
def test_command_that_uses_an_unsafe_folder_says_what_to_do(kfjob: Shell, here: Path, command: str):
    state = make(here / "state", UNSAFE["all write"])
    assert kfjob(*command.split(), "--backend", "local") == 1
    assert kfjob.err.splitlines()[:3] == [
        "error: the state folder is not safe to use",
        f"  --> {state}",
        "  cause: other users may write it",
    ]
    assert f"`chmod go-w {state}`" in kfjob.err


def test_job_of_a_cluster_is_not_archived_in_an_unsafe_folder(kfjob: Shell, fake: FakeBackend, here: Path):
    make(here / "state", UNSAFE["all write"])
    fake.play("train", script.job(JobPhase.RUNNING), script.pod(0, PodPhase.RUNNING))
    assert kfjob("stop", "train") == 1
    assert "the state folder is not safe to use" in kfjob.err
    assert not list((here / "state").iterdir())


def test_files_of_a_stopped_job_are_private(kfjob: Shell, fake: FakeBackend, here: Path, no_umask: None):
    lines = [script.line(0, f"line {number}", number) for number in range(3)]
    fake.play("train", script.job(JobPhase.RUNNING), script.pod(0, PodPhase.RUNNING), *lines)
    assert kfjob("stop", "train") == 0
    assert list((here / "state").rglob("*.log"))
    assert find_readable(here / "state") == []


def test_files_of_a_local_launch_are_private(tmp_path: Path, no_umask: None):
    launch = folder.make_private(tmp_path / "launch" / folder.RUN).parent
    spec = LaunchSpec(uid="u", agents=(), etcd=None, restart_policy="Never", backoff_seconds=1, grace_seconds=1)
    launch_spec.write(launch, spec)
    reserved_state.reserve(launch, pods=1)
    folder.replace_file(launch / folder.STATUS, "{}")
    reading, writing = os.pipe()
    LogWriter(reading, launch / "pod.log").close()
    os.close(reading)
    os.close(writing)
    assert len([path for path in launch.rglob("*") if path.is_file()]) == 4
    assert find_readable(launch) == []
