"""A cluster that does not answer, through the command line: exit code 5, one clear message, soon."""

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
def test_an_api_server_that_does_not_answer_is_exit_code_5_within_10_seconds(tmp_path, listening):
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        if listening:  # takes connections and never says a word
            server.listen()
        (tmp_path / "kubeconfig").write_text(KUBECONFIG_OF_A_PORT.format(port=server.getsockname()[1]))
        env = {
            "KUBECONFIG": str(tmp_path / "kubeconfig"),
            "KFJOB_STATE": str(tmp_path),
            "HOME": str(tmp_path),
            "PATH": "/usr/bin:/bin",
        }
        began = time.monotonic()
        done = subprocess.run([KFJOB, "status", "train"], env=env, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 5, done.stderr
    assert done.stderr.startswith("error: ")
    assert "Traceback" not in done.stderr
    assert time.monotonic() - began < 15  # ten for the server, the rest for a busy machine's interpreter
