"""kill -9 at any moment: the newest complete checkpoint is found, and the losses go on as if nothing had been."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent


def run(program: str, *arguments: object, seconds: float = 500) -> list[dict[str, Any]]:
    command = [sys.executable, str(HERE / program), *map(str, arguments)]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, timeout=seconds)
    assert done.returncode == 0, done.stderr[-3000:]
    if kept := os.environ.get("KFJOB_TEST_LOGS"):
        Path(kept).mkdir(parents=True, exist_ok=True)
        with (Path(kept) / f"{Path(program).stem}.jsonl").open("a") as file:
            file.write(done.stdout)
    return [json.loads(line) for line in done.stdout.splitlines()]


def saves_are_complete_or_invisible(folder, random_kills, seconds=500):
    results = run("kill_while_saving.py", folder, random_kills, seconds=seconds)
    by_chance = [result for result in results if result["point"].startswith("random ")]
    assert len(by_chance) == random_kills
    assert {result["point"]: result["step"] for result in results if result not in by_chance} == {
        "before the shards": 2,
        "after the shards": 2,
        "before the manifest": 2,
        "after the manifest": 2,
        "after the rename, before retention": 3,
        "half-way through deleting": 3,
        "second save of a step: with its shards": 2,
        "second save of a step: between the two renames": 2,
        "second save of a step: deleting the first": 2,
    }
    for result in results:
        assert result["killed"]
        assert result["damaged"] == []
        assert result["visible"][-1] == f"step-{result['step']:06d}"
    for result in by_chance:
        assert result["step"] >= result["at least"]
        assert f"step-{result['step']:06d}" >= result["seen"]
    return {result["at"] for result in by_chance}


def the_curve_is_the_uninterrupted_one(folder, spec, world_size, kills, seconds=500):
    whole, *lives = run("kill_while_training.py", json.dumps(spec), folder, world_size, kills, 1, seconds=seconds)
    assert len(lives) == kills
    assert list(whole["uninterrupted"]) == [str(step) for step in range(1, spec["max_steps"] + 1)]
    for life in lives:
        assert not life["failed"]
        assert life["resumed"] in (life["due"], None)  # it may not have lived long enough to say so
        first = 1 if life["due"] == "None" else int(life["due"].removeprefix("step-")) + 1
        assert list(life["losses"]) == [str(step) for step in range(first, first + len(life["losses"]))]
        assert life["losses"].items() <= whole["uninterrupted"].items()
        if life["ended"]:
            assert life["weights"] == whole["weights"]
    assert any(life["resumed"] not in ("None", None) for life in lives)


def test_kills_while_saving(tmp_path):
    saves_are_complete_or_invisible(tmp_path, 10)


def test_kills_while_training(tiny, tmp_path):
    the_curve_is_the_uninterrupted_one(tmp_path, tiny | {"max_steps": 30, "strategy": "none"}, 1, 12)


def test_kills_while_two_ranks_train(tiny, tmp_path):
    the_curve_is_the_uninterrupted_one(tmp_path, tiny | {"max_steps": 40, "strategy": "fsdp"}, 2, 3)


@pytest.mark.long
@pytest.mark.timeout(4000)
def test_two_hundred_kills_while_saving(tmp_path):
    places = saves_are_complete_or_invisible(tmp_path, 200, seconds=3000)
    for phase in (
        "open .staging-step/__0_0.distcp",
        "open .staging-step/manifest.json",
        "os.rename .staging-step step",  # commit
        ".replaced-step",  # a second save of the same step
        ".discarded-step",  # retention
    ):
        assert any(phase in place for place in places), phase


@pytest.mark.long
@pytest.mark.timeout(4000)
def test_two_hundred_and_forty_kills_while_training(tiny, tmp_path):
    the_curve_is_the_uninterrupted_one(tmp_path, tiny | {"max_steps": 40, "strategy": "none"}, 1, 240, seconds=3000)


@pytest.mark.long
@pytest.mark.timeout(4000)
def test_sixty_kills_while_two_ranks_train(tiny, tmp_path):
    the_curve_is_the_uninterrupted_one(tmp_path, tiny | {"max_steps": 20, "strategy": "fsdp"}, 2, 60, seconds=3000)
