from __future__ import annotations

import json
import math
import re

import pytest

from kfjob.base.errors import KfjobError
from kfjob.trainer.anomalies import MAX_SKIPS, AnomalyDetector
from kfjob.trainer.metrics import OUTCOME_FILE
from kfjob.trainer.pins import pin
from kfjob.trainer.storage import open_storage
from kfjob.trainspec.train_spec import TrainSpec


def detector(**settings):
    return AnomalyDetector(TrainSpec(model="micro-llama", data="-", max_steps=1, sequence_length=16, **settings))


def actions(anomalies: AnomalyDetector, *losses: float, grad_norm: float = 1.0, first: int = 1) -> list[str]:
    return [anomalies.check(first + n, loss=loss, grad_norm=grad_norm).action for n, loss in enumerate(losses)]


@pytest.mark.parametrize("loss", [math.nan, math.inf])
def test_nan_stops_the_run_by_default(loss):
    with pytest.raises(KfjobError, match=f"the loss is {loss} at step 7"):
        detector().check(7, loss=loss, grad_norm=1.0)
    with pytest.raises(KfjobError, match="the gradient norm is inf at step 7"):
        detector().check(7, loss=1.0, grad_norm=math.inf)
    assert actions(detector(on_nan="skip"), 1.0, loss, 1.0) == ["accept", "skip", "accept"]
    assert actions(detector(on_nan="roll_back"), loss) == ["roll back"]


def test_fp16_overflow_is_not_an_anomaly():
    assert actions(detector(precision="fp16"), 1.0, grad_norm=math.inf) == ["accept"]


def test_spike_is_compared_with_the_median():
    anomalies = detector(on_spike="skip", spike_factor=3)
    assert actions(anomalies, *[100.0] * 9) == ["accept"] * 9  # too few losses to compare with
    assert actions(anomalies, 2.0, 100.0, 301.0, 299.0) == ["accept", "accept", "skip", "accept"]
    assert actions(detector(), *[1.0] * 20, 1000.0)[-1] == "accept"
    with pytest.raises(KfjobError, match=r"the loss is 5\.00000, 5\.0 times the recent median at step 21"):
        actions(detector(on_spike="stop"), *[1.0] * 20, 5.0)


def test_repeated_roll_backs_without_progress_fail():
    anomalies = detector(on_nan="roll_back")
    assert actions(anomalies, 1.0, 1.0, math.nan) == ["accept", "accept", "roll back"]
    assert actions(anomalies, 1.0, math.nan, first=2) == ["accept", "roll back"]
    assert actions(anomalies, math.nan, first=3) == ["roll back"]
    with pytest.raises(KfjobError) as raised:
        actions(anomalies, 1.0, math.nan, first=2)
    assert raised.value.cause == "the run was rolled back 3 times and never passed step 2"


def test_progress_resets_the_roll_back_limit():
    anomalies = detector(on_nan="roll_back")
    for step in range(1, 20, 2):
        assert actions(anomalies, 1.0, math.nan, first=step) == ["accept", "roll back"]


def test_every_step_is_checked_only_if_configured():
    assert not detector().needs_every_step
    assert detector(on_nan="skip").needs_every_step
    assert detector(on_spike="stop").needs_every_step
    assert [detector(on_nan=reaction).may_skip for reaction in ("stop", "skip", "roll_back")] == [False, True, False]
    assert detector(on_spike="skip").may_skip


def test_invalid_step_between_two_checks_is_found():
    with pytest.raises(KfjobError, match="not finite since the last check at step 8"):
        detector().check(8, loss=1.0, grad_norm=1.0, finite=False)


def test_skipping_every_step_fails():
    anomalies = detector(on_nan="skip")
    assert actions(anomalies, *[math.nan] * MAX_SKIPS, 1.0, *[math.nan] * MAX_SKIPS)[-1] == "skip"
    with pytest.raises(KfjobError) as raised:
        actions(anomalies, math.nan)
    assert raised.value.cause == f"the {MAX_SKIPS} steps before it were skipped too"


SKIP_NAN = {"on_nan": "skip", "max_steps": 6, "strategy": "fsdp"}


def test_invalid_step_is_skipped_on_all_ranks(workers, tiny, tmp_path):
    """The optimiser step is skipped, and the run continues with finite losses."""
    spec = tiny | SKIP_NAN | {"checkpoint_dir": str(tmp_path / "c")}
    for result in workers.run("train_with_nan", {"spec": spec, "steps": [3], "rank": 1}, world_size=2):
        assert [int(step) for step in result["losses"]] == [1, 2, 4, 5, 6]
        assert all(math.isfinite(loss) for loss in result["losses"].values())
        assert result["outcome"]["outcome"] == "finished"
        assert result["outcome"]["step"] == 6


ROLL_BACK = SKIP_NAN | {"on_nan": "roll_back", "checkpoint_every": 2}


@pytest.fixture(scope="module")
def rolled_back(workers, tiny, tmp_path_factory):
    """A run whose third step is NaN, at once after a save."""
    spec = tiny | ROLL_BACK | {"checkpoint_dir": str(tmp_path_factory.mktemp("rolled-back"))}
    return workers.run("train_with_nan", {"spec": spec, "steps": [3], "rank": 1}, world_size=2)


def test_roll_back_loads_the_checkpoint_and_continues_with_new_samples(rolled_back, workers, tiny):
    (plain, _) = workers.run("run_training", {"spec": tiny | SKIP_NAN}, world_size=2)
    for result in rolled_back:
        assert [step for step, _ in result["steps"]] == [1, 2, 3, 4, 5, 6]
        assert result["steps"][:2] == [[int(step), loss] for step, loss in list(plain["losses"].items())[:2]]
        assert result["steps"][2][1] != plain["losses"]["3"]  # the samples of step 3 are not read again
    samples = [sample for result in rolled_back for batch in result["batches"] for sample in batch]
    assert len(samples) == len(set(samples))


def test_stop_after_a_roll_back_keeps_the_position(rolled_back, workers, tiny, tmp_path):
    """The step is that of the checkpoint, but the next launch must not read the failed samples again."""
    spec = tiny | ROLL_BACK | {"checkpoint_dir": str(tmp_path / "c")}
    arguments = {"spec": spec, "steps": [3], "rank": 1, "stop_after": 3}
    stopped = workers.run("train_with_nan", arguments, world_size=2)
    resumed = workers.run("run_training", {"spec": spec}, world_size=2)
    for expected, first, second in zip(rolled_back, stopped, resumed, strict=True):
        assert [first["outcome"]["step"], first["outcome"]["loss"]] == first["steps"][1] == expected["steps"][1]
        assert [[int(step), loss] for step, loss in second["losses"].items()] == expected["steps"][2:]
        assert second["batches"] == expected["batches"][3:]


def test_roll_back_after_progress_returns_to_the_newest_checkpoint(workers, tiny, tmp_path):
    """Step 3 fails, then step 5: the run has passed step 3 in between, so the checkpoint of step 4 is good."""
    spec = tiny | ROLL_BACK | {"checkpoint_dir": str(tmp_path / "c"), "strategy": "none"}
    (result,) = workers.run("train_with_nan", {"spec": spec, "steps": [3, 6], "rank": 0})
    assert [step for step, _ in result["steps"]] == [1, 2, 3, 4, 5, 6]
    assert sorted(path.name for path in (tmp_path / "c").glob("*step*")) == [f"step-00000{step}" for step in (2, 4, 6)]


def test_run_ends_after_its_epochs_with_a_roll_back(workers, tiny, tokenised_folder, tmp_path):
    """The samples of the step that failed, and of the one before it, are passed over: the epoch has two steps less."""
    change = {"strategy": "none", "data": str(tokenised_folder), "sequence_length": 64, "max_steps": None, "epochs": 1}
    spec = tiny | ROLL_BACK | {"checkpoint_dir": str(tmp_path / "c"), "micro_batch_size": 16} | change
    tokens = json.loads((tokenised_folder / "tokens.json").read_text())["tokens"]["train"]
    (result,) = workers.run("train_with_nan", {"spec": spec, "steps": [4], "rank": 0})
    assert result["outcome"]["step"] == ((tokens - 1) // 64) // 16 - 2
    samples = [sample for batch in result["batches"] for sample in batch]
    assert len(samples) == len(set(samples))


@pytest.mark.parametrize("keep", [{}, {"keep_last": 1, "keep_every": 2}])
def test_launch_after_a_second_roll_back_resumes_from_the_older_checkpoint(workers, tiny, tmp_path, keep):
    """Step 6 fails twice: the run goes back to step 4, then to step 2, and is stopped before step 4."""
    folder = tmp_path / "c"
    spec = tiny | ROLL_BACK | {"checkpoint_dir": str(folder), "max_steps": 8} | keep
    arguments = {"spec": spec, "steps": [5, 6], "rank": 1, "stop_after": 7}
    stopped = workers.run("train_with_nan", arguments, world_size=2)
    assert [result["outcome"]["step"] for result in stopped] == [3, 3]
    assert {path.name[:-5] for path in folder.glob("passed-over-*")} == {"passed-over-step-000004"}
    resumed = workers.run("run_training", {"spec": spec}, world_size=2)
    for first, second in zip(stopped, resumed, strict=True):
        assert list(second["losses"]) == ["4", "5", "6", "7", "8"]
        used = [sample for batch in first["batches"][:7] for sample in batch]
        assert not set(used) & {sample for batch in second["batches"] for sample in batch}


def test_failed_run_names_the_checkpoint_to_which_it_was_rolled_back(workers, tiny, tmp_path):
    """Step 5 fails twice, step 3 twice: the checkpoint of step 4 was passed over."""
    folder = tmp_path / "c"
    spec = tiny | ROLL_BACK | {"checkpoint_dir": str(folder), "strategy": "none"}
    (message,) = workers.run("error_of_train_with_nan", {"spec": spec, "steps": [5, 6, 7, 8], "rank": 0})
    assert "cause: the run was rolled back 3 times" in message
    outcome = json.loads((folder / OUTCOME_FILE).read_text())
    assert (outcome["step"], outcome["checkpoint"]) == (2, str(folder / "step-000002"))
    assert (folder / "step-000002").is_dir()
    assert not (folder / "step-000004").exists()


@pytest.mark.parametrize(
    ("stage", "settings"), [*((stage, {}) for stage in range(4)), (2, {"on_spike": "stop", "log_every": 10})], ids=str
)
def test_gradient_that_is_not_finite_stops_deepspeed(workers, tiny, stage, settings):
    spec = tiny | {"strategy": "deepspeed", "zero_stage": stage} | settings
    arguments = {"spec": spec, "steps": [3], "rank": 1, "loss": False}
    for message in workers.run("error_of_train_with_nan", arguments, world_size=2):
        assert re.search("error: the gradient norm is (nan|inf) at step 3", message)  # DeepSpeed returns inf


def test_roll_back_without_a_checkpoint_is_an_error(workers, tiny):
    messages = workers.run(
        "error_of_train_with_nan", {"spec": tiny | SKIP_NAN | {"on_nan": "roll_back"}, "steps": [2], "rank": 0}
    )
    assert "error: there is no checkpoint to roll back to" in messages[0]


def test_transient_nan_between_progress_lines_is_found(workers, tiny):
    spec = tiny | {"strategy": "fsdp", "log_every": 3}
    arguments = {"spec": spec, "steps": [2], "rank": 1, "gradients": False}
    for message in workers.run("error_of_train_with_nan", arguments, world_size=2):
        assert "not finite since the last check at step 3" in message


def test_infinite_norm_between_progress_lines_is_found(workers, tiny):
    spec = tiny | {"strategy": "none", "log_every": 3}
    (message,) = workers.run("error_of_train_with_infinite_norm", {"spec": spec, "step": 2})
    assert "the loss or the gradient norm was not finite since the last check at step 3" in message


@pytest.mark.parametrize(("strategy", "world_size"), [("none", 1), ("fsdp", 2), ("deepspeed", 2)])
def test_weights_that_overflow_are_not_saved(workers, tiny, tmp_path, strategy, world_size):
    """The loss and the gradient norm of the step are finite, the weights after it are not."""
    spec = tiny | {
        "strategy": strategy,
        "lr": 1e39,
        "warmup_steps": 0,
        "checkpoint_every": 1,
        "checkpoint_dir": str(tmp_path / "c"),
    }
    for message in workers.run("error_of_training", {"spec": spec | {"zero_stage": 2}}, world_size=world_size):
        assert "error: the weights or the optimiser state at step 1 hold values that are not finite" in message
    assert list((tmp_path / "c").glob("step-*")) == []


def test_roll_back_passes_over_bad_checkpoints(workers, tiny, tmp_path):
    spec = tiny | {"strategy": "ddp", "checkpoint_dir": str(tmp_path / "c"), "checkpoint_every": 2, "micro_batch_size": 2}
    workers.run("run_training", {"spec": spec}, world_size=2)
    source = str(tmp_path / "c" / "step-000006")
    workers.run("save_not_finite", {"spec": spec, "source": source, "step": 8}, world_size=2)
    (message, _) = workers.run("error_of_training", {"spec": spec}, world_size=2)
    assert "step-000008` holds values that are not finite\n  --> resume" in message
    assert workers.run("roll_back_to", {"spec": spec, "before": None}, world_size=2) == ["step-000006"] * 2
    assert workers.run("run_training", {"spec": spec}, world_size=2)[0]["outcome"]["step"] == 6  # resumes from step 6
    for before, expected in ((6, "step-000004"), (1, "step-000002")):
        assert workers.run("roll_back_to", {"spec": spec, "before": before}, world_size=2) == [expected] * 2
    names = sorted(path.name for path in (tmp_path / "c").glob("*step*"))
    assert [name[:-5] for name in names[:-1]] == [f"passed-over-step-00000{step}" for step in (4, 6, 8)]
    assert names[-1] == "step-000002"
    log = workers.log()
    assert "W [resume.py" in log
    assert "Checkpoint step-000008 passed over: it holds values that are not finite" in log
    assert "Checkpoint step-000006 passed over: the run made no progress from it" in log


def test_roll_back_passes_over_a_bad_checkpoint_that_someone_reads(workers, tiny, tmp_path):
    spec = tiny | {"strategy": "none", "checkpoint_dir": str(tmp_path / "c"), "checkpoint_every": 2}
    workers.run("run_training", {"spec": spec})
    with pin(open_storage(str(tmp_path / "c")), "step-000006"):
        assert workers.run("roll_back_to", {"spec": spec, "before": 6}) == ["step-000004"]
    assert sorted(path.name for path in (tmp_path / "c").glob("*step*")) == [f"step-00000{step}" for step in (2, 4, 6)]
