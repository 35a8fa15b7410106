from __future__ import annotations

import json
import warnings
from typing import Any

import pytest
import torch

from kfjob.trainer.export import export, main

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
