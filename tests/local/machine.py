"""The command `kfjob` on this machine, with a state folder of the test."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from tests.kfjob_command import KFJOB

PATIENCE = 90.0
TRAIN = """
import sys, time, datetime
steps, pause = int(sys.argv[1]), float(sys.argv[2])
for step in range(1, steps + 1):
    now = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M:%S")
    print(f"{now} I [t.py:1] Batch {step} Loss: {8 - step / steps:.5f}, Speed: 1.00 samples/sec, lr: 0.000100", flush=True)
    time.sleep(pause)
"""


class Machine:
    """This machine with a state folder of the test."""

    def __init__(self, folder: Path, cwd: Path | None = None) -> None:
        self.folder, self.cwd = folder, cwd
        (folder / "train.py").write_text(TRAIN)
        own = {"KFJOB_BACKEND": "local", "KFJOB_STATE": str(folder / "state"), "XDG_CONFIG_HOME": str(folder)}
        self.env = {key: value for key, value in os.environ.items() if not key.startswith("KFJOB_")} | own

    def __call__(self, *argv: str, code: int = 0) -> str:
        done = self.run(*argv)
        assert done.returncode == code, f"kfjob {' '.join(argv)} -> {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def run(self, *argv: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [KFJOB, *argv], env=self.env, cwd=self.cwd, capture_output=True, text=True, timeout=120, check=False
        )

    def spec(self, name: str, *, steps: int, pause: float) -> str:
        file = self.folder / f"{name}.yaml"
        command = json.dumps(["python3", str(self.folder / "train.py"), str(steps), str(pause)])
        file.write_text(f"name: {name}\ncommand: {command}\n")
        return str(file)


def wait_until(condition: Callable[[], object], *, patience: float = PATIENCE, pause: float = 0.1) -> None:
    deadline = time.monotonic() + patience
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come true in time"
        time.sleep(pause)
