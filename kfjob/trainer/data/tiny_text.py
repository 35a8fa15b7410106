"""Builds a small data set of real text from the installed Python: `python -m kfjob.trainer.data.tiny_text [FOLDER]`.

The text is the language reference that `help()` shows, and the docstrings of the standard library; both are under the Python
Software Foundation License. The tokenizer is trained on this text. The same Python writes the same files, without a download.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import inspect
import json
import os
import sys
import sysconfig
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path

from kfjob.base.errors import KfjobError

VOCAB_SIZE = 2048
END_OF_TEXT = "<|endoftext|>"
_VALIDATION_SHARE = 20
"""One document in 20 is for validation."""
_MIN_LENGTH, _MAX_LENGTH = 80, 4000
"""Characters of a document of the built-in data set."""
_EXCLUDED = {"test", "tests", "idlelib", "lib2to3", "site-packages", "dist-packages", "__pycache__", "config"}


def default_folder() -> Path:
    """Return `tiny-text` in the user's cache."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "kfjob" / "tiny-text"


def build_dataset(folder: Path) -> Path:
    """Write the data set to `folder`, atomically; do nothing if the folder already has it.

    Raises:
        KfjobError: the folder has other content.
    """
    if (folder / "tokenizer" / "tokenizer.json").exists():
        return folder
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise _folder_error(folder, "it has other content")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}-") as staging:
        texts = list(read_documents())
        validation = [text for text in texts if _digest(text) % _VALIDATION_SHARE == 0]
        train = [text for text in texts if _digest(text) % _VALIDATION_SHARE]
        output = Path(staging) / "dataset"
        (output / "tokenizer").mkdir(parents=True)
        for split, part in (("train", train), ("validation", validation)):
            lines = "".join(json.dumps({"text": text}, ensure_ascii=False) + "\n" for text in part)
            (output / f"{split}.jsonl").write_text(lines, encoding="utf-8")
        train_tokenizer(train, output / "tokenizer", vocab_size=VOCAB_SIZE)
        try:
            output.rename(folder)
        except OSError as error:
            if not (folder / "tokenizer" / "tokenizer.json").exists():  # otherwise another process has just written it
                raise _folder_error(folder, str(error)) from error
    return folder


def _folder_error(folder: Path, cause: str) -> KfjobError:
    return KfjobError(f"cannot write `{folder}`", cause=cause, hint="choose an empty folder, or one that does not exist")


def read_documents() -> Iterator[str]:
    """Yield every text once, in an order that depends only on the texts."""
    sources = (*_read_topics(), *_read_docstrings())
    texts = {piece for text in sources for piece in _split_text(text) if len(piece) >= _MIN_LENGTH}
    yield from sorted(texts, key=lambda text: (_digest(text), text))


def _split_text(text: str) -> Iterator[str]:
    """Split a long text between paragraphs, so that no document dominates the data."""
    piece = ""
    for paragraph in text.split("\n\n"):
        if piece and len(piece) + len(paragraph) > _MAX_LENGTH:
            yield piece
            piece = ""
        piece += ("\n\n" if piece else "") + paragraph
    yield piece


def _read_topics() -> Iterator[str]:
    from pydoc_data import topics

    for text in topics.topics.values():
        yield inspect.cleandoc(text)


def _read_docstrings() -> Iterator[str]:
    """Yield the docstrings of all modules, classes and functions of the standard library, without importing it."""
    root = Path(sysconfig.get_path("stdlib"))
    for path in sorted(root.rglob("*.py")):
        if _EXCLUDED.isdisjoint(path.relative_to(root).parts[:-1]):
            try:
                with warnings.catch_warnings(action="ignore"):  # about the source of the library
                    tree = ast.parse(path.read_bytes())
            except (SyntaxError, ValueError):
                continue
            for node in ast.walk(tree):
                if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                    yield ast.get_docstring(node) or ""


def _digest(text: str) -> int:
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")


def train_tokenizer(texts: list[str], folder: Path, *, vocab_size: int) -> None:
    """Train byte-level BPE on `texts` and write the files that `open_tokenizer` reads."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size, special_tokens=[END_OF_TEXT], initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": END_OF_TEXT}) + "\n")


def main(argv: Sequence[str] | None = None) -> int:
    """Build the data set in the folder that the command line names."""
    parser = argparse.ArgumentParser(
        prog="python -m kfjob.trainer.data.tiny_text",
        description="Write a small data set of real text, with a tokenizer, that the trainer reads as `data`.",
    )
    parser.add_argument("folder", nargs="?", type=Path, help="new or empty folder; default: kfjob/tiny-text in your cache")
    arguments = parser.parse_args(argv)
    folder = arguments.folder.expanduser() if arguments.folder else default_folder()
    sys.stderr.write(f"writing the data set and its tokenizer to {folder}\n")
    try:
        folder = build_dataset(folder)
    except KfjobError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    sys.stdout.write(f"{folder}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
