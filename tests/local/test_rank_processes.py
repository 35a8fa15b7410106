"""The processes of a local job's ranks, and that a stopped one is named."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
import uuid
from pathlib import Path

import pytest
from msgspec.structs import replace

from kfjob.backends import folder
from kfjob.joblog.events import JobChanged, JobPhase, JobSnapshot, PodChanged, PodPhase, ProcessState, RankProcess
from kfjob.local.processes import MARK
from kfjob.local.rank_processes import ProcessWatcher, add_processes
from tests.local.conftest import PATIENCE, Here


def test_stopped_worker_is_found_with_its_rank():
    uid = str(uuid.uuid4())
    environment = {**os.environ, MARK: f"{uid}/a-worker-1", "RANK": "3", "LOCAL_RANK": "1"}
    worker = r"import os, time; os.write(1, b'1\n' if os.fork() else b'0\n'); time.sleep(600)"
    pod = PodChanged(pod="a-worker-1", phase=PodPhase.RUNNING, ready=True)
    snapshot = JobSnapshot(name="a", namespace="n", uid=uid, job=JobChanged(phase=JobPhase.RUNNING), pods=(pod,))
    with subprocess.Popen(
        [sys.executable, "-c", worker], env=environment, stdout=subprocess.PIPE, start_new_session=True
    ) as process:
        try:
            assert process.stdout
            assert {process.stdout.readline(), process.stdout.readline()} == {b"0\n", b"1\n"}
            os.kill(process.pid, signal.SIGSTOP)
            os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)
            found = add_processes(snapshot).pods[0].processes
        finally:
            os.killpg(process.pid, signal.SIGKILL)
    assert [(item.pid, item.rank, item.state) for item in found] == [(process.pid, 3, ProcessState.STOPPED)]
    deadline = time.monotonic() + PATIENCE  # the forked child ends some time after its killed parent
    while (left := add_processes(snapshot).pods[0].processes) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert left == ()


def test_watch_names_a_stopped_process_while_nothing_is_printed(here: Here):
    ref = here.submit("import time; print('ready', flush=True); time.sleep(600)")
    here.until_says(ref, "ready")
    (process,) = here.get(ref).pods[0].processes
    os.kill(process.pid, signal.SIGSTOP)
    timer = threading.Timer(PATIENCE, os.kill, (process.pid, signal.SIGKILL))
    timer.start()
    try:
        for event in here.backend.watch(ref):
            if isinstance(event, PodChanged) and any(item.state is ProcessState.STOPPED for item in event.processes):
                assert [item.pid for item in event.processes] == [process.pid]
                break
            assert not (isinstance(event, JobChanged) and event.phase.ended), "no event names the stopped process"
    finally:
        timer.cancel()
        os.kill(process.pid, signal.SIGKILL)


def test_processes_are_looked_at_only_while_the_log_stays_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    snapshot = JobSnapshot(
        name="a",
        namespace="n",
        job=JobChanged(phase=JobPhase.RUNNING),
        pods=(PodChanged(pod="a-worker-0", phase=PodPhase.RUNNING, ready=True),),
    )
    process = RankProcess(pid=12, rank=0)
    pods = (replace(snapshot.pods[0], processes=(process,)),)
    monkeypatch.setattr("kfjob.local.rank_processes.add_processes", lambda state: replace(state, pods=pods))
    log = folder.log_path(tmp_path, "a-worker-0")
    log.parent.mkdir()
    watcher = ProcessWatcher(interval=0)
    for length in range(3):
        log.write_text("x" * length)
        assert watcher.add(snapshot, tmp_path).pods[0].processes == ()
    assert watcher.add(snapshot, tmp_path).pods[0].processes == (process,)
