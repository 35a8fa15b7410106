"""The storage of checkpoints: it is proved before the first step, belongs to one job, and survives a full disk."""

from __future__ import annotations

import errno
import json
import os
import re
import signal
import stat
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from kfjob.base.errors import KfjobError
from kfjob.trainer import lease as lease_module
from kfjob.trainer.__main__ import main
from kfjob.trainer.lease import LEASE_FILE, PATIENCE_SECONDS, Lease, LostLeaseError
from kfjob.trainer.metrics import OUTCOME_FILE
from kfjob.trainer.pins import delete_unless_pinned, pin
from kfjob.trainer.process_identity import identify_process
from kfjob.trainer.storage import open_storage
from kfjob.trainer.storage.staging import close_folder, open_folder
from kfjob.trainspec.command_line import to_argv
from kfjob.trainspec.train_spec import TrainSpec
from tests.trainer.forked import Program
from tests.trainer.manifests import make_manifest


@pytest.fixture
def storage(tmp_path):
    return open_storage(str(tmp_path / "c"))


def write_lease(storage, process, run_id="other"):
    """Write the lease of another job, and return its text."""
    lease = Lease(storage, run_id, os.getpid())
    lease._owner = replace(lease._owner, process=process)
    lease._write(overwrite=True)
    return storage.read_file(LEASE_FILE)


def make_lease(storage, run_id, on_tick=lambda _: None):
    """Return a lease that does not sleep between two looks, and its clock, which goes on by a second with each."""
    ticks = iter(range(100))

    def clock():
        tick = next(ticks)
        on_tick(tick)
        return float(tick)

    lease = Lease(storage, run_id, os.getpid(), clock=clock)
    lease._ended.set()
    return lease, ticks


@pytest.fixture
def ended():
    """The identity of a process that has ended."""
    process = subprocess.Popen(["sleep", "60"])
    identity = identify_process(process.pid)
    states: list[str] = [identity.state]
    process.kill()
    process.wait()
    states.append(identity.state)
    assert states == ["running", "gone"]
    return identity


def test_second_job_on_a_folder_is_refused(workers, tiny, storage):
    lease = Lease(storage, "run-1", os.getpid())
    lease.acquire()
    spec = tiny | {"strategy": "ddp", "micro_batch_size": 2, "checkpoint_dir": storage.location, "max_steps": 1}
    messages = workers.run("error_of_training", {"spec": spec}, world_size=2)
    assert (
        f"error: another job writes to `{storage.location}`\n  --> checkpoint_dir\n  cause: its lease.json belongs to run run-1"
        in messages[0]
    )
    assert f"process {os.getpid()} on " in messages[0]
    lease.release()
    workers.run("run_training", {"spec": spec}, world_size=2)
    assert storage.read_file(LEASE_FILE) is None


def test_lease_of_a_process_that_has_ended_is_taken_over(storage, ended):
    write_lease(storage, ended)
    Lease(storage, "run-2", os.getpid()).acquire(patience=1e9)


def test_lease_of_the_same_launch_on_another_machine_is_taken_over(storage, ended):
    """torchrun has ended all ranks of a launch before it restarts them, also those on other machines."""
    write_lease(storage, replace(ended, machine="another"), run_id="run-1")
    Lease(storage, "run-1", os.getpid()).acquire(patience=1e9)
    with pytest.raises(KfjobError, match="another job writes to"):
        Lease(storage, "", os.getpid()).acquire(patience=1e9)


def test_living_job_with_the_same_launch_id_keeps_its_lease(storage):
    text = write_lease(storage, identify_process(os.getpid()), run_id="run-1")
    second, _ = make_lease(storage, "run-1")
    with pytest.raises(KfjobError, match="another job writes to"):
        second.acquire(patience=5)
    assert storage.read_file(LEASE_FILE) == text


def test_restart_waits_for_the_end_of_a_rank_that_its_killed_agent_left(storage):
    with subprocess.Popen(["sleep", "60"]) as process:
        write_lease(storage, identify_process(process.pid), run_id="run-1")

        def end_rank(tick):
            if tick == 4:
                process.kill()
                process.wait()

        lease, ticks = make_lease(storage, "run-1", end_rank)
        lease.acquire(patience=50)
        assert next(ticks) < 10


@pytest.mark.parametrize("renewed", [False, True])
def test_lease_of_another_machine_is_taken_over_without_renewals(storage, ended, renewed):
    text = write_lease(storage, replace(ended, machine="another"))

    def renew(tick):
        if renewed and tick == 4:
            storage.write_file(LEASE_FILE, text.replace('"renewals": 0', '"renewals": 1'), overwrite=True)

    lease, ticks = make_lease(storage, "run-2", renew)
    if renewed:
        with pytest.raises(KfjobError, match="another job writes to"):
            lease.acquire(patience=5)
    else:
        lease.acquire(patience=5)
        assert next(ticks) >= 5


@pytest.mark.parametrize("text", ["", "{", "[]", '{"token": 1}'])
def test_unreadable_lease_counts_as_one_of_another_machine(storage, text):
    storage.write_file(LEASE_FILE, text, overwrite=True)
    lease, ticks = make_lease(storage, "run-2")
    lease.acquire(patience=5)
    assert next(ticks) >= 5


def test_lost_lease_prevents_a_commit(storage):
    first, second = Lease(storage, "run-1", os.getpid()), Lease(storage, "run-1", os.getpid())
    first.acquire()
    first.check()
    storage.remove_file(LEASE_FILE)
    second.acquire()
    with pytest.raises(KfjobError, match="another job writes to"):
        first.check()
    first.release()  # keeps the lease of the second
    second.check()


def test_released_lease_of_a_successor_is_lost(storage, monkeypatch):
    """The successor took over while the first job was stopped, and has ended since."""
    monkeypatch.setattr(lease_module, "RENEWAL", 0.001)
    first, second = Lease(storage, "run-1", os.getpid()), Lease(storage, "run-1", os.getpid())
    first.acquire()
    storage.remove_file(LEASE_FILE)
    second.acquire()
    second.release()
    with pytest.raises(LostLeaseError, match="may no longer write to") as raised:
        first.check()
    assert raised.value.cause == "its lease.json is gone, so another job may have used it"
    first.renew_until_release()  # ends, and writes nothing
    assert storage.read_file(LEASE_FILE) is None


def test_take_over_while_the_storage_is_prepared_is_reported_as_such(workers, tmp_path):
    (message,) = workers.run("prepare_without_lease", {"folder": str(tmp_path / "c")})
    assert f"error: this run may no longer write to `{tmp_path}/c`" in message
    assert "do not share" not in message


@pytest.mark.parametrize("late_renewal", [False, True])
def test_lease_that_was_not_renewed_in_time_is_lost(storage, late_renewal):
    now = 0.0
    lease = Lease(storage, "run-1", os.getpid(), clock=lambda: now)
    lease.acquire()
    now = PATIENCE_SECONDS
    lease.check()
    now += 1
    if late_renewal:  # the job was stopped between the check and the write of a renewal
        lease._renew()
    with pytest.raises(LostLeaseError, match="may no longer write to") as raised:
        lease.check()
    assert "was not renewed for 31 s" in str(raised.value.cause)


@pytest.mark.parametrize(("on_save_error", "ranks"), [("stop", 1), ("continue", 1), ("continue", 2)])
def test_run_that_lost_its_lease_writes_no_checkpoint_and_fails(workers, tiny, tmp_path, on_save_error, ranks):
    spec = tiny | {"strategy": "ddp", "checkpoint_dir": str(tmp_path / "c"), "checkpoint_every": 1}
    arguments = {"spec": spec | {"on_save_error": on_save_error}, "folder": str(tmp_path / "c"), "at": 2}
    message, *others = workers.run("lose_lease_while_training", arguments, world_size=ranks)
    assert f"error: this run may no longer write to `{tmp_path}/c`\n  --> checkpoint_dir" in message
    assert others == ["error: rank 0 reports an error"] * (ranks - 1)
    assert not (tmp_path / "c" / "outcome.json").exists()  # it may be another run's folder by now
    assert [path.name for path in (tmp_path / "c").glob("*step*")] == ["step-000001"]


@pytest.mark.usefixtures("in_process")
def test_refused_job_records_no_outcome_in_the_folder_of_another(storage, tiny, capsys):
    lease = Lease(storage, "run-1", os.getpid())
    lease.acquire()
    arguments = to_argv(TrainSpec(**tiny | {"strategy": "none", "checkpoint_dir": storage.location, "data": "/nowhere"}))
    assert main(arguments) == 1
    assert 'Outcome failed step none loss none checkpoint none reason "another job writes to' in capsys.readouterr().out
    assert storage.read_file(OUTCOME_FILE) is None
    lease.check()


def test_take_over_during_a_save_is_reported_as_such(workers, tiny, tmp_path):
    spec = tiny | {"strategy": "none", "checkpoint_dir": str(tmp_path / "c"), "checkpoint_every": 1}
    (message,) = workers.run("lose_lease_while_training", {"spec": spec, "folder": str(tmp_path / "c"), "at": 0})
    assert f"error: this run may no longer write to `{tmp_path}/c`\n  --> checkpoint_dir" in message


@pytest.mark.parametrize("kind", ["fifo", "huge"])
def test_lease_that_is_no_small_file_is_an_error(storage, kind):
    storage.create()
    path = storage.path / LEASE_FILE
    if kind == "fifo":
        os.mkfifo(path)
    else:
        path.touch()
        os.truncate(path, 40 * 2**30)
    with pytest.raises(KfjobError, match=r"cannot read `.*lease\.json`") as raised:
        Lease(storage, "run-1", os.getpid()).acquire()
    assert raised.value.hint == "remove it if no job uses this folder"


def test_of_many_jobs_one_gets_the_lease(storage):
    winners, barrier = [], threading.Barrier(8)

    def acquire(number):
        lease = Lease(storage, f"run-{number}", os.getpid())
        barrier.wait()
        try:
            lease.acquire()
        except KfjobError:
            return
        winners.append(number)

    threads = [threading.Thread(target=acquire, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(winners) == 1


def test_lease_is_renewed(storage, monkeypatch):
    monkeypatch.setattr(lease_module, "RENEWAL", 0.001)
    lease = Lease(storage, "run-1", os.getpid())
    lease.acquire()
    thread = threading.Thread(target=lease.renew_until_release)
    thread.start()
    while json.loads(storage.read_file(LEASE_FILE))["renewals"] < 3:
        assert thread.is_alive()
    lease.release()
    thread.join()
    assert storage.list_files(LEASE_FILE) == []


def make_checkpoint(storage, name):
    (storage.path / name).mkdir(parents=True)


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_storage_that_cannot_flush_is_refused(storage, monkeypatch, kind):
    fsync = os.fsync

    def refuse(descriptor):
        if stat.S_ISDIR(os.fstat(descriptor).st_mode) == (kind == "folder"):
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        fsync(descriptor)

    storage.create()
    monkeypatch.setattr(os, "fsync", refuse)
    with pytest.raises(KfjobError, match="cannot write to") as raised:
        storage.probe(".probe-1-0")
    assert "Invalid argument" in str(raised.value.cause)


def test_retention_keeps_a_pinned_checkpoint(storage, ended):
    make_checkpoint(storage, "step-000001")
    with pin(storage, "step-000001"):
        delete_unless_pinned(storage, "step-000001")
        assert storage.list_names() == ["step-000001"]
        assert storage.list_files(".deleting-") == []
    content = {"time": 0, "process": vars(ended)}
    storage.write_file(".pin-step-000001-dead", json.dumps(content), overwrite=True)
    storage.write_file(
        ".pin-step-000001-old", json.dumps(content | {"process": vars(replace(ended, machine="x"))}), overwrite=True
    )
    delete_unless_pinned(storage, "step-000001")
    assert list(storage.path.iterdir()) == []


def test_checkpoint_that_is_being_deleted_cannot_be_pinned(storage):
    make_checkpoint(storage, "step-000001")
    storage.write_file(".deleting-step-000001", "", overwrite=True)
    with pytest.raises(KfjobError, match="step-000001` is being deleted"), pin(storage, "step-000001"):
        pass
    assert storage.list_files(".pin-") == []


def test_export_pins_its_checkpoint(workers, tiny, tmp_path, monkeypatch):
    from kfjob.trainer import export

    spec = tiny | {"strategy": "none", "checkpoint_dir": str(tmp_path / "c"), "max_steps": 1}
    workers.run("run_training", {"spec": spec})
    storage, read_weights = open_storage(str(tmp_path / "c")), export._read_weights

    def delete_then_read(source, model, **kwargs):
        delete_unless_pinned(storage, "step-000001")
        return read_weights(source, model, **kwargs)

    monkeypatch.setattr(export, "_read_weights", delete_then_read)
    assert export.export(storage.location, tmp_path / "model.pt", file_format="torch")
    delete_unless_pinned(storage, "step-000001")
    assert storage.list_names() == []


def test_resume_pins_the_checkpoint_of_another_folder(workers, tiny, tmp_path):
    spec = tiny | {"strategy": "ddp", "micro_batch_size": 2, "max_steps": 2}
    workers.run("run_training", {"spec": spec | {"checkpoint_dir": str(tmp_path / "c"), "max_steps": 1}}, world_size=2)
    arguments = {"spec": spec | {"resume": str(tmp_path / "c" / "step-000001")}, "folder": str(tmp_path / "c")}
    assert workers.run("delete_while_resuming", arguments, world_size=2) == [2, 2]
    assert [path.name for path in (tmp_path / "c").glob("*step*")] == ["step-000001"]


def test_resume_releases_the_checkpoint_of_another_folder_once_it_is_loaded(workers, tiny, tmp_path):
    """A run of weeks must not keep a checkpoint that it does not read any more."""
    spec = tiny | {"strategy": "none", "max_steps": 2}
    workers.run("run_training", {"spec": spec | {"checkpoint_dir": str(tmp_path / "c"), "max_steps": 1}})
    arguments = {"spec": spec | {"resume": str(tmp_path / "c" / "step-000001")}, "folder": str(tmp_path / "c")}
    assert workers.run("delete_after_resuming", arguments) == [[]]


def test_folder_that_the_ranks_do_not_share_is_an_error_at_the_start(workers, tmp_path):
    messages = workers.run("prepare_different_folders", {"folder": str(tmp_path)}, world_size=2)
    assert f"error: the ranks do not share `{tmp_path}/0`: .probe-" in messages[0]
    assert [list((tmp_path / str(rank)).iterdir()) for rank in range(2)] == [[], []]


def test_staging_folders_of_killed_processes_are_removed(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    program = (
        "import os, signal; from kfjob.trainer.storage.staging import open_folder\n"
        "(open_folder('step-1') / 'part').write_text('x'); os.kill(os.getpid(), signal.SIGKILL)"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False, env=os.environ).returncode == -signal.SIGKILL
    (parent,) = tmp_path.iterdir()
    assert len(list(parent.glob("step-1*/files/part"))) == 1
    first = open_folder("step-2")
    second = open_folder("step-3")  # the folders of living processes stay
    assert sorted(path.name[:6] for path in parent.iterdir() if path.is_dir()) == ["step-2", "step-3"]
    close_folder(first)
    close_folder(second)
    assert [path.name for path in parent.iterdir()] == ["lock"]


ON_A_SMALL_DISK = """
import ctypes, os, subprocess, sys
from kfjob.trainer.__main__ import main

folder, *arguments = sys.argv[1:]
assert ctypes.CDLL(None).unshare(0x00020000) == 0  # CLONE_NEWNS: only this process sees the mount
for mount in (["--make-rprivate", "/"], ["-t", "tmpfs", "-o", "size=1m", "tmpfs", folder]):
    subprocess.run(["mount", *mount], check=True)
code = main(arguments)
print(*sorted(os.listdir(f"{folder}/c")), sep="\\n", flush=True)
os._exit(code)
"""


@pytest.mark.parametrize("on_save_error", ["stop", pytest.param("continue", marks=pytest.mark.long)])
def test_full_disk(tiny, tmp_path, on_save_error):
    """The disk has room for one checkpoint."""
    folder = tmp_path / "disk"
    folder.mkdir()
    spec = tiny | {"strategy": "none", "max_steps": 3, "checkpoint_every": 1, "checkpoint_dir": str(folder / "c")}
    spec |= {"on_save_error": on_save_error}
    program = Program(ON_A_SMALL_DISK, str(folder), *to_argv(TrainSpec(**spec)), errors=tmp_path / "errors")
    output, errors = program.communicate(timeout=120), (tmp_path / "errors").read_text()
    assert program.returncode == 1, output + errors
    assert f"error: no space left in `{folder}/c`\n  --> checkpoint_dir\n  cause: " in errors
    assert "hint: delete files there, or use a larger volume" in errors
    assert "] Checkpoint step-000001 in " in output
    assert re.search(rf"Outcome failed step 3 loss \d\.\d{{5}} checkpoint {folder}/c/step-000001 reason ", output)
    lines = output.splitlines()
    assert lines[-1] == "step-000001" or lines[-2:] == ["outcome.json", "step-000001"]  # nothing else uses space
    failures = [line.rpartition("] ")[2] for line in lines if " not written: " in line]
    if on_save_error == "continue":
        assert failures == [f"Checkpoint step-00000{step} not written: no space left in `{folder}/c`" for step in (2, 3)]
        assert "Batch 3 Loss" in output
    else:
        assert failures == []


@pytest.mark.parametrize("asynchronous", [False, True])
def test_run_fails_if_its_last_save_fails(workers, tiny, tmp_path, asynchronous):
    """`on_save_error: continue` lets the training go on, but a run without its last checkpoint has not succeeded."""
    spec = tiny | {"strategy": "none", "max_steps": 2, "checkpoint_every": 1, "checkpoint_dir": str(tmp_path / "c")}
    spec |= {"on_save_error": "continue", "async_checkpoint": asynchronous}
    arguments = {"spec": spec, "function": "describe_file", "at": 3}  # of a rank's two files
    assert workers.run("train_with_failing", arguments) == [["failed", "describe_file failed"]]
    assert [path.name for path in (tmp_path / "c").glob("*step*")] == ["step-000001"]
    assert json.loads((tmp_path / "c" / OUTCOME_FILE).read_text())["reason"] == "describe_file failed"


def test_checkpoint_that_cannot_be_deleted_does_not_end_the_run(workers, tiny, tmp_path):
    spec = tiny | {"strategy": "none", "max_steps": 3, "checkpoint_every": 1, "keep_last": 1, "on_save_error": "stop"}
    arguments = {"spec": spec | {"checkpoint_dir": str(tmp_path / "c")}, "function": "delete_unless_pinned", "at": 1}
    assert workers.run("train_with_failing", arguments) == [["finished", ""]]
    assert "Old checkpoints not deleted: delete_unless_pinned failed" in workers.log()
    assert len(list((tmp_path / "c").glob("step-*"))) == 3


def test_failed_replacement_restores_the_checkpoint(storage, monkeypatch):
    make_checkpoint(storage, "step-000001")
    staging = storage.stage("step-000001", "x")
    (staging / "new").touch()
    rename = Path.rename
    monkeypatch.setattr(Path, "rename", lambda path, target: fail_to_rename() if path == staging else rename(path, target))
    with pytest.raises(KfjobError, match="cannot write to"):
        storage.commit(staging, "step-000001", "x", make_manifest(1))
    assert storage.list_names() == ["step-000001"]
    assert not (storage.path / "step-000001" / "new").exists()


def fail_to_rename():
    raise OSError(errno.EIO, os.strerror(errno.EIO))
