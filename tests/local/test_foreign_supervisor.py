"""`stop` signals and removes only what belongs to the job, whatever the files of its state folder name."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kfjob.backends import folder
from kfjob.backends.base import JobRef
from kfjob.base.errors import BackendError
from kfjob.local.identity import ProcessIdentity, identify_process, read_identity
from kfjob.local.launch_spec import IDENTITY
from kfjob.local.proc import find_pid_namespace, read_start_time
from tests.local.conftest import PATIENCE, Here

SLEEP = "import time\nprint('asleep')\ntime.sleep(600)"


@pytest.fixture
def bystander() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "600"]) as process:
        yield process
        process.kill()


@pytest.fixture
def job(here: Here) -> JobRef:
    ref = here.submit(SLEEP, grace=0.5)
    here.until_says(ref, "asleep")
    return ref


EDITS: dict[str, Any] = {
    "another process": lambda identity, pid: {**identity, "pid": pid},
    "start time of another process": lambda identity, pid: {**identity, "started": read_start_time(pid)},
    "no start time": lambda identity, pid: {**identity, "pid": pid, "started": ""},
    "all processes": lambda identity, _: {**identity, "pid": -1},
    "own process group": lambda identity, _: {**identity, "pid": 0},
    "init": lambda identity, _: {**identity, "pid": 1, "started": read_start_time(1)},
    "the number alone": lambda _, pid: pid,
    "no number": lambda *_: "x",
    "another container": lambda identity, pid: {**identity, "pid": pid, "namespace": "boot pid:[1]", "host": "gpu-7"},
}


@pytest.mark.parametrize("edit", EDITS.values(), ids=EDITS.keys())
def test_only_the_supervisor_gets_a_signal(edit, here: Here, job: JobRef, bystander: subprocess.Popen[bytes]):
    file = here.launch(job) / folder.RUN / IDENTITY
    text = file.read_text()
    file.write_text(json.dumps(edit(json.loads(text), bystander.pid)))
    with pytest.raises(BackendError, match=r"runs elsewhere|cannot be identified") as caught:
        here.backend.stop(job, timeout=PATIENCE)
    assert bystander.poll() is None
    assert here.alive(job)
    assert caught.value.hint
    elsewhere = "gpu-7" in file.read_text()
    assert bool(re.search(r"(?s)runs elsewhere.*of `gpu-7`.*run `kfjob stop job` there", str(caught.value))) is elsewhere
    file.write_text(text)
    here.backend.stop(job, timeout=PATIENCE)
    assert not here.alive(job)


def test_a_process_proves_its_identity(bystander: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch):
    started = read_start_time(bystander.pid)
    identity = ProcessIdentity(pid=bystander.pid, started=started, namespace=find_pid_namespace(), host="")
    assert not ProcessIdentity(pid=bystander.pid, started="1", namespace=identity.namespace, host="").send(signal.SIGTERM)
    monkeypatch.delattr(os, "pidfd_open")  # as before Linux 5.3
    assert identity.send(signal.SIGTERM)
    assert bystander.wait(timeout=PATIENCE) == -signal.SIGTERM
    assert not identity.send(signal.SIGTERM), "the process is gone"


def test_an_ended_process_has_no_identity():
    with subprocess.Popen(["true"]) as process:
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert read_start_time(process.pid) == ""
    assert identify_process().started
    assert read_identity(Path("/nothing")) is None
