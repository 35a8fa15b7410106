"""`kfjob-tokenize DATA FOLDER …`, or `python -m kfjob.trainer.tokenize …`: make a tokenised folder.

Out of anything that can be trained on, but faster than while training, and with a number of samples that is known.

The source is read in parts, by several processes. A finished part stays in `.FOLDER.partial` beside the folder, so that a run
that was stopped goes on where it was; when all are there they become one, in the source's order, and the folder appears whole.
What is in it does not depend on the number of processes.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import multiprocessing
import os
import shutil
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from kfjob.errors import KfjobError, UsageError
from kfjob.trainer.data.blocks import HEADER
from kfjob.trainer.data.source import Source
from kfjob.trainer.data.sources import make_encoder, open_source, split_files
from kfjob.trainer.data.tokenizer import FILES, TextTokenizer, open_tokenizer

_KINDS = {"bin": None, "documents.bin": "<u8", "answers.bin": "?"}
_PLAN = "plan.json"
TRAIN, VALIDATION = "train", "validation"


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What the tokens depend on: parts that were made by another plan are not used."""

    data: str
    tokenizer: str
    data_format: str = "text"
    text_field: str = "text"
    data_config: str | None = None
    data_revision: str | None = None
    train_split: str = TRAIN
    validation_split: str | None = None
    """None where there is none, or it is held out of the training data."""
    held_out: float = 0.0
    """Share of the documents that becomes the validation data."""
    parts: int = 64
    fingerprint: str = ""
    """Of the tokenizer."""
    sources: dict[str, Any] | None = None
    """What is known of the data without reading it, by split."""


def tokenize(plan: Plan, folder: Path, *, workers: int) -> dict[str, dict[str, int]]:
    """Write `folder`, whole or not at all, and return tokens and documents of each split.

    Raises:
        KfjobError: there is nothing to read, or something unreadable, or `folder` exists.
    """
    if folder.exists():
        raise KfjobError(f"`{folder}` exists", hint="remove it first, or choose another folder")
    tokenizer = open_tokenizer(plan.tokenizer)
    sources = {split: _source(plan, split) for split in (plan.train_split, plan.validation_split) if split}
    known = {split: source.identity for split, source in sources.items()}
    plan = replace(plan, fingerprint=tokenizer.fingerprint, sources=known)
    staging = folder.parent / f".{folder.name}.partial"
    _claim(staging, plan)
    tasks = [(str(staging), split, part) for split, source in sources.items() for part in range(source.lanes(plan.parts))]
    missing = [task for task in tasks if not _done(*task).exists()]
    if workers == 1 or len(missing) < 2:
        for task in missing:
            _tokenize_part(task)
    else:
        with ProcessPoolExecutor(min(workers, len(missing)), multiprocessing.get_context("spawn")) as pool:
            list(pool.map(_tokenize_part, missing))
    counts = _assemble(staging, tasks, plan, tokenizer)
    (staging / "whole").rename(folder)
    shutil.rmtree(staging)
    return counts


def _claim(staging: Path, plan: Plan) -> None:
    """Take up what an earlier run of the same plan has left, or begin afresh."""
    wanted = json.dumps(asdict(plan), indent=2) + "\n"
    if staging.exists() and ((staging / _PLAN).read_text() if (staging / _PLAN).exists() else "") != wanted:
        shutil.rmtree(staging)
    staging.mkdir(parents=True, exist_ok=True)
    (staging / _PLAN).write_text(wanted)
    for left in (staging / "whole", *staging.glob("*.unfinished")):
        shutil.rmtree(left, ignore_errors=True)


@cache
def _tokenizer(place: str) -> TextTokenizer:
    return open_tokenizer(place)


def _source(plan: Plan, split: str) -> Source:
    encoder = make_encoder(plan.data_format, plan.text_field, _tokenizer(plan.tokenizer))
    return open_source(
        plan.data, split, config=plan.data_config, revision=plan.data_revision, encoder=encoder, text_field=plan.text_field
    )


def _done(staging: str, split: str, part: int) -> Path:
    """The folder of a finished part."""
    return Path(staging) / f"{split}-{part:05d}"


def _tokenize_part(task: tuple[str, str, int]) -> None:
    """Tokenise a part of a split."""
    staging, split, part = task
    plan = Plan(**json.loads((Path(staging) / _PLAN).read_text()))
    source = _source(plan, split)
    encoder = make_encoder(plan.data_format, plan.text_field, _tokenizer(plan.tokenizer))
    target = _done(staging, split, part)
    fresh = target.with_name(f"{target.name}.unfinished")
    fresh.mkdir()
    names = {True: VALIDATION, False: TRAIN} if split == plan.train_split else dict.fromkeys((True, False), VALIDATION)
    files = {name: {kind: (fresh / f"{name}.{kind}").open("wb") for kind in _KINDS} for name in set(names.values())}
    for item in source.read(part, source.lanes(plan.parts), None):
        document = encoder.encode(item)
        if document.learnt is not None and not document.learnt[1:].any():
            continue
        out = files[names[_is_held_out(document.tokens, plan.held_out)]]
        out["bin"].write(document.tokens.astype(_dtype(plan)).tobytes())
        out["documents.bin"].write(np.array(len(document.tokens), dtype="<u8").tobytes())
        if document.learnt is not None:
            out["answers.bin"].write(document.learnt.tobytes())
    for kinds in files.values():
        for file in kinds.values():
            file.close()
    fresh.rename(target)


def _is_held_out(tokens: np.ndarray[Any, Any], share: float) -> bool:
    """A function of the document alone, so that the same text never stands on both sides."""
    return share > 0 and int.from_bytes(hashlib.sha256(tokens.tobytes()).digest()[:8], "big") < share * 2**64


def _dtype(plan: Plan) -> np.dtype[Any]:
    return np.dtype("<u2" if _tokenizer(plan.tokenizer).vocab_size <= 1 << 16 else "<u4")


def _assemble(
    staging: Path, tasks: list[tuple[str, str, int]], plan: Plan, tokenizer: TextTokenizer
) -> dict[str, dict[str, int]]:
    """Put the parts together in `whole`."""
    whole = staging / "whole"
    whole.mkdir()
    counts: dict[str, dict[str, int]] = {}
    chat = plan.data_format == "chat"
    for name in (TRAIN, VALIDATION):
        parts = [part for task in tasks if ((part := _done(*task)) / f"{name}.bin").exists()]
        sizes = [np.fromfile(part / f"{name}.documents.bin", dtype="<u8") for part in parts]
        ends = np.cumsum(np.concatenate([*sizes, np.zeros(0, "<u8")]), dtype="<u8")
        if len(ends) == 0:
            continue
        ends.tofile(whole / f"{name}.documents.bin")
        for kind in ("bin", "answers.bin") if chat else ("bin",):
            with (whole / f"{name}.{kind}").open("wb") as out:
                for part in parts:
                    with (part / f"{name}.{kind}").open("rb") as file:
                        shutil.copyfileobj(file, out)
        counts[name] = {"tokens": int(ends[-1]), "documents": len(ends)}
    if TRAIN not in counts:
        raise KfjobError(f"there is nothing to learn in `{plan.data}`")
    (whole / "tokenizer").mkdir()
    for beside in FILES:
        if (tokenizer.folder / beside).exists():
            shutil.copyfile(tokenizer.folder / beside, whole / "tokenizer" / beside)
    about: dict[str, Any] = {
        "dtype": _dtype(plan).name,
        "vocab_size": tokenizer.vocab_size,
        "end_of_text": tokenizer.end_of_text,
        "tokens": {name: count["tokens"] for name, count in counts.items()},
        "documents": {name: count["documents"] for name, count in counts.items()},
        "answers": chat,
        "tokenizer": tokenizer.fingerprint,
        "source": {name: value for name, value in asdict(plan).items() if name not in ("fingerprint", "parts", "sources")},
    }
    (whole / HEADER).write_text(json.dumps(about, indent=2) + "\n")
    return counts


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="kfjob-tokenize",
        description="Make a tokenised folder, with train and validation, that the trainer reads as `data`.",
    )
    parser.add_argument(
        "data", help="file (.jsonl, .txt, .parquet), folder with train* and validation*, or data set of the hub"
    )
    parser.add_argument("folder", help="the folder to make; it must not be there")
    parser.add_argument("--tokenizer", help="folder with tokenizer.json, or a name of the hub; DATA/tokenizer if there is one")
    parser.add_argument("--data-format", choices=("text", "chat"), default="text", help="what the records are")
    parser.add_argument("--text-field", default="text", help="the field or column that holds the text")
    parser.add_argument("--data-config", help="configuration of a data set of the hub")
    parser.add_argument("--data-revision", help="its commit or branch")
    parser.add_argument("--data-split", default=TRAIN, help="split to train on")
    parser.add_argument("--validation-split", help="split to evaluate on; `validation` where a folder has it")
    parser.add_argument(
        "--held-out", type=float, default=0.0, help="hold out this share of the documents for validation instead"
    )
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="processes")
    return parser


def plan_of(words: Sequence[str]) -> tuple[Plan, Path, int]:
    """(plan, folder, workers) of a command line.

    Raises:
        UsageError: they do not go together.
    """
    given = _parser().parse_args(words)
    data = Path(given.data).expanduser()
    if not 0 <= given.held_out < 1 or (given.held_out and given.validation_split):
        raise UsageError("--held-out is a share below 1, and goes without --validation-split")
    validation = given.validation_split
    if not validation and not given.held_out and data.is_dir() and split_files(data, VALIDATION):
        validation = VALIDATION
    tokenizer = given.tokenizer or str(data / "tokenizer")
    if not given.tokenizer and not (data / "tokenizer").exists():
        raise UsageError("no tokenizer", hint="`--tokenizer` names a folder with tokenizer.json")
    plan = Plan(
        data=str(data) if data.exists() else given.data,
        tokenizer=tokenizer,
        data_format=given.data_format,
        text_field=given.text_field,
        data_config=given.data_config,
        data_revision=given.data_revision,
        train_split=given.data_split,
        validation_split=validation,
        held_out=given.held_out,
    )
    return plan, Path(given.folder).expanduser(), max(1, given.workers)


def main(words: Sequence[str] | None = None) -> int:
    """Tokenise what the command line names."""
    try:
        plan, folder, workers = plan_of(sys.argv[1:] if words is None else words)
        counts = tokenize(plan, folder, workers=workers)
    except KfjobError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    said = (f"{count['tokens']} tokens of {count['documents']} documents for {split}" for split, count in counts.items())
    sys.stdout.write(f"{folder}: {', '.join(said)}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
