from __future__ import annotations

import json
import os
import stat
import threading
import time
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfjob.backends import folder, log_file
from kfjob.backends.base import LogRange
from kfjob.base.errors import BackendError, NotFound
from kfjob.base.parsing import MAX_DOCUMENT_BYTES
from kfjob.joblog.events import JobChanged, JobPhase, JobSnapshot, KubernetesEvent, PodChanged, PodPhase, WorkloadStatus

POD = PodChanged(pod="a-worker-0", phase=PodPhase.FAILED, uid="u-0", exit_code=3, reason="Error", created=5)
SNAPSHOT = JobSnapshot(
    name="a",
    namespace="team",
    job=JobChanged(phase=JobPhase.FAILED, reason="PodFailed", created=7),
    pods=(POD,),
    uid="u",
    launch="l",
    spec='{"name": "a"}',
    labels={"owner": "me"},
)
SECOND = 1_000_000_000
NOON = 1_795_262_400 * SECOND  # 2026-11-21T12:00:00Z


def texts(path: Path, wanted: LogRange | None = None) -> list[str]:
    return [text for _, text in log_file.read_lines(path, wanted or LogRange())]


def log_of(path: Path, count: int, *, per_second: int = 1) -> Path:
    lines = (log_file.format_timestamp(NOON + i * SECOND // per_second) + f"line {i}\n".encode() for i in range(count))
    path.write_bytes(b"".join(lines))
    return path


def huge_log(path: Path) -> Path:
    """A log with a line of 50 MB between two short ones; the file system stores no block for its zeros."""
    with path.open("wb") as file:
        file.write(log_file.format_timestamp(NOON) + b"first\n" + log_file.format_timestamp(NOON + SECOND) + b"huge ")
        file.seek(50_000_000, os.SEEK_CUR)
        file.write(b"\n" + log_file.format_timestamp(NOON + 2 * SECOND) + b"last\n")
    return path


@pytest.mark.parametrize(
    "wanted", [LogRange(), LogRange(tail=2), LogRange(since=NOON + SECOND), LogRange(since=NOON + 2 * SECOND)]
)
def test_huge_line_is_never_in_memory_as_a_whole(tmp_path: Path, wanted: LogRange):
    path = huge_log(tmp_path / "a.log")
    tracemalloc.start()
    lines = texts(path, wanted)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 12_000_000
    assert lines[-1] == "last"
    if len(lines) > 1:
        assert lines[-2].startswith("huge")
        assert lines[-2].endswith(" … (48951460 more bytes of this line are not shown)")


def test_huge_snapshot_is_an_error(tmp_path: Path):
    with (tmp_path / folder.STATUS).open("wb") as file:
        file.truncate(MAX_DOCUMENT_BYTES + 1)
    with pytest.raises(BackendError) as raised:
        folder.read_snapshot(tmp_path)
    assert "larger than 64 MiB" in str(raised.value.cause)


@pytest.mark.parametrize("date", ["0001-01-01", "9999-12-31", "1969-12-31"])
def test_line_of_another_age_has_no_time(date: str):
    assert log_file.parse_line(f"{date}T00:00:00Z text".encode()) == (None, f"{date}T00:00:00Z text")


def test_a_snapshot_is_read_as_it_was_written(tmp_path: Path):
    folder.write_snapshot(tmp_path, SNAPSHOT)
    assert folder.read_snapshot(tmp_path) == SNAPSHOT
    assert isinstance(folder.read_snapshot(tmp_path).pods[0].phase, PodPhase)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["spec.json", "status.json"]
    assert "spec" not in json.loads((tmp_path / "spec.json").read_text())


def test_fields_of_a_newer_kfjob_are_left_out(tmp_path: Path):
    folder.write_snapshot(tmp_path, SNAPSHOT)
    data = json.loads((tmp_path / folder.STATUS).read_text())
    data["new"] = data["job"]["new"] = data["pods"][0]["new"] = 1
    (tmp_path / folder.STATUS).write_text(json.dumps(data))
    assert folder.read_snapshot(tmp_path) == SNAPSHOT


def test_a_folder_that_says_nothing(tmp_path: Path):
    for place in (tmp_path, tmp_path / "missing"):
        with pytest.raises(NotFound):
            folder.read_snapshot(place)


def test_what_is_made_is_private(tmp_path: Path):
    made = folder.make_private(tmp_path / "a" / "b")
    assert [stat.S_IMODE(path.stat().st_mode) for path in (made, made.parent)] == [0o700, 0o700]


def test_launches_come_in_the_order_of_their_time(tmp_path: Path):
    for launch, created in (("b", 1), ("a", 2)):
        place = folder.make_private(folder.launch_folder(tmp_path, "team", "job", launch))
        folder.write_snapshot(
            place, JobSnapshot(name="job", namespace="team", job=JobChanged(phase=JobPhase.STOPPED, created=created))
        )
    (tmp_path / "team" / "job" / ".staging").mkdir()
    assert [launch.name for launch in folder.list_launches(tmp_path, "team", "job")] == ["b", "a"]
    assert folder.list_launches(tmp_path, "team", "nobody") == []


@given(st.integers(min_value=0, max_value=4_000_000_000 * SECOND))
def test_a_stamp_is_read_as_it_was_written(moment: int):
    assert log_file.parse_line(log_file.format_timestamp(moment) + b"x") == (moment, "x")


@pytest.mark.parametrize(
    ("raw", "time_ns", "text"),
    [
        (b"2026-11-21T12:00:00Z text", NOON, "text"),
        (b"2026-11-21T12:00:00.5Z text", NOON + SECOND // 2, "text"),
        (b"2026-11-21T12:00:00.123456789Z  two spaces", NOON + 123456789, " two spaces"),
        (b"2026-11-21T14:30:00.1+02:30 text", NOON + SECOND // 10, "text"),
        (b"2026-11-21T04:00:00-08:00 text", NOON, "text"),
        (b"2026-11-21T12:00:00Z stderr F text", NOON, "text"),  # as containerd writes it
        (b"2026-11-21T12:00:00Z stderr Fine text", NOON, "stderr Fine text"),
        (b"2026-11-21T12:00:00Z ", NOON, ""),
        (b"2026-11-21T12:00:00Z", NOON, ""),
        (b"2026-11-21T12:00:00Ztext", None, "2026-11-21T12:00:00Ztext"),
        (b"2026-13-21T12:00:00Z text", None, "2026-13-21T12:00:00Z text"),
        (b"2026-11-21 12:00:00 I [train.py:102] Batch 1", None, "2026-11-21 12:00:00 I [train.py:102] Batch 1"),
        (b"", None, ""),
        (b"\xff\x00", None, "\ufffd\x00"),
    ],
)
def test_one_line(raw: bytes, time_ns: int | None, text: str):
    assert log_file.parse_line(raw) == (time_ns, text)


def test_a_file_without_times_and_without_a_last_line_end(tmp_path: Path):
    path = tmp_path / "p.log"
    path.write_bytes(b"one\r\n\ntwo\x0bstill two\nthree")
    assert list(log_file.read_lines(path, LogRange(since=NOON))) == [
        (None, "one\r"),
        (None, ""),
        (None, "two\x0bstill two"),
        (None, "three"),
    ]
    assert texts(path, LogRange(tail=1)) == ["three"]
    assert texts(path, LogRange(tail=0)) == []


@given(
    lines=st.lists(st.tuples(st.integers(0, 3), st.binary(max_size=5).map(lambda b: b.replace(b"\n", b""))), max_size=40),
    since=st.one_of(st.none(), st.integers(-1, 60)),
    tail=st.one_of(st.none(), st.integers(0, 45)),
    block=st.sampled_from([1, 7, 64, 1 << 16]),
)
def test_a_range_is_what_reading_all_and_choosing_gives(
    tmp_path_factory: pytest.TempPathFactory, lines: list[tuple[int, bytes]], since: int | None, tail: int | None, block: int
):
    taken, moment = [], NOON
    for pause, text in lines:
        moment += pause
        taken.append((moment, text.decode("utf-8", errors="replace"), text))
    path = tmp_path_factory.getbasetemp() / "range.log"
    path.write_bytes(b"".join(log_file.format_timestamp(time_ns) + text + b"\n" for time_ns, _, text in taken))
    expected = [(time_ns, text) for time_ns, text, _ in taken if since is None or time_ns >= NOON + since]
    if tail is not None:
        expected = expected[-tail:] if tail else []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(log_file, "BLOCK", block)
        wanted = LogRange(since=None if since is None else NOON + since, tail=tail)
        assert list(log_file.read_lines(path, wanted)) == expected


def test_the_end_of_a_file_of_64_gigabytes(tmp_path: Path):
    path = tmp_path / "p.log"
    with path.open("wb") as log:
        log.truncate(1 << 36)  # a hole: to read it all would take minutes
        log.seek(0, 2)
        log.write(b"\none\ntwo\nthree\n")
    assert texts(path, LogRange(tail=2)) == ["two", "three"]


def test_a_time_is_found_by_bisection(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = log_of(tmp_path / "p.log", 100_000)
    looks = []
    look = log_file._read_time

    def counted(*where: Any):
        looks.append(where)
        return look(*where)

    monkeypatch.setattr(log_file, "_read_time", counted)
    assert texts(path, LogRange(since=NOON + 99_998 * SECOND)) == ["line 99998", "line 99999"]
    assert 1 < len(looks) <= path.stat().st_size.bit_length() + 1


def test_a_limit_in_bytes_cuts_whole_lines(tmp_path: Path):
    path = log_of(tmp_path / "p.log", 5)
    assert texts(path, LogRange(limit_bytes=14)) == ["line 0", "line 1"]
    assert texts(path, LogRange(limit_bytes=20)) == ["line 0", "line 1"]
    assert texts(path, LogRange(tail=2, limit_bytes=7)) == ["line 3"]


def test_following_shows_lines_once_they_are_whole_and_the_next_file_after_the_first(tmp_path: Path):
    path = tmp_path / "p.log"
    seen: list[str] = []
    restarts: list[int] = []
    over = threading.Event()

    def follow() -> None:
        lines = log_file.follow_lines(path, LogRange(tail=1), ended=over.is_set, restarted=lambda: restarts.append(len(seen)))
        for _, text in lines:
            seen.append(text)

    def until_seen(expected: list[str]) -> None:
        deadline = time.monotonic() + 10
        while seen != expected:
            assert time.monotonic() < deadline, seen
            time.sleep(0.01)

    thread = threading.Thread(target=follow, daemon=True)
    thread.start()
    (tmp_path / "new").write_bytes(b"skipped\nfirst\n")
    (tmp_path / "new").rename(path)
    with path.open("ab", buffering=0) as log:
        until_seen(["first"])
        log.write(b"sec")
        log.write(b"ond\nend")
        until_seen(["first", "second"])
    path.rename(tmp_path / "p.previous.log")
    path.write_bytes(b"again\n")
    until_seen(["first", "second", "end", "again"])
    assert restarts == [3]
    with path.open("ab") as more:
        more.write(b"last words")
    over.set()
    thread.join(10)
    assert not thread.is_alive()
    assert seen == ["first", "second", "end", "again", "last words"]


def test_following_what_never_comes(tmp_path: Path):
    assert list(log_file.follow_lines(tmp_path / "p.log", LogRange(), ended=lambda: True, restarted=lambda: None)) == []


@pytest.mark.parametrize(
    "text",
    [
        *("", "{", "[]", "{}", "\xff", '{"name": "a", "submitted_by": 5}'),
        *('{"job": {"phase": "Flying"}, "pods": []}', '{"job": 1, "pods": []}'),
    ],
)
def test_damaged_record_is_an_error_that_says_what_to_do(tmp_path: Path, text: str):
    folder.write_snapshot(tmp_path, SNAPSHOT)
    (tmp_path / folder.STATUS).write_text(text, encoding="latin-1")
    with pytest.raises(BackendError) as caught:
        folder.read_snapshot(tmp_path)
    assert caught.value.title == f"the record `{tmp_path / folder.STATUS}` is damaged"
    assert "Error" not in (caught.value.cause or "")
    assert f"move the folder `{tmp_path}` away" in (caught.value.hint or "")


def test_the_clusters_events_are_read_as_they_were_written(tmp_path: Path):
    events: list[KubernetesEvent | WorkloadStatus] = [
        KubernetesEvent(kind="Pod", name="a-worker-0", reason="FailedMount", message="no", warning=True, count=2, time=NOON),
        WorkloadStatus(name="w", queue="team", message="quota"),
    ]
    assert folder.read_events(tmp_path) == []
    folder.write_events(tmp_path, events)
    assert folder.read_events(tmp_path) == events
    (tmp_path / folder.EVENTS).write_text('{"a": 1}')
    with pytest.raises(BackendError, match=r"events.json` is damaged"):
        folder.read_events(tmp_path)


def test_saved_logs_of_containers_that_are_gone_or_have_other_names_are_found(tmp_path):
    files = ("w-0.previous.log", "w-1/trainer.log", "w-2/pytorch.previous.log", "w-3/pytorch.log", "w-3/exporter.log")
    for file in (*files, "p-0.log", "p-0.previous.log", "notes.txt", "w-4/a.log", "w-4/b.log"):  # w-4: nobody says which trains
        (tmp_path / file).parent.mkdir(exist_ok=True)
        (tmp_path / file).write_text("a line\n")
    known = folder.find_logs(tmp_path)
    assert {pod: path.name for pod, path in known.items()} == {
        "p-0": "p-0.log", "w-0": "w-0.log", "w-1": "trainer.log", "w-2": "pytorch.log", "w-3": "pytorch.log",
    }  # fmt: skip
    assert folder.previous_log_path(known["w-0"]).exists()
    assert folder.previous_log_path(known["w-2"]).exists()
    assert folder.previous_log_path(known["w-1"]) == tmp_path / "w-1" / "trainer.previous.log"


@pytest.mark.parametrize("name", ["status.json", ".status.json.{process}-{thread}"])
def test_link_in_place_of_a_written_file_is_not_followed(tmp_path: Path, name: str):
    foreign, file = tmp_path / "foreign", tmp_path / "status.json"
    foreign.write_text("precious")
    (tmp_path / name.format(process=os.getpid(), thread=threading.get_native_id())).symlink_to(foreign)
    folder.replace_file(file, "{}")
    assert (foreign.read_text(), file.read_text(), file.is_symlink()) == ("precious", "{}", False)
