"""Run other programs within limits of time and output. They end with the command that runs them, also after a signal."""

from __future__ import annotations

import atexit
import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from msgspec import Struct

from kfjob.base.concurrency import Task
from kfjob.base.units import KIB

END_SECONDS = 0.5
"""Time that a program has to end after SIGTERM, before it is killed."""
MAX_ERROR_BYTES = 64 * KIB
"""Size of a program's standard error in memory."""
_running: set[subprocess.Popen[bytes]] = set()
"""The programs that run."""
_starting = threading.Lock()


class TooMuchOutputError(Exception):
    """A program printed more than its limit."""


class Output(Struct, frozen=True, kw_only=True):
    """The exit code of a program, and what it printed."""

    code: int
    stdout: str
    stderr: str
    """The beginning of standard error."""


def run_program(
    argv: Sequence[str],
    *,
    seconds: float,
    max_bytes: int,
    stdin: str = "",
) -> Output:
    """Run a program until it exits. A long wait for it is reported.

    Raises:
        OSError: it cannot be started.
        TimeoutError: it has not ended after `seconds`.
        TooMuchOutputError: it printed more than `max_bytes`.
    """
    deadline = time.monotonic() + seconds
    with running(argv, stdin=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        Task(lambda: _feed(process.stdin, stdin.encode()), name="program-input")
        errors = Task(lambda: _drain(process.stderr), name="program-errors")
        output = Task(lambda: _read(process.stdout, max_bytes), name="program-output")
        text = output.result(timeout=seconds, waits_for=f"`{Path(argv[0]).name}`")
        stderr = errors.result(timeout=max(deadline - time.monotonic(), END_SECONDS))
        try:
            code = process.wait(max(deadline - time.monotonic(), END_SECONDS))
        except subprocess.TimeoutExpired:
            raise TimeoutError from None
    return Output(code=code, stdout=text, stderr=stderr)


@contextmanager
def running(
    argv: Sequence[str],
    *,
    environment: Mapping[str, str] | None = None,
    stdin: int = subprocess.DEVNULL,
    stderr: int = subprocess.STDOUT,
) -> Iterator[subprocess.Popen[bytes]]:
    """Start a program whose output is read from a pipe. It and its children end if the block raises or the command ends.

    Raises:
        OSError: it cannot be started.
    """

    def start() -> subprocess.Popen[bytes]:
        with _starting:
            process = subprocess.Popen(
                argv,
                env=environment,
                stdin=stdin,
                stdout=subprocess.PIPE,
                stderr=stderr,
                process_group=0,
            )
            _running.add(process)
            return process

    process = Task(start, name="program").result()  # a signal must not arrive between the start and its record
    try:
        yield process
    except BaseException:
        _end(process)
        raise
    finally:
        _running.discard(process)


def kill_programs() -> None:
    """Kill all programs that run now. A thread that waits for one cannot end it when the command ends."""
    if _starting.acquire(timeout=END_SECONDS):
        _starting.release()
    for process in list(_running):
        _signal(process, signal.SIGKILL)


atexit.register(kill_programs)


def _end(process: subprocess.Popen[bytes]) -> None:
    _signal(process, signal.SIGTERM)
    with suppress(subprocess.TimeoutExpired):
        process.wait(END_SECONDS)
    _signal(process, signal.SIGKILL)  # also children of a program that has ended
    process.wait()


def _signal(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    """Send a signal to the program and its children, which are its process group."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)


def _feed(pipe: IO[bytes] | None, content: bytes) -> None:
    if pipe:
        with suppress(BrokenPipeError), pipe:
            pipe.write(content)


def _read(pipe: IO[bytes] | None, max_bytes: int) -> str:
    if pipe is None:
        return ""
    with pipe:
        content = pipe.read(max_bytes + 1)
    if len(content) > max_bytes:
        raise TooMuchOutputError
    return content.decode(errors="replace")


def _drain(pipe: IO[bytes] | None) -> str:
    """Return the beginning, and drop the rest: a program must not wait because nothing reads its messages."""
    if pipe is None:
        return ""
    with pipe:
        content = pipe.read(MAX_ERROR_BYTES)
        while pipe.read(MAX_ERROR_BYTES):
            pass
    return content.decode(errors="replace")
