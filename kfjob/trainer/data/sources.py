"""From `data`, `validation` and `tokenizer` of the spec to samples."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kfjob.errors import KfjobError
from kfjob.spec.train import TrainSpec
from kfjob.trainer.data.blocks import HEADER, header, open_blocks
from kfjob.trainer.data.stream import BlockStream, LaneStream, Sample, SampleStream
from kfjob.trainer.data.text import TextFile, TextLane
from kfjob.trainer.data.tokenizer import TextTokenizer, open_tokenizer


@dataclass(frozen=True, kw_only=True)
class Data:
    """What a run trains and evaluates on."""

    train: SampleStream
    validation: list[Sample]
    """The fixed slice that every evaluation uses; empty without validation data."""
    vocab_size: int
    identity: dict[str, Any]
    """What a kept position depends on: where one of these differs, the position means nothing."""


def open_data(spec: TrainSpec, *, rank: int, world_size: int) -> Data:
    """Open the training and validation data of this rank.

    Raises:
        KfjobError: a file is missing or unreadable, or does not fit the spec.
    """
    folder = Path(spec.data).expanduser()
    if not folder.exists():
        raise KfjobError(f"no data at `{folder}`", where="data", hint="the path is read inside the container that trains")
    common = {"seed": spec.seed, "rank": rank, "world_size": world_size}
    if (folder / HEADER).exists():
        blocks = open_blocks(folder, "train", spec.sequence_length)
        validation = []
        if spec.eval_every:
            held_out = open_blocks(folder, "validation", spec.sequence_length)
            validation = [held_out[index] for index in range(min(_slice(spec), len(held_out)))]
        identity = {"kind": "blocks", "tokens": len(blocks.tokens), **_identity(spec)}
        vocab_size = int(str(header(folder)["vocab_size"]))
        return Data(train=BlockStream(blocks, **common), validation=validation, vocab_size=vocab_size, identity=identity)
    if spec.epochs:
        raise KfjobError(
            "`epochs` needs tokenised data: nothing tells how many samples streamed text has",
            where="epochs",
            hint="use `max_steps`, or tokenise first: python -m kfjob.trainer.data.tokenise",
        )
    tokenizer = open_tokenizer(_tokenizer_path(spec, folder))
    file = _text_file(spec, tokenizer, folder if folder.is_file() else _split(folder, "train"))
    train = LaneStream(file, lanes=spec.lanes, length=spec.sequence_length, window=spec.shuffle_window, **common)
    identity = {"kind": "text", "bytes": file.path.stat().st_size, "lanes": spec.lanes, "window": spec.shuffle_window}
    return Data(
        train=train,
        validation=_held_out(spec, tokenizer, folder) if spec.eval_every else [],
        vocab_size=tokenizer.vocab_size,
        identity=identity | _identity(spec),
    )


def _identity(spec: TrainSpec) -> dict[str, Any]:
    return {"sequence_length": spec.sequence_length, "seed": spec.seed}


def _slice(spec: TrainSpec) -> int:
    return spec.eval_batches * spec.micro_batch_size


def _tokenizer_path(spec: TrainSpec, folder: Path) -> Path:
    if spec.tokenizer:
        return Path(spec.tokenizer).expanduser()
    beside = folder / "tokenizer"
    if not beside.exists():
        raise KfjobError("text needs a tokenizer", where="tokenizer", hint="`tokenizer:` names a folder with tokenizer.json")
    return beside


def _split(folder: Path, split: str) -> Path:
    found = [path for path in (folder / f"{split}.jsonl", folder / f"{split}.txt") if path.exists()]
    if not found:
        raise KfjobError(f"no {split}.jsonl and no {split}.txt in `{folder}`", where="data")
    return found[0]


def _text_file(spec: TrainSpec, tokenizer: TextTokenizer, path: Path) -> TextFile:
    return TextFile(path=path, text_field=spec.text_field, encode=tokenizer.encode, end_of_text=tokenizer.end_of_text)


def _held_out(spec: TrainSpec, tokenizer: TextTokenizer, folder: Path) -> list[Sample]:
    """The first samples of the validation file, in its own order, the same for every rank; not more than it has."""
    if spec.validation is None and folder.is_file():
        raise KfjobError("`eval_every` needs validation data", where="validation", hint="`validation:` names a file of text")
    path = Path(spec.validation).expanduser() if spec.validation else _split(folder, "validation")
    if not path.exists():
        raise KfjobError(f"no validation data at `{path}`", where="validation")
    file = _text_file(spec, tokenizer, path)
    lane = TextLane(file, lane=0, lanes=1, length=spec.sequence_length, window=1, seed=0)
    samples: list[Sample] = []
    while len(samples) < _slice(spec):
        sample = lane.sample()
        if lane.cursor.epoch > 0:  # it reaches into a second pass
            break
        samples.append(sample)
    if not samples:
        raise KfjobError(f"`{path}` is shorter than one sample of {spec.sequence_length} tokens", where="validation")
    return samples
