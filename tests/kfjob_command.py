"""The command `kfjob` as a process, forked from a server that has imported kfjob: the imports take most of a command's time.

A command has its own environment, folder, streams and exit code, and ends as every Python program does. The tests that start
`KFJOB`, and that of every module (unit/convert/test_sdk.py), show that a command does not need the imports of another one.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import IO, Any, TextIO

ROOT = Path(__file__).resolve().parents[1]
KFJOB = str(Path(sys.executable).with_name("kfjob"))
STARTUP_VARIABLES = ("PYTHON", "LC_", "LANG", "LD_")
"""Beginnings of the names of variables that a program reads when it starts."""


def run_kfjob(
    argv: Sequence[str], *, env: Mapping[str, str], cwd: Path | None, timeout: float, setup: str = ""
) -> subprocess.CompletedProcess[str]:
    """Run `kfjob` with these arguments, as `subprocess.run` with `capture_output` and `text`; `setup` is code that runs before:
    it changes attributes of modules, and no name that another module has imported.

    Raises:
        subprocess.TimeoutExpired: it has not ended; it is killed.
    """
    words = [KFJOB, *argv]
    if any(name.startswith(STARTUP_VARIABLES) and env.get(name) != os.environ.get(name) for name in {*env, *os.environ}):
        words = [*make_command(setup), *argv]
        return subprocess.run(words, env=env, cwd=cwd, capture_output=True, text=True, timeout=timeout, check=False)
    pipes = [os.pipe() for _ in range(3)]  # stdout, stderr, and the server's report: the process id, then the exit code
    stdin = os.open(os.devnull, os.O_RDONLY)
    try:
        request = {"argv": words, "env": dict(env), "cwd": str(cwd or Path.cwd()), "setup": setup}
        socket.send_fds(_connect(), [json.dumps(request).encode()], [stdin, *(writing for _, writing in pipes)])
    finally:
        for descriptor in (stdin, *(writing for _, writing in pipes)):
            os.close(descriptor)
    stdout, stderr, report = _read_all([reading for reading, _ in pipes], words, timeout)
    if len(ends := report.split()) < 2:
        raise RuntimeError(f"the server of commands has ended: {_decode(stderr)}")
    return subprocess.CompletedProcess(words, int(ends[1]), _decode(stdout), _decode(stderr))


def make_command(setup: str = "") -> list[str]:
    """Return the words that start `kfjob` after this code."""
    return [sys.executable, "-c", f"{setup}\nfrom kfjob.cli.main import main\nmain()"] if setup else [KFJOB]


def _read_all(descriptors: Sequence[int], words: list[str], timeout: float) -> list[bytes]:
    """Read and close the descriptors."""
    output, deadline = dict.fromkeys(descriptors, b""), time.monotonic() + timeout
    try:
        with selectors.DefaultSelector() as selector:
            for descriptor in descriptors:
                selector.register(descriptor, selectors.EVENT_READ)
            while selector.get_map():
                ready = selector.select(deadline - time.monotonic())
                if not ready and time.monotonic() >= deadline:
                    stdout, stderr, report = output.values()
                    if report:
                        os.kill(int(report.split()[0]), signal.SIGKILL)
                    raise subprocess.TimeoutExpired(words, timeout, stdout, stderr)
                for key, _ in ready:
                    data = os.read(key.fd, 1 << 16)
                    output[key.fd] += data
                    if not data:
                        selector.unregister(key.fd)
    finally:
        for descriptor in descriptors:
            os.close(descriptor)
    return list(output.values())


def _decode(output: bytes) -> str:
    return output.decode().replace("\r\n", "\n").replace("\r", "\n")


@cache
def _connect() -> socket.socket:
    """Start the server, which ends with this process."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    code = f"from tests.kfjob_command import serve; serve({theirs.fileno()})"
    process = subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, pass_fds=[theirs.fileno()])
    theirs.close()

    def end() -> None:
        ours.close()
        process.wait()

    atexit.register(end)
    return ours


def serve(number: int) -> None:
    """Fork a process for each request of the socket with this number."""
    sys.path[0] = str(Path(sys.executable).parent)  # as in the program `kfjob`
    _import_modules()
    requests = socket.socket(fileno=number)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    while True:
        message, descriptors, _, _ = socket.recv_fds(requests, 1 << 20, 4)
        if not message:
            return
        if os.fork() == 0:
            requests.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            signal.signal(signal.SIGINT, signal.default_int_handler)
            _run_command(json.loads(message), descriptors)
            return
        for descriptor in descriptors:
            os.close(descriptor)


def _import_modules() -> None:
    for file in (ROOT / "kfjob").rglob("*.py"):
        name = ".".join(file.relative_to(ROOT).with_suffix("").parts)
        if not name.startswith("kfjob.trainer.") and not name.endswith("__main__"):
            import_module(name.removesuffix(".__init__"))
    for name in ("kubernetes.client", "kubernetes.config", "rich.live", "rich.table"):
        import_module(name)
    assert "torch" not in sys.modules
    gc.collect()
    gc.freeze()


def _reopen(stream: TextIO) -> IO[Any]:
    """Return a stream of the same descriptor, which is another file now."""
    buffering = 1 if stream is sys.stderr else -1
    mode = "r" if stream is sys.stdin else "w"
    return open(stream.fileno(), mode, buffering, encoding=stream.encoding, errors=stream.errors, closefd=False)


def _run_command(request: dict[str, Any], descriptors: list[int]) -> None:
    """Run the command in a child, and say how it ends."""
    *streams, report = descriptors
    if process := os.fork():
        for descriptor in streams:
            os.close(descriptor)
        with suppress(BrokenPipeError):  # after a timeout
            os.write(report, f"{process} ".encode())
            _, status = os.waitpid(process, 0)
            os.write(report, str(os.waitstatus_to_exitcode(status)).encode())
        os._exit(0)
    os.close(report)
    for number, descriptor in enumerate(streams):
        os.dup2(descriptor, number)
        os.close(descriptor)
    sys.stdin, sys.stdout, sys.stderr = (_reopen(stream) for stream in (sys.stdin, sys.stdout, sys.stderr))
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["env"])
    time.tzset()
    sys.argv = request["argv"]
    from kfjob.cli.main import main

    exec(request["setup"], {})  # noqa: S102 -- a test's own code
    main()
