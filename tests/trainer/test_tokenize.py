"""kfjob-tokenize writes the same folder with any number of processes, atomically."""

from __future__ import annotations

import json

import numpy as np
import pytest

from kfjob.base.errors import KfjobError, UsageError
from kfjob.trainer import tokenize
from kfjob.trainer.data.sources import open_data
from kfjob.trainer.data.token_files import HEADER, open_split, read_header
from kfjob.trainer.data.tokenizer import open_tokenizer
from kfjob.trainspec.train_spec import TrainSpec


def tokenize_folder(source, target, *options: str, workers=1):
    plan, folder, _ = tokenize.parse_arguments([str(source), str(target), *options])
    tokenize.tokenize(plan, folder, workers=workers)
    return folder


def content(folder):
    return {path.relative_to(folder): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_two_processes_write_the_same_folder_as_one(chat_folder, tmp_path):
    single, parallel = (tokenize_folder(chat_folder, tmp_path / str(n), "--data-format=chat", workers=n) for n in (1, 2))
    assert content(single) == content(parallel)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["1", "2"]


def test_header_describes_the_folder(chat_folder, tokenised_chat):
    header = read_header(tokenised_chat)
    assert header.documents == {"train": 160, "validation": 20}
    assert header.answers is True
    assert header.dtype == "uint16"
    assert header.tokenizer == open_tokenizer(chat_folder / "tokenizer").fingerprint
    split = open_split(tokenised_chat, "train")
    assert split.loss_mask is not None
    assert split.ends[-1] == len(split.tokens) == len(split.loss_mask)
    assert 0.2 < split.loss_mask.mean() < 0.8


def test_parquet_and_lines_give_the_same_tokens(text_folder, parquet_folder, tmp_path):
    lines, rows = (tokenize_folder(folder, tmp_path / folder.name) for folder in (text_folder, parquet_folder))
    for split in ("train", "validation"):
        assert (lines / f"{split}.bin").read_bytes() == (rows / f"{split}.bin").read_bytes()


def test_parts_of_a_killed_run_are_not_reused(text_folder, tmp_path):
    (tmp_path / ".b.partial" / "train-00000").mkdir(parents=True)
    first, second = (tokenize_folder(text_folder, tmp_path / name) for name in "ab")
    assert content(first) == content(second)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b"]


def test_held_out_documents_depend_on_their_text_only(text_folder, tmp_path):
    """No document is in both splits, and doubling the data holds out the same documents."""
    options = ["--held-out=0.2", f"--tokenizer={text_folder / 'tokenizer'}"]
    original = tokenize_folder(text_folder / "train.jsonl", tmp_path / "one", *options)
    twice = tmp_path / "twice.jsonl"
    twice.write_text((text_folder / "train.jsonl").read_text() * 2)
    doubled = tokenize_folder(twice, tmp_path / "two", *options)
    parts = []
    for folder in (original, doubled):
        for split in ("train", "validation"):
            files = open_split(folder, split)
            parts.append({document.tobytes() for document in np.split(files.tokens, files.ends.astype(int))[:-1]})
    train, held_out = parts[:2]
    assert train.isdisjoint(held_out)
    assert len(train | held_out) == 300
    assert 30 < len(held_out) < 90
    assert parts[2:] == parts[:2]


def test_unreadable_line_is_named_and_no_folder_is_written(text_folder, tmp_path):
    path = tmp_path / "train.jsonl"
    path.write_text((text_folder / "train.jsonl").read_text() + '{"txt": "x"}\n')
    with pytest.raises(KfjobError, match=r"cannot read line 301 of .*train.jsonl`\n  cause: no field `text`"):
        tokenize_folder(path, tmp_path / "out", f"--tokenizer={text_folder / 'tokenizer'}", workers=2)
    assert [file.name for file in tmp_path.iterdir()] == ["train.jsonl"]


def test_another_tokenizer_than_the_folder_has_is_an_error(tiny, tokenised_folder, text_folder, tmp_path):
    other = json.loads((text_folder / "tokenizer" / "tokenizer.json").read_text())
    (tmp_path / "tokenizer.json").write_text(json.dumps(other, indent=1))
    spec = tiny | {"data": str(tokenised_folder), "tokenizer": str(tmp_path)}
    with pytest.raises(KfjobError, match="was tokenised with another tokenizer"):
        open_data(TrainSpec(**spec), rank=0, world_size=1)
    open_data(TrainSpec(**spec | {"tokenizer": str(tokenised_folder / "tokenizer")}), rank=0, world_size=1)


def test_packing_stream_is_an_error_for_conversations(tiny, tokenised_chat):
    with pytest.raises(KfjobError, match="packing `stream` would split"):
        open_data(TrainSpec(**tiny | {"data": str(tokenised_chat), "packing": "stream"}), rank=0, world_size=1)


@pytest.mark.parametrize("options", [["--held-out=1"], ["--held-out=0.1", "--validation-split=validation"]])
def test_invalid_held_out_is_a_usage_error(text_folder, tmp_path, options):
    with pytest.raises(UsageError, match="--held-out must be at least 0 and below 1"):
        tokenize_folder(text_folder, tmp_path / "out", *options)


@pytest.mark.parametrize(("change", "cause"), [
    ({"dtype": "object"}, "dtype"),
    ({"vocab_size": -1}, "vocab_size"),
    ({"end_of_text": 10**30}, "end_of_text"),
    ({"tokens": None}, "tokens"),
    ({"tokens": {"train": -1, "validation": 0}}, "tokens: train"),
    ({"documents": {}}, "name different splits"),
])  # fmt: skip
def test_header_of_another_program_is_refused(tokenised_chat, tmp_path, change, cause):
    header = json.loads((tokenised_chat / HEADER).read_text())
    (tmp_path / HEADER).write_text(json.dumps(header | change))
    with pytest.raises(KfjobError) as caught:
        open_split(tmp_path, "train")
    assert cause in (caught.value.cause or "")


@pytest.mark.parametrize("ends", [[7, 3, 8], [3, 9], [3, 7], [2**63, 8]])
def test_ends_that_do_not_divide_the_tokens_are_refused(tmp_path, ends):
    header = {"dtype": "uint16", "vocab_size": 9, "end_of_text": 0, "answers": False, "tokenizer": ""}
    header |= {"tokens": {"train": 8}, "documents": {"train": len(ends)}}
    (tmp_path / HEADER).write_text(json.dumps(header))
    np.arange(8, dtype="<u2").tofile(tmp_path / "train.bin")
    np.array(ends, dtype="<u8").tofile(tmp_path / "train.documents.bin")
    with pytest.raises(KfjobError, match=r"does not divide the 8 tokens"):
        open_split(tmp_path, "train")
