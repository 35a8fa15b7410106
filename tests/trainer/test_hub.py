"""Data sets and tokenizers by name, from a fake hub."""

from __future__ import annotations

import gzip
import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kfjob.trainer import tokenize
from kfjob.trainer.data.blocks import open_split
from tests.trainer.fake_hub import FakeHub

CARD = b"""---
configs:
- config_name: en
  data_files:
  - {split: train, path: en/train-*.parquet}
  - {split: validation, path: en/validation-*.parquet}
---
"""


def parquet(texts):
    out = io.BytesIO()
    table = pa.table({"number": list(range(len(texts))), "text": texts})
    pq.write_table(table, out, row_group_size=10)
    return out.getvalue()


@pytest.fixture(scope="module")
def found(text_folder, tiny, tmp_path_factory):
    """What a process with HF_ENDPOINT has read."""
    folder = tmp_path_factory.mktemp("hub")
    lines = (text_folder / "train.jsonl").read_text()
    texts = [json.loads(line)["text"] for line in lines.splitlines()]
    held_out = [json.loads(line)["text"] for line in (text_folder / "validation.jsonl").read_text().splitlines()]
    files = {"README.md": CARD, "en/validation-0.parquet": parquet(held_out)}
    files |= {f"en/train-{part}.parquet": parquet(texts[part * 50 : part * 50 + 50]) for part in range(6)}
    tokenizer = {path.name: path.read_bytes() for path in (text_folder / "tokenizer").iterdir()}
    hub = FakeHub(
        {
            "datasets/someone/texts": files,
            "datasets/someone/lines": {"data/train.jsonl.gz": gzip.compress(lines.encode())},
            "models/someone/tokenizer": tokenizer,
        }
    )
    spec = tiny | {"data": "someone/texts", "data_config": "en", "tokenizer": "someone/tokenizer"}
    with hub:
        done = subprocess.run(
            [sys.executable, Path(__file__).with_name("hub_program.py"), json.dumps({"spec": spec, "folder": str(folder)})],
            env=os.environ | {"HF_ENDPOINT": hub.endpoint, "HF_HOME": str(folder / "home")},
            capture_output=True,
            text=True,
            timeout=400,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    return json.loads((folder / "result.json").read_text()) | {"folder": folder}


def test_global_batches_do_not_depend_on_the_number_of_ranks(found):
    assert found["chain"] == found["alone"]
    assert len({sample for batch in found["alone"] for sample in batch}) > 90


def test_no_two_ranks_see_the_same_document(found, text_folder):
    """With one document in a sample. 30 row groups make 8 lanes, so each rank reads two."""
    assert [len(rank) > 40 for rank in found["epoch"]] == [True] * 4
    samples = [sample for rank in found["epoch"] for sample in rank]
    assert len(samples) == len(set(samples)) == 300


def test_validation_is_a_split(found):
    assert found["validation"] == 40


def test_a_tokenised_folder_can_be_made_of_it(found, text_folder, tmp_path):
    assert found["tokenized"] == 0
    tokenize.tokenize(*tokenize.plan_of([str(text_folder), str(tmp_path / "local")])[:2], workers=1)
    for split in ("train", "validation"):
        theirs, ours = open_split(found["folder"] / "tokens", split), open_split(tmp_path / "local", split)
        assert theirs.tokens.tolist() == ours.tokens.tolist()
        assert theirs.ends.tolist() == ours.ends.tolist()


def test_compressed_lines_are_read(found):
    assert len(found["lines"]) == 2


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("no such data set", "cannot open the split `train` of `someone/nothing`"),
        ("no such configuration", "cannot open the split `train` of `someone/texts` (fr)"),
        ("no such split", "cannot open the split `tost` of `someone/texts` (en)"),
        ("no such field", "cannot read a record of `someone/texts` on the hub\n  cause: no field `txt`"),
        ("one shard, two ranks", "1 lanes cannot be divided among 2 ranks\nhint: tokenise it first"),
        ("no such tokenizer", "no tokenizer at `someone/nothing`"),
    ],
)
def test_what_is_not_there_is_refused(found, what, message):
    assert message in found["refused"][what]
