"""Numbers and durations in options have limits: a number of any size is one error."""

from __future__ import annotations

from pathlib import Path

import click
import pytest

from kfjob.cli.commands import run
from kfjob.cli.logs import MAX_LINES
from kfjob.cli.parameter_types import DURATION, MAX_DURATION_SECONDS, SINCE

HUGE = ["9" * 19, "9" * 30, "9" * 400, "9" * 5000]


@pytest.mark.parametrize("text", HUGE)
@pytest.mark.parametrize("option", ["--tail", "--since"])
def test_a_huge_number_is_one_error(option, text, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    log = tmp_path / "train.log"
    log.write_text("a\nb\n")
    assert run(["logs", "--from", str(log), option, text]) == 2
    message = capsys.readouterr().err
    assert f"`{option}`" in message
    assert "Traceback" not in message


def test_the_largest_count_works(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    log = tmp_path / "train.log"
    log.write_text("a\nb\n")
    assert run(["logs", "--from", str(log), "--tail", str(MAX_LINES)]) == 0
    assert capsys.readouterr().out == "a\nb\n"


@pytest.mark.parametrize("text", [*HUGE, *(f"{text}h" for text in HUGE), f"{MAX_DURATION_SECONDS + 1}", "3651d"])
def test_a_duration_of_more_than_ten_years_is_refused(text):
    for kind in (DURATION, SINCE):
        with pytest.raises(click.BadParameter, match="at most 10 years"):
            kind.convert(text, None, None)


@pytest.mark.parametrize("text", HUGE)
@pytest.mark.parametrize("command", ["history a --last", "scale a", "run --save - --nodes", "run --save - --gpus"])
def test_a_huge_number_ends_no_command_with_a_traceback(command, text, capsys: pytest.CaptureFixture[str]):
    program = ["--", "python", "a.py"] if command.startswith("run") else []
    run([*command.split(), text, *program])
    assert "Traceback" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("run --nodes two -- a", "`--nodes`: `two` is not a valid whole number"),
        ("run --nodes 0 -- a", "`--nodes`: 0 is not in the range x>=1"),
        ("logs a --tail -1", "`--tail`: -1 is not in the range 0<=x<=1000000000"),
        ("estimate a.yaml --mfu 2", "`--mfu`: 2.0 is not in the range 0<x<=1"),
    ],
)
def test_a_wrong_number_is_an_error_that_names_the_option(arguments, message, capsys: pytest.CaptureFixture[str]):
    assert run(arguments.split()) == 2
    assert capsys.readouterr().err.splitlines()[0] == f"error: invalid value for {message}"


@pytest.mark.parametrize(
    ("arguments", "lines"),
    [
        ("submit a.yaml --nodes 2", ("`--nodes`", "`--set nodes=VALUE` sets this field of the spec")),
        (
            "run --dry-run -- python a.py",
            ("`--dry-run`", "`--save -` prints the spec, and `kfjob submit SPEC --dry-run=client` what a submit would create"),
        ),
        ("render a.yaml --gpus=2", ("`--gpus`", "`--set resources.gpus=VALUE` sets this field of the spec")),
        ("submit a.yaml --followw", ("`--followw`; did you mean `--follow`?", "`kfjob submit --help` shows the usage")),
        (
            "run --processes 2 -- a",
            ("`--processes`; did you mean `--processes-per-node`?", "`kfjob run --help` shows the usage"),
        ),
        (
            "scale a --nodes 4",
            ("`--nodes`: `NODES` is an argument", "`kfjob scale JOB NODES`; `kfjob scale --help` shows the usage"),
        ),
        ("logs a --learning-rate 2", ("`--learning-rate`", "`kfjob logs --help` shows the usage")),
    ],
)
def test_an_unknown_option_may_be_a_field_of_the_spec(arguments, lines, capsys: pytest.CaptureFixture[str]):
    assert run(arguments.split()) == 2
    title, hint = lines
    assert capsys.readouterr().err == f"error: unknown option {title}\nhint: {hint}\n"


def test_a_missing_argument_is_shown_in_its_command(capsys: pytest.CaptureFixture[str]):
    assert run(["scale", "a"]) == 2
    hint = "`kfjob scale JOB NODES`; `kfjob scale --help` shows the usage"
    assert capsys.readouterr().err == f"error: missing argument `NODES`\nhint: {hint}\n"
