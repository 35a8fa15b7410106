"""Trains to the end in many lives, each ended by kill -9 at a random moment; some find their newest checkpoint damaged.

`python lives.py SPEC FOLDER WORLD_SIZE KILLS SEED` (SPEC as JSON) prints one JSON line a life: where it went on and where it
should have, the losses it had, and with the last step the hash of the weights. The first line is of a life that nobody ends.
The ranks are forked, so that torch is imported once.
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
import traceback
from pathlib import Path
from typing import Any

import torch
import torch.distributed.checkpoint.staging
import torch.distributed.checkpoint.state_dict
import torch.distributed.checkpoint.state_dict_loader
import torch.distributed.checkpoint.state_dict_saver
from torch._C._distributed_c10d import FileStore

from kfjob.spec.train import TrainSpec
from kfjob.trainer import metrics
from kfjob.trainer.checkpoint import complete
from kfjob.trainer.distributed import Ranks
from kfjob.trainer.model import meta_model
from kfjob.trainer.stopping import StopRequest
from kfjob.trainer.storage import storage_of
from kfjob.trainer.train import train

LONGEST = 120.0


class Life:
    """One start of the training on so many ranks, in a folder that keeps what it says."""

    def __init__(self, spec: dict[str, Any], folder: Path, world_size: int) -> None:
        self.said = folder / "said"
        self.said.unlink(missing_ok=True)
        (folder / "store").unlink(missing_ok=True)
        self.children = {rank: self._fork(spec, folder, rank, world_size) for rank in range(world_size)}
        self.codes: dict[int, int] = {}

    def _fork(self, spec: dict[str, Any], folder: Path, rank: int, world_size: int) -> int:
        child = os.fork()
        if child:
            return child
        try:
            torch.set_num_threads(1)
            os.environ.update(RANK=str(rank), WORLD_SIZE=str(world_size), LOCAL_RANK=str(rank))
            os.environ.update(LOCAL_WORLD_SIZE=str(world_size), OMP_NUM_THREADS="1", GLOO_SOCKET_IFNAME="lo")
            log = os.open(folder / f"{rank}.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            os.dup2(log, 1)
            os.dup2(log, 2)
            self._listen(rank)
            metrics.start_logging(verbose=False)
            ranks = Ranks.join(FileStore(str(folder / "store"), world_size))
            train(TrainSpec(**spec), ranks, StopRequest(None), metrics.Startup())
            os._exit(0)
        except BaseException:  # noqa: BLE001 -- nothing above may run in a child
            traceback.print_exc()
        finally:
            os._exit(1)

    def _listen(self, rank: int) -> None:
        """Have rank 0 keep what it says of its losses and of where it goes on, exactly and at once."""
        if rank:
            return
        into = os.open(self.said, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        progress, resume = metrics.progress, metrics.resume

        def heard(step: int, **figures: Any) -> str:
            os.write(into, f"{step} {float(figures['loss']).hex()}\n".encode())
            return progress(step, **figures)

        def resumed(name: str | None, path: str | None) -> str:
            os.write(into, f"resume {name}\n".encode())
            return resume(name, path)

        metrics.progress, metrics.resume = heard, resumed

    def poll(self) -> bool:
        """Whether any rank still runs."""
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
        """Until all ranks have ended; those that have not by then are killed."""
        deadline = time.monotonic() + seconds
        while self.poll():
            if time.monotonic() > deadline:
                self.kill(list(self.children))
            time.sleep(0.002)

    def wait_for_lines(self, lines: int) -> None:
        """Until it has said so many, or has ended."""
        deadline = time.monotonic() + LONGEST
        while self.poll() and time.monotonic() < deadline:
            if self.said.exists() and self.said.read_text().count("\n") >= lines:
                return
            time.sleep(0.001)

    def heard(self) -> tuple[str | None, dict[int, str]]:
        lines = [line.split() for line in self.said.read_text().splitlines()] if self.said.exists() else []
        resumed = next((words[1] for words in lines if words[0] == "resume"), None)
        return resumed, {int(words[0]): words[1] for words in lines if words[0] != "resume"}


def expected(place: Path) -> str:
    """The newest checkpoint whose every file is right, as a start would find it after its clearing up."""
    storage = storage_of(str(place))
    storage.prepare()
    good = [one.name for one in complete(storage) if not storage.damage(one.name, one.manifest)]
    return good[0] if good else "None"


def damage(place: Path, draw: random.Random) -> str | None:
    """Spoil a file of the newest checkpoint."""
    newest = max((path for path in place.glob("step-*") if path.is_dir()), default=None)
    if newest is None:
        return None
    file = draw.choice(sorted(newest.iterdir()))
    way = draw.choice(["flip", "truncate", "remove"])
    if way == "remove":
        file.unlink()
    elif way == "truncate":
        os.truncate(file, draw.randrange(file.stat().st_size))
    else:
        content = bytearray(file.read_bytes())
        content[draw.randrange(len(content))] ^= 1 << draw.randrange(8)
        file.write_bytes(content)
    return f"{way} {file.name}"


def weights(place: Path) -> str:
    """A hash of the bits of model and optimiser in the newest checkpoint."""
    from torch.distributed.checkpoint.format_utils import dcp_to_torch_save

    flat = place.with_name("flat.pt")
    dcp_to_torch_save(place / expected(place), flat)
    state = torch.load(flat, weights_only=True)
    digest = hashlib.sha256()
    for part in (state["model"], *(values for _, values in sorted(state["optimizer"]["state"].items()))):
        for name, tensor in sorted(part.items()):
            digest.update(name.encode() + tensor.numpy().tobytes())
    return digest.hexdigest()


def say(result: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(result) + "\n")
    sys.stdout.flush()


def main(spec: dict[str, Any], folder: Path, world_size: int, kills: int, seed: int) -> None:
    meta_model(TrainSpec(**spec))  # imports what the children would each import for themselves
    draw, place = random.Random(seed), folder / "checkpoints"  # noqa: S311 -- moments of kills
    spec |= {"checkpoint_dir": str(place), "checkpoint_every": 1, "keep_last": 3}
    began = time.monotonic()
    life = Life(spec, folder, world_size)
    life.wait(LONGEST)
    longest = time.monotonic() - began
    say({"uninterrupted": life.heard()[1], "weights": weights(place), "seconds": longest})
    shutil.rmtree(place)
    for number in range(kills):
        spoilt = damage(place, draw) if place.exists() and draw.random() < 0.2 else None
        due = expected(place)
        life = Life(spec, folder, world_size)
        if number == 0 or draw.random() < 0.7:
            life.wait_for_lines(draw.randint(4, 4 + spec["max_steps"] // 2))
            while number == 0 and life.poll() and not list(place.glob("step-*")):
                time.sleep(0.001)  # or the next life may have nothing to go on from
            time.sleep(draw.random() * 0.06)  # the moment is the test
        else:
            time.sleep(draw.random() * longest * 0.5)
        ended = not life.poll()
        failed = any(life.codes.values())
        life.kill(draw.choice([[draw.randrange(world_size)], list(range(world_size))]))
        life.wait(20)
        resumed, losses = life.heard()
        result = {"number": number, "spoilt": spoilt, "due": due, "resumed": resumed, "losses": losses}
        result |= {"ended": ended, "failed": failed}
        if ended:
            result["weights"] = weights(place)
            shutil.rmtree(place)
        say(result)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]), Path(sys.argv[2]), *map(int, sys.argv[3:6]))
