"""etcd 3.5 loses a run's directory when its lease ends, so kfjob pins 3.4. This uses the test cluster's own etcd binary."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.local.etcds import LEASE, serving

CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"))


@pytest.mark.long  # local/test_etcd.py shows that the pinned version keeps the directory
@pytest.mark.trainer
def test_etcd_3_5_loses_the_directory_of_a_run(tmp_path: Path):
    program = str(CACHE / "kfjob" / "cluster" / "bin" / "etcd")
    version = subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout
    assert "etcd Version: 3.5." in version
    with serving(program, tmp_path / "etcd") as etcd:
        argv = [sys.executable, "-c", LEASE, str(etcd.port)]
        result = subprocess.run(argv, capture_output=True, text=True, timeout=120, check=False)
    assert "the directory is gone" in result.stderr
    assert "lease_worker" in result.stderr  # the thread that renews the lease has died
