"""Reads from the fake hub for test_hub.py, in its own process: HF_ENDPOINT is read at the first import."""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path
from typing import Any

from kfjob.base.errors import KfjobError
from kfjob.trainer import tokenize
from kfjob.trainer.data.sources import open_data
from kfjob.trainer.data.stream import LaneStream, merge_positions
from kfjob.trainspec.train_spec import TrainSpec


def main(spec: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Return all results at once, because the imports take most of the time."""
    small = spec | {"shuffle_window": 3}
    return {
        "alone": read(small, [(1, 12)]),
        "chain": read(small, [(1, 3), (2, 3), (4, 3), (1, 3)]),
        "epoch": epoch(small | {"packing": "pad", "sequence_length": 256}, ranks=4),
        "validation": len(open_data(TrainSpec(**spec | {"eval_every": 1}), rank=0, world_size=1).validation),
        "tokenized": tokenize.main(
            [
                *(spec["data"], str(folder / "tokens"), "--data-config=en", "--validation-split=validation", "--workers=1"),
                f"--tokenizer={spec['tokenizer']}",
            ]
        ),
        "lines": read(spec | {"data": "someone/lines", "data_config": None}, [(1, 2)]),
        "errors": {
            name: error_of(spec | change, ranks=ranks)
            for name, change, ranks in (
                ("no such data set", {"data": "someone/nothing"}, 1),
                ("no such configuration", {"data_config": "fr"}, 1),
                ("no such split", {"data_split": "tost"}, 1),
                ("no such field", {"text_field": "txt"}, 1),
                ("one shard, two ranks", {"data": "someone/lines", "data_config": None}, 2),
                ("no such tokenizer", {"tokenizer": "someone/nothing"}, 1),
            )
        },
    }


def read(spec: dict[str, Any], stages: list[tuple[int, int]]) -> list[list[str]]:
    """Return global batches of 8 samples, over stages of (ranks, batches)."""
    batches, position = [], None
    for ranks, count in stages:
        parts = [open_data(TrainSpec(**spec), rank=rank, world_size=ranks).train for rank in range(ranks)]
        for part in parts:
            if position:
                part.seek(position)
        for _ in range(count):
            samples = [sample.tobytes() for part in parts for sample in part.read_batch(8 // ranks)]
            batches.append(sorted(hashlib.sha256(sample).hexdigest() for sample in samples))
        position = json.loads(json.dumps(merge_positions([part.position() for part in parts])))
    return batches


def epoch(spec: dict[str, Any], *, ranks: int) -> list[list[str]]:
    """Return for each rank the samples that its lanes read in the first epoch."""
    samples: list[list[str]] = []
    for rank in range(ranks):
        stream = open_data(TrainSpec(**spec), rank=rank, world_size=ranks).train
        assert isinstance(stream, LaneStream)
        samples.append([])
        for lane in stream._lanes.values():
            while lane.cursor.epoch == 0:
                samples[-1].append(hashlib.sha256(lane.next_sample().tobytes()).hexdigest())
    return samples


def error_of(spec: dict[str, Any], *, ranks: int) -> str:
    """Return the message of the error that reading a batch raises."""
    try:
        open_data(TrainSpec(**spec), rank=0, world_size=ranks).train.read_batch(1)
    except KfjobError as error:
        return str(error)
    raise AssertionError(f"{spec} raised no error")


if __name__ == "__main__":
    request = json.loads(sys.argv[1])
    result = main(request["spec"], Path(request["folder"]))
    Path(request["folder"], "result.json").write_text(json.dumps(result))
