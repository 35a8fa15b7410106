"""`kfjob archive`: one file without secrets, with the verdict of the live job; and files that attack their reader."""

from __future__ import annotations

import gzip
import io
import json
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from kfjob.backends import bundle
from kfjob.joblog.events import Event, JobPhase, LogLine, PodPhase
from kfjob.spec.job import JobSpec
from tests.fakes.backend import FakeBackend
from tests.unit.api import script
from tests.unit.api.conftest import Shell

SECRET = "kf-hunter2-9431"  # noqa: S105 - of the test


def pack(file: Path, *members: tarfile.TarInfo, data: bytes = b"") -> Path:
    with tarfile.open(file, "w:gz") as tar:
        for member in members:
            tar.addfile(member, io.BytesIO(data[: member.size]))
    return file


def member(name: str, **fields: object) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    for field, value in fields.items():
        setattr(info, field, value)
    return info


@pytest.mark.parametrize("events", [script.TRAINING, script.SUCCEEDED, script.FAILED])
def test_bundle_gives_the_verdict_of_the_live_job(fake: FakeBackend, kfjob: Shell, here: Path, events: tuple[Event, ...]):
    fake.play("train", *events, spec=script.SPEC)
    assert kfjob("archive", "train", "-o", "train.tar.gz") == 0
    assert kfjob.out == "train.tar.gz\n"

    def ask(*argv: str) -> dict[str, object]:
        kfjob("diagnose", *argv, "-o", "json")
        answer = json.loads(kfjob.out)
        return {key: value for key, value in answer.items() if key not in ("silence", "warnings", "consequences")}  # with times

    assert ask("--from", "train.tar.gz") == ask("train")
    kfjob("status", "train", "-o", "json")
    phase = json.loads(kfjob.out)["phase"]
    for command in ("status", "logs", "report -o page.html", "diagnose", "master"):
        assert kfjob(*command.split(), "--from", "train.tar.gz") in (0, 100), command
    kfjob("status", "--from", "train.tar.gz", "-o", "json")
    assert json.loads(kfjob.out)["phase"] == phase


def test_bundle_has_a_name_that_from_knows(fake: FakeBackend, kfjob: Shell, here: Path):
    fake.play("train", *script.TRAINING, spec=script.SPEC)
    assert kfjob("archive", "train", "-o", "train.zip") == 2
    assert "`train.zip` does not end with .tar.gz or .tgz" in kfjob.err
    assert not list(here.glob("train*"))


def test_bundle_has_no_secret_and_only_its_owner_reads_it(fake: FakeBackend, kfjob: Shell, here: Path):
    spec = JobSpec.model_validate(
        {"name": "train", "image": "a:1", "nodes": 2, "command": ["torchrun", "train.py"], "env": {"HF_TOKEN": SECRET}}
    )
    events = (*script.TRAINING, script.line(0, f"token={SECRET}", 90))
    fake.play("train", *events, spec=spec.model_dump_json(exclude_defaults=True))
    assert kfjob("archive", "train") == 0
    file = Path(kfjob.out.strip())
    assert file.name == "train-l1.tar.gz"
    assert file.stat().st_mode & 0o777 == 0o600
    with tarfile.open(file) as tar:
        texts = {entry.name: (content.read() if (content := tar.extractfile(entry)) else b"") for entry in tar}
    assert {"train-l1/spec.json", "train-l1/status.json", "train-l1/train-worker-0/pytorch.log"} <= texts.keys()
    assert not [name for name, text in texts.items() if SECRET.encode() in text]
    assert kfjob("archive", "train") == 0, "a file of this name is replaced"


def test_bundle_of_a_running_job_keeps_its_time(fake: FakeBackend, kfjob: Shell, here: Path, monkeypatch: pytest.MonkeyPatch):
    start = script.START + 60 * 10**9
    fake.play("train", *script.TRAINING, spec=script.SPEC)
    monkeypatch.setattr("time.time_ns", lambda: start)
    kfjob("archive", "train", "-o", "b.tgz")
    monkeypatch.setattr("time.time_ns", lambda: start + 10**18)
    kfjob("status", "--from", "b.tgz")
    assert kfjob.out.splitlines()[1].split() == ["train", "Running", "1m00s"]


def test_pods_without_a_log_are_named(fake: FakeBackend, kfjob: Shell, here: Path):
    events = [event for event in script.TRAINING if not (isinstance(event, LogLine) and event.pod == "train-worker-0")]
    fake.play("train", *events, spec=script.SPEC)
    assert kfjob("archive", "train", "-o", "b.tgz") == 0
    assert "not in the file, because they have no log: `train-worker-0`" in kfjob.err
    kfjob("status", "--from", "b.tgz")
    assert "left out: the log of pod `train-worker-0` (not in the archive)" in kfjob.err


def test_archive_of_a_stopped_job_is_bundled(fake: FakeBackend, kfjob: Shell, here: Path):
    end = (script.pod(0, PodPhase.SUCCEEDED, exit_code=0), script.job(JobPhase.SUCCEEDED, ended=script.START + 9))
    fake.play("train", script.line(0, "hello", 1), *end)
    assert kfjob("stop", "train") == 0
    assert kfjob("archive", "train", "-o", "b.tgz") == 0
    assert kfjob("logs", "--from", "b.tgz", "-o", "raw") == 0
    assert kfjob.out == "hello\n"


def test_tar_of_logs_that_others_made_is_read(kfjob: Shell, here: Path):
    pack(here / "logs.tgz", member("logs/train-worker-0.log", size=6), data=b"hello\n")
    assert kfjob("logs", "--from", "logs.tgz", "-o", "raw") == 0
    assert kfjob.out == "hello\n"


HOSTILE: dict[str, Callable[[Path], object]] = {
    "a path out of the folder": lambda file: pack(file, member("../out.log", size=1), data=b"x"),
    "a symbolic link": lambda file: pack(file, member("a/x.log", type=tarfile.SYMTYPE, linkname="/etc/passwd")),
    "a hard link": lambda file: pack(file, member("a/x.log", type=tarfile.LNKTYPE, linkname="/etc/passwd")),
    "a device": lambda file: pack(file, member("a/x.log", type=tarfile.CHRTYPE)),
    "a FIFO": lambda file: pack(file, member("a/x.log", type=tarfile.FIFOTYPE)),
    "a size beyond the limit": lambda file: pack_text(file, member("a/x.log", size=5 << 40).tobuf(tarfile.GNU_FORMAT)),
    "a header beyond the limit": lambda file: pack_text(
        file, member("h", type=tarfile.XHDTYPE, size=64 << 20).tobuf() + b"0" * (64 << 20)
    ),
    "a cut file": lambda file: file.write_bytes(pack(file, member("a/x.log", size=9), data=b"123456789").read_bytes()[:60]),
    "text": lambda file: file.write_text("step 1 loss 2"),
    "nothing": lambda file: file.write_bytes(b""),
}


def pack_text(file: Path, data: bytes) -> None:
    file.write_bytes(gzip.compress(data, 1))


@pytest.mark.parametrize("kind", HOSTILE)
def test_hostile_file_is_an_error_and_writes_nothing(kfjob: Shell, here: Path, kind: str):
    HOSTILE[kind](here / "bad.tar.gz")
    before = sorted(here.rglob("*"))
    assert kfjob("status", "--from", "bad.tar.gz") == 2
    assert "`bad.tar.gz` cannot be unpacked" in kfjob.err
    assert sorted(here.rglob("*")) == before


def test_number_of_files_is_limited(kfjob: Shell, here: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(bundle, "MAX_FILES", 2)
    pack(here / "many.tar.gz", *(member(f"a/{number}.log") for number in range(3)))
    assert kfjob("status", "--from", "many.tar.gz") == 2
    assert "more than 2 files" in kfjob.err
