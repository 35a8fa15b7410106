"""Small data sets, and worker processes that run programs on one or more ranks."""

from __future__ import annotations

import gc
import json
import random
import shutil
import signal
import subprocess
import sys
from multiprocessing.connection import wait
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.trainer import forked

HERE = Path(__file__).parent
WORDS = [
    "loss",
    "rank",
    "shard",
    "step",
    "gather",
    "reduce",
    "scatter",
    "round",
    "token",
    "batch",
    "agent",
    "epoch",
    "layer",
    "norm",
]


SIZES: dict[str, Any] = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
SHAPE: dict[str, Any] = {"vocab_size": 320} | SIZES
"""A small model for the vocabulary of `text_folder`."""


def pytest_collection_modifyitems(items):
    for item in items:
        if HERE in item.path.parents:
            item.add_marker("trainer")


class Worker:
    """One process. Programs are functions of rank_programs.py; arguments and results are JSON."""

    def __init__(self, log: Path) -> None:
        self.log = log
        self.connection, requests = forked.SERVER.Pipe()
        self.process = forked.start(forked.serve_programs, requests, output=log, GLOO_SOCKET_IFNAME="lo")
        requests.close()

    def start(self, request):
        self.connection.send(json.dumps(request, default=str))

    def read_response(self):
        try:
            return json.loads(self.connection.recv())
        except EOFError:
            raise AssertionError(f"the worker has exited:\n{self.log.read_text()[-3000:]}") from None

    def stop(self):
        self.connection.close()
        self.process.join(30)


class Workers:
    """A pool of workers, one for each rank."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._pool: list[Worker] = []
        self._runs = 0

    def run(self, program, arguments, *, world_size=1, local_world_size=None):
        """Run a program of rank_programs.py, and return the result of each rank."""
        self._runs += 1
        store = self._folder / f"store-{self._runs}"
        self._pool += [Worker(self._folder / f"{rank}.log") for rank in range(len(self._pool), world_size)]
        pool = self._pool[:world_size]
        for rank, worker in enumerate(pool):
            layout = {"rank": rank, "world_size": world_size, "local_world_size": local_world_size or world_size}
            worker.start({"program": program, "store": store, "arguments": arguments, **layout})
        try:
            responses = self._read_responses(pool)
        except BaseException:  # a timeout: the next run would read this one's responses
            self._kill()
            raise
        for worker, response in responses.items():
            assert "error" not in response, f"{response['error']}\n{worker.log.read_text()[-3000:]}"
        return [responses[worker]["result"] for worker in pool]

    def log(self, rank=0):
        """Return the output of a rank in all runs so far."""
        return self._pool[rank].log.read_text()

    def _read_responses(self, pool):
        """Return the response of every rank. If one fails, the others may wait for it forever: kill and replace all."""
        responses: dict[Worker, Any] = {}
        while len(responses) < len(pool):
            failed = any("error" in response for response in responses.values())
            waiting = {worker.connection: worker for worker in pool if worker not in responses}
            ready = wait(list(waiting), 20 if failed else None)
            for connection in ready:
                responses[waiting[connection]] = waiting[connection].read_response()
            if not ready:
                self._kill()
                break
        return responses

    def _kill(self):
        for worker in self._pool:
            worker.process.kill()
        self.stop()
        self._pool = []

    def stop(self):
        for worker in self._pool:
            worker.stop()


@pytest.fixture(scope="session")
def fresh_imports():
    """The modules that the trainer imports in a new interpreter, and what that writes to stderr; transformers come last."""
    program = "import logging, sys, kfjob.trainer.__main__, kfjob.trainer.train\nprint(*sys.modules)\n"
    program += "import transformers.modeling_utils\nlogging.getLogger('torch.utils._pytree').warning('another message')"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=240)
    return SimpleNamespace(modules=done.stdout.split(), stderr=done.stderr)


@pytest.fixture(scope="session")
def workers(tmp_path_factory):
    pool = Workers(tmp_path_factory.mktemp("workers"))
    yield pool
    pool.stop()


@pytest.fixture(scope="session")
def text_folder(tmp_path_factory):
    """300 short documents and a tokenizer with 300 tokens: enough for several epochs of tiny samples."""
    from kfjob.trainer.data import tiny_text

    folder = tmp_path_factory.mktemp("text")
    draw = random.Random(7)  # noqa: S311 -- test data
    texts = [" ".join(draw.choices(WORDS, k=draw.randint(3, 60))) + f" {number}" for number in range(340)]
    for split, part in (("train", texts[:300]), ("validation", texts[300:])):
        (folder / f"{split}.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in part))
    (folder / "tokenizer").mkdir()
    tiny_text.train_tokenizer(texts[:300], folder / "tokenizer", vocab_size=300)
    return folder


@pytest.fixture(scope="session")
def lines_folder(text_folder, tmp_path_factory):
    """The same text as .txt files, one document per line."""
    folder = tmp_path_factory.mktemp("lines")
    for split in ("train", "validation"):
        texts = [json.loads(line)["text"] for line in (text_folder / f"{split}.jsonl").read_text().splitlines()]
        (folder / f"{split}.txt").write_text("".join(f"{text}\n" for text in texts))
    shutil.copytree(text_folder / "tokenizer", folder / "tokenizer")
    return folder


@pytest.fixture(scope="session")
def tokenised_folder(text_folder, tmp_path_factory):
    from kfjob.trainer import tokenize

    folder = tmp_path_factory.mktemp("tokenised") / "tokens"
    tokenize.tokenize(*tokenize.parse_arguments([str(text_folder), str(folder)])[:2], workers=1)
    return folder


@pytest.fixture(scope="session")
def parquet_folder(text_folder, tmp_path_factory):
    """The same text as Parquet: three files for training, with row groups of 16."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    folder = tmp_path_factory.mktemp("parquet")
    for split, files in (("train", 3), ("validation", 1)):
        texts = [json.loads(line)["text"] for line in (text_folder / f"{split}.jsonl").read_text().splitlines()]
        size = len(texts) // files
        for part in range(files):
            rows = texts[part * size : (part + 1) * size]
            table = pa.table({"number": list(range(size)), "text": rows})
            pq.write_table(table, folder / f"{split}-{part}.parquet", row_group_size=16)
    shutil.copytree(text_folder / "tokenizer", folder / "tokenizer")
    return folder


@pytest.fixture(scope="session")
def chat_folder(text_folder, tmp_path_factory):
    """160 conversations of one to three turns."""
    folder = tmp_path_factory.mktemp("chat")
    draw = random.Random(11)  # noqa: S311 -- test data
    for split, count in (("train", 160), ("validation", 20)):
        lines = []
        for number in range(count):
            messages = []
            for _ in range(draw.randint(1, 3)):
                messages.append({"role": "user", "content": " ".join(draw.choices(WORDS, k=draw.randint(1, 5)))})
                messages.append({"role": "assistant", "content": " ".join(draw.choices(WORDS, k=draw.randint(1, 9)))})
            messages[-1]["content"] += f" {split} {number}"
            lines.append(json.dumps({"messages": messages}) + "\n")
        (folder / f"{split}.jsonl").write_text("".join(lines))
    shutil.copytree(text_folder / "tokenizer", folder / "tokenizer")
    return folder


@pytest.fixture(scope="session")
def tokenised_chat(chat_folder, tmp_path_factory):
    from kfjob.trainer import tokenize

    folder = tmp_path_factory.mktemp("tokenised-chat") / "tokens"
    tokenize.tokenize(*tokenize.parse_arguments([str(chat_folder), str(folder), "--data-format=chat"])[:2], workers=1)
    return folder


@pytest.fixture(scope="session")
def tiny(text_folder):
    """A spec that trains in a second."""
    return {
        "model": "micro-llama",
        "vocab_size": 320,
        "data": str(text_folder),
        "sequence_length": 16,
        "lanes": 8,
        "shuffle_window": 8,
        "precision": "fp32",
        "micro_batch_size": 4,
        "max_steps": 6,
        "lr": 1e-2,
        "warmup_steps": 2,
        "log_every": 1,
    }


def save_tiny_llama(folder, **changes):
    """Save a Llama with new weights and the vocabulary of `text_folder`, and return its folder."""
    import torch
    import transformers

    torch.manual_seed(3)
    settings = SHAPE | {"num_key_value_heads": 2, "initializer_range": 0.1, "use_cache": False} | changes
    transformers.LlamaForCausalLM(transformers.LlamaConfig(**settings)).save_pretrained(folder)
    return str(folder)


@pytest.fixture
def in_process(monkeypatch):
    """Restores the signal handlers and the process group after a run in the test's own process."""
    import torch.distributed as dist

    for name in (
        "freeze",
        "unfreeze",
    ):  # the tests stay exempt from garbage collection (tests/conftest.py), and the run does not
        monkeypatch.setattr(gc, name, lambda: None)
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    yield
    for number, handler in handlers.items():
        signal.signal(number, handler)
    if dist.is_initialized():
        dist.destroy_process_group()
