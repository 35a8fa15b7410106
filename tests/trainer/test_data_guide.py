"""The examples of docs/guides/data.md: the program, the records, the spec, and the commands."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from kfjob.source.spec_text import load_spec
from kfjob.trainer import export, tokenize
from kfjob.trainer.data.sources import open_data

PAGE = (Path(__file__).parents[2] / "docs" / "guides" / "data.md").read_text("utf-8")


def blocks(language):
    """Return the code blocks of a language."""
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


def arguments_of(program):
    """Return the arguments of each command line of a program."""
    lines = "".join(blocks("sh")).splitlines()
    return [shlex.split(line, comments=True)[1:] for line in lines if line.startswith(f"{program} ")]


@pytest.fixture
def texts(text_folder, tmp_path, monkeypatch):
    """The files that the page begins with; test data stands in for tiny-text."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(text_folder, tmp_path / "tiny-text")
    (tmp_path / "corpus.txt").write_text((text_folder / "train.jsonl").read_text())
    (tmp_path / "chat.jsonl").write_text(blocks("json")[0])
    (tmp_path / "train_tokenizer.py").write_text(blocks("python")[0])
    return tmp_path


def test_text_becomes_the_data_of_the_spec(texts):
    subprocess.run([sys.executable, "train_tokenizer.py"], check=True, cwd=texts)
    commands = arguments_of("kfjob-tokenize")
    assert [tokenize.main([*command, "--workers", "1"]) for command in commands] == [0] * len(commands) == [0, 0, 0]
    spec = load_spec(blocks("yaml")[0]).spec.train
    assert spec is not None
    data = open_data(spec, rank=0, world_size=1)
    assert data.train.read_batch(2).shape == (2, 2, spec.sequence_length)
    assert data.validation
    assert spec.vocab_size is not None
    assert data.vocab_size <= spec.vocab_size


@pytest.mark.usefixtures("texts")
def test_export_takes_the_arguments_of_the_page(capsys):
    commands = arguments_of("kfjob-export")
    assert len(commands) == 3
    for command in commands:
        assert export.main(command) == 1
        assert "`checkpoints`" in capsys.readouterr().err
