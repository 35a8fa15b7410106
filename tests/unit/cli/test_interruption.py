"""Ctrl-C and SIGTERM end a command, whatever it waits for: real commands, servers that never answer, and programs that hang."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

from tests.hostile_server import Answer, HostileServer, Received, json_answer, serve, wait_until

MAIN = "from kfjob.cli.main import main; main()"
CTRL_C, SIGTERM = (signal.SIGINT, 130), (signal.SIGTERM, 143)
"""A signal and its exit code."""
END_SECONDS = 20
"""Far less than any limit of a wait, and enough for a busy machine."""
SIGNALS = pytest.mark.parametrize(("number", "code"), [CTRL_C, SIGTERM], ids=["Ctrl-C", "SIGTERM"])
LONG = pytest.mark.long
SPEC = "name: demo\nimage: registry.invalid/a@sha256:" + "0" * 64 + "\ncommand: torchrun train.py\n"
PLUGIN = "client.authentication.k8s.io/v1beta1"


class Command:
    """A command that runs."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process

    def interrupt(self, number: signal.Signals) -> tuple[int, str]:
        """Send the signal; return the exit code and standard error."""
        assert self.process.poll() is None, self.process.communicate()
        self.process.send_signal(number)
        _, errors = self.process.communicate(timeout=END_SECONDS)
        return self.process.returncode, errors


@contextlib.contextmanager
def start(*argv: str, folder: Path, program: str = MAIN, **variables: str) -> Iterator[Command]:
    environment = {**os.environ, "HOME": str(folder), **variables}
    process = subprocess.Popen(
        [sys.executable, "-c", program, *argv],
        cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        yield Command(process)
    finally:
        process.kill()
        process.communicate()


def write_kubeconfig(folder: Path, server: str, user: dict[str, object] | None = None) -> Path:
    config = {
        "current-context": "here",
        "contexts": [{"name": "here", "context": {"cluster": "c", "user": "u", "namespace": "ml"}}],
        "clusters": [{"name": "c", "cluster": {"server": server}}],
        "users": [{"name": "u", "user": user or {"token": "secret"}}],
    }
    path = folder / "config"
    path.write_text(yaml.safe_dump(config))
    return path


def write_program(path: Path, script: str) -> Path:
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def hang(hostile: HostileServer, _: Received) -> Answer:
    return Answer(raw=hostile.hang())


def drip(hostile: HostileServer, _: Received) -> Answer:
    return Answer(body=hostile.drip())


COMMANDS = [
    "list", "status demo", "logs demo", "logs demo --follow", "master demo", "watch demo", "wait demo", "diagnose demo",
    "report demo", "stop demo", "relaunch demo", "submit job.yaml", "apply job.yaml", "diff job.yaml", "preflight job.yaml",
    "doctor", "submit job.yaml --dry-run=server",
]  # fmt: skip


@pytest.mark.parametrize(  # each pair of values; the next test has all commands
    ("command", "respond", "number", "code"),
    [
        ("watch demo", hang, *CTRL_C),
        ("watch demo", drip, *SIGTERM),
        ("submit job.yaml", hang, *SIGTERM),
        ("submit job.yaml", drip, *CTRL_C),
        pytest.param("watch demo", drip, *CTRL_C, marks=LONG),
        pytest.param("submit job.yaml", drip, *SIGTERM, marks=LONG),
    ],
)
def test_a_command_that_waits_for_an_api_server_ends(command, respond, number, code, tmp_path):
    check_api_server(command, respond, number, code, tmp_path)


@pytest.mark.long
@SIGNALS
@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_that_waits_for_an_api_server_ends(command, number, code, tmp_path):
    check_api_server(command, hang, number, code, tmp_path)


def check_api_server(
    command: str, respond: Callable[[HostileServer, Received], Answer], number: signal.Signals, code: int, folder: Path
) -> None:
    (folder / "job.yaml").write_text(SPEC)
    with serve(respond) as hostile:
        config = write_kubeconfig(folder, hostile.url)
        with start(*command.split(), folder=folder, KUBECONFIG=str(config)) as running:
            wait_until(lambda: bool(hostile.received) or running.process.poll() is not None)
            assert running.interrupt(number)[0] == code


@SIGNALS
def test_a_command_that_waits_for_a_registry_ends(number, code, tmp_path):
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "train.py").write_text("print(1)")
    with serve(hang) as hostile:
        image = hostile.url.removeprefix("http://")
        argv = ["push-image", "--code", "src", "--onto", f"{image}/base:1", "--to", f"{image}/train:1"]
        with start(*argv, folder=tmp_path) as running:
            wait_until(lambda: bool(hostile.received) or running.process.poll() is not None)
            code_, errors = running.interrupt(number)
    assert (code_, errors.strip()) == (code, "")


IGNORE = "trap '' TERM INT"


@pytest.mark.parametrize(
    ("trap", "number", "code"),
    [
        ("", *SIGTERM),
        (IGNORE, *CTRL_C),
        pytest.param("", *CTRL_C, marks=LONG),
        pytest.param(IGNORE, *SIGTERM, marks=LONG),
    ],
)
def test_a_build_ends_with_the_command(trap, number, code, tmp_path):
    write_program(tmp_path / "buildah", f"{trap}\necho $$ > {tmp_path}/pid\nsleep 600 & wait; sleep 600")
    (tmp_path / "Dockerfile").write_text("FROM scratch\n")
    path = f"{tmp_path}:{os.environ['PATH']}"
    with serve(lambda *_: Answer(status=404)) as hostile:
        image = hostile.url.removeprefix("http://")
        argv = ["push-image", ".", "--to", f"{image}/train:1", "--builder", "buildah"]
        with start(*argv, folder=tmp_path, PATH=path) as running:
            check_program(running, number, code, tmp_path / "pid")


def check_program(running: Command, number: signal.Signals, code: int, file: Path) -> None:
    """Interrupt the command when the program has written its pid, and check that its process group has ended."""
    wait_until(lambda: (file.is_file() and bool(file.read_text())) or running.process.poll() is not None)
    assert running.interrupt(number)[0] == code
    wait_until(lambda: not is_running(int(file.read_text())))


def is_running(group: int) -> bool:
    """Return whether a process of the group runs; a zombie that nothing collects has ended."""
    for file in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # the process has ended
            state, _, process_group = file.read_text(errors="replace").rpartition(")")[2].split()[:3]
            if int(process_group) == group and state != "Z":
                return True
    return False


@SIGNALS
def test_a_submit_that_is_interrupted_deletes_its_job(number, code, tmp_path):
    """The job is created; the next object of the job is never answered. The deletion is sent before the command ends."""
    (tmp_path / "job.yaml").write_text(SPEC + "nodes: 2\nrendezvous: etcd\n")
    created = []

    def respond(hostile: HostileServer, received: Received) -> Answer:
        if received.method == "POST" and received.path.partition("?")[0].endswith("/pytorchjobs"):
            job = json.loads(received.body)
            job["metadata"] |= {"uid": "u-1", "resourceVersion": "1"}
            created.append(job)
            return json_answer(job, 201)
        if received.method == "GET" and not created:
            missing = {"kind": "Status", "code": 404, "reason": "NotFound", "message": "no"}
            return json_answer(missing | {"details": {"kind": "pytorchjobs", "name": "demo"}}, 404)
        return hang(hostile, received)

    with serve(respond) as hostile:
        config = write_kubeconfig(tmp_path, hostile.url)
        with start("submit", "job.yaml", folder=tmp_path, KUBECONFIG=str(config)) as running:
            wait_until(lambda: count_creates(hostile) > 1 or running.process.poll() is not None)
            code_, errors = running.interrupt(number)
        assert code_ == code
        assert [request.path for request in hostile.received if request.method == "DELETE"]
    assert "`demo` may still exist" in errors
    assert "kfjob stop demo" in errors


def count_creates(hostile: HostileServer) -> int:
    return [request.method for request in hostile.received].count("POST")


IN_C = """
import ctypes, sys
from kfjob.cli.signals import end_on_interrupt, limit_cleanup, raise_on_interrupt
end_on_interrupt()
limit_cleanup()
raise_on_interrupt()
lock = ctypes.create_string_buffer(256)  # a pthread_mutex_t
libc = ctypes.CDLL(None)
libc.pthread_mutex_lock(lock)
try:
    print("waiting", flush=True)
finally:  # a signal may come before the next line
    libc.pthread_mutex_lock(lock)  # waits for ever, without the interpreter's lock, and no signal ends it
"""


@SIGNALS
def test_a_library_that_ignores_signals_does_not_keep_the_command(number, code, tmp_path):
    with start(folder=tmp_path, program=IN_C) as running:
        assert running.process.stdout is not None
        assert running.process.stdout.readline() == "waiting\n"
        assert running.interrupt(number)[0] == code


FIRST_MODULE = "kfjob.cli.signals"


def interrupt_at_import(command: str, number: int, folder: Path, interrupt: signal.Signals) -> tuple[int, list[str]]:
    """Run the command, send a signal after it has imported `number` modules, and return the exit code and the messages.

    The number counts from the first module of the program; Python's own start is not kfjob's.
    """
    with start(*command.split(), folder=folder, PYTHONPROFILEIMPORTTIME="1", KFJOB_STATE=str(folder)) as running:
        process = running.process
        assert process.stderr is not None
        messages, count = [], 0
        for line in process.stderr:
            if not line.startswith("import time:"):
                messages.append(line)
            elif count or line.split("|")[-1].strip() == FIRST_MODULE:
                count += 1
                if count == number:
                    process.send_signal(interrupt)
        return process.wait(timeout=END_SECONDS), messages


LIST, SUBMIT = "list --backend local", "submit job.yaml --dry-run=client --backend local"
MODULES = (3, 10, 25, 50, 100, 140, 180)


@pytest.mark.parametrize(  # the commands take turns
    ("command", "number"),
    [
        pytest.param(command, number, marks=[LONG] if (command == LIST) == bool(index % 2) else [])
        for command in (LIST, SUBMIT)
        for index, number in enumerate(MODULES)
    ],
)
def test_ctrl_c_during_imports_prints_no_traceback(command, number, tmp_path):
    (tmp_path / "job.yaml").write_text(SPEC)
    code, messages = interrupt_at_import(command, number, tmp_path, signal.SIGINT)
    assert "".join(messages).strip() == ""
    assert code == 130


@pytest.mark.parametrize("number", [10, 100, 180])
def test_sigterm_during_imports_prints_no_traceback(number, tmp_path):
    code, messages = interrupt_at_import(LIST, number, tmp_path, signal.SIGTERM)
    assert "".join(messages).strip() == ""
    assert code == 143


CALLBACK = """
import signal, sys, time, weakref
from kfjob.cli.signals import end_on_interrupt, limit_cleanup, raise_on_interrupt
class Thing: pass
end_on_interrupt()
limit_cleanup()
if "{when}" == "command":
    raise_on_interrupt()
thing = Thing()
reference = weakref.ref(thing, lambda _: (signal.raise_signal({number}), time.sleep(0)))
del thing
time.sleep(60)
"""


@SIGNALS
@pytest.mark.parametrize("when", ["import", "command"])
def test_a_signal_in_a_callback_prints_no_traceback(when, number, code, tmp_path):
    """An import that ends calls back for its lock, and the interpreter drops and prints what a callback raises."""
    with start(folder=tmp_path, program=CALLBACK.format(when=when, number=int(number))) as running:
        _, errors = running.process.communicate(timeout=END_SECONDS)
    assert errors == ""
    assert running.process.returncode == code
