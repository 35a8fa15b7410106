"""`kfjob progress`: which lines of a saved log are training progress."""

from __future__ import annotations

import json
from pathlib import Path

from click.testing import CliRunner

from kfjob.cli.progress import progress

LINES = "".join(f"epoch 1 step {step} loss {9 - step / 100}\n" for step in (10, 20, 30))


def run(*arguments: str) -> str:
    result = CliRunner().invoke(progress, arguments)
    assert result.exit_code == 0, result.output
    return result.output


def test_layout_that_counts_is_shown(tmp_path: Path):
    log = tmp_path / "w-0.log"
    log.write_text(LINES)
    assert run(str(log)).splitlines() == [
        "counts  w-0  3 lines  epoch 1 step 10 loss 8.9",
        "epoch 1, step 30 · loss 8.7000 (8.9 at first)",
    ]
    answer = json.loads(run(str(log), "-o", "json"))
    assert answer["templates"][0]["values"] == ["epoch", "loss", "step"]


def test_pattern_is_tried_on_a_log(tmp_path: Path):
    log = tmp_path / "w-0.log"
    log.write_text("alpha 3 beta 2.5\nalpha 4 beta 2.25\n")
    assert run(str(log)).startswith("no line looks like training progress; `--progress PATTERN` tries a pattern")
    assert "step 4 · loss 2.2500" in run(str(log), "--progress", r"alpha (?P<step>\d+) beta (?P<loss>[\d.]+)")
