"""The kfjob command line, as in a user's terminal, in one namespace of the test cluster."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from tests.cluster.facts import ROOT, Space, script
from tests.kfjob_command import run_kfjob


@dataclass(frozen=True)
class Shell:
    """Runs `kfjob` with these arguments; returns stdout, or stderr if `code` is not 0."""

    space: Space
    folder: Path
    kubeconfig: str = ""  # "": the administrator's
    env: Mapping[str, str] = field(default_factory=dict)  # further variables
    setup: str = ""  # code that runs before a command

    def __call__(self, *argv: str, code: int = 0) -> str:
        result = run_kfjob(argv, env=self.environment, cwd=self.folder, timeout=300, setup=self.setup)
        assert result.returncode == code, f"kfjob {' '.join(argv)} -> {result.returncode}\n{result.stdout}\n{result.stderr}"
        return result.stdout if code == 0 else result.stderr

    @property
    def environment(self) -> dict[str, str]:
        """The variables of a command."""
        env = {key: value for key, value in os.environ.items() if not key.startswith("KFJOB_")}
        env |= {"KUBECONFIG": self.kubeconfig or self.space.facts.kubeconfig, "KFJOB_NAMESPACE": self.space.name}
        return env | {"KFJOB_STATE": str(self.folder / "state"), **self.env}

    def lacks_right(self, verb: str, resource: str) -> bool:
        """Return whether the API server denies the user of the kubeconfig a right; `resource` may be `name/subresource`."""
        name, _, subresource = resource.partition("/")
        command = [str(ROOT / "scripts/cluster"), "kubectl", f"--kubeconfig={self.kubeconfig}", "-n", self.space.name]
        command += ["auth", "can-i", verb, name, *([f"--subresource={subresource}"] if subresource else [])]
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip().rpartition("\n")[2] == "no"


def set_role(space: Space, role: Mapping[str, Any], folder: Path) -> None:
    """Give everybody who is bound to this Role of the namespace its rules."""
    file = folder / "role.yaml"
    file.write_text(yaml.safe_dump(dict(role)))
    script("kubectl", "-n", space.name, "apply", "--server-side", "--force-conflicts", "-f", str(file))
