"""Saves checkpoints again and again in children that are killed, and says for each what the next run would find.

`python kills.py FOLDER RANDOM_KILLS` prints one JSON line a kill. The children are forked, so that torch is imported once.
"""

from __future__ import annotations

import json
import os
import random
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
from kfjob.trainer.checkpoint import Checkpoints, ModelState, find, parameter_shapes, prepare
from kfjob.trainer.distributed import Ranks
from kfjob.trainer.manifest import Manifest
from kfjob.trainer.model import build_model, meta_model
from kfjob.trainer.storage import storage_of
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
    "after the rename, before retention": at(checkpoint, "complete", before=True),
    "half-way through deleting": at(shutil, "rmtree", before=True),
    "second save of a step: with its shards": second_save(at(state_dict_saver, "save", before=False)),
    "second save of a step: between the two renames": second_save(at(Path, "rename", before=False)),
    "second save of a step: deleting the first": second_save(at(shutil, "rmtree", before=True)),
}


def save_for_ever(folder: Path, arm: Callable[[], None] | None) -> None:
    """Two checkpoints in peace, then `arm`, then more and more of them; without `arm` in the background, each of them twice."""
    torch.set_num_threads(1)
    ranks = Ranks.join()
    strategy = make_strategy(SPEC, ranks)
    model = build_model(SPEC, strategy, ranks.device)
    optimizer = strategy.optimizer(model)
    storage = storage_of(str(folder))
    prepare(storage, ranks)
    checkpoints = Checkpoints(storage, ModelState(model, optimizer), ranks, keep_last=2, asynchronous=arm is None)
    steps = [one.manifest.step for one in checkpoint.complete(storage)]
    for step in range(max(steps, default=0) + 1, 10**6):
        if step == 3 and arm:
            arm()
        for again in AGAIN:
            checkpoints.save(about(again, model))
        checkpoints.save(about(step, model))
        if arm is None:
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
        storage = storage_of(str(folder))
        prepare(storage, ranks)
        found = find("auto", storage, ranks)
        damaged = [one.name for one in checkpoint.complete(storage) if storage.damage(one.name, one.manifest)]
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
    meta_model(SPEC)  # imports what the children would each import for themselves
    for point, arm in POINTS.items():
        place = folder / point.replace(" ", "-")
        _, status = os.waitpid(in_child(lambda place=place, arm=arm: save_for_ever(place, arm)), 0)  # type: ignore[misc]
        say({"point": point, "killed": os.WTERMSIG(status) == signal.SIGKILL} | newest(place))
    place, draw = folder / "random", random.Random(1)  # noqa: S311 -- moments of kills
    for number in range(random_kills):
        before = newest(place)["step"] if place.exists() else None
        child = in_child(lambda: save_for_ever(place, None))
        while not any((place / name).exists() for name in (f"step-{(before or 0) + 1:06d}", f"step-{(before or 0) + 2:06d}")):
            os.kill(child, 0)  # fails if it has ended, and then nothing would ever come
            time.sleep(0.001)
        time.sleep(draw.random() * 0.05)
        seen = max(path.name for path in place.iterdir() if path.name.startswith("step-"))
        os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        say({"point": f"random {number}", "killed": True, "before": before, "seen": seen} | newest(place))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
