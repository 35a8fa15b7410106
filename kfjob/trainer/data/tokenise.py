"""Make a tokenised folder out of text: `python -m kfjob.trainer.data.tokenise SOURCE FOLDER [TOKENIZER]`.

SOURCE is a folder with train.* and (if there is to be evaluation) validation.*, each .jsonl or .txt.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

import numpy as np

from kfjob.errors import KfjobError, UsageError
from kfjob.trainer.data.blocks import HEADER
from kfjob.trainer.data.text import TextFile
from kfjob.trainer.data.tokenizer import open_tokenizer


def tokenise(source: Path, folder: Path, *, tokenizer: Path, text_field: str) -> dict[str, int]:
    """Write `folder`, whole or not at all, and return the number of tokens of each split.

    Raises:
        KfjobError: there is nothing to read, or something unreadable, or `folder` exists.
    """
    if folder.exists():
        raise KfjobError(f"`{folder}` exists", hint="remove it first, or choose another folder")
    reader = open_tokenizer(tokenizer)
    dtype = "uint16" if reader.vocab_size <= 1 << 16 else "uint32"
    counts: dict[str, int] = {}
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}-") as staging:
        built = Path(staging) / "built"
        built.mkdir()
        for path in sorted([*source.glob("*.jsonl"), *source.glob("*.txt")]):
            if path.stem in ("train", "validation"):
                file = TextFile(path=path, text_field=text_field, encode=reader.encode, end_of_text=reader.end_of_text)
                counts[path.stem] = _write(file, built / f"{path.stem}.bin", dtype)
        if "train" not in counts:
            raise KfjobError(f"no train.jsonl and no train.txt in `{source}`")
        header = {"dtype": dtype, "vocab_size": reader.vocab_size, "end_of_text": reader.end_of_text, "tokens": counts}
        (built / HEADER).write_text(json.dumps(header, indent=2) + "\n")
        built.rename(folder)
    return counts


def _write(file: TextFile, target: Path, dtype: str) -> int:
    count = 0
    with target.open("wb") as out:
        for _, text in file.documents(0, file.path.stat().st_size):
            tokens = file.tokens(text)
            out.write(tokens.astype(np.dtype(dtype).newbyteorder("<")).tobytes())
            count += len(tokens)
    return count


def main(words: list[str]) -> int:
    """Tokenise what the command line names."""
    try:
        if len(words) not in (2, 3):
            raise UsageError("usage: python -m kfjob.trainer.data.tokenise SOURCE FOLDER [TOKENIZER]")
        source, folder = (Path(word).expanduser() for word in words[:2])
        tokenizer = Path(words[2]).expanduser() if len(words) == 3 else source / "tokenizer"
        counts = tokenise(source, folder, tokenizer=tokenizer, text_field="text")
    except KfjobError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    sys.stdout.write(f"{folder}: " + ", ".join(f"{count} tokens for {split}" for split, count in counts.items()) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
