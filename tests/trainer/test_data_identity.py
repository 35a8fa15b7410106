"""What a position in the data depends on: the content of the files, the tokenizer and the chat template."""

from __future__ import annotations

import json
import shutil

import pytest

from kfjob.base.errors import KfjobError
from kfjob.trainer.data.content import fingerprint_files
from kfjob.trainer.data.sources import is_same_data, open_data
from kfjob.trainer.data.tokenizer import open_tokenizer
from kfjob.trainer.tokenize import parse_arguments, tokenize
from kfjob.trainspec.train_spec import TrainSpec


def open_run(spec, **changes):
    return open_data(TrainSpec(**(spec | changes)), rank=0, world_size=1)


def copy_tokenizer(source, target, **changes):
    """Copy a tokenizer folder; `changes` replace keys of tokenizer.json."""
    shutil.copytree(source, target)
    path = target / "tokenizer.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    return str(target)


TRUNCATION = {"max_length": 8, "strategy": "LongestFirst", "stride": 0, "direction": "Right"}
PADDING = {
    "strategy": {"Fixed": 256},
    "direction": "Right",
    "pad_id": 0,
    "pad_type_id": 0,
    "pad_token": "x",
    "pad_to_multiple_of": None,
}


@pytest.mark.parametrize("change", [{"truncation": TRUNCATION}, {"padding": PADDING}])
def test_documents_are_tokenised_whole(text_folder, tmp_path, change):
    tokenizer = open_tokenizer(text_folder / "tokenizer")
    changed = open_tokenizer(copy_tokenizer(text_folder / "tokenizer", tmp_path / "tokenizer", **change))
    text = "loss rank shard step gather " * 9
    assert changed.encode(text) == tokenizer.encode(text)
    assert changed.encode_with_spans(text) == tokenizer.encode_with_spans(text)
    assert changed.fingerprint != tokenizer.fingerprint  # other tokens were read with it until now


def test_vocabulary_with_a_gap_reaches_to_its_last_token(text_folder, tmp_path):
    content = json.loads((text_folder / "tokenizer" / "tokenizer.json").read_text())
    model = content["model"]
    model["vocab"] = {token: number + 500 * (number > 250) for token, number in model["vocab"].items()}
    folder = copy_tokenizer(text_folder / "tokenizer", tmp_path / "tokenizer", model=model)
    assert open_tokenizer(folder).vocab_size == max(model["vocab"].values()) + 1


@pytest.mark.parametrize("kind", ["text_folder", "lines_folder", "parquet_folder"])
def test_other_content_of_the_same_size_is_other_data(request, tiny, tmp_path, kind):
    folder = shutil.copytree(request.getfixturevalue(kind), tmp_path / "data")
    before = open_run(tiny, data=str(folder)).identity
    assert open_run(tiny, data=str(folder)).identity == before
    path = min(folder.glob("train*"))
    path.write_bytes(path.read_bytes().replace(b"gather", b"reduce"))
    assert not is_same_data(before, open_run(tiny, data=str(folder)).identity)


def test_other_tokens_of_the_same_number_are_other_data(tiny, tokenised_folder, tmp_path):
    folder = shutil.copytree(tokenised_folder, tmp_path / "data")
    before = open_run(tiny, data=str(folder)).identity
    tokens = (folder / "train.bin").read_bytes()
    (folder / "train.bin").write_bytes(tokens[2:] + tokens[:2])
    assert not is_same_data(before, open_run(tiny, data=str(folder)).identity)


def test_another_chat_template_is_other_data(tiny, chat_folder, tmp_path):
    folder = shutil.copytree(chat_folder, tmp_path / "data")
    identities = []
    for mark in "ab":
        template = mark + "{% for m in messages %}{{ m.role + m.content }}{% endfor %}"
        (folder / "tokenizer" / "chat_template.jinja").write_text(template)
        identities.append(open_run(tiny, data=str(folder), data_format="chat", sequence_length=96).identity)
    assert not is_same_data(*identities)
    assert identities[0]["tokenizer"] == identities[1]["tokenizer"]


def test_identity_of_an_earlier_version_is_compared_without_the_content(tiny, text_folder):
    present = open_run(tiny).identity
    earlier = {name: value for name, value in present.items() if name != "content"}
    assert is_same_data(earlier, present)
    assert not is_same_data(earlier | {"bytes": 1}, present)
    assert not is_same_data(earlier | {"content": "other"}, present)
    assert not is_same_data(earlier | {"kind": "other", "unknown": 1}, present)


def test_fingerprint_of_a_large_file_reads_its_ends_and_blocks_between(tmp_path):
    path = tmp_path / "large.txt"
    content = bytes(8 << 20)

    def fingerprint(*marks: int):
        path.write_bytes(content)
        with path.open("r+b") as file:
            for mark in marks:
                file.seek(mark)
                file.write(b"x")
        return fingerprint_files([path])

    marks = [(), (0,), (len(content) - 1,), (len(content) - (1 << 14),), ((len(content) - (1 << 14)) * 10 // 63,)]
    assert len({fingerprint(*mark) for mark in marks}) == len(marks)


def test_fingerprint_depends_on_the_division_into_files(tmp_path):
    first, second = tmp_path / "a", tmp_path / "b"
    fingerprints = set()
    for contents in (("ab", "c"), ("a", "bc"), ("", "abc")):
        for path, content in zip((first, second), contents, strict=True):
            path.write_text(content)
        fingerprints.add(fingerprint_files([first, second]))
    assert len(fingerprints) == 3


@pytest.mark.parametrize("template", [["a", "b"], "{{ 1/0 }}", "{% for i in range(100000000) %}{% endfor %}x", [{"name": 1}]])
def test_impossible_chat_template_is_an_error(tiny, chat_folder, tmp_path, template):
    folder = shutil.copytree(chat_folder, tmp_path / "data")
    (folder / "tokenizer" / "tokenizer_config.json").write_text(json.dumps({"chat_template": template}))
    with pytest.raises(KfjobError, match=r"chat.template"):
        open_run(tiny, data=str(folder), data_format="chat", sequence_length=96).train.read_batch(1)


def test_data_that_cannot_be_opened_is_an_error(tiny, text_folder, tmp_path):
    folder = tmp_path / "data"
    (folder / "train.jsonl").mkdir(parents=True)
    with pytest.raises(KfjobError, match="cannot read") as caught:
        open_run(tiny, data=str(folder), tokenizer=str(text_folder / "tokenizer"))
    assert caught.value.location == "data"


def test_tokenizer_with_an_impossible_name_is_an_error(tiny):
    with pytest.raises(KfjobError, match="cannot read") as caught:
        open_run(tiny, tokenizer="/" + "b" * 300)
    assert caught.value.location == "tokenizer"


def test_empty_file_is_named_as_empty(tiny, text_folder, tmp_path):
    (tmp_path / "train.jsonl").touch()
    with pytest.raises(KfjobError, match="no text in") as caught:
        open_run(tiny, data=str(tmp_path), tokenizer=str(text_folder / "tokenizer"))
    assert caught.value.cause == "the size is 0 bytes"


def test_text_with_the_format_of_conversations_gets_a_hint(tiny, text_folder, chat_folder):
    with pytest.raises(KfjobError) as caught:
        open_run(tiny, data=str(text_folder), data_format="chat", sequence_length=96).train.read_batch(1)
    assert caught.value.hint == "rename the fields, or set `data_format: text` if the records are no conversations"
    with pytest.raises(KfjobError, match="no field `text`, but `messages`") as caught:
        open_run(tiny, data=str(chat_folder)).train.read_batch(1)
    assert caught.value.hint == "set `data_format: chat` to read conversations"


def test_tokenised_folder_holds_whole_documents(text_folder, tokenised_folder, tmp_path):
    tokenizer = copy_tokenizer(text_folder / "tokenizer", tmp_path / "tokenizer", truncation=TRUNCATION)
    plan, folder, _ = parse_arguments([str(text_folder), str(tmp_path / "tokens"), f"--tokenizer={tokenizer}"])
    tokenize(plan, folder, workers=1)
    assert (folder / "train.bin").read_bytes() == (tokenised_folder / "train.bin").read_bytes()
