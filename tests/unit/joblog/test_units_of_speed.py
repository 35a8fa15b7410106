"""The unit of a speed, and its name as printed where a program gives no unit."""

from __future__ import annotations

import pytest

from kfjob.joblog.events import LogLine
from kfjob.joblog.observe_config import ObserveConfig
from kfjob.joblog.progress.figures.line_figures import parse_line
from kfjob.joblog.view.job_view import JobView
from kfjob.joblog.view.progress_text import speed_text
from kfjob.joblog.view.reduction import reduce_all


@pytest.mark.parametrize(
    ("line", "unit"),
    [
        ("step 10 loss 2.3 tps 812.5", "(tps)"),
        ("step 10 loss 2.3 fps: 812.5", "frames/s"),
        ("step 10 loss 2.3 812.5 fps", "frames/s"),
        ("step 10 | loss 2.3 | wps 812.5 | ups 3.1", "words/s"),
        ("step=10 loss=2.3 TGS=812.5", "tokens/s/gpu"),
        ('{"step": 10, "loss": 2.3, "perf/sps": 812.5}', "(perf/sps)"),
        ("{'step': 10, 'loss': 2.3, 'charts/SPS': 812.5}", "(charts/SPS)"),
        ("step 10 loss 2.3 ips: 812.5", "(ips)"),
        ("step 10 loss 2.3 ips: 812.5 images/s", "images/s"),
        ("step 10, loss 2.3, Throughput: 812.5", "(Throughput)"),
        ("step 10, loss 2.3, Throughput = 812.5 samples/sec", "samples/s"),
    ],
)
def test_speed_has_a_unit_or_its_name(line: str, unit: str):
    figures = parse_line(line)
    assert (figures.speed, figures.unit) == (812.5, unit)


@pytest.mark.parametrize("pattern", [None, r"update (?P<step>\d+) nll (?P<loss>[\d.]+) perf/sps (?P<speed>[\d.]+)"])
def test_name_of_a_speed_without_a_unit_is_shown(pattern: str | None):
    lines = [f"update {step} nll {3 - step / 10:.2f} perf/sps 812.5" for step in range(1, 9)]
    view = JobView(config=ObserveConfig(progress_pattern=pattern))
    training = reduce_all(view, [LogLine(pod="w-0", text=text) for text in lines]).training
    assert speed_text(training) == "812.5 (perf/sps)"
