from __future__ import annotations

import json
import warnings
from typing import Any

import pytest
import torch

from kfjob.trainer.export import export, main
from tests.trainer.fake_hub import TOKEN, FakeHub

SHAPE: dict[str, Any] = {
    "vocab_size": 320,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
}
FAMILIES: dict[str, dict[str, Any]] = {
    "llama": SHAPE | {"num_key_value_heads": 2},
    "tied qwen2": SHAPE | {"architecture": "qwen2", "num_key_value_heads": 2, "tie_word_embeddings": True},
    "gpt_neox": SHAPE | {"architecture": "gpt_neox", "rotary_pct": 0.25},
}


@pytest.mark.parametrize("family", FAMILIES)
def test_what_was_exported_gives_the_same_logits(workers, tiny, tmp_path, family):
    """Sharded over two ranks, exported, loaded by transformers, and by this trainer as pretrained weights."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    spec = tiny | {
        "model": FAMILIES[family],
        "vocab_size": None,
        "checkpoint_dir": str(tmp_path / "c"),
        "full_state_dict": True,
    }
    workers.run("trained", {"spec": spec | {"strategy": "fsdp", "max_steps": 3}}, world_size=2)
    assert main([str(tmp_path / "c"), str(tmp_path / "hf"), "--shard-size", "20KB"]) == 0
    assert len(list((tmp_path / "hf").glob("model-*.safetensors"))) > 1
    assert json.loads((tmp_path / "hf" / "config.json").read_text())["model_type"] == FAMILIES[family].get(
        "architecture", "llama"
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # transformers' own
        exported = AutoModelForCausalLM.from_pretrained(tmp_path / "hf").eval()
        assert AutoTokenizer.from_pretrained(tmp_path / "hf").vocab_size == 300
    whole = torch.load(tmp_path / "c" / "step-000003" / "model.pt", weights_only=True)
    for name, tensor in exported.state_dict().items():
        assert torch.equal(tensor, whole[name])
    ids = torch.arange(32).reshape(2, 16)
    with torch.no_grad():
        expected = exported(input_ids=ids).logits
    (seen,) = workers.run("logits", {"spec": spec | {"strategy": "none", "resume": str(tmp_path / "c" / "step-000003")}})
    assert torch.equal(torch.tensor(seen), expected)
    pretrained = spec | {"strategy": "none", "model": str(tmp_path / "hf"), "checkpoint_dir": None}
    (again,) = workers.run("logits", {"spec": pretrained})
    assert torch.equal(torch.tensor(again), expected)


@pytest.fixture(scope="module")
def trained(workers, tiny, tmp_path_factory):
    folder = tmp_path_factory.mktemp("exported")
    spec = tiny | {"strategy": "fsdp", "max_steps": 2, "checkpoint_every": 1, "checkpoint_dir": str(folder)}
    workers.run("trained", {"spec": spec}, world_size=2)
    return folder


def test_one_file_of_an_older_one_in_bf16(trained, tmp_path):
    said = export(f"{trained}/step-000001", tmp_path / "model.pt", form="torch", dtype="bf16")
    state = torch.load(tmp_path / "model.pt", weights_only=True)
    assert said == f"{len(state)} tensors of step-000001 in {tmp_path}/model.pt"
    assert {tensor.dtype for tensor in state.values()} == {torch.bfloat16}


def test_what_cannot_be_is_one_message(trained, tmp_path, capsys):
    assert main([str(tmp_path / "nowhere"), str(tmp_path / "x")]) == 1
    assert "nowhere` has no readable manifest.json" in capsys.readouterr().err
    assert main([str(trained), str(tmp_path)]) == 1
    assert f"error: `{tmp_path}` is there already" in capsys.readouterr().err
    (shard,) = (trained / "step-000002").glob("__1_*")
    content = bytearray(shard.read_bytes())
    content[1000] ^= 1
    shard.write_bytes(content)
    assert main([str(trained), str(tmp_path / "x")]) == 1
    assert "is damaged\n  cause: __1_0.distcp does not match its checksum" in capsys.readouterr().err
    assert not (tmp_path / "x").exists()


def test_what_was_exported_is_put_on_the_hub(trained, tmp_path, monkeypatch, capsys):
    with FakeHub({}) as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.endpoint)
        monkeypatch.setenv("HF_TOKEN", TOKEN)
        assert main([f"{trained}/step-000001", str(tmp_path / "hf"), "--upload", "someone/tiny"]) == 0
        assert capsys.readouterr().out.splitlines()[-1] == f"someone/tiny is at {hub.endpoint}/someone/tiny"
        there = hub.repositories["models/someone/tiny"]
        assert there == {path.name: path.read_bytes() for path in (tmp_path / "hf").iterdir()}
        assert {"config.json", "model.safetensors", "tokenizer.json"} <= set(there)
        assert hub.private == {"someone/tiny"}
        monkeypatch.setenv("HF_TOKEN", "hf_of_somebody_else")
        assert main([f"{trained}/step-000001", str(tmp_path / "again"), "--upload", "someone/other", "--public"]) == 1
        assert "error: cannot upload to `someone/other`\n  --> --upload\n  cause: " in capsys.readouterr().err
        assert (tmp_path / "again" / "model.safetensors").exists()


def test_weights_of_every_strategy_are_exported_alike(workers, tiny, tmp_path):
    """From a checkpoint of one process, of copies, of shards, and of DeepSpeed's, which all hold the same."""
    found = {}
    for name, world_size, change in (
        ("none", 1, {"strategy": "none", "micro_batch_size": 8}),
        ("ddp", 2, {"strategy": "ddp"}),
        ("hybrid", 2, {"strategy": "fsdp", "sharding": "hybrid", "shard_size": 1}),
        ("zero", 2, {"strategy": "deepspeed", "zero_stage": 3}),
    ):
        spec = tiny | change | {"max_steps": 1, "checkpoint_dir": str(tmp_path / name)}
        workers.run("trained", {"spec": spec}, world_size=world_size)
        export(str(tmp_path / name), tmp_path / f"{name}.pt", form="torch")
        found[name] = torch.load(tmp_path / f"{name}.pt", weights_only=True)
    for state in found.values():
        assert state.keys() == found["none"].keys()
        for key, tensor in state.items():
            assert torch.allclose(tensor, found["none"][key], rtol=0, atol=1e-5), key
