"""The processes of a local job's ranks, and that a stopped one is named."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import uuid

from kfjob.backends.local.processes import MARK
from kfjob.backends.local.rank_processes import add_processes
from kfjob.events import JobChanged, JobPhase, JobSnapshot, PodChanged, PodPhase, ProcessState


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
    assert add_processes(snapshot).pods[0].processes == ()
