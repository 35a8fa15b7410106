"""Progress of people's own scripts, while they run: the lines are printed by every shape of program."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kfjob.api.reader import LiveReader, open_snapshot
from kfjob.api.settings import Settings
from kfjob.api.target import Target
from kfjob.api.view import read_view
from kfjob.backends.base import JobRef
from kfjob.report.sections import make_charts
from tests.local.conftest import NAMESPACE, Here

SHAPES = {
    "pairs": "print(f'step {s} loss {9 - s / 10:.4f} lr 0.001', flush=True)",
    "counter": "print(f'Epoch [1/2], Step [{s}/40], Loss: {9 - s / 10:.4f}', flush=True)",
    "json": "print(json.dumps({'step': s, 'train': {'loss': 9 - s / 10}}), flush=True)",
    "block": "print(f'[step={s}/40]\\n    train/loss={9 - s / 10:.4f}', flush=True)",
    "bar": "print(f'\\rTrain:  5%|#  | {s}/40 [00:01<00:09,  4.5it/s, loss={9 - s / 10}]', end='', flush=True)",
    "table": "print(('step  train_loss  lr\\n' if s == 10 else '') + f'{s}     {9 - s / 10:.4f}    0.1', flush=True)",
}
CODE = """
import json, os, time
for s in range(10, 50, 10):
    {line}
print(flush=True)
while not os.path.exists({end!r}):
    time.sleep(0.02)
"""


@pytest.mark.parametrize("shape", SHAPES)
def test_progress_is_right_while_the_program_runs(shape: str, here: Here, tmp_path: Path):
    end = tmp_path / "end"
    ref = here.submit(CODE.format(line=SHAPES[shape], end=f"{end}"))
    target = Target(Settings(state=here.state), "local", NAMESPACE)
    here.until(lambda: read_view(make_reader(here, ref, target)).training.step == 40)
    view = read_view(make_reader(here, ref, target))
    assert (view.training.loss, view.training.first_loss, view.training.pod) == (5.0, 8.0, "job-worker-0")
    assert (view.master.pod, str(view.phase)) == ("job-worker-0", "Running")  # type: ignore[union-attr]
    chart = make_charts(view.training)[0]
    points = {int(step): float(loss) for _, _, step, loss in json.loads(chart.pictures[0].points)["loss"]}
    steps = range(10, 50, 10)
    assert chart.title == "Loss"
    assert points == {step: pytest.approx(9 - step / 10) for step in steps}
    end.touch()
    assert here.end(ref).job.phase == "Succeeded"


def make_reader(here: Here, ref: JobRef, target: Target) -> LiveReader:
    return open_snapshot(target, here.get(ref))
