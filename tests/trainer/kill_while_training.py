"""Starts a training many times and ends each start with kill -9 at a random moment; some find a damaged checkpoint.

`python kill_while_training.py SPEC FOLDER WORLD_SIZE KILLS SEED` (SPEC as JSON) prints one JSON line for each start: the
checkpoint it resumed from, the expected one, its losses, and after the last step a hash of the weights. The first line is that
of an uninterrupted run. The ranks are forked, so that torch is imported once.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import shutil
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import torch.distributed.checkpoint.staging
import torch.distributed.checkpoint.state_dict
import torch.distributed.checkpoint.state_dict_loader
import torch.distributed.checkpoint.state_dict_saver
from torch._C._distributed_c10d import FileStore

from kfjob.trainer import metrics
from kfjob.trainer.checkpoint import list_checkpoints
from kfjob.trainer.distributed import Ranks
from kfjob.trainer.model import build_meta_model
from kfjob.trainer.stop_request import StopRequest
from kfjob.trainer.storage import open_storage
from kfjob.trainer.train import train
from kfjob.trainspec.train_spec import TrainSpec
from tests.trainer.forked import fork, print_result
from tests.trainer.rank_programs import observe

TIMEOUT = 120.0


class Start:
    """One start of the training on `world_size` ranks, which writes its events to a file in the folder."""

    def __init__(self, spec: dict[str, Any], folder: Path, world_size: int) -> None:
        self.events = folder / "events"
        self.events.unlink(missing_ok=True)
        (folder / "store").unlink(missing_ok=True)
        self.children = {rank: self._fork(spec, folder, rank, world_size) for rank in range(world_size)}
        self.codes: dict[int, int] = {}

    def _fork(self, spec: dict[str, Any], folder: Path, rank: int, world_size: int) -> int:
        def run() -> None:
            torch.set_num_threads(1)
            os.environ.update(RANK=str(rank), WORLD_SIZE=str(world_size), LOCAL_RANK=str(rank))
            os.environ.update(LOCAL_WORLD_SIZE=str(world_size), OMP_NUM_THREADS="1", GLOO_SOCKET_IFNAME="lo")
            metrics.start_logging(verbose=False)
            ranks = Ranks.join(FileStore(str(folder / "store"), world_size))
            with self._record_events(rank):
                train(TrainSpec(**spec), ranks, StopRequest(None), metrics.StartupTimer())

        return fork(run, folder / f"{rank}.log")

    @contextmanager
    def _record_events(self, rank: int) -> Iterator[None]:
        """Make rank 0 write its losses, in full precision, and the checkpoint it resumes from."""
        events = os.open(os.devnull if rank else self.events, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

        def record(text: str) -> None:
            os.write(events, f"{text}\n".encode())

        resume = observe(metrics, "resume_line", lambda name, _: record(f"resume {name}"))
        with observe(metrics, "progress_line", lambda step, **values: record(f"{step} {float(values['loss']).hex()}")), resume:
            yield

    def poll(self) -> bool:
        """Return whether any rank is still running."""
        for rank, child in self.children.items():
            if rank not in self.codes and (status := os.waitpid(child, os.WNOHANG))[0]:
                self.codes[rank] = os.waitstatus_to_exitcode(status[1])
        return len(self.codes) < len(self.children)

    def kill(self, ranks: list[int]) -> None:
        self.poll()
        for rank in ranks:
            if rank not in self.codes:
                os.kill(self.children[rank], signal.SIGKILL)

    def wait(self, seconds: float) -> None:
        """Wait until all ranks have exited, and kill them at the deadline."""
        deadline = time.monotonic() + seconds
        while self.poll():
            if time.monotonic() > deadline:
                self.kill(list(self.children))
            time.sleep(0.002)

    def wait_for_lines(self, lines: int) -> None:
        """Wait until `lines` events are written, or all ranks have exited."""
        deadline = time.monotonic() + TIMEOUT
        while self.poll() and time.monotonic() < deadline:
            if self.events.exists() and self.events.read_text().count("\n") >= lines:
                return
            time.sleep(0.001)

    def read_events(self) -> tuple[str | None, dict[int, str]]:
        lines = [line.split() for line in self.events.read_text().splitlines()] if self.events.exists() else []
        resumed = next((words[1] for words in lines if words[0] == "resume"), None)
        return resumed, {int(words[0]): words[1] for words in lines if words[0] != "resume"}


def expected_checkpoint(folder: Path) -> str:
    """Return the newest checkpoint without damage, which a start should resume from."""
    storage = open_storage(str(folder))
    storage.create()
    storage.prepare()
    valid = [entry.name for entry in list_checkpoints(storage) if not storage.find_damage(entry.name, entry.manifest)]
    return valid[0] if valid else "None"


def damage_newest(folder: Path, draw: random.Random) -> str | None:
    """Damage a file of the newest checkpoint, and return a description."""
    newest = max((path for path in folder.glob("step-*") if path.is_dir()), default=None)
    if newest is None:
        return None
    file = draw.choice(sorted(newest.iterdir()))
    damage = draw.choice(["flip", "truncate", "remove"])
    if damage == "remove":
        file.unlink()
    elif damage == "truncate":
        os.truncate(file, draw.randrange(file.stat().st_size))
    else:
        content = bytearray(file.read_bytes())
        content[draw.randrange(len(content))] ^= 1 << draw.randrange(8)
        file.write_bytes(content)
    return f"{damage} {file.name}"


def hash_state(folder: Path) -> str:
    """Return a hash of the model and the optimiser in the newest checkpoint."""
    from torch.distributed.checkpoint.format_utils import dcp_to_torch_save

    file = folder.with_name("state.pt")
    dcp_to_torch_save(folder / expected_checkpoint(folder), file)
    state = torch.load(file, weights_only=True)
    digest = hashlib.sha256()
    for part in (state["model"], *(values for _, values in sorted(state["optimizer"]["state"].items()))):
        for name, tensor in sorted(part.items()):
            digest.update(name.encode() + tensor.numpy().tobytes())
    return digest.hexdigest()


def main(spec: dict[str, Any], folder: Path, world_size: int, kills: int, seed: int) -> None:
    build_meta_model(TrainSpec(**spec))  # imports what the children would each import for themselves
    draw, checkpoints = random.Random(seed), folder / "checkpoints"  # noqa: S311 -- moments of kills
    spec |= {"checkpoint_dir": str(checkpoints), "checkpoint_every": 1, "keep_last": 3}
    began = time.monotonic()
    attempt = Start(spec, folder, world_size)
    attempt.wait(TIMEOUT)
    uninterrupted_seconds = time.monotonic() - began
    print_result(
        {"uninterrupted": attempt.read_events()[1], "weights": hash_state(checkpoints), "seconds": uninterrupted_seconds}
    )
    shutil.rmtree(checkpoints)
    for number in range(kills):
        damage = damage_newest(checkpoints, draw) if checkpoints.exists() and draw.random() < 0.2 else None
        due = expected_checkpoint(checkpoints)
        attempt = Start(spec, folder, world_size)
        if number < 2 or draw.random() < 0.7:  # the second start always resumes
            attempt.wait_for_lines(draw.randint(4, 4 + spec["max_steps"] // 2))
            while number == 0 and attempt.poll() and not list(checkpoints.glob("step-*")):
                time.sleep(0.001)  # otherwise the next start may have no checkpoint
            time.sleep(draw.random() * 0.06)  # the random moment is the test
        else:
            time.sleep(draw.random() * uninterrupted_seconds * 0.5)
        ended = not attempt.poll()
        failed = any(attempt.codes.values())
        attempt.kill(draw.choice([[draw.randrange(world_size)], list(range(world_size))]))
        attempt.wait(20)
        resumed, losses = attempt.read_events()
        result = {"number": number, "damage": damage, "due": due, "resumed": resumed, "losses": losses}
        result |= {"ended": ended, "failed": failed}
        if ended:
            result["weights"] = hash_state(checkpoints)
            shutil.rmtree(checkpoints)
        print_result(result)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]), Path(sys.argv[2]), *map(int, sys.argv[3:6]))
