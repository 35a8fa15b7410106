"""Numbers and durations in options have limits: a number of any size is one error."""

from __future__ import annotations

from pathlib import Path

import click
import pytest

from kfjob.cli.commands import run
from kfjob.cli.parameter_types import DURATION, MAX_COUNT, MAX_DURATION_SECONDS, SINCE, Count, Number
from tests.golden.command_tree import contexts

HUGE = ["9" * 19, "9" * 30, "9" * 400, "9" * 5000]


def test_every_option_with_a_number_has_limits():
    parameters = [parameter for context in contexts() for parameter in context.command.params]
    numbers = [p.type for p in parameters if isinstance(p.type, click.types.IntParamType | click.types.FloatParamType)]
    counters = [p for p in parameters if isinstance(p, click.Option) and p.count]
    assert len(numbers) >= 6
    assert not counters
    assert all(isinstance(kind, Count | Number) for kind in numbers), numbers


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
    assert run(["logs", "--from", str(log), "--tail", str(MAX_COUNT)]) == 0
    assert capsys.readouterr().out == "a\nb\n"


@pytest.mark.parametrize("text", [*HUGE, *(f"{text}h" for text in HUGE), f"{MAX_DURATION_SECONDS + 1}", "3651d"])
def test_a_duration_of_more_than_ten_years_is_refused(text):
    for kind in (DURATION, SINCE):
        with pytest.raises(click.BadParameter, match="at most 10 years"):
            kind.convert(text, None, None)


@pytest.mark.parametrize("text", ["nan", "inf", "-inf", "1e400", "0", "-1"])
def test_a_number_is_positive_and_finite(text):
    with pytest.raises(click.BadParameter):
        Number().convert(text, None, None)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("init --nodes two new.yaml", "`two` is not a whole number"),
        ("init --nodes 0 new.yaml", "`0` is less than 1"),
        ("init --gpus many new.yaml", "`many` is not a whole number"),
        ("logs a --tail -1", "`-1` is less than 0"),
        ("logs a --tail 1e3", "`1e3` is not a whole number"),
        ("estimate a.yaml --tokens-per-second 10,5", "`10,5` is not a number"),
        ("estimate a.yaml --mfu 40%", "`40%` is not a number"),
        ("estimate a.yaml --mfu 2", "`2` is more than 1"),
    ],
)
def test_a_wrong_number_is_explained_in_plain_words(arguments, message, capsys: pytest.CaptureFixture[str]):
    assert run(arguments.split()) == 2
    first, _ = capsys.readouterr().err.splitlines()
    assert first.startswith("error: invalid value for `--")
    assert first.endswith(f"`: {message}")


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
