"""With `-o json` an error is one line of JSON on stderr, and stdout has no part of it."""

from __future__ import annotations

import json
from collections.abc import Iterator

import click
import pytest

from tests.golden.command_tree import contexts

TOKEN = f"hf_{'abcdefghijklmnopq' * 2}"


def list_commands_with_json() -> Iterator[tuple[str, ...]]:
    for context in contexts():
        formats = (param.type for param in context.command.params if "--output" in param.opts)
        if any(isinstance(kind, click.Choice) and "json" in kind.choices for kind in formats):
            yield tuple(context.command_path.split()[1:])


def read_error(text: str) -> dict[str, object]:
    error: dict[str, object] = json.loads(text.splitlines()[-1])["error"]
    assert {"kind", "message", "location", "cause", "hint", "exit_code"} <= error.keys()
    return error


@pytest.mark.parametrize("path", [*list_commands_with_json()], ids=" ".join)
def test_every_command_reports_a_wrong_option_as_json(kfjob, path):
    assert kfjob(*path, "-o", "json", "--no-such-option") == 2
    assert kfjob.out == ""
    error = read_error(kfjob.err)
    assert (error["kind"], error["exit_code"]) == ("UsageError", 2)
    assert error["message"] == "unknown option `--no-such-option`"
    assert error["hint"] == f"`kfjob {' '.join(path)} --help` shows the usage"


@pytest.mark.parametrize("option", [["-ojson"], ["--output", "json"], ["--output=json"]], ids=" ".join)
def test_every_form_of_the_option_asks_for_json(kfjob, option):
    assert kfjob("list", *option, "--no-such-option") == 2
    assert read_error(kfjob.err)["kind"] == "UsageError"


@pytest.mark.parametrize("command", ["status", "master", "diagnose", "logs", "watch"])
def test_missing_job_is_an_error_object(kfjob, command):
    assert kfjob(command, "train", "--backend", "local", "-o", "json") == 3
    assert kfjob.out == ""
    error = read_error(kfjob.err)
    assert (error["kind"], error["exit_code"]) == ("NotFound", 3)
    assert "train" in str(error["message"])


def test_wrong_spec_is_an_error_object_with_all_problems(kfjob, here):
    (here / "job.yaml").write_text("name: Train\nimage: a:1\ncommand: torchrun a.py\nnodes: 0\n")
    assert kfjob("render", "job.yaml", "-o", "json") == 2
    assert kfjob.out == ""
    error = read_error(kfjob.err)
    assert error["location"] == "job.yaml:1:7 (name)"
    assert isinstance(error["problems"], list)
    assert [(problem["field"], problem["line"]) for problem in error["problems"]] == [("name", 1), ("nodes", 4)]
    assert kfjob("validate", "job.yaml", "-o", "json") == 2
    assert json.loads(kfjob.out)["problems"][:2] == error["problems"]


def test_error_object_has_no_secrets_and_no_terminal_sequences(kfjob):
    assert kfjob("render", f"{TOKEN}\x1b[31m.yaml", "-o", "json") == 3
    assert TOKEN not in kfjob.err
    assert "\x1b" not in kfjob.err
    assert "[redacted]" in str(read_error(kfjob.err)["message"])


@pytest.mark.parametrize("argv", [["status"], ["status", "-o", "text"], ["render", "--", "-o", "json"]])
def test_other_formats_have_messages_for_people(kfjob, argv):
    assert kfjob(*argv, "--no-such-option") in (2, 3)
    assert kfjob.err.startswith("error: ")


def test_commands_of_jobs_are_among_the_commands_with_json():
    assert {path[0] for path in list_commands_with_json()} >= {"status", "submit", "logs"}
