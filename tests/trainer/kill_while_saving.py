"""Saves checkpoints again and again in children that are killed, and says for each what the next run would find.

`python kills.py FOLDER RANDOM_KILLS` prints one JSON line a kill: first those at points with a name, then those by chance, half
of them at a random moment, half before a random operation on a file, which is named. The children are forked, so that
torch is imported once.
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
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed.checkpoint.state_dict
from torch.distributed.checkpoint import state_dict_saver

from kfjob.spec.train import TrainSpec
from kfjob.trainer import checkpoint
from kfjob.trainer.checkpoint import CheckpointWriter, ModelState, find_checkpoint, parameter_shapes, prepare_storage
from kfjob.trainer.distributed import Ranks
from kfjob.trainer.manifest import Manifest
from kfjob.trainer.model import build_meta_model, build_model
from kfjob.trainer.storage import open_storage
from kfjob.trainer.strategies import make_strategy

SPEC = TrainSpec(model="micro-llama", data="-", max_steps=1, sequence_length=8, strategy="none", precision="fp32")


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def at(owner: Any, name: str, *, before: bool) -> Callable[[], None]:
    """Die just before or just after the call of `name`."""

    def patch() -> None:
        original = getattr(owner, name)

        def fatal(*args: Any, **kwargs: Any) -> Any:
            if not before:
                original(*args, **kwargs)
            die()

        setattr(owner, name, fatal)

    return patch


def second_save(arm: Callable[[], None]) -> Callable[[], None]:
    """`arm`, and step 2 once more."""

    def patch() -> None:
        arm()
        AGAIN.append(2)

    return patch


AGAIN: list[int] = []
"""Steps that are to be saved a second time, once `arm` was called."""
POINTS = {
    "before the shards": at(state_dict_saver, "save", before=True),
    "after the shards": at(state_dict_saver, "save", before=False),
    "before the manifest": at(Manifest, "write", before=True),
    "after the manifest": at(Manifest, "write", before=False),
    "after the rename, before retention": at(checkpoint, "list_checkpoints", before=True),
    "half-way through deleting": at(shutil, "rmtree", before=True),
    "second save of a step: with its shards": second_save(at(state_dict_saver, "save", before=False)),
    "second save of a step: between the two renames": second_save(at(Path, "rename", before=False)),
    "second save of a step: deleting the first": second_save(at(shutil, "rmtree", before=True)),
}


def before_operation(number: int, told: int) -> Callable[[], None]:
    """Die before that operation on the file system, counted from the first on; the pipe `told` hears which it was."""

    def patch() -> None:
        counted = [0]

        def hook(event: str, args: tuple[Any, ...]) -> None:
            if event in OPERATIONS and isinstance(args[0], str | Path) and "step-" in str(args[0]):
                counted[0] += 1
                if counted[0] == number:
                    paths = args[:2] if event == "os.rename" else args[:1]
                    os.write(told, " ".join([event, *(VARYING.sub("", str(path)) for path in paths)]).encode())
                    die()

        sys.addaudithook(hook)

    return patch


OPERATIONS = ("open", "os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.scandir", "shutil.rmtree")
VARYING = re.compile(r".*/(?=\.?[a-z]*-?step-)|-\d{6}(-[0-9a-f]{8})?")
"""What differs from kill to kill in the path of a file: its place, the step and the save's token."""
VISIBLE = re.compile(r"(?:\.replaced-)?(step-\d{6})")


def save_for_ever(folder: Path, arm: Callable[[], None] | None, *, by_chance: bool = False) -> None:
    """Two checkpoints in peace, then `arm`, then more and more of them; `by_chance` in the background, each of them twice."""
    torch.set_num_threads(1)
    ranks = Ranks.join()
    strategy = make_strategy(SPEC, ranks)
    model = build_model(SPEC, strategy, ranks.device)
    optimizer = strategy.make_optimizer(model)
    storage = open_storage(str(folder))
    prepare_storage(storage, ranks)
    checkpoints = CheckpointWriter(storage, ModelState(model, optimizer), ranks, keep_last=2, asynchronous=by_chance)
    steps = [one.manifest.step for one in checkpoint.list_checkpoints(storage)]
    for step in range(max(steps, default=0) + 1, 10**6):
        if arm and (step == 3 or by_chance):
            arm()
            arm = None
        for again in AGAIN:
            checkpoints.save(about(again, model))
        checkpoints.save(about(step, model))
        if by_chance:
            checkpoints.save(about(step, model))


def about(step: int, model: torch.nn.Module) -> Manifest:
    return Manifest(
        step=step,
        loss=0.0,
        run_id="",
        global_batch=1,
        parameters=parameter_shapes(model),
        data_identity={},
        data_position={"next": step},
        spec={},
        torch_version=torch.__version__,
    )


def in_child(body: Callable[[], None]) -> int:
    child = os.fork()
    if child == 0:
        try:
            body()
            os._exit(0)
        except BaseException:  # noqa: BLE001 -- nothing above may run in a child
            traceback.print_exc()
        finally:
            os._exit(1)
    return child


def newest(folder: Path) -> dict[str, Any]:
    """What a run finds: the step, every visible checkpoint's state, and what is left of the killed one after a start."""
    out, into = os.pipe()

    def look() -> None:
        ranks = Ranks.join()
        storage = open_storage(str(folder))
        prepare_storage(storage, ranks)
        found = find_checkpoint("auto", storage, ranks)
        damaged = [one.name for one in checkpoint.list_checkpoints(storage) if storage.find_damage(one.name, one.manifest)]
        visible = sorted(path.name for path in folder.iterdir() if path.name.startswith("step-"))
        answer = {"step": found and found.manifest.step, "damaged": damaged, "visible": visible}
        os.write(into, json.dumps(answer).encode())

    os.waitpid(in_child(look), 0)
    os.close(into)
    with os.fdopen(out) as answer:
        result: dict[str, Any] = json.loads(answer.read())
        return result


def say(result: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(result) + "\n")
    sys.stdout.flush()


def main(folder: Path, random_kills: int) -> None:
    build_meta_model(SPEC)  # imports what the children would each import for themselves
    for point, arm in POINTS.items():
        place = folder / point.replace(" ", "-")
        _, status = os.waitpid(in_child(lambda place=place, arm=arm: save_for_ever(place, arm)), 0)  # type: ignore[misc]
        say({"point": point, "killed": os.WTERMSIG(status) == signal.SIGKILL} | newest(place))
    place, draw = folder / "random", random.Random(1)  # noqa: S311 -- moments of kills
    for number in range(random_kills):
        before = newest(place)["step"] if place.exists() else None
        kill = kill_at_an_operation if number % 2 else kill_at_a_moment
        said = {"point": f"random {number}", "killed": True, "before": before} | kill(place, draw, before or 0)
        seen = max(match[1] for path in place.iterdir() if (match := VISIBLE.match(path.name)))
        say(said | {"seen": seen} | newest(place))


def kill_at_a_moment(place: Path, draw: random.Random, before: int) -> dict[str, Any]:
    """Some time after the first checkpoint of this life has appeared."""
    child = in_child(lambda: save_for_ever(place, None, by_chance=True))
    while not any((place / f"step-{step:06d}").exists() for step in (before + 1, before + 2)):
        os.kill(child, 0)  # fails if it has ended, and then nothing would ever come
        time.sleep(0.001)
    time.sleep(draw.random() * 0.05)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return {"at": "a moment", "at least": before + 1}


def kill_at_an_operation(place: Path, draw: random.Random, before: int) -> dict[str, Any]:
    """Before one of those that two saves of each of the first steps of this life are made of."""
    heard, told = os.pipe()
    arm = before_operation(draw.randint(1, 200), told)
    _, status = os.waitpid(in_child(lambda: save_for_ever(place, arm, by_chance=True)), 0)
    assert os.WTERMSIG(status) == signal.SIGKILL
    os.close(told)
    with os.fdopen(heard) as words:
        return {"at": words.read(), "at least": before}


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
