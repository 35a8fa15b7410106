"""`kfjob archive`: one file without secrets, with the verdict of the live job; and files that attack their reader."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from kfjob.backends import bundle
from kfjob.joblog.events import Event, JobPhase, LogLine, PodPhase
from tests.fakes.backend import FakeBackend
from tests.unit.api import script
from tests.unit.api.conftest import Shell

SECRET = "kf-hunter2-9431"  # noqa: S105 - of the test


def pack(file: Path, *members: str | zipfile.ZipInfo, data: bytes = b"x", compression: int = zipfile.ZIP_DEFLATED) -> Path:
    with zipfile.ZipFile(file, "w", compression) as bundle:
        for member in members:
            bundle.writestr(member, data)
    return file


def change(file: Path, old: bytes, new: bytes) -> int:
    """Replace bytes of a packed file."""
    content = file.read_bytes()
    assert old in content
    return file.write_bytes(content.replace(old, new))


@pytest.mark.parametrize("events", [script.TRAINING, script.SUCCEEDED, script.FAILED])
def test_bundle_gives_the_verdict_of_the_live_job(fake: FakeBackend, kfjob: Shell, here: Path, events: tuple[Event, ...]):
    fake.play("train", *events, spec=script.SPEC)
    assert kfjob("archive", "train", "-o", "train.zip") == 0
    assert kfjob.out == "train.zip\n"

    def ask(*argv: str) -> dict[str, object]:
        kfjob("diagnose", *argv, "-o", "json")
        answer = json.loads(kfjob.out)
        return {key: value for key, value in answer.items() if key not in ("silence", "warnings", "consequences")}  # with times

    assert ask("--from", "train.zip") == ask("train")
    kfjob("status", "train", "-o", "json")
    phase = json.loads(kfjob.out)["phase"]
    for command in ("status", "logs", "report -o page.html", "diagnose", "master"):
        assert kfjob(*command.split(), "--from", "train.zip") in (0, 100), command
    kfjob("status", "--from", "train.zip", "-o", "json")
    assert json.loads(kfjob.out)["phase"] == phase


def test_bundle_has_a_name_that_from_knows(fake: FakeBackend, kfjob: Shell, here: Path):
    fake.play("train", *script.TRAINING, spec=script.SPEC)
    assert kfjob("archive", "train", "-o", "train.txt") == 2
    assert "`train.txt` does not end with `.zip`" in kfjob.err
    assert not list(here.glob("train*"))


def test_bundle_has_no_secret_and_only_its_owner_reads_it(fake: FakeBackend, kfjob: Shell, here: Path):
    spec = json.loads(script.SPEC) | {"env": {"HF_TOKEN": SECRET}, "labels": {"api-token": SECRET}}
    events = (*script.TRAINING, script.line(0, f"token={SECRET}", 90))
    fake.play("train", *events, spec=json.dumps(spec))
    assert kfjob("archive", "train") == 0
    file = Path(kfjob.out.strip())
    assert file.name == "train-l1.zip"
    assert file.stat().st_mode & 0o777 == 0o600
    with zipfile.ZipFile(file) as packed:
        texts = {name: packed.read(name) for name in packed.namelist()}
    assert {"train-l1/spec.json", "train-l1/status.json", "train-l1/train-worker-0/pytorch.log"} <= texts.keys()
    assert not [name for name, text in texts.items() if SECRET.encode() in text]
    assert kfjob("archive", "train") == 0, "a file of this name is replaced"


def test_bundle_of_a_running_job_keeps_its_time(fake: FakeBackend, kfjob: Shell, here: Path, monkeypatch: pytest.MonkeyPatch):
    start = script.START + 60 * 10**9
    fake.play("train", *script.TRAINING, spec=script.SPEC)
    monkeypatch.setattr("time.time_ns", lambda: start)
    kfjob("archive", "train", "-o", "b.zip")
    monkeypatch.setattr("time.time_ns", lambda: start + 10**18)
    kfjob("status", "--from", "b.zip")
    assert kfjob.out.splitlines()[1].split() == ["train", "Running", "1m00s"]


def test_pods_without_a_log_are_named(fake: FakeBackend, kfjob: Shell, here: Path):
    events = [event for event in script.TRAINING if not (isinstance(event, LogLine) and event.pod == "train-worker-0")]
    fake.play("train", *events, spec=script.SPEC)
    assert kfjob("archive", "train", "-o", "b.zip") == 0
    assert "not in the file, because they have no log: `train-worker-0`" in kfjob.err
    kfjob("status", "--from", "b.zip")
    assert "left out: the log of pod `train-worker-0` (not in the archive)" in kfjob.err


def test_archive_of_a_stopped_job_is_bundled(fake: FakeBackend, kfjob: Shell, here: Path):
    end = (script.pod(0, PodPhase.SUCCEEDED, exit_code=0), script.job(JobPhase.SUCCEEDED, ended=script.START + 9))
    fake.play("train", script.line(0, "hello", 1), *end)
    assert kfjob("stop", "train") == 0
    assert kfjob("archive", "train", "-o", "b.zip") == 0
    assert kfjob("logs", "--from", "b.zip", "-o", "raw") == 0
    assert kfjob.out == "hello\n"


def test_logs_that_others_packed_are_read(kfjob: Shell, here: Path):
    pack(here / "logs.zip", "logs/train-worker-0.log", data=b"hello\n")
    assert kfjob("logs", "--from", "logs.zip", "-o", "raw") == 0
    assert kfjob.out == "hello\n"


HOSTILE: dict[str, Callable[[Path], object]] = {
    "a path out of the folder": lambda file: pack(file, "../out.log"),
    "an absolute path": lambda file: pack(file, "/tmp/out.log"),
    "a hidden file": lambda file: pack(file, "a/.bashrc"),
    "a deep path": lambda file: pack(file, "a/b/c/d.log"),
    "one name twice": lambda file: (pack(file, "a/x.log", "a/y.log"), change(file, b"y.log", b"x.log")),
    "a file that is a folder too": lambda file: pack(file, "a/x", "a/x/y.log"),
    "another compression": lambda file: pack(file, "a/x.log", compression=zipfile.ZIP_LZMA),
    "a bomb": lambda file: pack(file, "a/x.log", data=bytes(3 << 20)),
    "a cut file": lambda file: file.write_bytes(pack(file, "a/x.log", data=bytes(999)).read_bytes()[:60]),
    "text": lambda file: file.write_text("step 1 loss 2"),
    "nothing": lambda file: file.write_bytes(b""),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_hostile_file_is_an_error_and_writes_nothing(kfjob: Shell, here: Path, kind: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(bundle, "MAX_UNPACKED_BYTES", 2 << 20)
    HOSTILE[kind](here / "bad.zip")
    before = sorted(here.rglob("*"))
    assert kfjob("status", "--from", "bad.zip") == 2
    assert "`bad.zip` cannot be unpacked" in kfjob.err
    assert sorted(here.rglob("*")) == before


def test_number_of_files_is_limited(kfjob: Shell, here: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(bundle, "MAX_FILES", 2)
    pack(here / "many.zip", *(f"a/{number}.log" for number in range(3)))
    assert kfjob("status", "--from", "many.zip") == 2
    assert "more than 2 files" in kfjob.err
