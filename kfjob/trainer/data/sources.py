"""From the spec's fields about data to samples."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from kfjob.errors import KfjobError
from kfjob.spec.train import TrainSpec, get_shape, resolve_eval_batch_size, resolve_packing
from kfjob.trainer.data.blocks import HEADER, header, open_samples
from kfjob.trainer.data.chat import ChatEncoder
from kfjob.trainer.data.documents import Encoder, TextEncoder
from kfjob.trainer.data.files import LineFiles
from kfjob.trainer.data.hub import HubSplit
from kfjob.trainer.data.lanes import Lanes
from kfjob.trainer.data.packing import Sample
from kfjob.trainer.data.parquet import ParquetFiles
from kfjob.trainer.data.source import Source
from kfjob.trainer.data.stream import EndlessStream, LaneStream, NumberedStream, Samples, SampleStream
from kfjob.trainer.data.synthetic import Synthetic
from kfjob.trainer.data.tokenizer import TextTokenizer, open_tokenizer
from kfjob.trainer.hub import NAME

SYNTHETIC = "synthetic"
_KINDS = (".jsonl", ".txt", ".parquet")


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
        KfjobError: something is missing or unreadable, or does not fit the spec.
    """
    here = {"rank": rank, "world_size": world_size}
    common = {"sequence_length": spec.sequence_length, "seed": spec.seed, "packing": resolve_packing(spec)}
    if spec.data == SYNTHETIC:
        return _synthetic(spec, here)
    if (Path(spec.data).expanduser() / HEADER).exists():
        return _tokenised(spec, here, common)
    return _streamed(spec, here, common)


def _tokenised(spec: TrainSpec, here: dict[str, int], common: dict[str, Any]) -> Data:
    folder = Path(spec.data).expanduser()
    about = header(folder)
    if spec.tokenizer and open_tokenizer(spec.tokenizer).fingerprint != about["tokenizer"]:
        raise KfjobError(f"`{folder}` was made with another tokenizer than `{spec.tokenizer}`", location="tokenizer")
    packing = spec.packing or ("documents" if about["answers"] else resolve_packing(spec))
    samples = open_samples(folder, spec.data_split, spec.sequence_length, packing)
    held_out: list[Sample] = []
    if _evaluates(spec):
        found = open_samples(folder, spec.validation_split, spec.sequence_length, packing)
        held_out = [found[index] for index in range(min(_slice(spec), len(found)))]
    identity = {"kind": "tokens", "tokens": about["tokens"][spec.data_split], "samples": len(samples)}
    return Data(
        train=NumberedStream(samples, seed=spec.seed, **here),
        validation=held_out,
        vocab_size=int(about["vocab_size"]),
        identity=identity | common | {"packing": packing},
    )


def _synthetic(spec: TrainSpec, here: dict[str, int]) -> Data:
    _without_epochs(spec, "synthetic data has no end")
    shape = get_shape(spec)
    config = Path(str(spec.model)).expanduser() / "config.json"
    vocabulary = shape.vocab_size if shape else int(json.loads(config.read_text())["vocab_size"]) if config.exists() else 0
    if not vocabulary:
        raise KfjobError("synthetic data needs to know the model's vocabulary", location="vocab_size", hint="give `vocab_size`")
    make = partial(Synthetic, length=spec.sequence_length, vocab_size=vocabulary)
    held_out: Samples = make(seed=spec.seed + 1)
    return Data(
        train=EndlessStream(make(seed=spec.seed), **here),
        validation=[held_out[index] for index in range(_slice(spec))] if _evaluates(spec) else [],
        vocab_size=vocabulary,
        identity={"kind": SYNTHETIC, "sequence_length": spec.sequence_length, "seed": spec.seed, "vocab_size": vocabulary},
    )


def _streamed(spec: TrainSpec, here: dict[str, int], common: dict[str, Any]) -> Data:
    _without_epochs(spec, "nothing tells how many samples streamed data has")
    tokenizer = open_tokenizer(_tokenizer_place(spec, local_place(spec.data)))
    encoder = make_encoder(spec.data_format, spec.text_field, tokenizer)
    open_split = partial(
        open_source, config=spec.data_config, revision=spec.data_revision, encoder=encoder, text_field=spec.text_field
    )
    source = open_split(spec.data, spec.data_split)
    lanes = _lanes(spec, source, encoder, tokenizer)
    identity = source.identity | common | {"lanes": lanes.count, "window": lanes.window, "format": spec.data_format}
    return Data(
        train=LaneStream(lanes, **here),
        validation=_held_out(spec, encoder, tokenizer, open_split) if _evaluates(spec) else [],
        vocab_size=tokenizer.vocab_size,
        identity=identity | {"tokenizer": tokenizer.fingerprint},
    )


def make_encoder(data_format: str, text_field: str, tokenizer: TextTokenizer) -> Encoder:
    """How the records of `data_format` become documents."""
    return ChatEncoder(tokenizer) if data_format == "chat" else TextEncoder(text_field, tokenizer)


def open_source(
    data: str, split: str, *, config: str | None, revision: str | None, encoder: Encoder, text_field: str
) -> Source:
    """A file, a split's files in a folder, or a split of a data set of the hub.

    Raises:
        KfjobError: there is nothing of the kind.
    """
    place = local_place(data)
    if place is None:
        return HubSplit(data, config, split, revision=revision, pick=encoder.pick)
    paths = [place] if place.is_file() else split_files(place, split)
    if not paths:
        raise KfjobError(f"no {split}.jsonl, .txt or .parquet in `{place}`", location="data")
    if paths[0].suffix not in _KINDS:
        raise KfjobError(f"`{paths[0]}` is none of {', '.join(_KINDS)}", location="data")
    if paths[0].suffix == ".parquet":
        return ParquetFiles(paths, columns=encoder.columns, pick=encoder.pick)
    return LineFiles(paths, text_field=text_field, pick=encoder.pick)


def local_place(data: str) -> Path | None:
    """The file or folder that `data` names; None where it can only be a data set of the hub.

    Raises:
        KfjobError: it is a path, and nothing is there.
    """
    place = Path(data).expanduser()
    if place.exists():
        return place
    if NAME.fullmatch(data):
        return None
    raise KfjobError(f"no data at `{place}`", location="data", hint="the path is read inside the container that trains")


def split_files(folder: Path, split: str) -> list[Path]:
    """`train.jsonl`, or `train-*.jsonl`, or all of them in `train/` or `data/train-*`; the same of .txt and .parquet."""
    for kind in _KINDS:
        for pattern in (f"{split}{kind}", f"{split}-*{kind}", f"{split}/*{kind}", f"data/{split}-*{kind}"):
            if found := sorted(folder.glob(pattern)):
                return found
    return []


def _lanes(
    spec: TrainSpec, source: Source, encoder: Encoder, tokenizer: TextTokenizer, *, count: int = 0, window: int = 0
) -> Lanes:
    return Lanes(
        source=source,
        encoder=encoder,
        count=source.lanes(count or spec.lanes),
        length=spec.sequence_length,
        window=window or spec.shuffle_window,
        seed=spec.seed,
        packing=resolve_packing(spec),
        padding=tokenizer.end_of_text,
    )


def _evaluates(spec: TrainSpec) -> bool:
    return bool(spec.eval_every or spec.evals_per_epoch)


def _slice(spec: TrainSpec) -> int:
    return spec.eval_batches * resolve_eval_batch_size(spec)


def _without_epochs(spec: TrainSpec, reason: str) -> None:
    for name in ("epochs", "evals_per_epoch"):
        if getattr(spec, name):
            hint = "use `max_steps` and `eval_every`, or tokenise first: kfjob-tokenize"
            raise KfjobError(f"`{name}` needs tokenised data: {reason}", location=name, hint=hint)


def _tokenizer_place(spec: TrainSpec, data: Path | None) -> str:
    """The one that is named, else the one beside the data, else the model's."""
    if spec.tokenizer:
        return spec.tokenizer
    for folder in ([data / "tokenizer"] if data else []) + [Path(str(spec.model)).expanduser()]:
        if (folder / "tokenizer.json").exists():
            return str(folder)
    raise KfjobError("text needs a tokenizer", location="tokenizer", hint="`tokenizer:` names a folder with tokenizer.json")


def _held_out(
    spec: TrainSpec, encoder: Encoder, tokenizer: TextTokenizer, open_split: Callable[[str, str], Source]
) -> list[Sample]:
    """The first samples of the validation data, in its own order, the same for every rank; not more than it has."""
    if spec.validation is None and Path(spec.data).expanduser().is_file():
        raise KfjobError("`eval_every` needs validation data", location="validation", hint="`validation:` names a file")
    if spec.validation and not Path(spec.validation).expanduser().exists():
        raise KfjobError(f"no validation data at `{spec.validation}`", location="validation")
    source = open_split(spec.validation or spec.data, spec.validation_split)
    window = 1 if resolve_packing(spec) == "stream" else 0
    lane = _lanes(spec, source, encoder, tokenizer, count=1, window=window).open(0)
    samples: list[Sample] = []
    while len(samples) < _slice(spec):
        sample = lane.sample()
        if lane.cursor.epoch > 0:  # it reaches into a second pass, or is the last one
            if resolve_packing(spec) != "stream":
                samples.append(sample)
            break
        samples.append(sample)
    if not samples:
        raise KfjobError(f"{source.name} is shorter than one sample of {spec.sequence_length} tokens", location="validation")
    return samples
