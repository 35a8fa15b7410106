"""kill -9 at any moment: a restart finds the newest complete checkpoint, and its losses equal those of an uninterrupted run."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.trainer import forked

HERE = Path(__file__).parent


def run(program: str, *arguments: object, folder: Path, seconds: float = 500) -> list[dict[str, Any]]:
    """Run a program of this folder, and return the JSON lines that it prints."""
    result, log = folder / "result.jsonl", folder / "program.log"
    process = forked.start(forked.run_file, HERE / program, [*map(str, arguments)], result, output=log)
    try:
        process.join(seconds)
    finally:
        process.kill()
        process.join()
    assert process.exitcode == 0, log.read_text()[-3000:]
    lines = result.read_text().splitlines()
    if log_folder := os.environ.get("KFJOB_TEST_LOGS"):
        Path(log_folder).mkdir(parents=True, exist_ok=True)
        with (Path(log_folder) / f"{Path(program).stem}.jsonl").open("a") as file:
            file.writelines(f"{line}\n" for line in lines)
    return [json.loads(line) for line in lines]


def check_kills_while_saving(folder, random_kills, seconds=500):
    results = run("kill_while_saving.py", folder, random_kills, folder=folder, seconds=seconds)
    random_results = [result for result in results if result["point"].startswith("random ")]
    assert len(random_results) == random_kills
    assert {result["point"]: result["step"] for result in results if result not in random_results} == {
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
    for result in random_results:
        assert result["step"] >= result["at least"]
        assert f"step-{result['step']:06d}" >= result["newest_visible"]
    return {result["at"] for result in random_results}


def test_kills_while_saving(tmp_path):
    check_kills_while_saving(tmp_path, 5)


@pytest.mark.long
@pytest.mark.timeout(4000)
def test_two_hundred_kills_while_saving(tmp_path):
    operations = check_kills_while_saving(tmp_path, 200, seconds=3000)
    for phase in (
        "open .staging-step/__0_0.distcp",
        "open .staging-step/manifest.json",
        "os.rename .staging-step step",  # commit
        ".replaced-step",  # a second save of the same step
        ".discarded-step",  # retention
    ):
        assert any(phase in operation for operation in operations), phase


LONG = [pytest.mark.long, pytest.mark.timeout(4000)]


@pytest.mark.parametrize(
    ("strategy", "steps", "kills"),
    [
        ("none", 20, 6),
        ("fsdp", 16, 3),
        pytest.param("none", 40, 240, marks=LONG),
        pytest.param("fsdp", 20, 60, marks=LONG),
    ],
)
def test_kills_while_training(tiny, tmp_path, strategy, steps, kills):
    spec = json.dumps(tiny | {"max_steps": steps, "strategy": strategy})
    arguments = (spec, tmp_path, 1 if strategy == "none" else 2, kills, 1)
    uninterrupted, *starts = run("kill_while_training.py", *arguments, folder=tmp_path, seconds=500 if kills < 10 else 3000)
    assert len(starts) == kills
    assert list(uninterrupted["uninterrupted"]) == [str(step) for step in range(1, steps + 1)]
    for start in starts:
        assert not start["failed"]
        assert start["resumed"] in (start["due"], None)  # None if it was killed before it resumed
        first = 1 if start["due"] == "None" else int(start["due"].removeprefix("step-")) + 1
        assert list(start["losses"]) == [str(step) for step in range(first, first + len(start["losses"]))]
        assert start["losses"].items() <= uninterrupted["uninterrupted"].items()
        if start["ended"]:
            assert start["weights"] == uninterrupted["weights"]
    assert any(start["resumed"] not in ("None", None) for start in starts)
