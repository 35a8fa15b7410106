from __future__ import annotations

import json
import shutil
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfjob.base.errors import KfjobError
from kfjob.trainer import tokenize
from kfjob.trainer.data import tiny_text
from kfjob.trainer.data.line_files import LineFiles
from kfjob.trainer.data.permutation import permute, permute_many
from kfjob.trainer.data.sources import open_data
from kfjob.trainer.data.stream import merge_positions
from kfjob.trainer.data.synthetic import DOCUMENTS
from kfjob.trainer.data.tokenizer import open_tokenizer
from kfjob.trainspec.train_spec import TrainSpec

KINDS: dict[str, dict[str, object]] = {
    "text": {},
    "text-documents": {"packing": "documents"},
    "text-pad": {"packing": "pad"},
    "lines": {"data": "lines_folder"},
    "parquet": {"data": "parquet_folder"},
    "parquet-documents": {"data": "parquet_folder", "packing": "documents"},
    "chat": {"data": "chat_folder", "data_format": "chat", "sequence_length": 96},
    "chat-pad": {"data": "chat_folder", "data_format": "chat", "sequence_length": 96, "packing": "pad"},
    "tokens": {"data": "tokenised_folder"},
    "tokens-documents": {"data": "tokenised_folder", "packing": "documents"},
    "tokens-chat": {"data": "tokenised_chat", "sequence_length": 96},
    "synthetic": {"data": "synthetic"},
    "synthetic-documents": {"data": "synthetic", "packing": "documents"},
}


@pytest.fixture(params=KINDS)
def spec(request, tiny):
    change = KINDS[request.param].copy()
    if (folder := str(change.get("data", "synthetic"))) != "synthetic":
        change["data"] = str(request.getfixturevalue(folder))
    return tiny | change


def streams(spec, world_size):
    return [open_data(TrainSpec(**spec), rank=rank, world_size=world_size).train for rank in range(world_size)]


def global_batches(parts, batch, count):
    """Return each global batch as the sorted bytes of its samples; `batch` is its size for every number of ranks."""
    per_rank = batch // len(parts)
    return [sorted(sample.tobytes() for part in parts for sample in part.read_batch(per_rank)) for _ in range(count)]


@given(size=st.integers(1, 5000), key=st.integers(0, 2**64 - 1))
def test_permute_is_a_permutation(size, key):
    assert sorted(permute(index, size, key) for index in range(size)) == list(range(size))


@given(size=st.integers(1, 10**12), key=st.integers(0, 2**64 - 1), indices=st.lists(st.integers(0, 10**12), max_size=50))
def test_permute_many_equals_permute(size, key, indices):
    indices = [index % size for index in indices]
    images = permute_many(np.array(indices, dtype=np.uint64), size, key)
    assert images.tolist() == [permute(index, size, key) for index in indices]


def test_permutation_of_a_key_is_fixed():
    assert [permute(index, 10, 7) for index in range(10)] == [0, 4, 8, 5, 7, 2, 6, 1, 9, 3]


def test_global_batches_do_not_depend_on_the_number_of_ranks(spec):
    uninterrupted = global_batches(streams(spec, 1), 8, 36)
    batches, position = [], None
    for world_size in (2, 1, 4, 2, 8, 1):
        parts = streams(spec, world_size)
        if position:
            for part in parts:
                part.seek(position)
        batches += global_batches(parts, 8, 6)
        position = json.loads(json.dumps(merge_positions([part.position() for part in parts])))
    assert batches == uninterrupted


def test_no_sample_repeats_in_an_epoch(tiny, tokenised_folder):
    parts = streams(tiny | {"data": str(tokenised_folder)}, 4)
    epoch = parts[0].samples_per_epoch
    first = [sample.tobytes() for _ in range(epoch // 4) for part in parts for sample in part.read_batch(1)]
    assert len(set(first)) == len(first) == epoch // 4 * 4


def test_every_epoch_has_a_different_order(tiny, tokenised_folder):
    (stream,) = streams(tiny | {"data": str(tokenised_folder)}, 1)
    epochs = [[sample.tobytes() for sample in stream.read_batch(stream.samples_per_epoch)] for _ in range(3)]
    assert sorted(epochs[0]) == sorted(epochs[1]) == sorted(epochs[2])
    assert epochs[0] != epochs[1] != epochs[2]


def test_lanes_read_every_document_once_per_epoch(tiny, text_folder):
    """Each document ends in its number, so the decoded text identifies it."""
    import tokenizers

    parts = streams(tiny | {"lanes": 4}, 4)
    decoder = tokenizers.Tokenizer.from_file(str(text_folder / "tokenizer" / "tokenizer.json"))
    documents = []
    for part in parts:
        tokens = []
        while all(cursor["epoch"] == 0 for cursor in part.position()["lanes"].values()):
            tokens += part.read_batch(1)[0, 0].tolist()
        text = decoder.decode(tokens, skip_special_tokens=False)
        complete = text.split(tiny_text.END_OF_TEXT)[:-1]
        documents += [document.rsplit(" ", 1)[-1] for document in complete]
    repeated = len(documents) - len(set(documents))
    assert set(documents) == {str(number) for number in range(300)}
    assert repeated <= 4  # the last sample of each lane may include a short document of the second epoch


def test_shuffle_window_changes_the_order(tiny):
    orders = {streams(tiny | {"shuffle_window": window}, 1)[0].read_batch(64).tobytes() for window in (1, 8, 100)}
    assert len(orders) == 3


def test_seed_changes_the_order(spec):
    orders = {streams(spec | {"seed": seed}, 1)[0].read_batch(64).tobytes() for seed in (1, 2, 1)}
    assert len(orders) == 2


def test_each_sample_begins_with_the_last_token_of_the_one_before(tiny):
    samples = streams(tiny | {"lanes": 1}, 1)[0].read_batch(50)
    assert all(before[1, -1] == after[0, 0] for before, after in pairwise(samples))


def test_lanes_of_any_number_split_between_lines(tmp_path):
    path = tmp_path / "lines.txt"
    path.write_text("a\n\nbb\nccc\r\ndddd\nno newline at the end")
    second = tmp_path / "more.txt"
    second.write_text("e\nf\n")
    files = LineFiles([path, second], text_field="text", extract=lambda record: record["text"])
    for lanes in range(1, 40):
        texts = [text for lane in range(lanes) for text in files.read(lane, lanes, None)]
        assert texts == ["a", "bb", "ccc", "dddd", "no newline at the end", "e", "f"]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (
            b'{"id": 1, "txt": "a"}',
            "cannot read line 2 of .*\n  cause: no field `text`; the record has `id`, `txt`\nhint: set `text_field`",
        ),
        (b"{", "cannot read line 2 of .*\n  cause: it is not JSON: Expecting"),
        (b'{"text": "\xff"}', "cannot read line 2 of .*\n  cause: it is not UTF-8: invalid start byte"),
        (b"[1]", "cannot read line 2 of"),
        (b'{"text": 7}', "cannot read line 2 of .*\n  cause: the field `text` is not text"),
    ],
)
def test_error_names_the_invalid_line(tiny, text_folder, tmp_path, line, message):
    path = tmp_path / "broken.jsonl"
    path.write_bytes(b'{"text": "good"}\n' + line + b"\n")
    broken = tiny | {"data": str(path), "tokenizer": str(text_folder / "tokenizer"), "lanes": 1}
    with pytest.raises(KfjobError) as caught:
        streams(broken, 1)[0].read_batch(8)
    assert caught.match(message)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"data": "/nowhere"}, "no data at `/nowhere`"),
        ({"tokenizer": "/nowhere"}, "no tokenizer at `/nowhere`"),
        ({"epochs": 1}, "`epochs` needs tokenised data"),
        ({"lanes": 1000}, "too small for the number of lanes"),
        ({"validation": "/nowhere", "eval_every": 1}, "no validation data at `/nowhere`"),
        ({"eval_every": 1, "sequence_length": 256 * 100, "model": "llama-3.2-1b"}, "is shorter than one sample"),
    ],
)
def test_unusable_data_is_an_error(tiny, change, message):
    with pytest.raises(KfjobError, match=message):
        streams(tiny | change, 1)[0].read_batch(1000)


def test_text_file_without_tokenizer_is_an_error(tiny, text_folder):
    with pytest.raises(KfjobError, match="text needs a tokenizer"):
        streams(tiny | {"data": str(text_folder / "train.jsonl")}, 1)


def test_lanes_must_be_a_multiple_of_the_world_size(tiny):
    with pytest.raises(KfjobError, match="8 lanes cannot be divided among 3 ranks") as caught:
        streams(tiny, 3)
    assert caught.value.hint is not None
    assert "`lanes: 24`" in caught.value.hint


@pytest.mark.parametrize("content", ["{", "{}", '{"model": {}}'])
def test_invalid_tokenizer_is_an_error(tmp_path, content):
    (tmp_path / "tokenizer.json").write_text(content)
    with pytest.raises(KfjobError, match="cannot read the tokenizer"):
        open_tokenizer(tmp_path)


def test_end_of_text_token_comes_from_the_configuration(text_folder, tmp_path):
    shutil.copytree(text_folder / "tokenizer", tmp_path / "t")
    (tmp_path / "t" / "tokenizer_config.json").write_text('{"eos_token": {"content": "!"}}')
    assert open_tokenizer(tmp_path / "t").end_of_text == open_tokenizer(text_folder / "tokenizer").encode("!")[0]


@pytest.mark.parametrize("size", [0, 1, -1])
def test_token_file_of_wrong_size_is_an_error(tiny, tokenised_folder, tmp_path, size):
    folder = shutil.copytree(tokenised_folder, tmp_path / "t")
    content = (folder / "train.bin").read_bytes()
    (folder / "train.bin").write_bytes(content[:size] if size <= 0 else content + b"x")
    with pytest.raises(KfjobError, match=r"tokens.json promises"):
        streams(tiny | {"data": str(folder)}, 1)


def test_tokenising_stores_every_token(text_folder, tokenised_folder):
    reader = open_tokenizer(text_folder / "tokenizer")
    lines = (text_folder / "train.jsonl").read_text().splitlines()
    expected = [token for line in lines for token in [*reader.encode(json.loads(line)["text"]), reader.end_of_text]]
    assert np.fromfile(tokenised_folder / "train.bin", dtype="<u2").tolist() == expected


def test_tokenize_command_line(text_folder, tmp_path, capsys):
    assert tokenize.main([str(text_folder), str(tmp_path / "out"), "--workers=1"]) == 0
    assert capsys.readouterr().out.startswith(f"{tmp_path / 'out'}: ")
    assert tokenize.main([str(text_folder), str(tmp_path / "out")]) == 1
    assert "exists" in capsys.readouterr().err
    assert tokenize.main([str(tmp_path), str(tmp_path / "out2"), "--tokenizer", str(text_folder / "tokenizer")]) == 1
    assert "no train.jsonl, .txt or .parquet" in capsys.readouterr().err
    assert tokenize.main([str(tmp_path), str(tmp_path / "out2")]) == 2
    assert "no tokenizer" in capsys.readouterr().err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out"]


MISSING = ["nope.txt", "nope.jsonl", "corpus/nope.parquet"]


@pytest.mark.parametrize("name", MISSING)
def test_missing_data_file_is_not_looked_up_on_the_hub(tiny, text_folder, monkeypatch, name):
    monkeypatch.setattr("kfjob.trainer.data.sources.HubSplit", lambda *_, **__: pytest.fail("the hub is asked"))
    spec = TrainSpec(**tiny | {"data": name, "tokenizer": str(text_folder / "tokenizer")})
    with pytest.raises(KfjobError, match=f"no data at `{name}`"):
        open_data(spec, rank=0, world_size=1)


@pytest.mark.parametrize("name", MISSING)
def test_tokenize_names_a_missing_data_file(tmp_path, capsys, name):
    assert tokenize.main([name, str(tmp_path / "out")]) == 1
    assert f"error: no data at `{name}`" in capsys.readouterr().err


def test_tokenize_suggests_a_similar_file(tmp_path, capsys):
    (tmp_path / "corpus.txt").write_text("text\n")
    assert tokenize.main([str(tmp_path / "corpsu.txt"), str(tmp_path / "out")]) == 1
    assert f"hint: did you mean `{tmp_path}/corpus.txt`?\n" in capsys.readouterr().err
    assert tokenize.main([str(tmp_path / "nope" / "corpus.txt"), str(tmp_path / "out")]) == 1
    assert f"hint: `{tmp_path}` has no `nope`; " in capsys.readouterr().err


@pytest.mark.parametrize(
    "case",
    [
        ("a.jsonl", '{"content": "a"}\n', [], "hint: set `--text-field` to the field that holds the text"),
        ("a.jsonl", '{"messages": []}\n', [], "hint: set `--data-format chat` to read conversations"),
        ("a.jsonl", '[{"text": "a"}]\n', [], "cause: it is not a JSON object; each line of a .jsonl file is one"),
        ("a.jsonl.gz", "x", [], "hint: decompress it first"),
        ("a.json", "[]", [], "hint: convert it to .jsonl: one JSON object per line, with the text in the field `text`"),
        (
            "a.jsonl",
            '{"text": "a"}\n',
            ["--data-format", "chat"],
            "`completion`; the record has `text`\nhint: rename the fields, or set ",
        ),
        ("a.txt", "\n\n", [], "cause: no document has text\nhint: use data with more documents"),
        ("a.txt", "", [], "cause: the size is 0 bytes\nhint: write it again, or use another"),
        ("a.txt", "text\n", ["--held-out", "5"], "hint: `--held-out 0.05` holds out 5 % of the documents"),
    ],
)
def test_tokenize_says_what_to_do_next(text_folder, tmp_path, capsys, case):
    name, content, options, message = case
    (tmp_path / name).write_text(content)
    arguments = [str(tmp_path / name), str(tmp_path / "out"), "--tokenizer", str(text_folder / "tokenizer"), "--workers", "1"]
    assert tokenize.main([*arguments, *options]) != 0
    assert message in capsys.readouterr().err


def test_tokenize_into_a_folder_that_cannot_be_written_is_an_error(text_folder, capsys):
    assert tokenize.main([str(text_folder), "/proc/out"]) == 1
    error = "\nerror: `/proc/.out.partial` cannot be used\n  cause: No such file or directory\n"
    assert capsys.readouterr().err.endswith(error)


def test_missing_tokenizer_file_is_not_looked_up_on_the_hub(monkeypatch):
    monkeypatch.setattr("huggingface_hub.snapshot_download", lambda *_, **__: pytest.fail("the hub is asked"))
    with pytest.raises(KfjobError, match=r"no tokenizer at `nope\.json`"):
        open_tokenizer("nope.json")


@pytest.fixture(scope="module")
def tiny_text_folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tiny-text") / "a"
    folder.mkdir()
    assert tiny_text.main([str(folder)]) == 0
    return folder


def test_tiny_text_is_complete(tiny_text_folder):
    texts = [
        [json.loads(line)["text"] for line in (tiny_text_folder / f"{split}.jsonl").read_text("utf-8").split("\n")[:-1]]
        for split in ("train", "validation")
    ]
    assert sum(map(len, texts[0])) > 1_000_000
    assert set(texts[0]).isdisjoint(texts[1])
    assert open_tokenizer(tiny_text_folder / "tokenizer").vocab_size == tiny_text.VOCAB_SIZE
    assert [path.name for path in tiny_text_folder.parent.iterdir()] == ["a"]


def test_tiny_text_is_reproducible(tmp_path, monkeypatch):
    monkeypatch.setattr(tiny_text, "_read_docstrings", lambda: ())  # the language reference is enough
    folders = [tiny_text.build_dataset(tmp_path / name) for name in ("a", "b")]
    for file in ("train.jsonl", "validation.jsonl", "tokenizer/tokenizer.json", "tokenizer/tokenizer_config.json"):
        assert (folders[0] / file).read_bytes() == (folders[1] / file).read_bytes()


@pytest.mark.parametrize(("argument", "message"), [("--help", "usage: "), ("--nope", "unrecognized arguments: --nope")])
def test_tiny_text_options_are_no_folders(tmp_path, monkeypatch, capsys, argument, message):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as stop:
        tiny_text.main([argument])
    assert stop.value.code == (0 if argument == "--help" else 2)
    assert message in "".join(capsys.readouterr())
    assert list(tmp_path.iterdir()) == []


def test_tiny_text_command_line(tiny_text_folder, capsys):
    folder = tiny_text_folder
    assert tiny_text.main([str(folder)]) == 0
    assert capsys.readouterr().out == f"{folder}\n"
    assert tiny_text.main([str(folder.parent)]) == 1
    assert f"error: cannot write `{folder.parent}`" in capsys.readouterr().err


@pytest.mark.parametrize("length", [1, 2, 64])
def test_synthetic_documents_fill_the_sample(tiny, length):
    spec = TrainSpec(**tiny | {"data": "synthetic", "packing": "documents", "sequence_length": length})
    stream = open_data(spec, rank=0, world_size=1).train
    for sample in stream.read_batch(20):
        begins = np.flatnonzero(sample[2] == 0)
        assert begins[0] == 0
        assert len(begins) <= DOCUMENTS
        assert (sample[2] == np.concatenate([np.arange(size) for size in np.diff([*begins, length])])).all()
        assert (sample[1] >= 0).all()
        inside = np.setdiff1d(np.arange(length - 1), begins[1:] - 1)
        assert (sample[1][inside] == sample[0][inside + 1]).all()
