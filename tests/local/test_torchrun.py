"""Real elastic agents: two of them, each with a worker in a session of its own."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from kfjob.backends import folder
from kfjob.base.errors import Refused
from kfjob.joblog.events import JobPhase, PodPhase
from tests.local.conftest import PATIENCE, TORCHRUN, Here
from tests.local.etcds import ADD_UP

WAIT = """
import os, time
import torch.distributed as dist
dist.init_process_group("gloo")
print("rank", dist.get_rank(), "of", dist.get_world_size(), flush=True)
while True:
    time.sleep(1)
"""


def write_program(tmp_path: Path, code: str) -> str:
    path = tmp_path / "program.py"
    path.write_text(code)
    return str(path)


def an_etcd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """An `etcd` of our making, the first on PATH."""
    fake = tmp_path / "bin" / "etcd"
    fake.parent.mkdir()
    fake.write_text(f"#!/bin/sh\n{script}\n")
    fake.chmod(0o700)
    monkeypatch.setenv("PATH", f"{fake.parent}{os.pathsep}{os.environ['PATH']}")


@pytest.mark.local
@pytest.mark.trainer
def test_no_worker_outlives_an_agent_that_is_killed(here: Here, tmp_path: Path):
    ref = here.submit(command=["torchrun", write_program(tmp_path, WAIT)], nodes=2, grace=20)
    here.until_says(ref, "rank 0 of 2", index=0)
    here.until_says(ref, "rank 1 of 2", index=1)
    assert len(here.alive(ref)) >= 4  # two agents, two workers
    os.kill(int(here.get(ref).pods[1].container_id.rpartition("/")[2]), signal.SIGKILL)
    snapshot = here.end(ref)
    assert snapshot.job.phase is JobPhase.FAILED
    assert (snapshot.pods[1].reason, snapshot.pods[1].exit_code) == ("Signal 9", 137)
    assert snapshot.pods[0].phase is PodPhase.FAILED
    assert not here.alive(ref)


@pytest.mark.local
@pytest.mark.trainer
@pytest.mark.parametrize("backend", [pytest.param("etcd", marks=pytest.mark.long), "etcd-v2"])  # test_etcd.py has the other
def test_agents_meet_at_the_jobs_own_etcd(here: Here, tmp_path: Path, backend: str):
    ref = here.submit(command=[*TORCHRUN, write_program(tmp_path, ADD_UP)], nodes=2, rendezvous=backend)
    snapshot = here.end(ref)
    logs = [here.texts(ref, index) for index in range(2)]
    assert snapshot.job.phase is JobPhase.SUCCEEDED, logs
    assert sum("world 2" in log for log in logs) == 2
    etcd = list(folder.log_path(here.launch(ref), "job-etcd", "etcd").read_text().splitlines())
    assert any("serving" in line for line in etcd)
    assert not here.alive(ref)
    here.backend.stop(ref, timeout=PATIENCE)
    assert folder.log_path(here.archived(ref), "job-etcd", "etcd").is_file()
    assert not list(here.archived(ref).rglob("member"))


@pytest.mark.local
def test_an_etcd_that_ends_fails_the_job(here: Here, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    an_etcd(tmp_path, monkeypatch, '[ "$1" = --version ] && echo "etcd Version: 3.4.23" && exit\necho out of order\nexit 1')
    ref = here.submit("pass", rendezvous="etcd")
    snapshot = here.end(ref)
    assert (snapshot.job.phase, snapshot.job.reason) == (JobPhase.FAILED, "EtcdFailed")
    assert "job-etcd/etcd.log" in snapshot.job.message
    assert "out of order" in folder.log_path(here.launch(ref), "job-etcd", "etcd").read_text()
    assert [(pod.phase, pod.reason) for pod in snapshot.pods] == [(PodPhase.FAILED, "NotStarted")]
    assert "etcd" in snapshot.pods[0].message


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ('echo "etcd Version: 3.6.1"', "is etcd 3.6, and torch needs 3.4 or 3.5"),
        ("echo something else", "does not name the version of etcd"),
        ("", "PATH has no program `etcd`"),
    ],
)
def test_an_etcd_that_torch_cannot_use(here: Here, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, words: str):
    if script:
        an_etcd(tmp_path, monkeypatch, script)
    else:
        monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(Refused, match=words) as caught:
        here.submit("pass", rendezvous="etcd")
    assert "apt-get install etcd-server" in str(caught.value)
