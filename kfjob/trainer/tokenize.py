"""`kfjob-tokenize DATA FOLDER …`, or `python -m kfjob.trainer.tokenize …`: write a tokenised folder.

It reads everything that the trainer reads. Training on a tokenised folder is faster, and the number of samples is known.

Several processes read the source in parts, into `.FOLDER.partial` next to the folder. The parts are then joined in the order of
the source, and the folder appears complete. Its content does not depend on the number of processes.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import multiprocessing
import os
import re
import shutil
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from kfjob.base.errors import KfjobError, UsageError, explain_os_error
from kfjob.base.text import plural
from kfjob.trainer.data.records import Source
from kfjob.trainer.data.sources import local_path, make_encoder, open_source, split_files
from kfjob.trainer.data.token_files import FILE_SUFFIXES, HEADER
from kfjob.trainer.data.tokenizer import TextTokenizer, copy_tokenizer, open_tokenizer
from kfjob.trainer.redact import redact, write_error, write_note

_FIELD = re.compile(r"`(tokenizer|data_format|text_field|data_config|data_revision|data_split)(?:: (\w+))?`")
"""A field of the trainer's spec, in a hint, that this command has as an option."""
TRAIN, VALIDATION = "train", "validation"


@dataclass(frozen=True, kw_only=True)
class TokenizePlan:
    """The settings that the tokens depend on."""

    data: str
    tokenizer: str
    data_format: str = "text"
    text_field: str = "text"
    data_config: str | None = None
    data_revision: str | None = None
    train_split: str = TRAIN
    validation_split: str | None = None
    """None without validation data, or if it is held out of the training data."""
    held_out: float = 0.0
    """The share of the documents that becomes validation data."""
    parts: int = 64


Task = tuple[TokenizePlan, Path, str, int]
"""A part to tokenise: the plan, the folder of all parts, the split and the number of the part."""


def tokenize(plan: TokenizePlan, folder: Path, *, workers: int) -> dict[str, dict[str, int]]:
    """Write `folder` atomically, and return the number of tokens and documents of each split.

    Raises:
        KfjobError: the data is missing, empty or unreadable, or `folder` exists.
    """
    if folder.exists():
        raise KfjobError(f"`{folder}` exists", hint="remove it first, or choose another folder")
    tokenizer = open_tokenizer(plan.tokenizer)
    sources = {split: _open_split(plan, split) for split in (plan.train_split, plan.validation_split) if split}
    staging = folder.parent / f".{folder.name}.partial"
    shutil.rmtree(staging, ignore_errors=True)  # of a killed run
    staging.mkdir(parents=True)
    tasks = [(plan, staging, split, part) for split, source in sources.items() for part in range(source.lane_count(plan.parts))]
    try:
        if workers == 1 or len(tasks) < 2:
            for task in tasks:
                _tokenize_part(task)
        else:
            _tokenize_in_parallel(tasks, min(workers, len(tasks)))
        counts = _join_parts(staging, tasks, plan, tokenizer)
        (staging / "whole").rename(folder)
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    return counts


def _tokenize_in_parallel(tasks: list[Task], workers: int) -> None:
    with ProcessPoolExecutor(workers, multiprocessing.get_context("spawn")) as pool:
        parts = [pool.submit(_tokenize_part, task) for task in tasks]
        try:
            for part in as_completed(parts):
                part.result()
        except BrokenProcessPool as error:  # the pool ends the other parts: Python 3.11 breaks if they are also cancelled
            raise KfjobError(
                f"one of {workers} processes was killed",
                cause="most often the machine has no memory left; long documents take 170 times their size",
                hint=f"use fewer: `--workers {max(1, workers // 2)}`",
            ) from error
        except BaseException:
            for part in parts:
                part.cancel()
            raise


@cache
def _cached_tokenizer(location: str) -> TextTokenizer:
    return open_tokenizer(location)


def _open_split(plan: TokenizePlan, split: str) -> Source:
    encoder = make_encoder(plan.data_format, plan.text_field, _cached_tokenizer(plan.tokenizer))
    return open_source(
        plan.data, split, config=plan.data_config, revision=plan.data_revision, encoder=encoder, text_field=plan.text_field
    )


def _part_folder(task: Task) -> Path:
    _, staging, split, part = task
    return staging / f"{split}-{part:05d}"


def _tokenize_part(task: Task) -> None:
    """Tokenise one part of a split."""
    plan, _, split, part = task
    source = _open_split(plan, split)
    encoder = make_encoder(plan.data_format, plan.text_field, _cached_tokenizer(plan.tokenizer))
    target = _part_folder(task)
    target.mkdir()
    names = {True: VALIDATION, False: TRAIN} if split == plan.train_split else dict.fromkeys((True, False), VALIDATION)
    with ExitStack() as stack:
        files = {
            name: {kind: stack.enter_context((target / f"{name}.{kind}").open("wb")) for kind in FILE_SUFFIXES}
            for name in set(names.values())
        }
        for item in source.read(part, source.lane_count(plan.parts), None):
            document = encoder.encode(item)
            if document.loss_mask is not None and not document.loss_mask[1:].any():
                continue
            out = files[names[_is_held_out(document.tokens, plan.held_out)]]
            out["bin"].write(document.tokens.astype(_token_dtype(plan)).tobytes())
            out["documents.bin"].write(np.array(len(document.tokens), dtype="<u8").tobytes())
            if document.loss_mask is not None:
                out["answers.bin"].write(document.loss_mask.tobytes())


def _is_held_out(tokens: np.ndarray[Any, Any], share: float) -> bool:
    """Decide by the document alone, so that equal texts always belong to the same split."""
    return share > 0 and int.from_bytes(hashlib.sha256(tokens.tobytes()).digest()[:8], "big") < share * 2**64


def _token_dtype(plan: TokenizePlan) -> np.dtype[Any]:
    return np.dtype("<u2" if _cached_tokenizer(plan.tokenizer).vocab_size <= 1 << 16 else "<u4")


def _join_parts(staging: Path, tasks: list[Task], plan: TokenizePlan, tokenizer: TextTokenizer) -> dict[str, dict[str, int]]:
    """Join the parts in the folder `whole`."""
    whole = staging / "whole"
    whole.mkdir()
    counts: dict[str, dict[str, int]] = {}
    chat = plan.data_format == "chat"
    for name in (TRAIN, VALIDATION):
        parts = [part for task in tasks if ((part := _part_folder(task)) / f"{name}.bin").exists()]
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
        no_document = "no conversation has an answer" if chat else "no document has text"
        cause = "`--held-out` takes all documents" if counts else no_document
        raise KfjobError(f"no tokens to train on in `{plan.data}`", cause=cause, hint="use data with more documents")
    (whole / "tokenizer").mkdir()
    copy_tokenizer(tokenizer.folder, whole / "tokenizer")
    header: dict[str, Any] = {
        "dtype": _token_dtype(plan).name,
        "vocab_size": tokenizer.vocab_size,
        "end_of_text": tokenizer.end_of_text,
        "tokens": {name: count["tokens"] for name, count in counts.items()},
        "documents": {name: count["documents"] for name, count in counts.items()},
        "answers": chat,
        "tokenizer": tokenizer.fingerprint,
        "source": {name: value for name, value in asdict(plan).items() if name != "parts"},
    }
    (whole / HEADER).write_text(json.dumps(header, indent=2) + "\n")
    return counts


def _make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="kfjob-tokenize",
        description="Write a tokenised folder, with the splits train and validation, that the trainer reads as `data`.",
    )
    parser.add_argument(
        "data", help="file (.jsonl, .txt, .parquet), folder with train* and validation*, or data set of the hub"
    )
    parser.add_argument("folder", help="the new folder; it must not exist")
    parser.add_argument("--tokenizer", help="folder with tokenizer.json, or repository of the hub; default: DATA/tokenizer")
    parser.add_argument("--data-format", choices=("text", "chat"), default="text", help="format of the records")
    parser.add_argument("--text-field", default="text", help="field or column that holds the text")
    parser.add_argument("--data-config", help="configuration of a data set of the hub")
    parser.add_argument("--data-revision", help="commit or branch of a data set of the hub")
    parser.add_argument("--data-split", default=TRAIN, help="split to train on")
    parser.add_argument("--validation-split", help="split to evaluate on; default: `validation` if a folder has it")
    parser.add_argument("--held-out", type=float, default=0.0, help="share of the documents to hold out for validation instead")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="number of processes")
    return parser


def parse_arguments(argv: Sequence[str]) -> tuple[TokenizePlan, Path, int]:
    """Return (plan, folder, workers) of a command line.

    Raises:
        UsageError: the arguments contradict each other.
        KfjobError: the data does not exist.
    """
    arguments = _make_parser().parse_args(argv)
    data = local_path(arguments.data) or Path(arguments.data)
    if not 0 <= arguments.held_out < 1 or (arguments.held_out and arguments.validation_split):
        hint = "`--held-out 0.05` holds out 5 % of the documents"
        raise UsageError("--held-out must be at least 0 and below 1, and excludes --validation-split", hint=hint)
    validation = arguments.validation_split
    if not validation and not arguments.held_out and data.is_dir() and split_files(data, VALIDATION):
        validation = VALIDATION
    tokenizer = arguments.tokenizer or str(data / "tokenizer")
    if not arguments.tokenizer and not (data / "tokenizer").exists():
        raise UsageError(
            "no tokenizer", hint="set `--tokenizer` to a folder with tokenizer.json, or to a model on the hub, such as `gpt2`"
        )
    plan = TokenizePlan(
        data=str(data) if data.exists() else arguments.data,
        tokenizer=tokenizer,
        data_format=arguments.data_format,
        text_field=arguments.text_field,
        data_config=arguments.data_config,
        data_revision=arguments.data_revision,
        train_split=arguments.data_split,
        validation_split=validation,
        held_out=arguments.held_out,
    )
    return plan, Path(arguments.folder).expanduser(), max(1, arguments.workers)


def _show_option(match: re.Match[str]) -> str:
    """Return a field of the trainer's spec, with its value if it has one, as the option of this command."""
    name, value = match.groups()
    return f"`--{name.replace('_', '-')}{f' {value}' if value else ''}`"


def main(argv: Sequence[str] | None = None) -> int:
    """Tokenise the data that the command line names."""
    try:
        plan, folder, workers = parse_arguments(sys.argv[1:] if argv is None else argv)
        write_note(f"tokenising {plan.data} with {plan.tokenizer}, {plural(workers, 'process', 'processes')}")
        counts = tokenize(plan, folder, workers=workers)
    except (KfjobError, OSError) as error:
        problem = explain_os_error(error) if isinstance(error, OSError) else error
        problem.hint = _FIELD.sub(_show_option, problem.hint) if problem.hint else None
        write_error(problem)
        return problem.exit_code
    summary = (f"{count['tokens']} tokens of {count['documents']} documents for {split}" for split, count in counts.items())
    sys.stdout.write(redact(f"{folder}: {', '.join(summary)}\n"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
