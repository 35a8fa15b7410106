"""Completions of the shell, as its script asks for them."""

import shutil
import subprocess

import pytest

from kfjob.base.errors import Unreachable
from kfjob.cli.commands import run
from tests.fakes.backend import FakeBackend
from tests.unit.api import script


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_of_a_shell(kfjob, shell):
    assert kfjob("completion", shell) == 0
    assert "_KFJOB_COMPLETE" in kfjob.out
    if program := shutil.which(shell):
        subprocess.run([program, "-n"], input=kfjob.out, text=True, check=True)


@pytest.fixture
def complete(fake, monkeypatch, capsys):
    """Return a function that completes the last word of a command line."""
    for name in ("train", "tiny-llama"):
        fake.play(name, *script.TRAINING, spec=script.SPEC)

    def complete_line(line: str) -> set[str]:
        monkeypatch.setenv("_KFJOB_COMPLETE", "bash_complete")
        monkeypatch.setenv("COMP_WORDS", line)
        monkeypatch.setenv("COMP_CWORD", str(len(line.split(" ")) - 1))
        with pytest.raises(SystemExit):
            run([])
        out, err = capsys.readouterr()
        assert err == ""
        return set(out.split("\n")) - {""}

    return complete_line


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("kfjob sub", {"plain,submit"}),
        ("kfjob logs t", {"plain,train", "plain,tiny-llama"}),
        ("kfjob stop train ti", {"plain,tiny-llama"}),
        ("kfjob logs train --pod ", {"plain,train-worker-0", "plain,train-worker-1"}),
        ("kfjob logs nothing --pod ", set()),
        ("kfjob init --instance p4d", {"plain,p4d.24xlarge"}),
        ("kfjob help wat", {"plain,watch"}),
        ("kfjob init --model tiny-", {"plain,tiny-llama"}),
        ("kfjob submit jo", {"file,jo"}),
        ("kfjob submit --env-file jo", {"file,jo"}),
    ],
)
def test_words_are_completed(complete, line, words):
    assert {word for word in complete(line) if not word.startswith("plain,p4de")} == words


def test_a_cluster_that_does_not_answer_completes_nothing(complete, monkeypatch):
    def fail(*_: object, **__: object) -> None:
        raise Unreachable("the cluster does not answer")

    monkeypatch.setattr(FakeBackend, "list", fail)
    assert complete("kfjob logs t") == set()


def test_stop_does_not_offer_a_job_that_is_on_the_line(complete):
    assert complete("kfjob stop train ") == {"plain,tiny-llama"}


def test_completion_without_a_shell_names_the_command(kfjob):
    assert kfjob("completion") == 2
    assert kfjob.err.startswith("error: SHELL is missing\nhint: `eval")
