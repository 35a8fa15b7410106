from __future__ import annotations

import math

import pytest

from kfjob.errors import KfjobError
from kfjob.spec.train import TrainSpec
from kfjob.trainer.guards import Guard


def guard(**choices):
    return Guard(TrainSpec(model="micro-llama", data="-", max_steps=1, sequence_length=16, **choices))


def judged(one: Guard, *losses: float, grad_norm: float = 1.0, first: int = 1) -> list[str]:
    return [one.judge(first + n, loss=loss, grad_norm=grad_norm).action for n, loss in enumerate(losses)]


@pytest.mark.parametrize("loss", [math.nan, math.inf])
def test_what_is_no_number_stops_unless_said_otherwise(loss):
    with pytest.raises(KfjobError, match=f"the loss is {loss} at step 7"):
        guard().judge(7, loss=loss, grad_norm=1.0)
    with pytest.raises(KfjobError, match="the gradient's norm is inf at step 7"):
        guard().judge(7, loss=1.0, grad_norm=math.inf)
    assert judged(guard(on_nan="skip"), 1.0, loss, 1.0) == ["go on", "skip", "go on"]
    assert judged(guard(on_nan="roll_back"), loss) == ["roll back"]


def test_an_overflow_of_fp16_is_the_loss_scales_affair():
    assert judged(guard(precision="fp16"), 1.0, grad_norm=math.inf) == ["go on"]


def test_a_spike_is_measured_against_the_median():
    one = guard(on_spike="skip", spike_factor=3)
    assert judged(one, *[100.0] * 9) == ["go on"] * 9  # too few to measure against
    assert judged(one, 2.0, 100.0, 301.0, 299.0) == ["go on", "go on", "skip", "go on"]
    assert judged(guard(), *[1.0] * 20, 1000.0)[-1] == "go on"
    with pytest.raises(KfjobError, match=r"the loss is 5\.00000, 5\.0 times the usual at step 21"):
        judged(guard(on_spike="stop"), *[1.0] * 20, 5.0)


def test_rolling_back_that_does_not_help_ends():
    one = guard(on_nan="roll_back")
    assert judged(one, 1.0, 1.0, math.nan) == ["go on", "go on", "roll back"]
    assert judged(one, 1.0, math.nan, first=2) == ["go on", "roll back"]
    assert judged(one, math.nan, first=3) == ["roll back"]
    with pytest.raises(KfjobError) as raised:
        judged(one, 1.0, math.nan, first=2)
    assert raised.value.cause == "the run was rolled back 3 times and came no further than step 2"


def test_progress_makes_room_for_more_of_them():
    one = guard(on_nan="roll_back")
    for step in range(1, 20, 2):
        assert judged(one, 1.0, math.nan, first=step) == ["go on", "roll back"]


def test_only_choices_need_every_step():
    assert not guard().every_step
    assert guard(on_nan="skip").every_step
    assert guard(on_spike="stop").every_step


POISON = {"on_nan": "skip", "max_steps": 6, "strategy": "fsdp"}


def test_a_bad_step_is_skipped_on_all_ranks_and_leaves_no_trace(workers, tiny, tmp_path):
    """The step's update is missing, the rest is as if its gradient had been nothing."""
    spec = tiny | POISON | {"checkpoint_dir": str(tmp_path / "c")}
    for result in workers.run("poisoned", {"spec": spec, "steps": [3], "rank": 1}, world_size=2):
        assert [int(step) for step in result["losses"]] == [1, 2, 4, 5, 6]
        assert all(math.isfinite(loss) for loss in result["losses"].values())
        assert result["outcome"]["outcome"] == "finished"
        assert result["outcome"]["step"] == 6


def test_rolling_back_loads_the_weights_and_goes_on_with_new_data(workers, tiny, tmp_path):
    spec = tiny | POISON | {"on_nan": "roll_back", "checkpoint_dir": str(tmp_path / "c"), "checkpoint_every": 2}
    results = workers.run("poisoned", {"spec": spec, "steps": [4], "rank": 1}, world_size=2)
    (plain, _) = workers.run("trained", {"spec": spec | {"checkpoint_dir": None}}, world_size=2)
    for result in results:
        assert [step for step, _ in result["heard"]] == [1, 2, 3, 3, 4, 5, 6]
        assert result["heard"][:3] == [[int(step), loss] for step, loss in list(plain["losses"].items())[:3]]
        assert result["heard"][3][1] != result["heard"][2][1]  # the samples of steps 3 and 4 do not come again
    samples = [sample for result in results for batch in result["batches"] for sample in batch]
    assert len(samples) == len(set(samples))


def test_without_a_checkpoint_there_is_no_way_back(workers, tiny):
    said = workers.run("poisoned_and_refused", {"spec": tiny | POISON | {"on_nan": "roll_back"}, "steps": [2], "rank": 0})
    assert "error: there is no checkpoint to roll back to" in said[0]
