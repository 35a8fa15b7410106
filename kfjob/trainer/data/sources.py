"""Opens the training and validation data that a spec names."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from kfjob.base.errors import KfjobError
from kfjob.base.parsing import parse_json_object, read_document
from kfjob.base.text import find_similar
from kfjob.trainer.data.chat import ChatEncoder
from kfjob.trainer.data.content import fingerprint_files
from kfjob.trainer.data.documents import Encoder, TextEncoder
from kfjob.trainer.data.hub_dataset import HubSplit
from kfjob.trainer.data.lanes import Lanes
from kfjob.trainer.data.line_files import LineFiles
from kfjob.trainer.data.packing import Sample
from kfjob.trainer.data.parquet import ParquetFiles
from kfjob.trainer.data.records import Source, describe_files
from kfjob.trainer.data.stream import LaneStream, Samples, SampleStream, SequentialStream, ShuffledStream
from kfjob.trainer.data.synthetic import Synthetic
from kfjob.trainer.data.token_files import FILE_SUFFIXES, HEADER, open_samples, read_header
from kfjob.trainer.data.tokenizer import TextTokenizer, open_tokenizer
from kfjob.trainspec.train_rules import SYNTHETIC, TEXT_SUFFIXES, can_be_repository, make_epochs_problem
from kfjob.trainspec.train_spec import TrainSpec, get_shape, resolve_eval_batch_size, resolve_packing

CONTENT_KEYS = ("content", "template")
"""The keys of an identity that depend on the content of the data; remote data has none."""
_COMPRESSED_SUFFIXES = (".gz", ".zst", ".bz2", ".xz", ".zip", ".tar", ".tgz", ".lz4")
_MAX_ENTRIES = 10_000
"""Names in a folder that are compared with the one of a missing file."""


@dataclass(frozen=True, kw_only=True)
class RunData:
    """The data that a run trains and evaluates on."""

    train: SampleStream
    validation: Sequence[Sample]
    """The fixed samples of every evaluation; empty without validation data."""
    vocab_size: int
    identity: dict[str, Any]
    """The settings that a stored position depends on: if one changes, the position is invalid."""


def open_data(spec: TrainSpec, *, rank: int, world_size: int) -> RunData:
    """Open the training and validation data of this rank.

    Raises:
        KfjobError: data is missing or unreadable, or does not fit the spec.
    """
    rank_arguments = {"rank": rank, "world_size": world_size}
    common = {"sequence_length": spec.sequence_length, "seed": spec.seed, "packing": resolve_packing(spec)}
    if spec.data == SYNTHETIC:
        return _open_synthetic(spec, rank_arguments)
    try:
        if (Path(spec.data).expanduser() / HEADER).exists():
            return _open_tokenized(spec, rank_arguments, common)
        return _open_lanes(spec, rank_arguments, common)
    except OSError as error:
        field = _find_field(spec, error)
        raise KfjobError(f"cannot read `{getattr(spec, field)}`", location=field, cause=str(error)) from error


def _find_field(spec: TrainSpec, error: OSError) -> str:
    """Return the field that names what cannot be read."""
    path = str(error.filename or "")
    fields = (name for name in ("tokenizer", "validation") if (value := getattr(spec, name)) and path.startswith(value))
    return next(fields, "data")


def _open_tokenized(spec: TrainSpec, rank_arguments: dict[str, int], common: dict[str, Any]) -> RunData:
    folder = Path(spec.data).expanduser()
    header = read_header(folder)
    if spec.tokenizer and open_tokenizer(spec.tokenizer).fingerprint != header.tokenizer:
        raise KfjobError(f"`{folder}` was tokenised with another tokenizer than `{spec.tokenizer}`", location="tokenizer")
    packing = spec.packing or ("documents" if header.answers else resolve_packing(spec))
    samples = open_samples(folder, spec.data_split, spec.sequence_length, packing)
    validation: list[Sample] = []
    if _evaluates(spec):
        validation_samples = open_samples(folder, spec.validation_split, spec.sequence_length, packing)
        validation = [validation_samples[index] for index in range(min(_eval_samples(spec), len(validation_samples)))]
    files = [path for suffix in FILE_SUFFIXES if (path := folder / f"{spec.data_split}.{suffix}").exists()]
    identity: dict[str, Any] = {"kind": "tokens", "tokens": header.tokens[spec.data_split], "samples": len(samples)}
    identity["content"] = fingerprint_files(files)
    return RunData(
        train=ShuffledStream(samples, seed=spec.seed, **rank_arguments),
        validation=validation,
        vocab_size=header.vocab_size,
        identity=identity | common | {"packing": packing},
    )


def _open_synthetic(spec: TrainSpec, rank_arguments: dict[str, int]) -> RunData:
    shape = get_shape(spec)
    config = Path(str(spec.model)).expanduser() / "config.json"
    vocab_size = shape.vocab_size if shape else _read_vocab_size(config)
    if not vocab_size:
        raise KfjobError("synthetic data needs the model's vocabulary size", location="vocab_size", hint="set `vocab_size`")
    packs = spec.packing == "documents"
    make_samples = partial(Synthetic, length=spec.sequence_length, vocab_size=vocab_size, documents=packs)
    validation_samples: Samples = make_samples(seed=spec.seed + 1)
    return RunData(
        train=SequentialStream(make_samples(seed=spec.seed), **rank_arguments),
        validation=[validation_samples[index] for index in range(_eval_samples(spec))] if _evaluates(spec) else [],
        vocab_size=vocab_size,
        identity={
            "kind": SYNTHETIC,
            "sequence_length": spec.sequence_length,
            "seed": spec.seed,
            "vocab_size": vocab_size,
            "packing": "documents" if packs else "stream",
        },
    )


def _read_vocab_size(config: Path) -> int:
    """Return the vocabulary size in a model's configuration; 0 if there is no such file."""
    if not config.exists():
        return 0
    try:
        return int(parse_json_object(read_document(config))["vocab_size"])
    except (OSError, ValueError, KeyError, TypeError, OverflowError) as error:
        raise KfjobError(f"cannot read the vocabulary size in `{config}`", cause=str(error), location="model") from error


def _open_lanes(spec: TrainSpec, rank_arguments: dict[str, int], common: dict[str, Any]) -> RunData:
    _refuse_epochs(spec, "the number of samples in streamed data is unknown")
    tokenizer = open_tokenizer(_tokenizer_location(spec, local_path(spec.data)))
    encoder = make_encoder(spec.data_format, spec.text_field, tokenizer)
    open_split = partial(
        open_source, config=spec.data_config, revision=spec.data_revision, encoder=encoder, text_field=spec.text_field
    )
    source = open_split(spec.data, spec.data_split)
    lanes = _make_lanes(spec, source, encoder, tokenizer)
    identity = source.identity | common | {"lanes": lanes.count, "window": lanes.window, "format": spec.data_format}
    return RunData(
        train=LaneStream(lanes, **rank_arguments),
        validation=_read_validation(spec, encoder, tokenizer, open_split) if _evaluates(spec) else [],
        vocab_size=tokenizer.vocab_size,
        identity=identity | {"tokenizer": tokenizer.fingerprint} | _identify_template(spec.data_format, tokenizer),
    )


def make_encoder(data_format: str, text_field: str, tokenizer: TextTokenizer) -> Encoder:
    """Return the encoder for records of `data_format`."""
    return ChatEncoder(tokenizer) if data_format == "chat" else TextEncoder(text_field, tokenizer)


def open_source(
    data: str, split: str, *, config: str | None, revision: str | None, encoder: Encoder, text_field: str
) -> Source:
    """Open a file, the files of a split in a folder, or a split of a data set of the hub.

    Raises:
        KfjobError: `data` does not exist or has no such split.
    """
    path = local_path(data)
    if path is None:
        return HubSplit(data, config, split, revision=revision, extract=encoder.extract)
    paths = [path] if path.is_file() else split_files(path, split)
    if not paths:
        hint = "name the files so, or set `data` to one file, or to a folder of `kfjob-tokenize`"
        raise KfjobError(f"no {split}.jsonl, .txt or .parquet in `{path}`", location="data", hint=hint)
    if not any(file.stat().st_size for file in paths):
        raise KfjobError(
            f"no text in {describe_files(paths)}",
            location="data",
            cause="the size is 0 bytes",
            hint="write it again, or use another",
        )
    if paths[0].suffix not in TEXT_SUFFIXES:
        raise KfjobError(
            f"`{paths[0]}` does not end in {', '.join(TEXT_SUFFIXES[:-1])} or {TEXT_SUFFIXES[-1]}",
            location="data",
            hint="decompress it first"
            if paths[0].suffix in _COMPRESSED_SUFFIXES
            else "convert it to .jsonl: one JSON object per line, with the text in the field `text`",
        )
    if paths[0].suffix == ".parquet":
        return ParquetFiles(paths, columns=encoder.columns, extract=encoder.extract)
    return LineFiles(paths, text_field=text_field, extract=encoder.extract)


def local_path(data: str) -> Path | None:
    """Return the file or folder that `data` names; None if `data` can only be a data set of the hub.

    Raises:
        KfjobError: `data` is a path that does not exist.
    """
    path = Path(data).expanduser()
    if path.exists():
        return path
    if can_be_repository(data):
        return None
    raise KfjobError(f"no data at `{path}`", location="data", hint=_describe_missing(path))


def _describe_missing(path: Path) -> str:
    """Return a hint for a path that does not exist: a similar one, or the last folder that exists."""
    folder = next(parent for parent in path.absolute().parents if parent.is_dir())
    names = [entry.name for entry in islice(folder.iterdir(), _MAX_ENTRIES)] if os.access(folder, os.R_OK) else []
    part = path.absolute().relative_to(folder).parts[0]
    if similar := find_similar(part, names):
        return f"did you mean `{folder / similar}`?"
    return f"`{folder}` has no `{part}`; a job reads the path in the container that trains"


def split_files(folder: Path, split: str) -> list[Path]:
    """Return the first that exists of `train.jsonl`, `train-*.jsonl`, `train/*` and `data/train-*`; also .txt and .parquet."""
    for suffix in TEXT_SUFFIXES:
        for pattern in (f"{split}{suffix}", f"{split}-*{suffix}", f"{split}/*{suffix}", f"data/{split}-*{suffix}"):
            if paths := sorted(folder.glob(pattern)):
                return paths
    return []


def _identify_template(data_format: str, tokenizer: TextTokenizer) -> dict[str, Any]:
    return {"template": tokenizer.fingerprint_template()} if data_format == "chat" else {}


def is_same_data(stored: Mapping[str, Any], present: Mapping[str, Any]) -> bool:
    """Return whether a position in the data with the identity `stored` is valid in that with the identity `present`.

    The checkpoints of earlier versions have no keys of the content: the others are compared.
    """
    comparable = {name: value for name, value in present.items() if name in stored or name not in CONTENT_KEYS}
    return dict(stored) == comparable


def _make_lanes(
    spec: TrainSpec, source: Source, encoder: Encoder, tokenizer: TextTokenizer, *, count: int = 0, window: int = 0
) -> Lanes:
    return Lanes(
        source=source,
        encoder=encoder,
        count=source.lane_count(count or spec.lanes),
        length=spec.sequence_length,
        window=window or spec.shuffle_window,
        seed=spec.seed,
        packing=resolve_packing(spec),
        padding=tokenizer.end_of_text,
    )


def _evaluates(spec: TrainSpec) -> bool:
    return bool(spec.eval_every or spec.evals_per_epoch)


def _eval_samples(spec: TrainSpec) -> int:
    return spec.eval_batches * resolve_eval_batch_size(spec)


def _refuse_epochs(spec: TrainSpec, reason: str) -> None:
    for name in ("epochs", "evals_per_epoch"):
        if getattr(spec, name):
            problem = make_epochs_problem(name, reason)
            raise KfjobError(problem.title, location=name, hint=problem.hint)


def _tokenizer_location(spec: TrainSpec, data: Path | None) -> str:
    """Return the tokenizer of the spec, else the one in the data folder, else the model's."""
    if spec.tokenizer:
        return spec.tokenizer
    for folder in ([data / "tokenizer"] if data else []) + [Path(str(spec.model)).expanduser()]:
        if (folder / "tokenizer.json").exists():
            return str(folder)
    hint = "set `tokenizer` to a folder with tokenizer.json, or to a model on the hub, such as `gpt2`"
    raise KfjobError("text needs a tokenizer", location="tokenizer", hint=hint)


def _read_validation(
    spec: TrainSpec, encoder: Encoder, tokenizer: TextTokenizer, open_split: Callable[[str, str], Source]
) -> list[Sample]:
    """Return the first samples of the validation data, at most one epoch, in the same order on every rank."""
    if spec.validation and not Path(spec.validation).expanduser().exists():
        raise KfjobError(f"no validation data at `{spec.validation}`", location="validation")
    source = open_split(spec.validation or spec.data, spec.validation_split)
    window = 1 if resolve_packing(spec) == "stream" else 0
    lane = _make_lanes(spec, source, encoder, tokenizer, count=1, window=window).open(0)
    samples: list[Sample] = []
    while len(samples) < _eval_samples(spec):
        sample = lane.next_sample()
        if lane.cursor.epoch > 0:  # the sample reaches into a second epoch, or is the last one of the first
            if resolve_packing(spec) != "stream":
                samples.append(sample)
            break
        samples.append(sample)
    if not samples:
        raise KfjobError(f"{source.name} is shorter than one sample of {spec.sequence_length} tokens", location="validation")
    return samples
