"""The copy of the archive in S3, mocked by moto's server."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from itertools import repeat
from pathlib import Path
from typing import Any

import pytest

from kfjob.api.reader import open_saved
from kfjob.api.settings import Settings, load_settings
from kfjob.backends import folder, s3_archive
from kfjob.backends.s3_archive import S3Archive, Stamp, check_address
from kfjob.base.errors import KfjobError, NotFound, Refused, UsageError
from kfjob.cli.commands import run
from kfjob.guard.uploads import ArchiveUploads
from kfjob.joblog.events import JobChanged, JobPhase, JobSnapshot, PodChanged, PodPhase
from tests.mock_s3 import MockS3

LAUNCH = "team/train/l1"
POD = "train-worker-0"
LINE = "2026-01-01T00:00:00.000000001Z step {} loss 2.0\n"


@pytest.fixture(scope="module")
def server():
    server = MockS3()
    yield server
    server.stop()


@pytest.fixture
def bucket(server, monkeypatch):
    """An empty bucket."""
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    client = server.make_client()
    client.create_bucket(Bucket="logs")
    yield client
    for item in client.list_objects_v2(Bucket="logs").get("Contents", ()):
        client.delete_object(Bucket="logs", Key=item["Key"])
    client.delete_bucket(Bucket="logs")


def write_launch(root: Path, *, launch: str = "l1", created: int = 1, lines: int = 3) -> Path:
    path = folder.make_private(root / "team" / "train" / launch)
    job = JobChanged(phase=JobPhase.FAILED, created=created, time=created)
    pods = (PodChanged(pod=POD, phase=PodPhase.FAILED),)
    folder.write_snapshot(path, JobSnapshot(name="train", namespace="team", job=job, uid=launch, launch=launch, pods=pods))
    log = folder.log_path(path, POD)
    folder.make_private(log.parent)
    log.write_text("".join(LINE.format(number) for number in range(lines)))
    return path


def list_keys(client: Any) -> list[str]:
    return [item["Key"] for item in client.list_objects_v2(Bucket="logs").get("Contents", ())]


def read_files(path: Path) -> dict[str, str]:
    return {str(file.relative_to(path)): file.read_text() for file in path.glob("**/*") if file.is_file()}


JOB = JobSnapshot(name="train", namespace="team", job=JobChanged(phase=JobPhase.RUNNING), uid="l1", launch="l1")


def uploads(state: Path, say: Any = print) -> ArchiveUploads:
    """Return the uploads of a guard of the launch."""
    guard = ArchiveUploads(Settings(state=state, archive="s3://logs/guard"), say)
    guard.add(JOB)
    return guard


def test_launch_is_uploaded_and_downloaded_again(bucket, tmp_path):
    path = write_launch(tmp_path / "a")
    (path / ".archive.lock").touch()
    S3Archive("s3://logs/some/prefix/").upload_changes(path, LAUNCH, {})
    assert list_keys(bucket) == [f"some/prefix/{LAUNCH}/{name}" for name in ("status.json", f"{POD}/pytorch.log")]
    archive = S3Archive(f"s3://logs/some/prefix/{LAUNCH}")
    assert archive.download("", tmp_path / "b") == []
    (path / ".archive.lock").unlink()
    assert read_files(tmp_path / "b") == read_files(path)
    assert (tmp_path / "b").stat().st_mode & 0o77 == 0


def test_only_changed_files_are_uploaded_and_the_status_is_the_last(bucket, tmp_path, monkeypatch):
    sent: list[str] = []
    upload = S3Archive._upload

    def record(self: S3Archive, file: Path, key: str) -> None:
        sent.append(file.name)
        upload(self, file, key)

    monkeypatch.setattr(S3Archive, "_upload", record)
    path, uploaded = write_launch(tmp_path), dict[str, Stamp]()
    archive = S3Archive("s3://logs")
    archive.upload_changes(path, LAUNCH, uploaded)
    archive.upload_changes(path, LAUNCH, uploaded)
    assert sent == ["pytorch.log", "status.json"]
    with folder.log_path(path, POD).open("a") as log:
        log.write(LINE.format(3))
    os.utime(folder.log_path(path, POD), (1, 1))  # S3 has whole seconds, so that it cannot tell about the present one
    os.utime(path / folder.STATUS, (1, 1))
    archive.upload_changes(path, LAUNCH, uploaded)
    assert sent[2:] == ["pytorch.log", "status.json"]
    S3Archive("s3://logs").upload_changes(path, LAUNCH, {})  # by the next guard, with the same volume
    assert sent[4:] == []


def test_longer_log_of_an_earlier_guard_is_not_replaced(bucket, tmp_path):
    archive, uploaded = S3Archive("s3://logs"), dict[str, Stamp]()
    archive.upload_changes(write_launch(tmp_path / "a", lines=9), LAUNCH, {})
    path = write_launch(tmp_path / "b", lines=3)
    archive.upload_changes(path, LAUNCH, uploaded)
    archive.download(LAUNCH, tmp_path / "c")
    assert folder.log_path(tmp_path / "c", POD).read_text().count("\n") == 9
    write_launch(tmp_path / "b", lines=12)
    archive.upload_changes(path, LAUNCH, uploaded)
    archive.download(LAUNCH, tmp_path / "d")
    assert folder.log_path(tmp_path / "d", POD).read_text().count("\n") == 12


@pytest.mark.parametrize(
    "name",
    [
        "../../escape",
        "..",
        "/etc/cron.d/x",
        "a/../../x",
        ".ssh/authorized_keys",
        "a/b/c.log",
        "a b",
        "a//b",
        "é",
        "a/./b",
        "x" * 300,
    ],
)
def test_object_with_a_hostile_name_is_left_out(bucket, tmp_path, name):
    bucket.put_object(Bucket="logs", Key=f"l1/{name}", Body=b"x")
    bucket.put_object(Bucket="logs", Key=f"l1/{'y' * 253}", Body=b"")  # as long as a name of Kubernetes
    bucket.put_object(Bucket="logs", Key="l1/pod.log", Body=b"step 1\n")
    target = tmp_path / "deep" / "l1"
    left_out = S3Archive("s3://logs/l1").download("", target)
    assert left_out == ["1 object with a name that no file of a launch has"]
    written = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.glob("**/*") if path.is_file())
    assert written == ["deep/l1/pod.log", f"deep/l1/{'y' * 253}"]


def test_download_never_writes_through_a_link(bucket, tmp_path):
    S3Archive("s3://logs").upload_changes(write_launch(tmp_path / "a"), LAUNCH, {})
    outside = tmp_path / "outside"
    outside.write_text("mine")
    folder.make_private(tmp_path / "b")
    (tmp_path / "b" / ".status.json.part").symlink_to(outside)
    S3Archive("s3://logs").download(LAUNCH, tmp_path / "b")
    assert outside.read_text() == "mine"


def test_object_with_the_name_of_a_folder_is_left_out(bucket, tmp_path):
    bucket.put_object(Bucket="logs", Key="l1/pod", Body=b"x")
    bucket.put_object(Bucket="logs", Key="l1/pod/pytorch.log", Body=b"xy")
    (left_out,) = S3Archive("s3://logs/l1").download("", tmp_path / "l1")
    assert left_out == "1 object with a name that no file of a launch has"
    assert read_files(tmp_path / "l1") == {"pod/pytorch.log": "xy"}


def test_files_over_the_limit_are_left_out(bucket, tmp_path, monkeypatch):
    monkeypatch.setattr(s3_archive, "MAX_UNPACKED_BYTES", 10)
    bucket.put_object(Bucket="logs", Key="l1/a.log", Body=b"x" * 8)
    bucket.put_object(Bucket="logs", Key="l1/b.log", Body=b"x" * 9)
    (left_out,) = S3Archive("s3://logs/l1").download("", tmp_path / "l1")
    assert left_out.startswith("`b.log`")
    assert sorted(read_files(tmp_path / "l1")) == ["a.log"]


def test_object_that_is_larger_than_listed_is_refused(bucket, tmp_path, monkeypatch):
    monkeypatch.setattr(s3_archive, "MAX_UNPACKED_BYTES", 10)
    bucket.put_object(Bucket="logs", Key="l1/a.log", Body=b"x" * 99)
    monkeypatch.setattr(S3Archive, "list_files", lambda *_: [s3_archive.StoredFile("a.log", 1, 0.0)])
    with pytest.raises(Refused, match="S3 sends more than it has listed"):
        S3Archive("s3://logs/l1").download("", tmp_path / "l1")
    assert not (tmp_path / "l1" / "a.log").exists()


def test_endless_list_of_objects_is_refused(bucket, monkeypatch):
    class MockPaginator:
        def paginate(self, **_: Any) -> Iterator[dict[str, Any]]:
            return repeat({"IsTruncated": True})

    archive = S3Archive("s3://logs/l1")
    monkeypatch.setattr(archive._client, "get_paginator", lambda _: MockPaginator())
    with pytest.raises(Refused, match="has more than 0 objects"):
        archive.list_files()


def test_address_without_a_launch_is_not_found(bucket):
    bucket.put_object(Bucket="logs", Key="team/train/l1/pod/pytorch.log", Body=b"x")
    with pytest.raises(NotFound, match="holds no launch"):
        open_saved("s3://logs/team", Settings(state=Path("/nowhere")))
    with pytest.raises(NotFound, match="holds no launch"):
        open_saved("s3://logs/other", Settings(state=Path("/nowhere")))
    with pytest.raises(Refused, match="NoSuchBucket"):
        open_saved("s3://no-such-bucket/x", Settings(state=Path("/nowhere")))


@pytest.mark.parametrize(
    "address", ["s3://", "s3:/a/b", "s3://A/b", "s3://a", "https://bucket/x", "s3://bucket//x", "s3://bucket/\n", "x"]
)
def test_invalid_address_is_an_error(address):
    with pytest.raises(UsageError, match="is not an address of S3"):
        check_address(address)


def test_archive_is_a_setting(tmp_path):
    home = {"XDG_CONFIG_HOME": str(tmp_path), "XDG_STATE_HOME": str(tmp_path)}
    (tmp_path / "kfjob.toml").write_text('archive = "s3://team-logs/kfjob/"')
    assert load_settings(environ=home, folder=tmp_path).archive == "s3://team-logs/kfjob"
    assert load_settings(environ=home | {"KFJOB_ARCHIVE": "s3://other"}, folder=tmp_path).archive == "s3://other"
    with pytest.raises(UsageError, match="is not an address of S3"):
        load_settings(environ=home | {"KFJOB_ARCHIVE": "/folder"}, folder=tmp_path)


def test_temporary_folder_ends_with_the_reader(bucket, tmp_path):
    S3Archive("s3://logs").upload_changes(write_launch(tmp_path), LAUNCH, {})
    reader = open_saved(f"s3://logs/{LAUNCH}", Settings(state=tmp_path))
    path = reader.folder
    assert path.is_dir()
    del reader
    assert not path.exists()


@pytest.mark.parametrize("place", ["s3", "setting"])
def test_commands_read_a_launch_from_another_machine(bucket, tmp_path, monkeypatch, capsys, place):
    archive = S3Archive("s3://logs/guard")
    for number, lines in ((1, 2), (2, 4)):
        path = write_launch(tmp_path, launch=f"l{number}", created=number, lines=lines)
        archive.upload_changes(path, f"team/train/l{number}", {})
    monkeypatch.setenv("KFJOB_STATE", str(tmp_path / "empty"))
    monkeypatch.setenv("KFJOB_BACKEND", "local")
    source = ["--from", "s3://logs/guard/team/train/l2"]
    if place == "setting":
        source = ["train", "-n", "team"]
        monkeypatch.setenv("KFJOB_ARCHIVE", "s3://logs/guard")
        assert run(["history", "train", "-n", "team", "-o", "json"]) == 0
        assert '"launch": "l1"' in capsys.readouterr().out
    assert run(["logs", *source]) == 0
    assert capsys.readouterr().out.count("step ") == 4
    assert run(["status", *source]) == 0
    shown = capsys.readouterr()
    assert "Failed" in shown.out
    assert ("this is the archive of its last launch: s3://logs/guard/team/train/l2" in shown.err) == (place == "setting")


def test_s3_that_does_not_answer_leaves_the_local_archive(tmp_path, server, bucket, monkeypatch, capsys):
    monkeypatch.setenv("KFJOB_STATE", str(tmp_path))
    monkeypatch.setenv("KFJOB_BACKEND", "local")
    monkeypatch.setenv("KFJOB_ARCHIVE", "s3://logs")
    monkeypatch.setattr(s3_archive, "ATTEMPTS", 1)
    write_launch(tmp_path / "archive")
    server.stop()
    try:
        assert run(["logs", "train", "-n", "team"]) == 0
    finally:
        server.start()
    shown = capsys.readouterr()
    assert shown.out.count("step ") == 3
    assert "the archive in S3 is not read: AWS does not answer" in shown.err


def test_upload_that_fails_is_said_once_and_made_up_for(bucket, server, tmp_path, monkeypatch):
    said: list[str] = []
    monkeypatch.setattr(s3_archive, "ATTEMPTS", 1)
    guard = uploads(tmp_path, said.append)
    write_launch(tmp_path / "archive")
    server.stop()
    try:
        assert not guard.upload()
        assert not guard.upload()
    finally:
        server.start()
    assert guard.upload()
    failure, success = said
    assert "is not copied to s3://logs/guard, the guard tries again: AWS does not answer" in failure
    assert success == "the archive is copied to s3://logs/guard again"
    assert len(list_keys(bucket)) == 2


def test_guard_that_has_lost_its_folder_restores_the_launch_and_continues_it(bucket, tmp_path):
    path = write_launch(tmp_path / "old" / "archive", lines=5)
    assert uploads(tmp_path / "old").upload()
    bucket.put_object(Bucket="logs", Key=f"guard/{LAUNCH}/spec.json", Body=b"{}")  # `relaunch` must not start this
    path.rename(tmp_path / "gone")
    guard = uploads(tmp_path / "new")
    guard.restore(JOB)
    assert read_files(tmp_path / "new" / "archive" / LAUNCH) == read_files(tmp_path / "gone")
    folder.log_path(tmp_path / "new" / "archive" / LAUNCH, POD).write_text("changed")
    guard.restore(JOB)  # a folder that exists is newer
    assert folder.log_path(tmp_path / "new" / "archive" / LAUNCH, POD).read_text() == "changed"


def test_failed_restore_does_not_stop_the_guard(tmp_path, server, bucket, monkeypatch):
    monkeypatch.setattr(s3_archive, "ATTEMPTS", 1)
    said: list[str] = []
    server.stop()
    try:
        uploads(tmp_path, said.append).restore(JOB)
    finally:
        server.start()
    assert said == ["train: the logs in S3 of this launch are not downloaded: AWS does not answer"]


def test_only_launches_of_the_guard_are_uploaded_and_no_spec(bucket, tmp_path):
    """The folder of `kfjob guard run` is that of its user, who has other jobs."""
    path = write_launch(tmp_path / "archive")
    (path / folder.SPEC).write_text('{"env": {"DB_PASSWORD": "swordfish"}}')
    other = path.parent.parent / "mine" / path.name
    other.parent.mkdir()
    shutil.copytree(path, other)
    assert uploads(tmp_path).upload()
    assert list_keys(bucket) == [f"guard/{LAUNCH}/status.json", f"guard/{LAUNCH}/{POD}/pytorch.log"]


def test_missing_right_names_the_guide(monkeypatch, bucket, tmp_path):
    from botocore.exceptions import ClientError

    def deny(*_: Any, **__: Any) -> None:
        message = "User: arn:aws:sts::1:assumed-role/x is not authorized because no resource-based policy allows the action"
        raise ClientError({"Error": {"Code": "AccessDenied", "Message": message}}, "PutObject")

    archive = S3Archive("s3://logs")
    monkeypatch.setattr(archive._client, "upload_fileobj", deny)
    with pytest.raises(KfjobError, match="not allowed to `s3:PutObject` at `s3://logs/team/train/l1/") as caught:
        archive.upload_changes(write_launch(tmp_path), LAUNCH, {})
    assert "docs/guides/unattended.md" in str(caught.value.hint)
