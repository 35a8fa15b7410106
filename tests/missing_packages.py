"""Programs that run as on a machine without some packages."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable

BLOCK = """
import sys
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {names!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Missing())
"""


def run_without(names: Iterable[str], program: str) -> subprocess.CompletedProcess[str]:
    """Run Python code that cannot import these packages."""
    code = BLOCK.format(names=list(names)) + program
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=120)
