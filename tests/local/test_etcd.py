"""Torch's etcd rendezvous on the real server: the lease that must be refreshed, and a server that asks who is there."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from kfjob.backends.base import LogRange
from kfjob.joblog.events import JobPhase, LogLine
from kfjob.plan import DEFAULT_ETCD_IMAGE
from tests.local.conftest import TORCHRUN, Here
from tests.local.etcds import ADD_UP, LEASE, Etcd, serving


def debian() -> str:
    program = shutil.which("etcd")
    assert program, "these tests need the `etcd-server` package of Debian"
    return program


@pytest.mark.local
@pytest.mark.trainer
def test_etcd_of_the_pinned_version_keeps_the_directory_of_a_run(tmp_path: Path):
    said = subprocess.run([debian(), "--version"], capture_output=True, text=True, check=True).stdout
    minor = re.search(r"etcd Version: (\d+\.\d+)", said)
    assert minor
    assert f":v{minor[1]}." in DEFAULT_ETCD_IMAGE  # the version that jobs get on a cluster
    with serving(debian(), tmp_path / "etcd") as etcd:
        argv = [sys.executable, "-c", LEASE, str(etcd.port)]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout == "the directory is kept\n", done.stderr


def lock(etcd: Etcd) -> None:
    """Let in the user `root` alone (etcd's v2 authentication)."""
    assert etcd.call("PUT", "/v2/auth/users/root", {"user": "root", "password": "secret"}) == 201
    assert etcd.call("PUT", "/v2/auth/enable", {}) == 200
    assert etcd.call("DELETE", "/v2/auth/roles/guest", login="root:secret") == 200  # who may do all until it is taken from him


def unlocked(etcd: Etcd) -> bool:
    return etcd.call("PUT", "/v2/keys/probe?value=1") < 300


@pytest.mark.local
@pytest.mark.trainer
@pytest.mark.parametrize("backend", ["etcd", pytest.param("etcd-v2", marks=pytest.mark.long)])  # test_torchrun.py has the other
def test_agents_log_in_to_an_etcd_that_asks_for_it(here: Here, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, backend: str):
    program = tmp_path / "program.py"
    program.write_text(ADD_UP)
    with serving(debian(), tmp_path / "etcd") as etcd:
        lock(etcd)
        assert not unlocked(etcd)
        monkeypatch.setenv("KFJOB_ETCD_USER", "root")
        monkeypatch.setenv("KFJOB_ETCD_PASSWORD", "secret")
        login = {"user": "etcd/user", "password": "etcd/password"}
        plan = here.plan(
            command=[*TORCHRUN, str(program)],
            nodes=2,
            rendezvous={"backend": backend, "endpoint": f"127.0.0.1:{etcd.port}", **login},
        )
        ref = here.backend.submit(plan)
        phase = here.end(ref).job.phase
    logs = [line.text for line in here.backend.logs(ref, plan.pods[0], LogRange()) if isinstance(line, LogLine)]
    assert phase is JobPhase.SUCCEEDED, logs
    assert "world 2" in logs
