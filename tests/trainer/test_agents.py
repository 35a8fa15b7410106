"""Training under torchrun when a rank is killed, a pod is evicted, or nodes leave and join."""

from __future__ import annotations

import json
import re
from operator import itemgetter

import pytest

from tests.trainer.test_kills import run

pytestmark = pytest.mark.local


@pytest.fixture
def spec(tiny):
    return tiny | {"strategy": "fsdp"}


@pytest.mark.parametrize("count", [1, pytest.param(50, marks=[pytest.mark.long, pytest.mark.timeout(2000)])])
def test_killed_rank_is_restarted(spec, tmp_path, count):
    """Each kill costs one restart on each node, and the losses do not change."""
    *kills, end = run("torchrun_agents.py", "kills", json.dumps(spec), tmp_path, count, folder=tmp_path, seconds=1800)
    assert len(kills) == count
    for kill in kills:
        resumed = int((kill["resumed"] or "step-0").removeprefix("step-"))
        assert resumed >= kill["step"] - 2  # the last save may be incomplete
    assert end["starts"] == [count + 1, count + 1]
    assert end["same curve"]
    assert end["steps"] > count


@pytest.mark.parametrize("count", [1, pytest.param(20, marks=[pytest.mark.long, pytest.mark.timeout(2000)])])
def test_sigterm_to_a_node_saves_the_last_step(spec, tmp_path, count):
    """The save takes less than torchrun's 30 s; without restarts the other node ends too, and neither counts as completed."""
    stops = run("torchrun_agents.py", "stops", json.dumps(spec), tmp_path, count, folder=tmp_path, seconds=1800)
    assert len(stops) == count
    for stop in stops:
        outcome = stop["outcome"]
        assert all(stop["codes"].values())
        assert outcome["outcome"] == "stopped"
        assert outcome["step"] == stop["last"] > stop["due"]
        assert stop["resumed"] == (f"step-{stop['due']:06d}" if stop["due"] else None)
        assert outcome["checkpoint"].endswith(f"step-{outcome['step']:06d}")


@pytest.mark.parametrize("count", [1, pytest.param(10, marks=[pytest.mark.long, pytest.mark.timeout(2000)])])
def test_nodes_leave_and_join(spec, workers, tmp_path, count):
    """2 nodes, 1, 2: accumulation keeps the global batch, so the losses are those of an uninterrupted run."""
    (result,) = run("torchrun_agents.py", "elastic", json.dumps(spec), tmp_path, count, folder=tmp_path, seconds=1800)
    sizes = [
        size for number, (size, _) in enumerate(result["resumes"]) if number == 0 or result["resumes"][number - 1][0] != size
    ]
    assert sizes == [2, 1] * count + [2]
    assert result["resumes"][0][1] is None
    assert all(re.fullmatch(r"step-\d{6}", name) for _, name in result["resumes"][1:])
    steps = max(step for _, step, _ in result["losses"])
    one_rank = {"strategy": "none", "max_steps": steps, "schedule": "constant"}
    (reference,) = workers.run("run_training", {"spec": spec | one_rank | {"micro_batch_size": 8}})
    (accumulated,) = workers.run(
        "run_training", {"spec": spec | one_rank | {"micro_batch_size": 4, "gradient_accumulation_steps": 2}}
    )
    assert {step for _, step, _ in result["losses"]} == set(range(1, steps + 1))
    drift = 0.0  # the effect of the order of additions: 0.01 after 100 steps, when the model has memorised the text
    for _, step, loss in sorted(result["losses"], key=itemgetter(1)):
        expected = reference["losses"][str(step)]
        drift = max(drift, abs(accumulated["losses"][str(step)] - expected))
        assert float.fromhex(loss) == pytest.approx(expected, abs=1e-6 * step + drift, rel=0)
