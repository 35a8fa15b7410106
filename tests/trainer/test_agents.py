"""What torchrun does when a rank dies, a pod is taken away or comes back, and what the training makes of it."""

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


@pytest.mark.parametrize("count", [3, pytest.param(50, marks=[pytest.mark.long, pytest.mark.timeout(2000)])])
def test_a_killed_rank_comes_back(spec, tmp_path, count):
    """Each kill costs one restart on each node, no more, and nothing of the curve."""
    *kills, end = run("torchrun_agents.py", "kills", json.dumps(spec), tmp_path, count, seconds=1800)
    assert len(kills) == count
    for kill in kills:
        resumed = int((kill["resumed"] or "step-0").removeprefix("step-"))
        assert resumed >= kill["step"] - 2  # the last save may not have been complete
    assert end["starts"] == [count + 1, count + 1]
    assert end["same curve"]
    assert end["steps"] > count


@pytest.mark.parametrize("count", [1, pytest.param(20, marks=[pytest.mark.long, pytest.mark.timeout(2000)])])
def test_a_node_that_is_told_to_go_loses_nothing(spec, tmp_path, count):
    """Within the 30 s that torchrun gives; without restarts the other node ends too, and neither counts as having finished."""
    stops = run("torchrun_agents.py", "stops", json.dumps(spec), tmp_path, count, seconds=1800)
    assert len(stops) == count
    for stop in stops:
        outcome = stop["outcome"]
        assert all(stop["codes"].values())
        assert stop["seconds"] < 25
        assert outcome["outcome"] == "stopped"
        assert outcome["step"] == stop["last"] > stop["due"]
        assert stop["resumed"] == (f"step-{stop['due']:06d}" if stop["due"] else None)
        assert outcome["checkpoint"].endswith(f"step-{outcome['step']:06d}")


@pytest.mark.parametrize("count", [1, pytest.param(10, marks=[pytest.mark.long, pytest.mark.timeout(2000)])])
def test_nodes_go_and_come(spec, workers, tmp_path, count):
    """2 nodes, 1, 2: the global batch is kept by accumulation, so the losses are those of a run that nothing happened to."""
    (said,) = run("torchrun_agents.py", "elastic", json.dumps(spec), tmp_path, count, seconds=1800)
    sizes = [size for number, (size, _) in enumerate(said["resumes"]) if number == 0 or said["resumes"][number - 1][0] != size]
    assert sizes == [2, 1] * count + [2]
    assert said["resumes"][0][1] is None
    assert all(re.fullmatch(r"step-\d{6}", name) for _, name in said["resumes"][1:])
    steps = max(step for _, step, _ in said["losses"])
    alone = {"strategy": "none", "max_steps": steps, "schedule": "constant"}
    (whole,) = workers.run("run_training", {"spec": spec | alone | {"micro_batch_size": 8}})
    (parts,) = workers.run("run_training", {"spec": spec | alone | {"micro_batch_size": 4, "gradient_accumulation_steps": 2}})
    assert {step for _, step, _ in said["losses"]} == set(range(1, steps + 1))
    drift = 0.0  # what the order of summing alone comes to: after 100 steps a hundredth, when the text is known by heart
    for _, step, loss in sorted(said["losses"], key=itemgetter(1)):
        expected = whole["losses"][str(step)]
        drift = max(drift, abs(parts["losses"][str(step)] - expected))
        assert float.fromhex(loss) == pytest.approx(expected, abs=1e-6 * step + drift, rel=0)
