"""The README's first command, as it stands there, in a home that has never seen the project."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.local
@pytest.mark.trainer
def test_quickstart_ends_with_a_loss_that_has_fallen(tmp_path):
    env = {key: value for key, value in os.environ.items() if not key.startswith(("KFJOB_", "XDG_"))}
    own = str(ROOT / ".venv" / "bin")
    path = os.pathsep.join(folder for folder in os.environ["PATH"].split(os.pathsep) if folder != own)
    env |= {"HOME": str(tmp_path), "KUBECONFIG": str(tmp_path / "none"), "PATH": path}
    done = subprocess.run(
        [str(ROOT / "scripts" / "quickstart")], env=env, capture_output=True, text=True, timeout=500, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "tiny-llama: Succeeded" in done.stderr
    first, last = map(float, re.findall(r"loss +(\d\.\d+) → (\d\.\d+) in 100 steps", done.stderr)[0])
    assert first > 7
    assert last < first - 2
    assert "master     tiny-llama-worker-0 (confirmed, global rank 0)" in done.stderr
    checkpoint = Path(re.findall(r"checkpoint +(\S+step-000100)", done.stderr)[-1])
    assert checkpoint.is_dir()
    assert tmp_path in checkpoint.parents
    logs = Path(re.findall(r"  logs +(\S+)", done.stderr)[-1])
    assert "Batch 100 Loss" in (logs / "tiny-llama-worker-0" / "pytorch.log").read_text(encoding="utf-8")
    assert "kfjob relaunch tiny-llama" in done.stderr
    activate = done.stderr.splitlines()[-1].strip()
    assert activate.startswith(". ")
    shell = ["bash", "-euc", f"{activate}; kfjob status tiny-llama"]
    status = subprocess.run(shell, env=env, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "Succeeded" in status.stdout, status.stderr
    assert "Traceback" not in done.stderr

    function = re.findall(r"(?ms)^free_name\(\) \{.*?^\}$", (ROOT / "scripts" / "quickstart").read_text())[0]
    for turn in ("a job that has ended", "a name that is free"):
        shell = ["bash", "-euc", f"{activate}; {function}; free_name tiny-llama"]
        freed = subprocess.run(shell, env=env, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert (freed.returncode, freed.stderr) == (0, ""), turn


def test_arguments_start_nothing():
    script = str(ROOT / "scripts" / "quickstart")
    help_ = subprocess.run([script, "--help"], capture_output=True, text=True, timeout=30, check=True)
    assert help_.stdout.startswith("From a clean clone to a loss curve")
    wrong = subprocess.run([script, "now"], capture_output=True, text=True, timeout=30, check=False)
    assert (wrong.returncode, wrong.stderr.splitlines()[0]) == (2, "error: unknown argument `now`")
