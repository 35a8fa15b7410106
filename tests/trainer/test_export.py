from __future__ import annotations

import json
import warnings
from typing import Any

import pytest
import torch

from kfjob.base.errors import KfjobError
from kfjob.trainer.data.tokenizer import copy_tokenizer
from kfjob.trainer.export import export, find_tokenizer, main
from kfjob.trainspec.train_spec import TrainSpec
from tests.trainer.conftest import SHAPE
from tests.trainer.fake_hub import TOKEN, FakeHub

FAMILIES: dict[str, dict[str, Any]] = {
    "llama": SHAPE | {"num_key_value_heads": 2},
    "tied qwen2": SHAPE | {"architecture": "qwen2", "num_key_value_heads": 2, "tie_word_embeddings": True},
    "gpt_neox": SHAPE | {"architecture": "gpt_neox", "rotary_pct": 0.25},
}


def test_folder_without_a_checkpoint_gets_a_hint(tmp_path, capsys):
    (tmp_path / "data").mkdir()
    assert main([str(tmp_path / "data"), str(tmp_path / "model")]) == 1
    error = capsys.readouterr().err
    assert f"\nerror: `{tmp_path}/data` has no readable manifest.json\n" in error
    assert error.endswith("hint: use a checkpoint, such as `checkpoints/step-000100`, or the `checkpoint_dir` of a training\n")


def test_errors_and_results_control_no_terminal(tmp_path, capsys):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "manifest.json").write_text(json.dumps({"files": {"x\x1b[2J": {}}}))
    assert main([str(tmp_path / "data"), str(tmp_path / "a\x1b[2Jb")]) == 1
    printed = capsys.readouterr()
    assert "\x1b" not in printed.out + printed.err
    assert main([str(tmp_path / "x\x1b]0;title\x07"), str(tmp_path / "model")]) == 1
    assert "x` does not exist" in capsys.readouterr().err


def test_target_that_cannot_be_written_is_an_error(monkeypatch, capsys):
    def fail(*_: object, **__: object):
        raise PermissionError(13, "Permission denied", "/models/x")

    monkeypatch.setattr("kfjob.trainer.export.export", fail)
    assert main(["checkpoints", "/models/x"]) == 1
    assert capsys.readouterr().err.endswith("\nerror: `/models/x` cannot be used\n  cause: Permission denied\n")


def test_shape_is_no_tokenizer_folder():
    assert find_tokenizer(TrainSpec.model_validate({"model": SHAPE, "data": "tokens", "max_steps": 1})) is None


@pytest.mark.parametrize("name", ["chat_template.jinja", "tokenizer.json"])
def test_tokenizer_that_links_out_of_its_folder_is_not_copied(tmp_path, name):
    (tmp_path / "secret").write_text("swordfish")
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / name).symlink_to("../secret")
    with pytest.raises(KfjobError, match="leads out of its folder"):
        copy_tokenizer(tmp_path / "source", tmp_path)


def test_tokenizer_of_the_hubs_cache_is_copied(tmp_path):
    """Its files link to blobs beside the snapshots."""
    snapshot = tmp_path / "models--x" / "snapshots" / "1"
    for folder in (snapshot, tmp_path / "models--x" / "blobs", tmp_path / "copy"):
        folder.mkdir(parents=True)
    (tmp_path / "models--x" / "blobs" / "a").write_text("{}")
    (snapshot / "tokenizer.json").symlink_to("../../blobs/a")
    copy_tokenizer(snapshot, tmp_path / "copy")
    assert (tmp_path / "copy" / "tokenizer.json").read_text() == "{}"


@pytest.mark.parametrize("family", FAMILIES)
def test_exported_model_gives_the_same_logits(workers, tiny, tmp_path, family):
    """Train sharded on two ranks, export, then load with transformers and with this trainer as pretrained weights."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    spec = tiny | {
        "model": FAMILIES[family],
        "vocab_size": None,
        "checkpoint_dir": str(tmp_path / "c"),
        "full_state_dict": True,
    }
    workers.run("run_training", {"spec": spec | {"strategy": "fsdp", "max_steps": 3}}, world_size=2)
    assert main([str(tmp_path / "c"), str(tmp_path / "hf"), "--shard-size", "20KB"]) == 0
    assert len(list((tmp_path / "hf").glob("model-*.safetensors"))) > 1
    assert json.loads((tmp_path / "hf" / "config.json").read_text())["model_type"] == FAMILIES[family].get(
        "architecture", "llama"
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of transformers
        exported = AutoModelForCausalLM.from_pretrained(tmp_path / "hf").eval()
        assert AutoTokenizer.from_pretrained(tmp_path / "hf").vocab_size == 300
    full_weights = torch.load(tmp_path / "c" / "step-000003" / "model.pt", weights_only=True)
    for name, tensor in exported.state_dict().items():
        assert torch.equal(tensor, full_weights[name])
    ids = torch.arange(32).reshape(2, 16)
    with torch.no_grad():
        expected = exported(input_ids=ids).logits
    (resumed,) = workers.run(
        "compute_logits", {"spec": spec | {"strategy": "none", "resume": str(tmp_path / "c" / "step-000003")}}
    )
    assert torch.equal(torch.tensor(resumed), expected)
    pretrained = spec | {"strategy": "none", "model": str(tmp_path / "hf"), "checkpoint_dir": None}
    (reloaded,) = workers.run("compute_logits", {"spec": pretrained})
    assert torch.equal(torch.tensor(reloaded), expected)


@pytest.fixture(scope="module")
def checkpoints(workers, tiny, tmp_path_factory):
    folder = tmp_path_factory.mktemp("exported")
    spec = tiny | {"strategy": "fsdp", "max_steps": 2, "checkpoint_every": 1, "checkpoint_dir": str(folder)}
    workers.run("run_training", {"spec": spec}, world_size=2)
    return folder


def test_export_an_older_checkpoint_as_one_bf16_file(checkpoints, tmp_path):
    summary = export(f"{checkpoints}/step-000001", tmp_path / "model.pt", file_format="torch", dtype="bf16")
    state = torch.load(tmp_path / "model.pt", weights_only=True)
    assert summary == f"{len(state)} tensors of step-000001 in {tmp_path}/model.pt"
    assert {tensor.dtype for tensor in state.values()} == {torch.bfloat16}


def test_export_errors_are_one_message(checkpoints, tmp_path, capsys):
    assert main([str(tmp_path / "nowhere"), str(tmp_path / "x")]) == 1
    assert "nowhere` does not exist" in capsys.readouterr().err
    assert main([str(checkpoints), str(tmp_path)]) == 1
    assert f"error: `{tmp_path}` exists" in capsys.readouterr().err
    (shard,) = (checkpoints / "step-000002").glob("__1_*")
    content = bytearray(shard.read_bytes())
    content[1000] ^= 1
    shard.write_bytes(content)
    assert main([str(checkpoints), str(tmp_path / "x")]) == 1
    assert "is damaged\n  cause: __1_0.distcp does not match its checksum" in capsys.readouterr().err
    assert not (tmp_path / "x").exists()


def test_export_uploads_to_the_hub(checkpoints, tmp_path, monkeypatch, capsys):
    with FakeHub({}) as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.endpoint)
        monkeypatch.setenv("HF_TOKEN", TOKEN)
        assert main([f"{checkpoints}/step-000001", str(tmp_path / "hf"), "--upload", "someone/tiny"]) == 0
        assert capsys.readouterr().out.splitlines()[-1] == f"someone/tiny is at {hub.endpoint}/someone/tiny"
        uploaded = hub.repositories["models/someone/tiny"]
        assert uploaded == {path.name: path.read_bytes() for path in (tmp_path / "hf").iterdir()}
        assert {"config.json", "model.safetensors", "tokenizer.json"} <= set(uploaded)
        assert hub.private == {"someone/tiny"}
        monkeypatch.setenv("HF_TOKEN", "hf_of_somebody_else")
        assert main([f"{checkpoints}/step-000001", str(tmp_path / "again"), "--upload", "someone/other", "--public"]) == 1
        assert "error: cannot upload to `someone/other`\n  --> --upload\n  cause: " in capsys.readouterr().err
        assert (tmp_path / "again" / "model.safetensors").exists()


def test_every_strategy_exports_the_same_weights(workers, tiny, tmp_path):
    """From checkpoints of one process, of replicas, of shards and of DeepSpeed."""
    weights = {}
    for name, world_size, change in (
        ("none", 1, {"strategy": "none", "micro_batch_size": 8}),
        ("ddp", 2, {"strategy": "ddp"}),
        ("hybrid", 2, {"strategy": "fsdp", "sharding": "hybrid", "shard_size": 1}),
        ("zero", 2, {"strategy": "deepspeed", "zero_stage": 3}),
    ):
        spec = tiny | change | {"max_steps": 1, "checkpoint_dir": str(tmp_path / name)}
        workers.run("run_training", {"spec": spec}, world_size=world_size)
        export(str(tmp_path / name), tmp_path / f"{name}.pt", file_format="torch")
        weights[name] = torch.load(tmp_path / f"{name}.pt", weights_only=True)
    for state in weights.values():
        assert state.keys() == weights["none"].keys()
        for key, tensor in state.items():
            assert torch.allclose(tensor, weights["none"][key], rtol=0, atol=1e-5), key
