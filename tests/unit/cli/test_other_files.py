"""A file that is no job spec gets a sentence that says what a spec is, and names `run` and `init`."""

from __future__ import annotations

import pytest

WHAT = "a spec is YAML with a job's name, nodes and command: `kfjob init` writes one, `kfjob run -- {}` needs none"
FILES = {
    "fit.py": (b"import torch\n", "this is a Python script", "torchrun fit.py"),
    "start.sh": (b"torchrun fit.py\n", "this is a shell script", "bash start.sh"),
    "program": (b"#!/usr/bin/env python3\nx: int\n", "this is a Python script", "COMMAND"),
    "job.slurm": (b"#!/bin/bash\n#SBATCH -N 2\n", "this is a shell script", "bash job.slurm"),
    "a.ipynb": (b'{"cells": []}', "this is a notebook", "COMMAND"),
    "job.toml": (b'[job]\nname = "a"\n', "this is a TOML file", "COMMAND"),
    "README.md": (b"# A page\n", "this is a page of Markdown", "COMMAND"),
    "config.json": (
        b'{"lr": 0.1, "epochs": 3}',
        "it has none of its fields\n  --> config.json:1:1\n  its keys are lr, epochs",
        "COMMAND",
    ),
    "config.yaml": (b"lr: 0.1\nmodel: {a: b}\n", "this is not a job spec: it has none of its fields", "COMMAND"),
    "data.csv": (b"a,b\n1,2\n", "this is a text, not a job spec", "COMMAND"),
    "Makefile": (b"all:\n\techo x\n", "this is not a job spec: invalid YAML: a tab indents this line", "COMMAND"),
    "empty.yaml": (b"", "this is empty, not a job spec", "COMMAND"),
    "model.pt": (b"\x80\x02abc\0", "cannot read spec `model.pt`\n  cause: it is not a text in UTF-8", "COMMAND"),
}


@pytest.mark.parametrize("name", FILES)
def test_other_file_in_place_of_a_spec(kfjob, here, name):
    content, title, command = FILES[name]
    (here / name).write_bytes(content)
    assert kfjob("submit", "--backend", "local", name) in (2, 3)
    assert title in kfjob.err
    assert kfjob.err.count("error:") == 1
    assert f"hint: {WHAT.format(command)}\n" in kfjob.err


@pytest.mark.parametrize("argv", ["src", "none.yaml", "torchrun"])
def test_folder_or_no_file_in_place_of_a_spec(kfjob, here, argv):
    (here / "src").mkdir()
    assert kfjob("submit", argv) == 3
    assert WHAT.format("COMMAND") in kfjob.err


def test_folder_with_a_spec_is_answered_with_its_name(kfjob, here):
    (here / "jobs").mkdir()
    (here / "jobs" / "a.yaml").write_text("name: a\n")
    assert kfjob("submit", "jobs") == 3
    assert "hint: name a file in it, such as `jobs/a.yaml`\n" in kfjob.err


@pytest.mark.parametrize("text", ["nam: a\ncommnd: b\n", "nodes: 2\nlr: 1\n"])
def test_spec_with_misspelt_fields_gets_the_errors_of_its_fields(kfjob, here, text):
    (here / "job.yaml").write_text(text)
    assert kfjob("submit", "job.yaml") == 2
    assert "unknown field" in kfjob.err


@pytest.mark.parametrize(
    ("argv", "command"),
    [
        ("submit torchrun fit.py --epochs 2", "torchrun fit.py --epochs 2"),
        ("submit fit.py --epochs 2", "torchrun fit.py --epochs 2"),
        ("validate python3 fit.py", "python3 fit.py"),
        ("torchrun fit.py", "torchrun fit.py"),
        ("fit.py --lr 1", "torchrun fit.py --lr 1"),
    ],
)
def test_command_in_place_of_a_spec_or_a_command_names_run(kfjob, argv, command):
    words = argv.split()
    assert kfjob(*words) == 2
    assert f"hint: `kfjob run -- {command}` runs a command as a job\n" in kfjob.err


def test_name_of_a_job_in_place_of_a_spec(kfjob, here):
    assert kfjob("explain", "train-2") != 0
    assert "`kfjob run -- COMMAND` needs none; `kfjob status train-2` shows a job of this name\n" in kfjob.err
