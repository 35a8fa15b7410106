"""The line numbers of a diagnosis are those of the log, also of lines that the view skips."""

from __future__ import annotations

from pathlib import Path

import pytest

from kfjob.cli.commands import run
from tests.unit.diagnose.cases import block, examine, line


def test_loss_that_is_not_a_number_has_its_line_in_the_log(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    log = tmp_path / "train.log"
    noise = "".join(f"sample {number} of nothing\n" for number in range(37))
    steps = "".join(f"step {step} loss {3 - step / 10 if step < 6 else 'nan'}\n" for step in range(1, 8))
    log.write_text(noise + steps)
    run(["diagnose", "--from", str(log)])
    assert f"line {37 + 6}" in capsys.readouterr().out


def test_quoted_success_of_an_agent_is_no_success():
    quoted = line("docs: the agent prints 'worker group successfully finished' at its end", 5)
    _, symptoms = examine([*block(0, 1, "a-worker-0"), quoted])
    assert not symptoms.history.pod("a-worker-0").has_succeeded
