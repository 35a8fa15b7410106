"""kfjob-tokenize: the same folder however many processes make it, whole or not there."""

from __future__ import annotations

import json

import numpy as np
import pytest

from kfjob.errors import KfjobError, UsageError
from kfjob.spec.train import TrainSpec
from kfjob.trainer import tokenize
from kfjob.trainer.data.blocks import header, open_split
from kfjob.trainer.data.sources import open_data
from kfjob.trainer.data.tokenizer import open_tokenizer


def made(source, target, *words: str, workers=1):
    plan, folder, _ = tokenize.plan_of([str(source), str(target), *words])
    tokenize.tokenize(plan, folder, workers=workers)
    return folder


def content(folder):
    return {path.relative_to(folder): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def stopped_after(parts, monkeypatch):
    """Have the next run stop after so many parts; the list of those it has made."""
    done: list[tuple[str, str, int]] = []
    make = tokenize._tokenize_part

    def stopping(task):
        if len(done) == parts:
            raise KeyboardInterrupt
        done.append(task)
        make(task)

    monkeypatch.setattr(tokenize, "_tokenize_part", stopping)
    return done


def test_two_processes_make_what_one_makes(chat_folder, tmp_path):
    one, two = (made(chat_folder, tmp_path / str(n), "--data-format=chat", workers=n) for n in (1, 2))
    assert content(one) == content(two)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["1", "2"]


def test_the_header_tells_what_is_in_it(chat_folder, tokenised_chat):
    about = header(tokenised_chat)
    assert about["documents"] == {"train": 160, "validation": 20}
    assert about["answers"] is True
    assert about["dtype"] == "uint16"
    assert about["tokenizer"] == open_tokenizer(chat_folder / "tokenizer").fingerprint
    split = open_split(tokenised_chat, "train")
    assert split.answers is not None
    assert split.ends[-1] == len(split.tokens) == len(split.answers)
    assert 0.2 < split.answers.mean() < 0.8


def test_parquet_gives_what_lines_give(text_folder, parquet_folder, tmp_path):
    lines, rows = (made(folder, tmp_path / folder.name) for folder in (text_folder, parquet_folder))
    for split in ("train", "validation"):
        assert (lines / f"{split}.bin").read_bytes() == (rows / f"{split}.bin").read_bytes()


def test_a_run_that_was_stopped_goes_on(text_folder, tmp_path, monkeypatch):
    """Parts that are there are not made again; the end is the same."""
    whole = content(made(text_folder, tmp_path / "whole"))
    done = stopped_after(30, monkeypatch)
    with pytest.raises(KeyboardInterrupt):
        made(text_folder, tmp_path / "stopped")
    assert not (tmp_path / "stopped").exists()
    (tmp_path / ".stopped.partial" / "train-00040.unfinished").mkdir()
    monkeypatch.undo()
    again = stopped_after(1000, monkeypatch)
    assert content(made(text_folder, tmp_path / "stopped")) == whole
    assert not set(again) & set(done)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["stopped", "whole"]


def test_parts_of_another_plan_are_not_used(text_folder, parquet_folder, tmp_path, monkeypatch):
    stopped_after(3, monkeypatch)
    with pytest.raises(KeyboardInterrupt):
        made(text_folder, tmp_path / "a", "--held-out=0.5")
    monkeypatch.undo()
    assert content(made(text_folder, tmp_path / "a")) == content(made(text_folder, tmp_path / "b"))


def test_documents_are_held_out_by_what_they_say(text_folder, tmp_path):
    """No document stands on both sides, and of twice the data the same ones are held out."""
    one = made(text_folder / "train.jsonl", tmp_path / "one", "--held-out=0.2", f"--tokenizer={text_folder / 'tokenizer'}")
    twice = tmp_path / "twice.jsonl"
    twice.write_text((text_folder / "train.jsonl").read_text() * 2)
    two = made(twice, tmp_path / "two", "--held-out=0.2", f"--tokenizer={text_folder / 'tokenizer'}")
    parts = []
    for folder in (one, two):
        for split in ("train", "validation"):
            files = open_split(folder, split)
            parts.append({document.tobytes() for document in np.split(files.tokens, files.ends.astype(int))[:-1]})
    train, held_out = parts[:2]
    assert train.isdisjoint(held_out)
    assert len(train | held_out) == 300
    assert 30 < len(held_out) < 90
    assert parts[2:] == parts[:2]


def test_what_cannot_be_read_is_named_and_nothing_is_left_half_done(text_folder, tmp_path):
    path = tmp_path / "train.jsonl"
    path.write_text((text_folder / "train.jsonl").read_text() + '{"txt": "x"}\n')
    with pytest.raises(KfjobError, match=r"cannot read line 301 of .*train.jsonl`\n  cause: no field `text`"):
        made(path, tmp_path / "out", f"--tokenizer={text_folder / 'tokenizer'}", workers=2)
    assert not (tmp_path / "out").exists()


def test_another_tokenizer_than_the_folder_was_made_with_is_refused(tiny, tokenised_folder, text_folder, tmp_path):
    other = json.loads((text_folder / "tokenizer" / "tokenizer.json").read_text())
    (tmp_path / "tokenizer.json").write_text(json.dumps(other, indent=1))
    spec = tiny | {"data": str(tokenised_folder), "tokenizer": str(tmp_path)}
    with pytest.raises(KfjobError, match="was made with another tokenizer"):
        open_data(TrainSpec(**spec), rank=0, world_size=1)
    open_data(TrainSpec(**spec | {"tokenizer": str(tokenised_folder / "tokenizer")}), rank=0, world_size=1)


def test_a_folder_of_conversations_is_not_cut_apart(tiny, tokenised_chat):
    with pytest.raises(KfjobError, match="packing `stream` would cut apart"):
        open_data(TrainSpec(**tiny | {"data": str(tokenised_chat), "packing": "stream"}), rank=0, world_size=1)


@pytest.mark.parametrize("words", [["--held-out=1"], ["--held-out=0.1", "--validation-split=validation"]])
def test_shares_that_make_no_sense_are_refused(text_folder, tmp_path, words):
    with pytest.raises(UsageError, match="--held-out is a share below 1"):
        made(text_folder, tmp_path / "out", *words)
