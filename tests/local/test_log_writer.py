"""What agents print arrives in their log, whatever they print."""

from __future__ import annotations

import asyncio
import os
import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import cast

import pytest

from kfjob.backends import log_file
from kfjob.backends.base import LogRange
from kfjob.joblog.events import JobPhase
from kfjob.local import log_writer
from kfjob.local.child import ChildProcess, ExitWatcher
from kfjob.local.log_writer import LogWriter
from kfjob.local.processes import Reaper
from tests.local.conftest import Here


def raw(path: Path) -> list[bytes]:
    """The lines without their times."""
    return [line.partition(b" ")[2] for line in path.read_bytes().split(b"\n")[:-1]]


@contextmanager
def open_pipe(path: Path) -> Iterator[tuple[LogWriter, Callable[[bytes], None]]]:
    """Yield a writer of this log, and a function that writes to its pipe and lets it read; at the end the pipe is closed."""
    reading, writing = os.pipe()
    writer = LogWriter(reading, path)

    def write(block: bytes) -> None:
        os.write(writing, block)
        assert writer.step()

    yield writer, write
    os.close(writing)
    assert not writer.step()
    writer.close()
    os.close(reading)


def write_blocks(path: Path, *blocks: bytes) -> list[bytes]:
    with open_pipe(path) as (_, write):
        for block in blocks:
            write(block)
    return raw(path)


@pytest.mark.parametrize(
    ("blocks", "lines"),
    [
        ([b"one\ntwo\n"], [b"one", b"two"]),
        ([b"o", b"ne\nt", b"wo\n"], [b"one", b"two"]),
        ([b"one\n", b"no end"], [b"one", b"no end"]),
        ([b"\n\n"], [b"", b""]),
        ([b"\x00\xff\xfe\r\x1b[31m\n"], [b"\x00\xff\xfe\r\x1b[31m"]),
        ([b"10%\r20%\r", b"30%\r"], [b"10%\r20%\r30%\r"]),
        ([], []),
    ],
)
def test_lines_are_kept_byte_for_byte(tmp_path: Path, monkeypatch, blocks: list[bytes], lines: list[bytes]):
    monkeypatch.setattr(log_writer, "BAR_SECONDS", float("inf"))
    assert write_blocks(tmp_path / "p.log", *blocks) == lines


def test_a_line_that_never_ends_is_cut(tmp_path: Path):
    block = bytes(range(11, 111)) * 327  # 32700 bytes, no line end among them
    lines = write_blocks(tmp_path / "p.log", *[block] * 5, b"\n")
    assert b"".join(lines) == block * 5
    assert max(map(len, lines)) <= log_writer.MAX_LINE_BYTES + len(block)
    assert len(lines) > 1


@pytest.mark.parametrize(
    ("blocks", "lines"),
    [
        ([b"\r10%\r20%", b"\r30%", b"\rdone\n"], [b"\r10%", b"\r20%", b"\r30%\rdone"]),
        ([b"one\r", b"\ntwo\r", b"\n"], [b"one\r", b"two\r"]),
        ([b"no", b" end", b"\n"], [b"no end"]),
    ],
)
def test_states_of_a_progress_bar_are_written(tmp_path: Path, monkeypatch, blocks: list[bytes], lines: list[bytes]):
    monkeypatch.setattr(log_writer, "BAR_SECONDS", 0.0)
    assert write_blocks(tmp_path / "p.log", *blocks) == lines


@pytest.mark.parametrize(
    ("block", "after", "lines"),
    [
        (b"\r10%\r20%", b"\n", [b"\r10%\r20%"]),
        (b"\r10%\r20%\r", b"\n", [b"\r10%\r20%\r"]),
        (b"one\n\r20%", b"\r30%\n", [b"one", b"\r20%", b"\r30%"]),
        (b"\r20%", b"\n\nend\n", [b"\r20%", b"", b"end"]),
        (b"no bar", b" end\n", [b"no bar end"]),
    ],
)
def test_last_state_of_a_quiet_bar_is_written(tmp_path: Path, block: bytes, after: bytes, lines: list[bytes]):
    path = tmp_path / "p.log"
    with open_pipe(path) as (writer, write):
        write(block)
        writer.flush_bar()
        if b"\r" in block:
            assert raw(path)[-1] == block.rpartition(b"\n")[2]
        write(after)
    assert raw(path) == lines


@pytest.mark.local
def test_bar_of_a_silent_program_is_in_its_log(here: Here, tmp_path: Path):
    end = tmp_path / "end"
    bar = "import os, time; [os.write(1, b'\\r %d%% %d/40' % (n, n)) for n in (1, 2)]"
    code = f"{bar}\nwhile not os.path.exists({f'{end}'!r}): time.sleep(0.02)"
    ref = here.submit(code)
    here.until(lambda: here.get(ref).job.phase is JobPhase.RUNNING)
    here.until(lambda: "2/40" in "".join(here.texts(ref)))
    end.touch()
    assert here.end(ref).job.phase is JobPhase.SUCCEEDED


def test_a_full_disk_loses_lines_and_the_log_counts_them(tmp_path: Path):
    path = tmp_path / "p.log"
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    with open_pipe(path) as (_, write):
        try:
            write(b"kept\n")
            resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 10, hard))
            write(b"lost 1\nlost 2\n")
            write(b"lost 3\n")
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        write(b"kept again\n")
    assert raw(path) == [b"kept", b"kfjob: 3 lines are lost here: the disk was full", b"kept again"]
    assert all(time for time, _ in log_file.read_lines(path, LogRange()))


@pytest.mark.local
def test_no_output_of_a_short_job_is_lost(here: Here):
    ref = here.submit("print('\\n'.join(f'line {i}' for i in range(50_000)), end='')", nodes=2)
    followed = here.texts(ref, follow=True)
    assert followed == [f"line {i}" for i in range(50_000)]
    assert here.end(ref).job.phase is JobPhase.SUCCEEDED
    assert here.texts(ref, 1) == followed


@pytest.mark.local
def test_stdout_and_stderr_keep_their_order(here: Here):
    ref = here.submit("import os\nfor i in range(100): os.write(1 + i % 2, b'%d\\n' % i)")
    here.end(ref)
    assert here.texts(ref) == [str(i) for i in range(100)]


class NoReaper:
    """Stands in for the reaper process, which has a test of its own."""

    def add(self, group: int) -> None: ...

    def remove(self, group: int) -> None: ...


@pytest.mark.local
def test_output_left_in_the_pipe_is_written(tmp_path: Path, here: Here):
    path = tmp_path / "p.log"

    async def run() -> int:
        child = ChildProcess(
            ["echo", "last words"], {}, log=path, mark="uid/pod", reaper=cast("Reaper", NoReaper()), exits=ExitWatcher()
        )
        here.until(lambda: ") Z " in Path(f"/proc/{child.pid}/stat").read_text())  # the loop has had no turn yet
        return await child.end()

    assert asyncio.run(run()) == 0
    assert raw(path) == [b"last words"]
