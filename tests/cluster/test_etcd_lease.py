"""The time bomb that the pinned version avoids, seen to tick: etcd 3.5, which the test cluster stores its objects in."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.local.etcds import LEASE, serving

CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"))


@pytest.mark.trainer
def test_etcd_3_5_loses_the_directory_of_a_run(tmp_path: Path):
    program = str(CACHE / "kfjob" / "cluster" / "bin" / "etcd")
    said = subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout
    assert "etcd Version: 3.5." in said
    with serving(program, tmp_path / "etcd") as etcd:
        argv = [sys.executable, "-c", LEASE, str(etcd.port)]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=120, check=False)
    assert "the directory is gone" in done.stderr
    assert "lease_worker" in done.stderr  # the thread that refreshes it has died
