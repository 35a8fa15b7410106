"""Saves checkpoints again and again in children that are killed, and says for each what the next run would find.

`python kill_while_saving.py FOLDER RANDOM_KILLS` prints one JSON line a kill: first those at points with a name, then those
by chance, half of them at a random moment, half before a random operation on a file, which is named. The children are forked,
so that torch is imported once.
"""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed.checkpoint.state_dict
from torch.distributed.checkpoint import state_dict_saver

from kfjob.trainer import checkpoint, checkpoint_writer
from kfjob.trainer.checkpoint import ModelState, parameter_shapes, prepare_storage
from kfjob.trainer.checkpoint_writer import CheckpointWriter
from kfjob.trainer.distributed import Ranks
from kfjob.trainer.manifest import Manifest
from kfjob.trainer.model import build_meta_model, build_model
from kfjob.trainer.resume import find_checkpoint
from kfjob.trainer.storage import open_storage
from kfjob.trainer.strategies import make_strategy
from kfjob.trainspec.train_spec import TrainSpec
from tests.trainer.forked import fork, print_result
from tests.trainer.manifests import make_manifest

SPEC = TrainSpec(model="micro-llama", data="-", max_steps=1, sequence_length=8, strategy="none", precision="fp32")


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def kill_at_call(owner: Any, name: str, *, before: bool) -> Callable[[], None]:
    """Return a function that makes the call of `name` kill this process, before or after the call."""

    def patch() -> None:
        original = getattr(owner, name)

        def call_and_die(*args: Any, **kwargs: Any) -> Any:
            if not before:
                original(*args, **kwargs)
            die()

        setattr(owner, name, call_and_die)

    return patch


def second_save(arm: Callable[[], None]) -> Callable[[], None]:
    """Return a function that calls `arm` and requests a second save of step 2."""

    def patch() -> None:
        arm()
        SECOND_SAVES.append(2)

    return patch


SECOND_SAVES: list[int] = []
"""Steps to save a second time after `arm`."""
POINTS = {
    "before the shards": kill_at_call(state_dict_saver, "save", before=True),
    "after the shards": kill_at_call(state_dict_saver, "save", before=False),
    "before the manifest": kill_at_call(Manifest, "write", before=True),
    "after the manifest": kill_at_call(Manifest, "write", before=False),
    "after the rename, before retention": kill_at_call(checkpoint_writer, "list_checkpoints", before=True),
    "half-way through deleting": kill_at_call(shutil, "rmtree", before=True),
    "second save of a step: with its shards": second_save(kill_at_call(state_dict_saver, "save", before=False)),
    "second save of a step: between the two renames": second_save(kill_at_call(Path, "rename", before=False)),
    "second save of a step: deleting the first": second_save(kill_at_call(shutil, "rmtree", before=True)),
}


def before_operation(number: int, report: int) -> Callable[[], None]:
    """Return a function that kills this process before file operation `number`; the pipe `report` receives its name."""

    def patch() -> None:
        count = [0]

        def hook(event: str, args: tuple[Any, ...]) -> None:
            if event in OPERATIONS and isinstance(args[0], str | Path) and "step-" in str(args[0]):
                count[0] += 1
                if count[0] == number:
                    paths = args[:2] if event == "os.rename" else args[:1]
                    os.write(report, " ".join([event, *(VARYING.sub("", str(path)) for path in paths)]).encode())
                    die()

        sys.addaudithook(hook)

    return patch


OPERATIONS = ("open", "os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.scandir", "shutil.rmtree")
VARYING = re.compile(r".*/(?=\.?[a-z]*-?step-)|-\d{6}(-[0-9a-f]{8})?")
"""The variable parts of a file's path: its folder, the step and the token of the save."""
VISIBLE = re.compile(r"(?:\.replaced-)?(step-\d{6})")


def save_forever(folder: Path, arm: Callable[[], None] | None, *, asynchronous: bool = False) -> None:
    """Save two checkpoints, call `arm`, then save endlessly; `asynchronous` saves in the background, each step twice."""
    torch.set_num_threads(1)
    ranks = Ranks.join()
    strategy = make_strategy(SPEC, ranks)
    model = build_model(SPEC, strategy, ranks.device)
    optimizer = strategy.make_optimizer(model)
    storage = open_storage(str(folder))
    prepare_storage(storage, ranks)
    writer = CheckpointWriter(storage, ModelState(model, optimizer), ranks, keep_last=2, asynchronous=asynchronous)
    steps = [entry.manifest.step for entry in checkpoint.list_checkpoints(storage)]
    for step in range(max(steps, default=0) + 1, 10**6):
        if arm and (step == 3 or asynchronous):
            arm()
            arm = None
        for saved_step in (*SECOND_SAVES, step, *([step] if asynchronous else [])):
            writer.save(make_manifest(saved_step, parameters=parameter_shapes(model), data_position={"next": saved_step}))


def inspect_storage(folder: Path) -> dict[str, Any]:
    """Start a run, and return the step it finds, the damaged checkpoints and the visible ones."""
    reader, writer = os.pipe()

    def inspect() -> None:
        ranks = Ranks.join()
        storage = open_storage(str(folder))
        prepare_storage(storage, ranks)
        start = find_checkpoint("auto", storage, ranks)
        damaged = [
            entry.name for entry in checkpoint.list_checkpoints(storage) if storage.find_damage(entry.name, entry.manifest)
        ]
        visible = sorted(path.name for path in folder.iterdir() if path.name.startswith("step-"))
        result = {"step": start and start.manifest.step, "damaged": damaged, "visible": visible}
        os.write(writer, json.dumps(result).encode())

    os.waitpid(fork(inspect), 0)
    os.close(writer)
    with os.fdopen(reader) as stream:
        result: dict[str, Any] = json.loads(stream.read())
        return result


def main(folder: Path, random_kills: int) -> None:
    build_meta_model(SPEC)  # so that the children need not import transformers again
    for point, arm in POINTS.items():
        checkpoints = folder / point.replace(" ", "-")
        _, status = os.waitpid(fork(lambda checkpoints=checkpoints, arm=arm: save_forever(checkpoints, arm)), 0)  # type: ignore[misc]
        print_result({"point": point, "killed": os.WTERMSIG(status) == signal.SIGKILL} | inspect_storage(checkpoints))
    checkpoints, draw = folder / "random", random.Random(1)  # noqa: S311 -- moments of kills
    for number in range(random_kills):
        before = inspect_storage(checkpoints)["step"] if checkpoints.exists() else None
        kill = kill_at_an_operation if number % 2 else kill_at_a_moment
        result = {"point": f"random {number}", "killed": True, "before": before} | kill(checkpoints, draw, before or 0)
        newest_visible = max(match[1] for path in checkpoints.iterdir() if (match := VISIBLE.match(path.name)))
        print_result(result | {"newest_visible": newest_visible} | inspect_storage(checkpoints))


def kill_at_a_moment(checkpoints: Path, draw: random.Random, before: int) -> dict[str, Any]:
    """Kill at a random time after the first checkpoint of this start."""
    child = fork(lambda: save_forever(checkpoints, None, asynchronous=True))
    while not any((checkpoints / f"step-{step:06d}").exists() for step in (before + 1, before + 2)):
        os.kill(child, 0)  # fails if the child has exited, instead of waiting forever
        time.sleep(0.001)
    time.sleep(draw.random() * 0.05)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return {"at": "a moment", "at least": before + 1}


def kill_at_an_operation(checkpoints: Path, draw: random.Random, before: int) -> dict[str, Any]:
    """Kill before a random file operation of the first saves of this start."""
    reader, report = os.pipe()
    arm = before_operation(draw.randint(1, 200), report)
    _, status = os.waitpid(fork(lambda: save_forever(checkpoints, arm, asynchronous=True)), 0)
    assert os.WTERMSIG(status) == signal.SIGKILL
    os.close(report)
    with os.fdopen(reader) as stream:
        return {"at": stream.read(), "at least": before}


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
