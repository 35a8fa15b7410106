"""Processes end with their job, however they fork, and what a killed command leaves is removed."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from kfjob.backends import folder
from kfjob.base.errors import BackendError
from kfjob.local import child, processes
from kfjob.local.launch_spec import STOP
from tests.local.conftest import NAMESPACE, PATIENCE, SUBMIT, Here

pytestmark = pytest.mark.local

SLEEP = "import time; print('asleep', flush=True); time.sleep(600)"
CHAINS, GENERATIONS = 6, 3000  # limits the number of processes if nothing ends or reaps them
START_CHAINS = f"""
import os, sys
chain = '''
import os
null = os.open(os.devnull, os.O_RDWR)
for fd in (0, 1, 2):
    os.dup2(null, fd)
for _ in range({GENERATIONS}):
    if os.fork():
        os._exit(0)
    os.setsid()
'''
for _ in range({CHAINS}):
    if not os.fork():
        os.setsid()
        os.execve(sys.executable, [sys.executable, "-S", "-E", "-c", chain, os.environ["CHAIN"]], {{}})
"""
"""Processes that leave their parent, their session and their environment, and do so again and again."""


def find_chains(mark: str) -> list[str]:
    """Return the states of the processes of a chain that have not ended."""
    states = []
    for file in Path("/proc").glob("[0-9]*"):
        try:
            if mark.encode() in (file / "cmdline").read_bytes().split(b"\0"):
                states.append((file / "stat").read_text().rpartition(")")[2].split()[0])
        except OSError:
            continue
    return [state for state in states if state not in "ZX"]


@pytest.mark.parametrize("killed", [False, True])
def test_chains_of_forks_end_with_the_job(here: Here, tmp_path: Path, *, killed: bool):
    mark = str(tmp_path)
    ref = here.submit(START_CHAINS + SLEEP, nodes=1, grace=0.5, env={"CHAIN": mark})
    here.until_says(ref, "asleep")
    here.until(lambda: find_chains(mark))
    if killed:
        here.kill_supervisor(ref, with_reaper=True)
    here.backend.stop(ref, timeout=PATIENCE)
    assert here.backend.list(namespace=NAMESPACE) == []
    if not killed:  # else nothing knows a process without parent and environment
        assert not find_chains(mark)
    here.until(lambda: not find_chains(mark))  # a chain that nothing knows ends after its last generation


KILL = (
    """
import time
from kfjob.local import proc, subreaper
subreaper.become_subreaper()
"""
    + START_CHAINS
    + """
first = set(proc.list_children())
while first & set(proc.list_children()):
    subreaper.reap_orphans(())
    time.sleep(0.01)
print(subreaper.kill_children(timeout=60), proc.list_children())
"""
)


def test_new_children_of_chains_of_forks_are_killed(tmp_path: Path):
    process = subprocess.run(
        [sys.executable, "-c", KILL],
        env={**os.environ, "CHAIN": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
        timeout=PATIENCE,
    )
    assert process.stdout == "[] []\n"
    assert not find_chains(str(tmp_path))


def test_children_that_cannot_be_killed_in_time_are_reported():
    code = "from kfjob.local import subreaper\nimport subprocess\n"
    code += "child = subprocess.Popen(['sleep', '600'])\n"
    code += "kill, subreaper.os.kill = subreaper.os.kill, lambda *_: None\n"  # as for a process that waits in the kernel
    code += "print(subreaper.kill_children(timeout=0) == [child.pid])\nkill(child.pid, 9)\n"
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=PATIENCE)
    assert process.stdout == "True\n"


def test_many_ended_children_are_collected_together(monkeypatch: pytest.MonkeyPatch):
    collections: list[object] = []
    monkeypatch.setattr(child, "reap_orphans", collections.append)

    async def receive_signals() -> None:
        child.ExitWatcher()
        for _ in range(500):
            os.kill(os.getpid(), signal.SIGCHLD)
            await asyncio.sleep(0)
        await asyncio.sleep(2 * child._COLLECT_SECONDS)

    asyncio.run(receive_signals())
    assert 1 <= len(collections) < 100


def test_stop_names_the_processes_that_remain(here: Here):
    ref = here.submit(SLEEP)
    here.until_says(ref, "asleep")
    sentence = processes.describe_remaining(range(100, 120))
    (here.launch(ref) / folder.RUN / "remaining").write_text(sentence)
    with pytest.raises(BackendError, match="stopped and archived") as error:
        here.backend.stop(ref, timeout=PATIENCE)
    assert (
        error.value.cause == sentence == ("20 processes did not end after SIGKILL: 100, 101, 102, 103, 104, 105, 106, 107, …")
    )
    assert here.archived(ref).is_dir()
    assert here.backend.list(namespace=NAMESPACE) == []


SUBMITTER = f"""
import sys
from kfjob.local import backend

def wait(*_):
    print("staged", flush=True)
    sys.stdin.read()
    raise OSError("no more input")

backend.write_launch_folder = wait
{SUBMIT}
"""


@pytest.mark.parametrize("command", ["list", "get", "submit"])
def test_the_staging_folder_of_a_killed_submit_is_removed(here: Here, command: str):
    spec = json.dumps({"name": "other", "command": [sys.executable, "-c", "pass"]})
    process = subprocess.Popen(
        [sys.executable, "-c", SUBMITTER, str(here.state), spec], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "staged\n"
    ref = here.submit("pass")
    here.end(ref)
    namespace = here.state / "local" / NAMESPACE
    assert len(list(namespace.glob(".*"))) == 1, "a live submit keeps its folder"
    process.kill()
    process.communicate()
    if command == "list":
        here.backend.list(namespace=NAMESPACE)
    elif command == "get":
        here.get(ref)
    else:
        here.submit("pass", name="third")
    assert list(namespace.glob(".*")) == []


@pytest.mark.parametrize("launcher", [None, "torchrun"])
@pytest.mark.parametrize("end", ["stop", "killed supervisor"])
def test_stopped_rank_ends_without_the_grace_time(here: Here, tmp_path: Path, launcher: str | None, end: str):
    script = tmp_path / "rank.py"
    script.write_text(f"import os\nopen({str(tmp_path / 'rank')!r}, 'w').write(str(os.getpid()))\n{SLEEP}\n")
    command = ["torchrun", str(script)] if launcher else [sys.executable, str(script)]
    ref = here.submit(command=command, nodes=1, grace=600.0)
    here.until_says(ref, "asleep")
    rank = int((tmp_path / "rank").read_text())
    os.kill(rank, signal.SIGSTOP)
    here.until(lambda: ") T " in Path(f"/proc/{rank}/stat").read_text())
    if end == "stop":
        here.backend.stop(ref, timeout=PATIENCE)
        assert "forcefully" not in (log := here.archived_log(ref)), log  # torchrun kills a worker that has not ended after 30 s
    else:
        here.kill_supervisor(ref)
        here.until(lambda: not here.alive(ref))


def test_stop_ends_the_job_of_a_stopped_supervisor(here: Here):
    ref = here.submit(SLEEP, grace=600.0)
    here.until_says(ref, "asleep")
    os.kill(here.supervisor(ref), signal.SIGSTOP)
    here.backend.stop(ref, timeout=PATIENCE)
    assert not here.alive(ref)


def test_job_ends_when_its_state_folder_is_deleted(here: Here, tmp_path: Path):
    ref = here.submit(f"import os\nopen({str(tmp_path / 'tmp')!r}, 'w').write(os.environ['TMPDIR'])\n{SLEEP}", nodes=1)
    here.until_says(ref, "asleep")
    temporary, supervisor = Path((tmp_path / "tmp").read_text()), here.supervisor(ref)
    assert temporary.is_dir()
    shutil.rmtree(here.state / "local")
    try:
        here.until(lambda: not here.alive(ref))
    finally:
        processes.kill([], f"{ref.uid}/")
    here.until(lambda: not Path(f"/proc/{supervisor}").exists())
    assert not temporary.parent.exists()


def test_submit_that_another_command_stops_says_so(here: Here, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    ended = tmp_path / "python"  # as a supervisor that gets SIGTERM before it is ready
    ended.write_text(f'#!/bin/sh\ntouch "$4/{folder.RUN}/{STOP}"\n')
    ended.chmod(0o700)
    plan = here.plan("pass")
    monkeypatch.setattr("kfjob.local.launch.sys.executable", str(ended))
    with pytest.raises(BackendError, match="another command stopped job `job` while it started"):
        here.backend.submit(plan)
