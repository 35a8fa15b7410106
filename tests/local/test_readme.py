"""The commands, spec and lines of the README and docs/first-job.md, and the notebook, as they stand there.

Other tests run quickstart and installation.
"""

from __future__ import annotations

import ast
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
FIRST_JOB = (ROOT / "docs" / "first-job.md").read_text(encoding="utf-8")
NOTEBOOK = ROOT / "docs" / "first-job.ipynb"
BLOCKS = re.findall(r"```(\w+)\n(.*?)```", README + FIRST_JOB, re.DOTALL)
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
    machine.run("stop", "train")


def test_commands_of_the_readme_run_and_write_its_spec(kfjob):
    (kfjob.folder / "train.py").write_text(PROGRAM)
    lines = find_block("sh", "./scripts/quickstart").splitlines()[1:] + find_block("sh", "kfjob run --nodes 2").splitlines()
    here, nodes, save, submit, diagnose = (shlex.split(line, comments=True)[1:] for line in lines)
    for words in (here, nodes):
        done = kfjob.run(*words)
        assert done.returncode == 0, done.stderr
        assert done.stdout.splitlines()[-1] == "Epoch [1/3], Step [40/40], Loss: 0.200"
        assert "8.0000 → 0.2000 in 40 steps" in done.stderr
    assert len(json.loads(kfjob("status", "train", "-o", "json"))["pods"]) == 2
    assert kfjob(*save) == "job.yaml\n"
    assert (kfjob.folder / "job.yaml").read_text().partition("\n\n")[2] == find_block("yaml", "name: train   #")
    assert kfjob.run(*submit).returncode == 0
    assert "Succeeded" in kfjob(*diagnose)
    rendered = kfjob("render", "job.yaml", "--backend", "kubernetes", "--set", "image=a.test/train:1")
    assert "claimName: my-claim" in rendered


def test_commands_run_in_the_order_of_the_first_job(kfjob):
    (kfjob.folder / "train.py").write_text(PROGRAM)
    assert kfjob.run("run", "--", "torchrun", "train.py").returncode == 0
    outputs = {}
    for line in find_block("sh", "kfjob list").splitlines():
        words = shlex.split(line, comments=True)
        outputs[words[1]] = kfjob.run(*words[1:])
        assert outputs[words[1]].returncode == 0, f"{line}\n{outputs[words[1]].stdout}\n{outputs[words[1]].stderr}"
    assert "train-worker-0" in outputs["status"].stdout
    assert "Step [40/40]" in outputs["logs"].stdout
    assert (kfjob.folder / outputs["report"].stdout.strip()).read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
    assert "8.0000 → 0.2000 in 40 steps" in outputs["relaunch"].stderr


@pytest.mark.parametrize("line", find_block("text", "step: 100").splitlines(), ids=range(3))
def test_lines_are_read_without_a_pattern(line: str, kfjob):
    counted = re.sub(r"\b100(?=[,/]| )", "{}", line.replace("{", "{{").replace("}", "}}"))
    later = [counted.format(100 + 10 * number).replace("2.31", f"2.{40 - number}") for number in range(6)]
    (kfjob.folder / "saved.log").write_text("Start training\n" + "\n".join(later) + "\n")
    progress = json.loads(kfjob("status", "--from", "saved.log", "-o", "json"))["progress"]
    assert (progress["step"], progress["loss"]) == (150, 2.35)


CELLS = """
import ast, json, sys
for source in json.load(sys.stdin):
    body = ast.parse(source).body
    shown = body.pop() if isinstance(body[-1], ast.Expr) else None
    exec(compile(ast.Module(body, []), "cell", "exec"), globals())
    if shown:
        value = eval(compile(ast.Expression(shown.value), "cell", "eval"), globals())
        print(value._repr_html_() if hasattr(value, "_repr_html_") else value)
"""
"""Runs the cells of a notebook in one program, as Jupyter does, and prints what it would show."""


def test_notebook_runs_from_top_to_bottom(kfjob):
    cells = [cell for cell in json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"] if cell["cell_type"] == "code"]
    assert not any(cell["outputs"] for cell in cells)
    done = subprocess.run(
        [sys.executable, "-c", CELLS], input=json.dumps(["".join(cell["source"]) for cell in cells]), text=True,
        env=kfjob.env, cwd=kfjob.folder, capture_output=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    step, loss, pod = ast.literal_eval(next(line for line in lines if "'notebook-worker" in line))
    assert (step >= 100, 0 < loss < 1, pod) == (True, True, "notebook-worker-0")
    assert "<iframe srcdoc=" in done.stdout
    assert "&lt;svg" in done.stdout
    assert lines[-1].startswith("[('notebook@1', ")


def test_every_shell_block_of_the_readme_has_a_test():
    blocks = re.findall(r"```sh\n(.*?)```", README, re.DOTALL)
    starts = [text.partition("#")[0].strip() for text in blocks]
    assert starts == [
        "./scripts/quickstart",
        "scripts/env trainer && . .venv/bin/activate",
        "kfjob run --nodes 2 -- torchrun train.py --epochs 3",
    ]


def test_readme_fits_one_screen_and_a_half():
    assert len(README.splitlines()) <= 90
