"""An unreachable API server gives exit code 5 and one clear message within seconds."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.unit.conftest import KUBECONFIG_OF_A_PORT

KFJOB = str(Path(sys.executable).with_name("kfjob"))


@pytest.mark.parametrize("listening", [False, True], ids=["refused", "silent"])
def test_unreachable_api_server_is_exit_code_5_within_10_seconds(tmp_path, listening):
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        if listening:  # accepts connections and never answers
            server.listen()
        (tmp_path / "kubeconfig").write_text(KUBECONFIG_OF_A_PORT.format(port=server.getsockname()[1]))
        env = {
            "KUBECONFIG": str(tmp_path / "kubeconfig"),
            "KFJOB_STATE": str(tmp_path),
            "HOME": str(tmp_path),
            "PATH": "/usr/bin:/bin",
        }
        start = time.monotonic()
        result = subprocess.run([KFJOB, "status", "train"], env=env, capture_output=True, text=True, timeout=60, check=False)
    assert result.returncode == 5, result.stderr
    assert result.stderr.startswith("error: ")
    assert "Traceback" not in result.stderr
    assert time.monotonic() - start < 15  # 10 s for the server, 5 s for a slow start of Python
