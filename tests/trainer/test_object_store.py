"""Checkpoints on S3, mocked by moto's server. S3 has no rename, so the manifest makes a checkpoint visible."""

from __future__ import annotations

import io
import json
import os
from dataclasses import replace
from typing import Any

import pytest
import torch

from kfjob.base.errors import KfjobError
from kfjob.trainer.checkpoint import list_checkpoints
from kfjob.trainer.export import export
from kfjob.trainer.lease import LEASE_FILE, Lease
from kfjob.trainer.manifest import MANIFEST_FILE, DamagedError
from kfjob.trainer.metrics import OUTCOME_FILE
from kfjob.trainer.storage import open_storage
from tests.mock_s3 import MockS3
from tests.trainer.manifests import make_manifest
from tests.trainer.test_run import losses

URL = "s3://bucket/jobs/one"


@pytest.fixture(scope="module")
def store():
    """The environment variables of moto's server."""
    server = MockS3()
    yield server.environment
    server.stop()


@pytest.fixture
def bucket(store, monkeypatch, request):
    """A file system with an empty bucket."""
    from s3fs import S3FileSystem  # type: ignore[import-untyped]

    for name, value in store.items():
        monkeypatch.setenv(name, value)
    fs = S3FileSystem(skip_instance_cache=True, use_listings_cache=False)
    if fs.exists("bucket"):
        fs.rm("bucket/jobs", recursive=True) if fs.exists("bucket/jobs") else None
    else:
        fs.mkdir("bucket")
    return fs


def entries(fs: Any, *parts: str) -> list[str]:
    """Return the names in a folder of the run, without that of the outcome."""
    names = (path.rpartition("/")[2] for path in fs.ls("/".join(("bucket/jobs/one", *parts)), detail=False))
    return sorted(name for name in names if name != OUTCOME_FILE)


def test_two_ranks_save_and_one_rank_resumes(workers, tiny, store, bucket):
    spec = tiny | {"strategy": "fsdp", "checkpoint_dir": URL, "checkpoint_every": 1, "keep_last": 2}
    (plain, _) = workers.run("run_training", {"spec": spec | {"checkpoint_dir": None}}, world_size=2)
    first = workers.run("run_training", {"spec": spec, "environment": store, "stop_after": 3}, world_size=2)[0]
    assert first["outcome"]["checkpoint"] == f"{URL}/step-000003"
    assert entries(bucket) == ["step-000002", "step-000003"]
    save_folder, manifest = entries(bucket, "step-000003")
    assert manifest == MANIFEST_FILE
    assert entries(bucket, "step-000003", save_folder) == [".metadata", "__0_0.distcp", "__1_0.distcp"]
    second = workers.run("run_training", {"spec": spec, "environment": store}, world_size=2)[0]
    assert losses(first) + losses(second) == losses(plain)
    bucket.rm("bucket/jobs/one/step-000006", recursive=True)
    (single,) = workers.run("run_training", {"spec": spec | {"strategy": "none", "micro_batch_size": 8}, "environment": store})
    assert losses(single) == pytest.approx(losses(plain)[5:], abs=2e-6)


def test_checkpoint_is_exported_from_s3(workers, tiny, store, bucket, tmp_path):
    spec = tiny | {"strategy": "none", "checkpoint_dir": URL, "max_steps": 1, "full_state_dict": True}
    workers.run("run_training", {"spec": spec, "environment": store})
    assert export(URL, tmp_path / "model.pt", file_format="torch").endswith(f"tensors of step-000001 in {tmp_path}/model.pt")
    (path,) = bucket.glob("bucket/jobs/one/step-000001/*/model.pt")
    stored = torch.load(io.BytesIO(bucket.cat_file(path)), weights_only=True)
    exported = torch.load(tmp_path / "model.pt", weights_only=True)
    assert exported.keys() == stored.keys()
    assert all(torch.equal(exported[name], stored[name]) for name in stored)


def test_damaged_checkpoint_is_skipped(workers, tiny, store, bucket):
    spec = tiny | {"strategy": "none", "checkpoint_dir": URL, "checkpoint_every": 3}
    workers.run("run_training", {"spec": spec, "environment": store})
    (path,) = bucket.glob("bucket/jobs/one/step-000006/*/__0_0.distcp")
    content = bytearray(bucket.cat_file(path))
    content[5000] ^= 1
    bucket.pipe_file(path, bytes(content))
    assert workers.run("find_newest_checkpoint", {"folder": URL}) == ["step-000003"]
    assert [name[:19] for name in entries(bucket)] == ["damaged-step-000006", "step-000003"]
    bucket.rm_file("bucket/jobs/one/step-000003/manifest.json")  # as after a kill before the commit
    assert workers.run("find_newest_checkpoint", {"folder": URL}) == [None]
    open_storage(URL).prepare()
    assert [name[:7] for name in entries(bucket)] == ["damaged"]


def test_fresh_start_sets_earlier_checkpoints_aside(workers, tiny, store, bucket):
    spec = tiny | {"strategy": "none", "checkpoint_dir": URL, "checkpoint_every": 3}
    workers.run("run_training", {"spec": spec, "environment": store})
    files = sorted(path.partition("step-000003")[2] for path in bucket.find("bucket/jobs/one/step-000003"))
    assert workers.run("find_newest_checkpoint", {"folder": URL, "resume": "none"}) == [None]
    names = entries(bucket)
    assert [name[:-5] for name in names] == ["earlier-step-000003", "earlier-step-000006"]
    assert sorted(path.partition(names[0])[2] for path in bucket.find(f"bucket/jobs/one/{names[0]}")) == files


def upload_save(step, token, content):
    """Upload a save of one rank with one file, and return its storage, staging folder and manifest."""
    from kfjob.trainer.manifest import describe_file

    storage = open_storage(URL)
    staging = storage.stage(f"step-{step:06d}", token)
    (staging / "part").write_bytes(content)
    files = {"part": describe_file(staging / "part")}
    storage.upload(staging, f"step-{step:06d}", token, ["part"])
    assert not staging.exists()
    return storage, staging, make_manifest(step, files=files)


def test_second_save_is_invisible_until_its_manifest_is_written(bucket):
    storage, staging, manifest = upload_save(1, "first", b"one")
    assert storage.list_names() == []
    storage.commit(staging, "step-000001", "first", manifest)
    storage, staging, manifest = upload_save(1, "second", b"two")
    assert storage.read_manifest("step-000001").shards == "first"
    assert storage.find_damage("step-000001", storage.read_manifest("step-000001")) is None
    storage.commit(staging, "step-000001", "second", manifest)
    assert storage.read_manifest("step-000001").shards == "second"
    assert entries(bucket, "step-000001") == [MANIFEST_FILE, "second"]
    upload_save(1, "third", b"killed")
    storage.prepare()
    assert entries(bucket, "step-000001") == [MANIFEST_FILE, "second"]
    storage.delete("step-000001")
    assert storage.list_names() == []


def test_copy_from_a_folder_is_used_and_kept(bucket):
    """There the files are in the folder of the checkpoint itself."""
    storage, staging, manifest = upload_save(1, "first", b"one")
    storage.commit(staging, "step-000001", "first", manifest)
    bucket.mv("bucket/jobs/one/step-000001/first/part", "bucket/jobs/one/step-000001/part")
    bucket.pipe_file(f"bucket/jobs/one/step-000001/{MANIFEST_FILE}", manifest.to_json().encode())
    storage.prepare()
    assert storage.find_damage("step-000001", storage.read_manifest("step-000001")) is None
    assert entries(bucket, "step-000001") == [MANIFEST_FILE, "part"]


@pytest.mark.parametrize("error", [PermissionError("403"), OSError("503 Slow Down")], ids=str)
def test_manifest_that_the_store_does_not_return_is_an_error(bucket, monkeypatch, error):
    storage, staging, manifest = upload_save(1, "first", b"one")
    storage.commit(staging, "step-000001", "first", manifest)

    def fail(*_args: Any, **_options: Any) -> bytes:
        raise error

    monkeypatch.setattr(storage._fs, "cat_file", fail)
    with pytest.raises(KfjobError, match=f"cannot read `{URL}/step-000001/{MANIFEST_FILE}`"):
        list_checkpoints(storage, set_aside=True)
    storage.prepare()
    assert entries(bucket, "step-000001") == ["first", MANIFEST_FILE]


@pytest.mark.parametrize(
    ("kind", "limit"), [("manifest", "MAX_DOCUMENT_BYTES"), ("file", "MAX_FILE"), ("content", "MAX_CONTENT")]
)
def test_object_is_read_within_a_limit(bucket, monkeypatch, kind, limit):
    """Its size is not trusted: the object can grow between two requests."""
    storage, staging, manifest = upload_save(1, "first", b"x" * 3000)
    storage.commit(staging, "step-000001", "first", replace(manifest, run_id="x" * 3000))
    storage.write_file(LEASE_FILE, "x" * 3000, overwrite=True)
    monkeypatch.setattr(storage._fs, "info", lambda path, **_options: {"name": path, "size": 1, "type": "file"})
    monkeypatch.setattr(f"kfjob.trainer.storage.object_store.{limit}", 1000, raising=False)
    reads = {
        "manifest": lambda: storage.read_manifest("step-000001"),
        "file": lambda: storage.read_file(LEASE_FILE),
        "content": lambda: storage.read_bytes("step-000001", replace(manifest, shards="first"), "part"),
    }
    received: list[bytes] = []
    original = storage._fs.cat_file

    def record(*args: Any, **options: Any) -> bytes:
        received.append(original(*args, **options))
        return received[-1]

    monkeypatch.setattr(storage._fs, "cat_file", record)
    with pytest.raises(KfjobError) as caught:
        reads[kind]()
    assert "is larger than" in str(caught.value)
    assert [len(content) for content in received] == [1001]


def test_empty_objects_are_read(bucket):
    storage, staging, manifest = upload_save(1, "first", b"")
    storage.commit(staging, "step-000001", "first", manifest)
    assert storage.read_bytes("step-000001", replace(manifest, shards="first"), "part") == b""
    storage.write_file("outcome.json", "", overwrite=True)
    assert storage.read_file("outcome.json") == ""
    assert storage.read_file("missing.json") is None
    bucket.pipe_file(f"bucket/jobs/one/step-000001/{MANIFEST_FILE}", b"")
    with pytest.raises(DamagedError, match="no readable manifest"):
        storage.read_manifest("step-000001")


def test_incomplete_upload_is_not_committed(bucket):
    storage, staging, manifest = upload_save(1, "first", b"one")
    bucket.pipe_file("bucket/jobs/one/step-000001/first/part", b"on")
    with pytest.raises(KfjobError, match="lacks an uploaded file: part"):
        storage.commit(staging, "step-000001", "first", manifest)
    assert storage.list_names() == []


def test_outcome_is_stored_next_to_the_checkpoints(bucket):
    storage = open_storage(URL)
    assert storage.write_file("outcome.json", json.dumps({"outcome": "failed"}), overwrite=False)
    assert not storage.write_file("outcome.json", "{}", overwrite=False)
    assert storage.write_file("outcome.json", json.dumps({"outcome": "finished"}), overwrite=True)
    assert json.loads(bucket.cat_file("bucket/jobs/one/outcome.json")) == {"outcome": "finished"}
    storage.remove_file("outcome.json")
    storage.remove_file("outcome.json")
    assert not bucket.exists("bucket/jobs/one/outcome.json")


def test_missing_bucket_and_unknown_protocol_are_errors(bucket):
    with pytest.raises(KfjobError, match="cannot write to `s3://no-such-bucket/x`"):
        open_storage("s3://no-such-bucket/x").write_file("outcome.json", "{}", overwrite=True)
    with pytest.raises(KfjobError, match="cannot use `nothing://x`"):
        open_storage("nothing://x").prepare()


def test_store_is_proved_before_the_first_step(workers, tiny, store, bucket):
    spec = tiny | {"strategy": "none", "checkpoint_dir": "s3://no-such-bucket/x"}
    (message,) = workers.run("error_of_training", {"spec": spec, "environment": store})
    assert "error: cannot write to `s3://no-such-bucket/x`\n  --> checkpoint_dir\n  cause: " in message
    storage = open_storage(URL)
    storage.probe(".probe-1")
    assert bucket.size("bucket/jobs/one/.probe-1") > 5 * 2**20  # in parts
    storage.prepare()
    assert storage.list_files("") == []


def test_lease_on_a_store(bucket):
    first, second = Lease(open_storage(URL), "run-1", os.getpid()), Lease(open_storage(URL), "run-2", os.getpid())
    first.acquire()
    with pytest.raises(KfjobError, match="another job writes to"):
        second.acquire()
    first.release()
    second.acquire()
    second.release()
    assert not bucket.exists(f"bucket/jobs/one/{LEASE_FILE}")
