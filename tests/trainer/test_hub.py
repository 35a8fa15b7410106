"""Data sets and tokenizers from a fake hub."""

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
from kfjob.trainer.data.token_files import open_split
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
def hub_results(text_folder, tiny, tmp_path_factory):
    """The result of hub_reader.py, which reads from the fake hub."""
    folder = tmp_path_factory.mktemp("hub")
    lines = (text_folder / "train.jsonl").read_text()
    texts = [json.loads(line)["text"] for line in lines.splitlines()]
    validation = [json.loads(line)["text"] for line in (text_folder / "validation.jsonl").read_text().splitlines()]
    files = {"README.md": CARD, "en/validation-0.parquet": parquet(validation)}
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
        process = subprocess.run(
            [sys.executable, Path(__file__).with_name("hub_reader.py"), json.dumps({"spec": spec, "folder": str(folder)})],
            env=os.environ | {"HF_ENDPOINT": hub.endpoint, "HF_HOME": str(folder / "home")},
            capture_output=True,
            text=True,
            timeout=400,
            check=False,
        )
    assert process.returncode == 0, process.stderr
    return json.loads((folder / "result.json").read_text()) | {"folder": folder}


def test_global_batches_do_not_depend_on_the_number_of_ranks(hub_results):
    assert hub_results["chain"] == hub_results["alone"]
    assert len({sample for batch in hub_results["alone"] for sample in batch}) > 90


def test_no_two_ranks_read_the_same_document(hub_results, text_folder):
    """Each sample holds one document. 30 row groups make 8 lanes, so each rank reads two."""
    assert [len(rank) > 40 for rank in hub_results["epoch"]] == [True] * 4
    samples = [sample for rank in hub_results["epoch"] for sample in rank]
    assert len(samples) == len(set(samples)) == 300


def test_validation_reads_a_split(hub_results):
    assert hub_results["validation"] == 40


def test_hub_dataset_can_be_tokenised(hub_results, text_folder, tmp_path):
    assert hub_results["tokenized"] == 0
    tokenize.tokenize(*tokenize.parse_arguments([str(text_folder), str(tmp_path / "local")])[:2], workers=1)
    for split in ("train", "validation"):
        remote, local = open_split(hub_results["folder"] / "tokens", split), open_split(tmp_path / "local", split)
        assert remote.tokens.tolist() == local.tokens.tolist()
        assert remote.ends.tolist() == local.ends.tolist()


def test_compressed_lines_can_be_read(hub_results):
    assert len(hub_results["lines"]) == 2


@pytest.mark.parametrize(
    ("case", "message"),
    [
        ("no such data set", "cannot open the split `train` of `someone/nothing`"),
        ("no such configuration", "cannot open the split `train` of `someone/texts` (fr)"),
        ("no such split", "cannot open the split `tost` of `someone/texts` (en)"),
        ("no such field", "cannot read a record of `someone/texts` on the hub\n  cause: no field `txt`"),
        ("one shard, two ranks", "1 lanes cannot be divided among 2 ranks\nhint: tokenise it first"),
        ("no such tokenizer", "no tokenizer at `someone/nothing`"),
    ],
)
def test_missing_hub_data_is_an_error(hub_results, case, message):
    assert message in hub_results["errors"][case]
