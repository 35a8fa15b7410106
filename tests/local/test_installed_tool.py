"""kfjob as a tool in its own environment, without torch: jobs run with the Python of the user's PATH and with its libraries."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.wheels import link_installed, list_closure, list_needs

OWN_LIBRARIES = ("kfjob", "rich", "click", "pydantic", "kubernetes")
PROGRAM = f"""
import importlib.util, os, sys
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
found = [name for name in {OWN_LIBRARIES} if importlib.util.find_spec(name)]
print("python", sys.executable, "libraries", found, "path", os.environ.get("PYTHONPATH"), flush=True)
torch.manual_seed(0)
weight = torch.zeros(4)
data = torch.randn(64, 4)
wanted = data @ torch.tensor([1.0, -2.0, 3.0, 0.5])
for step in range(1, 21):
    error = data @ weight - wanted
    gradient = data.T @ error / len(data)
    dist.all_reduce(gradient)
    weight -= 0.2 * gradient / dist.get_world_size()
    if dist.get_rank() == 0:
        print(f"step {{step}}/20 loss {{error.square().mean().item():.4f}}", flush=True)
dist.destroy_process_group()
"""
pytestmark = [pytest.mark.local, pytest.mark.trainer]


def make_environment(folder: Path, distributions: Iterable[str]) -> Path:
    """Return the Python of a new environment with links to installed distributions."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    link_installed(distributions, folder)
    return folder / "bin" / "python"


@pytest.fixture
def tool(tmp_path: Path, wheel: Path) -> Path:
    """`kfjob` from the wheel of this checkout, in an environment without torch."""
    python = make_environment(tmp_path / "tool", list_needs(wheel))
    install = ["pip", "--python", str(python), "install", "--quiet", "--no-index", "--no-deps", "--no-compile", str(wheel)]
    subprocess.run([sys.executable, "-m", *install], check=True, cwd=tmp_path)
    return python.with_name("kfjob")


@pytest.fixture
def user(tmp_path: Path) -> Path:
    """The folder of the programs of an environment that has torch, and nothing of kfjob's."""
    python = make_environment(tmp_path / "user", list_closure(["torch"]))
    torchrun = python.with_name("torchrun")
    torchrun.write_text(f"#!{python}\nfrom torch.distributed.run import main\nmain()\n")
    torchrun.chmod(0o755)
    return python.parent


def test_a_tool_without_torch_trains_with_the_python_of_the_user(tool: Path, user: Path, tmp_path: Path):
    lacks = f"import importlib.util as u, sys; sys.exit(any(u.find_spec(name) for name in {OWN_LIBRARIES}))"
    has_torch = "import importlib.util as u, sys; sys.exit(u.find_spec('torch') is not None)"
    for python, code in ((user / "python", lacks), (tool.with_name("python"), has_torch)):
        assert subprocess.run([python, "-c", code], env={}, cwd=tmp_path, check=False).returncode == 0
    (tmp_path / "train.py").write_text(PROGRAM)
    (tmp_path / "job.yaml").write_text("name: outside\ncommand: torchrun train.py\n")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("KFJOB_", "PYTHON", "VIRTUAL_ENV"))}
    env = kept | {
        "PATH": os.pathsep.join([str(user), "/usr/bin", "/bin"]),
        "KFJOB_BACKEND": "local",
        "KFJOB_STATE": str(tmp_path / "state"),
        "XDG_CONFIG_HOME": str(tmp_path),
    }

    def kfjob(*argv: str) -> subprocess.CompletedProcess[str]:
        done = subprocess.run([tool, *argv], env=env, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == 0, f"{argv}\n{done.stdout}\n{done.stderr}"
        return done

    try:
        followed = kfjob("submit", "job.yaml", "--follow")
        assert f"the job runs with `{user / 'torchrun'}`" in followed.stderr
        lines = re.findall(r"python (\S+) libraries (\[.*\]) path (\S+)", kfjob("logs", "outside", "-o", "raw").stdout)
        assert lines == [(str(user / "python"), "[]", "None")]
        progress = json.loads(kfjob("status", "outside", "-o", "json").stdout)["progress"]
        assert (progress["step"], progress["total"]) == (20, 20)
        assert progress["loss"] < 1
    finally:
        kfjob("stop", "outside")
