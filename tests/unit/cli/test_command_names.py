"""Names of commands: aliases, suggestions, help."""

import sys

import click
import pytest

from kfjob.base.version import __version__
from kfjob.cli import commands, output
from kfjob.cli.commands import COMMANDS
from kfjob.cli.completion import JOB, LIVE_JOB
from kfjob.redaction import Redactor
from tests.golden.command_tree import contexts


def test_bare_kfjob_and_a_bare_group_print_their_help(kfjob):
    assert kfjob() == 0
    assert kfjob.out.startswith("Usage: kfjob [OPTIONS] COMMAND")
    assert kfjob.err == ""
    assert kfjob("import") == 0
    assert kfjob.out.startswith("Usage: kfjob import")


@pytest.mark.parametrize("name", ["submit", "import"])
def test_help_of_a_command(kfjob, name):
    assert kfjob("help", name) == 0
    shown = kfjob.out
    assert kfjob(name, "--help") == 0
    assert shown == kfjob.out


def test_help_of_every_command_fits_a_terminal_and_hides_no_part_of_itself(kfjob, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    for context in contexts():
        _, *command = context.command_path.split()
        assert kfjob(*command, "--help") == 0
        assert kfjob.out.startswith(f"Usage: {context.command_path} ")
        assert "[redacted]" not in kfjob.out
        assert [line for line in kfjob.out.splitlines() if len(line) > 80] == []


def test_help_of_subcommands_and_unknown_commands(kfjob):
    assert kfjob("help") == 0
    assert "Start a job:\n" in kfjob.out
    assert max(map(len, kfjob.out.splitlines())) <= 80
    assert kfjob("help", "import", "torchrun") == 0
    assert kfjob.out.startswith("Usage: kfjob import torchrun")
    assert kfjob("help", "sbmit") == 2
    assert "did you mean `submit`?" in kfjob.err
    assert kfjob("help", "submit", "x") == 2
    assert kfjob.err.startswith("error: `kfjob submit` has no command `x`")


@pytest.mark.parametrize(("word", "name"), [("shell", "exec"), ("rm", "stop"), ("get", "list"), ("validat", "validate")])
def test_words_of_other_tools_get_a_suggestion(kfjob, word, name):
    assert kfjob(word) == 2
    assert f"error: unknown command `{word}`; did you mean `{name}`?" in kfjob.err
    assert name in COMMANDS


def test_version_is_a_line(kfjob):
    assert kfjob("--version") == 0
    assert kfjob.out == f"kfjob {__version__}\n"


def test_suggested_commands_about_a_job_get_the_options_of_this_one(monkeypatch, capsys):
    context = click.Context(commands.kfjob)
    found = {name: commands.kfjob.get_command(context, name) for name in COMMANDS}
    about_jobs = [name for name, command in found.items() if command and any(p.type in (JOB, LIVE_JOB) for p in command.params)]
    assert {"status", "stop", "diagnose"} <= set(about_jobs)
    monkeypatch.setattr(output, "_repeated", " -n team")
    for name in about_jobs:
        output.CleanStream(sys.stdout, Redactor()).write(f"hint: `kfjob {name} JOB`\n")
        assert capsys.readouterr().out == f"hint: `kfjob {name} -n team JOB`\n"
