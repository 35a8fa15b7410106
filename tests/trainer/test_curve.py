"""The curve itself, kept: other initial weights, another order of the data, another schedule or norm of the loss would show."""

from __future__ import annotations

import pytest

ELSEWHERE = 1e-3
"""What the order of additions on another processor may change in nine steps at this learning rate."""
CURVE = [5.766108, 5.673996, 5.279041, 4.893212, 4.548859, 4.282017, 4.031709, 3.687561, 3.393638]


def test_the_losses_are_those_that_were_kept(workers, tiny):
    spec = tiny | {"strategy": "none", "micro_batch_size": 8, "schedule": "constant", "max_steps": len(CURVE)}
    (result,) = workers.run("trained", {"spec": spec})
    assert list(result["losses"].values()) == pytest.approx(CURVE, abs=ELSEWHERE, rel=0)
