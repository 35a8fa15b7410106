"""Training data that would fill the memory of the machine is refused, with its place, before it is decoded."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import tracemalloc

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kfjob.base.errors import KfjobError
from kfjob.trainer import tokenize
from kfjob.trainer.data import chat, lanes, line_files, parquet, records, token_files
from kfjob.trainer.data.sources import make_encoder, open_data, open_source
from kfjob.trainer.data.tokenizer import open_tokenizer
from kfjob.trainspec.train_spec import TrainSpec

MIB = 1 << 20
READ = """
import sys
from kfjob.base.errors import KfjobError
from kfjob.trainer.data.sources import make_encoder, open_source
from kfjob.trainer.data.tokenizer import open_tokenizer

path, tokenizer, data_format = sys.argv[1:]
encoder = make_encoder(data_format, "text", open_tokenizer(tokenizer))
source = open_source(path, "train", config=None, revision=None, encoder=encoder, text_field="text")
try:
    print(sum(1 for _ in source.read(0, 1, None)), "records")
except KfjobError as error:
    print(error)
"""


def read(path, text_folder, data_format="text"):
    """Return all records of a file."""
    encoder = make_encoder(data_format, "text", open_tokenizer(text_folder / "tokenizer"))
    source = open_source(str(path), "train", config=None, revision=None, encoder=encoder, text_field="text")
    return [record for lane in range(4) for record in source.read(lane, 4, None)]


def kill_process(_):
    """End the process as the kernel does when no memory is left."""
    os.kill(os.getpid(), signal.SIGKILL)


def read_in_little_memory(path, text_folder, data_format="text"):
    """Return the output of a process that may use 2 GiB of addresses and reads a file."""

    def limit():
        resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30))

    command = [sys.executable, "-c", READ, str(path), str(text_folder / "tokenizer"), data_format]
    result = subprocess.run(command, capture_output=True, text=True, check=False, preexec_fn=limit, timeout=60)
    assert result.returncode == 0, result.stderr[-2000:]
    return result.stdout


def share(values, count):
    """Return `count` values, one after the other, that are the same few objects."""
    return pa.DictionaryArray.from_arrays(pa.array(np.arange(count, dtype=np.int32) % len(values)), pa.array(values))


def write(path, columns, **options):
    pq.write_table(pa.table(columns), path, compression="zstd", store_schema=False, **options)
    return path


def test_value_that_expands_to_more_than_a_record_is_refused(text_folder, tmp_path):
    file = write(tmp_path / "bomb.parquet", {"text": ["y" * (80 * MIB)]}, use_dictionary=False)
    assert file.stat().st_size < 100_000
    output = read_in_little_memory(file, text_folder)
    assert output.startswith(f"error: cannot read row group 1 of `{file}`\n")
    assert "a value of `text` has 83,886," in output
    assert "\nhint: divide it into several records" in output


def test_rows_that_share_a_long_text_are_read_in_little_memory(text_folder, tmp_path):
    text = {"text": share(["x" * (30 * MIB)], 100)}
    file = write(tmp_path / "shared.parquet", text, dictionary_pagesize_limit=1 << 30)
    assert file.stat().st_size < 100_000
    assert read_in_little_memory(file, text_folder) == "100 records\n"


def test_page_does_not_decompress_to_more_than_its_header_says(text_folder, tmp_path):
    file = write(tmp_path / "bomb.parquet", {"text": ["y" * (80 * MIB)]}, use_dictionary=False)
    content = bytearray(file.read_bytes())
    size = content.index(bytes([0x15, 0x00, 0x15])) + 3
    content[size : size + 4] = bytes([0x80 | 80, 0x80, 0x80, 0])  # a number of four bytes: 40, in zigzag
    file.write_bytes(content)
    assert "cannot read row group 1" in read_in_little_memory(file, text_folder)


@pytest.mark.parametrize("limit", [1, 30_000, 300_000])
def test_rows_are_the_same_in_smaller_batches(text_folder, tmp_path, monkeypatch, limit):
    texts = [f"{number} " + "long text " * 1000 for number in range(10)] * 20
    file = write(tmp_path / "long.parquet", {"text": texts}, row_group_size=90)
    monkeypatch.setattr(parquet, "MAX_BATCH_BYTES", limit)
    assert read(file, text_folder) == [text.strip() for text in texts]


def test_damaged_parquet_file_is_an_error_with_its_row_group(text_folder, tmp_path):
    file = write(tmp_path / "text.parquet", {"text": [str(n) * 50 for n in range(5000)]}, row_group_size=1000)
    content = bytearray(file.read_bytes())
    chunk = pq.ParquetFile(file).metadata.row_group(2).column(0)
    for offset in range(chunk.data_page_offset, chunk.data_page_offset + 60):
        content[offset] ^= 0xFF
    file.write_bytes(content)
    with pytest.raises(KfjobError, match=r"cannot read row group 3 of `.*text\.parquet`"):
        read(file, text_folder)


@pytest.mark.parametrize(("suffix", "kind"), [("jsonl", "a record"), ("txt", "a document")])
def test_long_line_is_refused_before_it_is_parsed(text_folder, tmp_path, suffix, kind):
    line = json.dumps({"text": "word " * (16 * MIB)}) if suffix == "jsonl" else "word " * (16 * MIB)
    file = tmp_path / f"corpus.{suffix}"
    file.write_text(('{"text": "one"}\n' if suffix == "jsonl" else "one\n") + line + "\n")
    with pytest.raises(KfjobError) as error:
        read(file, text_folder)
    assert error.value.title == f"cannot read line 2 of `{file}`"
    assert error.value.cause == f"each line is {kind}, and this one has more than 64 MiB"
    assert error.value.hint == "divide it into several records"


def test_line_of_two_gigabytes_takes_no_memory(text_folder, tmp_path):
    file = tmp_path / "zeros.txt"
    with file.open("wb") as opened:
        opened.truncate(3 << 30)  # a file with a hole; it takes no space
    assert f"cannot read line 1 of `{file}`" in read_in_little_memory(file, text_folder)


def test_error_after_many_lines_takes_no_memory(tmp_path):
    file = tmp_path / "late.jsonl"
    file.write_bytes(b"\n" * 64 * MIB + b"no JSON\n")
    reader = line_files.LineFiles([file], text_field="text", extract=dict).read(0, 1, 64 * MIB)
    tracemalloc.start()
    with pytest.raises(KfjobError, match=f"cannot read line {64 * MIB + 1} of `{file}`"):
        next(reader)
    assert tracemalloc.get_traced_memory()[1] < 8 * MIB
    tracemalloc.stop()


@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
def test_long_document_is_refused_before_it_is_tokenised(text_folder, tmp_path, monkeypatch, suffix):
    monkeypatch.setattr("kfjob.trainer.data.documents.MAX_DOCUMENT_CHARACTERS", 1000)
    rows = [{"text": "short"}, {"text": "x" * 1001}]
    file = tmp_path / f"data.{suffix}"
    if suffix == "jsonl":
        file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    else:
        pq.write_table(pa.Table.from_pylist(rows), file)
    with pytest.raises(KfjobError) as error:
        tokenize.tokenize(
            *tokenize.parse_arguments([str(file), str(tmp_path / "out"), "--tokenizer", str(text_folder / "tokenizer")])[:2],
            workers=1,
        )
    assert error.value.title == f"cannot read {'line' if suffix == 'jsonl' else 'row'} 2 of `{file}`"
    assert error.value.cause == "the text has 1,001 characters, the limit is 1,000"


def test_conversation_with_a_million_messages_is_refused(text_folder, tmp_path):
    file = tmp_path / "chat.jsonl"
    file.write_text(json.dumps({"messages": [{"role": "user", "content": "hi"}] * 1_000_000}) + "\n")
    with pytest.raises(KfjobError) as error:
        read(file, text_folder, "chat")
    assert error.value.cause == f"`messages` has 1,000,000 messages, the limit is {chat.MAX_MESSAGES:,}"
    assert error.value.title == f"cannot read line 1 of `{file}`"


def test_long_conversation_is_refused(text_folder, tmp_path, monkeypatch):
    monkeypatch.setattr("kfjob.trainer.data.chat.MAX_DOCUMENT_CHARACTERS", 100)
    file = tmp_path / "chat.jsonl"
    file.write_text(
        json.dumps({"messages": [{"role": "user", "content": "x" * 90}, {"role": "assistant", "content": "y" * 90}]}) + "\n"
    )
    with pytest.raises(KfjobError) as error:
        read(file, text_folder, "chat")
    assert error.value.cause == "it has 193 characters, the limit is 100"


def test_window_of_long_documents_has_fewer_of_them(tiny, text_folder, monkeypatch):
    """Every document is still read once in an epoch, and a stored position is valid."""
    monkeypatch.setattr(lanes, "MAX_WINDOW_CHARACTERS", 2000)
    spec = TrainSpec(**tiny | {"data": str(text_folder), "lanes": 1, "shuffle_window": 1000, "sequence_length": 16})
    whole, resumed = (open_data(spec, rank=0, world_size=1).train for _ in range(2))
    before = whole.read_batch(200)
    resumed.seek(json.loads(json.dumps(whole.position())))
    assert (whole.read_batch(50) == resumed.read_batch(50)).all()
    assert whole.position()["lanes"]["0"]["window"] > 1
    monkeypatch.undo()
    assert (open_data(spec, rank=0, world_size=1).train.read_batch(200) != before).any()


def test_count_characters_counts_texts_at_every_level():
    assert records.count_characters("abc") == 3
    assert (
        records.count_characters({"messages": [{"content": "ab", "parts": ["c", {"text": "de"}]}], "tools": None, "n": 5}) == 5
    )


def test_killed_process_of_the_tokeniser_is_an_error(text_folder, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(tokenize, "_tokenize_part", kill_process)
    assert tokenize.main([str(text_folder), str(tmp_path / "out"), "--workers", "2"]) == 1
    error = capsys.readouterr().err
    assert "\nerror: one of 2 processes was killed\n" in error
    assert "`--workers 1`" in error


def test_too_many_documents_to_pack_are_refused(tiny, tokenised_folder, monkeypatch):
    monkeypatch.setattr(token_files, "MAX_PACKED_PARTS", 100)
    with pytest.raises(KfjobError) as error:
        open_data(TrainSpec(**tiny | {"data": str(tokenised_folder), "packing": "documents"}), rank=0, world_size=1)
    assert "parts of documents to pack, the limit is 100" in error.value.title
    assert error.value.hint == "use `packing: stream`"
    open_data(TrainSpec(**tiny | {"data": str(tokenised_folder)}), rank=0, world_size=1)


def test_sparse_token_files_take_no_memory(tmp_path):
    """A header can promise terabytes, and a file with a hole has them."""
    count = 1 << 38
    header = {"dtype": "uint16", "vocab_size": 9, "end_of_text": 0, "answers": False, "tokenizer": ""}
    header |= {"tokens": {"train": 8}, "documents": {"train": count}}
    (tmp_path / "tokens.json").write_text(json.dumps(header))
    np.arange(8, dtype="<u2").tofile(tmp_path / "train.bin")
    with (tmp_path / "train.documents.bin").open("wb") as file:
        file.seek(8 * (count - 1))
        file.write((8).to_bytes(8, "little"))
    with pytest.raises(KfjobError, match="does not divide the 8 tokens"):
        token_files.open_split(tmp_path, "train")
