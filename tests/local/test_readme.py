"""The README's spec, lines, commands and Python code, as they stand there. Other tests run quickstart and installation."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.local.machine import Machine
from tests.wheels import ROOT

README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```(\w+)\n(.*?)```", README, re.DOTALL)
GPUS = ", gpus: 1"
"""What the spec asks for and this machine may lack."""
PROGRAM = """
import os

for step in range(1, 41):
    if os.environ["RANK"] == "0":
        print(f"Epoch [1/3], Step [{step}/40], Loss: {8 / step:.3f}", flush=True)
"""
pytestmark = pytest.mark.local


def find_block(kind: str, start: str = "") -> str:
    (block,) = [text for block_kind, text in BLOCKS if block_kind == kind and text.startswith(start)]
    return str(block)


@pytest.fixture
def kfjob(tmp_path: Path) -> Iterator[Machine]:
    machine = Machine(tmp_path, cwd=tmp_path)
    yield machine
    machine.run("stop", "my-job")


def test_commands_run_in_the_order_of_the_readme(kfjob):
    spec = find_block("yaml")
    assert GPUS in spec
    (kfjob.folder / "job.yaml").write_text(spec)
    assert "kind: PyTorchJob" in kfjob("render", "job.yaml", "--backend", "kubernetes")
    (kfjob.folder / "job.yaml").write_text(spec.replace(GPUS, ""))
    (kfjob.folder / "train.py").write_text(PROGRAM)
    outputs = {}
    for line in find_block("sh", "kfjob doctor").splitlines():
        words = shlex.split(line, comments=True)
        outputs[words[1]] = kfjob.run(*words[1:])
        assert outputs[words[1]].returncode == 0, f"{line}\n{outputs[words[1]].stdout}\n{outputs[words[1]].stderr}"
    assert "8.0000 → 0.2000 in 40 steps" in outputs["submit"].stderr
    assert "`my-job-worker-0`" in outputs["master"].stdout
    assert "Step [40/40]" in outputs["logs"].stdout
    assert (kfjob.folder / outputs["report"].stdout.strip()).read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
    assert outputs["relaunch"].stdout == "my-job\n"


@pytest.mark.parametrize("line", find_block("text", "step: 100").splitlines(), ids=range(4))
def test_lines_are_read_without_a_pattern(line: str, kfjob):
    counted = re.sub(r"\b100(?=[,/]| )", "{}", line.replace("{", "{{").replace("}", "}}"))
    later = [counted.format(100 + 10 * number).replace("2.31", f"2.{40 - number}") for number in range(6)]
    (kfjob.folder / "saved.log").write_text("Start training\n" + "\n".join(later) + "\n")
    progress = json.loads(kfjob("status", "--from", "saved.log", "-o", "json"))["progress"]
    assert (progress["step"], progress["loss"]) == (150, 2.35)


def test_python_code_runs(kfjob):
    command = [sys.executable, "-c", find_block("python")]
    done = subprocess.run(command, env=kfjob.env, cwd=kfjob.folder, capture_output=True, text=True, timeout=120, check=True)
    last_headline, state = done.stdout.splitlines()[-2:]
    assert (last_headline, state) == ("Succeeded, but no progress was printed", "Succeeded")
    assert "hello" in (kfjob.folder / "hello.html").read_text(encoding="utf-8")


def test_every_shell_block_has_a_test():
    starts = {text.partition("\n")[0].partition("#")[0].strip() for kind, text in BLOCKS if kind == "sh"}
    assert starts == {"./scripts/quickstart", "scripts/env trainer && . .venv/bin/activate", "kfjob doctor"}


def test_readme_fits_two_screens():
    assert len(README.splitlines()) <= 125
