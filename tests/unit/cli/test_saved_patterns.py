"""`--progress PATTERN` with `--from`: saved logs of a program whose lines only a pattern reads."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from kfjob.base.errors import UsageError
from kfjob.cli.commands import kfjob

PATTERN = r"alpha (?P<step>\d+) beta (?P<loss>[\d.]+)"


@pytest.fixture
def folder(tmp_path: Path) -> str:
    for rank in (0, 1):
        lines = "alpha 3 beta 2.5\nalpha 4 beta 2.25\n" if rank else "ready\n"
        (tmp_path / f"job-worker-{rank}.log").write_text(lines)
    return str(tmp_path)


def run(*arguments: str) -> str:
    result = CliRunner().invoke(kfjob, arguments)
    if isinstance(result.exception, Exception) and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.output


def test_status_reads_the_pattern(folder: str):
    answer = json.loads(run("status", "--from", folder, "--progress", PATTERN, "-o", "json"))
    assert (answer["progress"]["step"], answer["progress"]["loss"]) == (4, 2.25)


def test_master_is_the_pod_with_the_pattern(folder: str):
    assert json.loads(run("master", "--from", folder, "--progress", PATTERN, "-o", "json"))["pod"] == "job-worker-1"


def test_report_has_the_curve_of_the_pattern(folder: str):
    assert "2.25" in run("report", "--from", folder, "--progress", PATTERN, "-o", "-")
    assert "2.25" not in run("report", "--from", folder, "-o", "-").replace("beta 2.25", "")


def test_diagnose_takes_the_pattern(folder: str):
    with (Path(folder) / "job-worker-1.log").open("a") as log:
        log.write("alpha 5 beta nan\n")
    pattern = r"alpha (?P<step>\d+) beta (?P<loss>[\d.]+|nan)"
    assert "loss-not-finite" in run("diagnose", "--from", folder, "--progress", pattern)
    assert "loss-not-finite" not in run("diagnose", "--from", folder)


@pytest.mark.parametrize("command", ["status", "master", "report", "diagnose"])
def test_pattern_needs_saved_logs(command: str):
    with pytest.raises(UsageError, match="`--progress` needs `--from`"):
        run(command, "job", "--progress", PATTERN)


def test_wrong_pattern_is_an_error(folder: str):
    with pytest.raises(UsageError):
        run("status", "--from", folder, "--progress", "(")
