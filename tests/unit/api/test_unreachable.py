"""An unreachable API server gives exit code 5 and one clear message after the contact time."""

from __future__ import annotations

import socket
import subprocess
import sys

import pytest

from kfjob.cluster import client
from tests.unit.conftest import KUBECONFIG_OF_A_PORT

PROGRAM = """
from msgspec.structs import replace
from kfjob.cluster import client
client.READS = replace(client.READS, start_seconds=1.2)
from kfjob.cli.main import main
main()
"""


@pytest.mark.parametrize("listening", [False, True], ids=["refused", "silent"])
def test_unreachable_api_server_is_exit_code_5(tmp_path, listening):
    assert client.READS.start_seconds == 10.0
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
        command = [sys.executable, "-c", PROGRAM, "status", "train"]
        result = subprocess.run(command, env=env, capture_output=True, text=True, timeout=120, check=False)
    assert result.returncode == 5, result.stderr
    assert result.stderr.startswith("error: ")
    assert "Traceback" not in result.stderr
