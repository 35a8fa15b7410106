"""Processes that are forked from a server which has imported torch, transformers and the trainer: that takes 10 s of CPU."""

from __future__ import annotations

import json
import multiprocessing
import os
import runpy
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Mapping, Sequence
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any

SERVER = multiprocessing.get_context("forkserver")
SERVER.set_forkserver_preload(["pytest", "tests.trainer.preloaded"])


def start(
    function: Callable[..., None],
    *arguments: Any,
    output: Connection | Path,
    errors: Path | None = None,
    env: Mapping[str, str] | None = None,
    **variables: str,
) -> ForkServerProcess:
    """Call a function in a new process, which adds `variables` to the environment `env`; None: that of this process.

    `output` gets its stdout; `errors` its stderr; None: `output` gets both.
    """
    for file in (output, errors):
        if isinstance(file, Path):
            file.write_bytes(b"")  # it exists from now on
    environment = {**(os.environ if env is None else env), **variables}
    process = SERVER.Process(target=_call, args=(output, errors, environment, function, arguments))
    process.start()
    return process


class Program:
    """Python code in a new process, as `python -c CODE ARGUMENTS`; `stdout` is its output."""

    def __init__(
        self, code: str, *arguments: str, errors: Path | None = None, env: Mapping[str, str] | None = None, **variables: str
    ) -> None:
        reader, writer = SERVER.Pipe(duplex=False)
        self._process = start(run_code, code, arguments, output=writer, errors=errors, env=env, **variables)
        writer.close()
        self.stdout = os.fdopen(os.dup(reader.fileno()), encoding="utf-8")
        reader.close()

    @property
    def returncode(self) -> int | None:
        """The exit code, negative after a signal; None while the process runs."""
        return self._process.exitcode

    def send_signal(self, number: int) -> None:
        if self.returncode is None:
            os.kill(self._process.pid or 0, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)
        self._process.join()
        self.stdout.close()

    def communicate(self, timeout: float) -> str:
        """Return the rest of the output when the process has exited; kill it after `timeout` seconds."""
        timer = threading.Timer(timeout, self._process.kill)
        timer.start()
        output = self.stdout.read()
        self._process.join()
        timer.cancel()
        self.stdout.close()
        return output


def serve_programs(requests: Connection) -> None:
    """Run the requested programs of rank_programs.py."""
    from tests.trainer.rank_programs import serve

    serve(requests)


def run_file(path: Path, arguments: list[str], result: Path) -> None:
    """Run a program as `python PATH ARGUMENTS > RESULT`."""
    os.dup2(os.open(result, os.O_WRONLY | os.O_CREAT), 1)
    sys.argv = [str(path), *arguments]
    runpy.run_path(str(path), run_name="__main__")


def print_result(result: dict[str, Any]) -> None:
    """Print a line of JSON, as the programs of this folder do."""
    sys.stdout.write(json.dumps(result) + "\n")
    sys.stdout.flush()


def fork(body: Callable[[], object], log: Path | None = None) -> int:
    """Call a function in a child, whose exit code is 1 if it raises; return the child's id. The output is appended to `log`."""
    child = os.fork()
    if child:
        return child
    try:
        if log:
            descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            os.dup2(descriptor, 1)
            os.dup2(descriptor, 2)
        body()
        os._exit(0)
    except BaseException:  # noqa: BLE001 -- nothing above may run in a child
        traceback.print_exc()
    finally:
        os._exit(1)


def run_code(code: str, arguments: Sequence[str]) -> None:
    """Run code as `python -c CODE ARGUMENTS`."""
    sys.argv = ["-c", *arguments]
    exec(code, {"__name__": "__main__"})  # noqa: S102 -- a test's own code


def _call(
    output: Connection | Path,
    errors: Path | None,
    environment: Mapping[str, str],
    function: Callable[..., None],
    arguments: tuple[Any, ...],
) -> None:
    os.environ.clear()
    os.environ.update(environment)
    _redirect(output, 1)
    os.dup2(1, 2)
    if errors:
        _redirect(errors, 2)
    function(*arguments)


def _redirect(target: Connection | Path, number: int) -> None:
    descriptor = os.open(target, os.O_WRONLY | os.O_APPEND) if isinstance(target, Path) else target.fileno()
    os.dup2(descriptor, number)
    if isinstance(target, Path):
        os.close(descriptor)
    else:
        target.close()
