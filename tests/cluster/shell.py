"""The command line as a person has it in a terminal, in one namespace of the test cluster."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from tests.cluster.facts import Space

KFJOB = str(Path(sys.executable).with_name("kfjob"))


@dataclass(frozen=True)
class Shell:
    """Called with the words after `kfjob`, it gives stdout, or stderr where a failure was expected."""

    space: Space
    folder: Path
    kubeconfig: str = ""  # "": all rights

    def __call__(self, *argv: str, code: int = 0) -> str:
        env = {key: value for key, value in os.environ.items() if not key.startswith("KFJOB_")}
        env |= {"KUBECONFIG": self.kubeconfig or self.space.facts.kubeconfig, "KFJOB_NAMESPACE": self.space.name}
        env["KFJOB_STATE"] = str(self.folder / "state")
        command = [KFJOB, *argv]
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=300, check=False, cwd=self.folder)
        assert done.returncode == code, f"kfjob {' '.join(argv)} -> {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout if code == 0 else done.stderr
