"""A small data set of real text, made from what every Python has: `python -m kfjob.trainer.data.tiny_text [FOLDER]`.

The text is the language reference that `help()` reads, and the documentation strings of the standard library; both are under
the Python Software Foundation License. The tokenizer is trained on it. The same Python makes the same files; nothing is
downloaded.
"""

from __future__ import annotations

import ast
import hashlib
import inspect
import json
import os
import sys
import sysconfig
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path

from kfjob.errors import KfjobError

VOCABULARY = 2048
END_OF_TEXT = "<|endoftext|>"
_HELD_OUT = 20
"""One document in so many is for validation."""
_SHORTEST, _LONGEST = 80, 4000
"""Characters of a document."""
_LEFT_OUT = {"test", "tests", "idlelib", "lib2to3", "site-packages", "dist-packages", "__pycache__", "config"}


def default_folder() -> Path:
    """`tiny-text` in the user's cache."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "kfjob" / "tiny-text"


def make(folder: Path) -> Path:
    """Make the data set in `folder`, whole or not at all; nothing to do if it is there.

    Raises:
        KfjobError: something else is there.
    """
    if (folder / "tokenizer" / "tokenizer.json").exists():
        return folder
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise _cannot_make(folder, "something else is there")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}-") as staging:
        texts = list(documents())
        held_out = [text for text in texts if _digest(text) % _HELD_OUT == 0]
        train = [text for text in texts if _digest(text) % _HELD_OUT]
        built = Path(staging) / "built"
        (built / "tokenizer").mkdir(parents=True)
        for split, part in (("train", train), ("validation", held_out)):
            lines = "".join(json.dumps({"text": text}, ensure_ascii=False) + "\n" for text in part)
            (built / f"{split}.jsonl").write_text(lines, encoding="utf-8")
        train_tokenizer(train, built / "tokenizer", vocabulary=VOCABULARY)
        try:
            built.rename(folder)
        except OSError as error:
            if not (folder / "tokenizer" / "tokenizer.json").exists():  # else another process has just made it
                raise _cannot_make(folder, str(error)) from error
    return folder


def _cannot_make(folder: Path, cause: str) -> KfjobError:
    return KfjobError(f"cannot make `{folder}`", cause=cause, hint="it must be empty, or not there")


def documents() -> Iterator[str]:
    """Every text once, in an order that depends on nothing but the text."""
    whole = (*_topics(), *_documentation_strings())
    texts = {piece for text in whole for piece in _pieces(text) if len(piece) >= _SHORTEST}
    yield from sorted(texts, key=lambda text: (_digest(text), text))


def _pieces(text: str) -> Iterator[str]:
    """Cut a long text between paragraphs, so that no document is a large part of the whole."""
    piece = ""
    for paragraph in text.split("\n\n"):
        if piece and len(piece) + len(paragraph) > _LONGEST:
            yield piece
            piece = ""
        piece += ("\n\n" if piece else "") + paragraph
    yield piece


def _topics() -> Iterator[str]:
    from pydoc_data import topics

    for text in topics.topics.values():
        yield inspect.cleandoc(text)


def _documentation_strings() -> Iterator[str]:
    """Of all modules, classes and functions of the standard library, read from their source without importing it."""
    root = Path(sysconfig.get_path("stdlib"))
    for path in sorted(root.rglob("*.py")):
        if _LEFT_OUT.isdisjoint(path.relative_to(root).parts[:-1]):
            try:
                with warnings.catch_warnings(action="ignore"):  # of the library's own source, which is not ours to mend
                    tree = ast.parse(path.read_bytes())
            except (SyntaxError, ValueError):
                continue
            for node in ast.walk(tree):
                if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                    yield ast.get_docstring(node) or ""


def _digest(text: str) -> int:
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")


def train_tokenizer(texts: list[str], folder: Path, *, vocabulary: int) -> None:
    """Train byte-level BPE on `texts` and write what `open_tokenizer` reads."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary, special_tokens=[END_OF_TEXT], initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": END_OF_TEXT}) + "\n")


def main(words: list[str]) -> int:
    """Make the data set where the command line says."""
    try:
        made = make(Path(words[0]).expanduser() if words else default_folder())
    except KfjobError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    sys.stdout.write(f"{made}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
