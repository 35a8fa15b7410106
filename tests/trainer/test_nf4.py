"""QLoRA: adapters of a base in torchao's NF4, with one rank and several, in checkpoints, in PEFT's files, and merged."""

from __future__ import annotations

import sys
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file
from torch.distributed.checkpoint.filesystem import FileSystemReader

from kfjob.base.errors import KfjobError
from kfjob.trainer.export import main
from kfjob.trainer.model import build_base_model
from kfjob.trainer.nf4 import is_quantized
from kfjob.trainspec.linear_layers import count_nf4_bytes, list_quantized
from kfjob.trainspec.model_shapes import ModelShape
from kfjob.trainspec.train_fields import LoraSpec
from kfjob.trainspec.train_spec import TrainSpec
from tests.trainer.conftest import save_tiny_llama
from tests.trainer.test_lora import compute_logits, load_with_peft
from tests.trainer.test_model import build
from tests.trainer.test_run import TOLERANCE, have_same_state, losses, run_in_stages

LORA: dict[str, Any] = {"r": 4, "lora_alpha": 8, "quantize": "nf4"}
SIZES: dict[str, Any] = {"hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 2, "num_attention_heads": 4}


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    """The folder of a Llama. Two ranks divide its smallest linear layers, which have two blocks of scales, and four do not."""
    return save_tiny_llama(tmp_path_factory.mktemp("base") / "model", initializer_range=0.05, **SIZES)


@pytest.fixture(scope="module")
def spec(tiny, base):
    return tiny | {"model": base, "vocab_size": None, "lora": LORA, "strategy": "none"}


@pytest.fixture(scope="module")
def one_rank(workers, spec):
    """The losses of one rank."""
    (result,) = workers.run("run_training", {"spec": spec | {"micro_batch_size": 8}})
    return losses(result)


def save_rounded(spec, folder):
    """Save the base with the values of its quantised weights, and return the folder."""
    build_base_model(TrainSpec(**spec)).save_pretrained(folder)
    return str(folder)


def make_spec(base, **changes):
    return TrainSpec(**{"model": base, "data": "-", "max_steps": 1, "sequence_length": 8, "lora": LORA} | changes)


@pytest.mark.parametrize(("precision", "width"), [("fp32", 4), ("bf16", 2)])
def test_linear_layers_of_the_decoder_have_4_bits(base, precision, width):
    model = build(make_spec(base, precision=precision))
    quantized = {name: parameter for name, parameter in model.named_parameters() if is_quantized(parameter)}
    assert len(quantized) == 2 * 7
    assert all(name.endswith("_proj.base_layer.weight") for name in quantized)
    layers = list_quantized(ModelShape(**SIZES, num_key_value_heads=2, vocab_size=320), LoraSpec(**LORA))
    for layer in layers:
        inner: Any = quantized[f"model.layers.0.{layer.name}.base_layer.weight"].data
        parts = (inner.quantized_data, inner.quantized_scalers, inner.quantization_factor)
        assert sum(part.nbytes for part in parts) == count_nf4_bytes(layer, width)
    assert model.lm_head.weight.dtype is model.model.embed_tokens.weight.dtype
    assert model.lm_head.weight.element_size() == width


@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
@pytest.mark.parametrize("spread", [1e-3, 0.1])
def test_rounding_is_as_good_for_small_weights(precision, spread):
    """Normally distributed weights lose 9 % of their length in 4 bits, with blocks of 64."""
    shape = ModelShape(**SIZES, vocab_size=320, initializer_range=spread)
    rounded, exact = (build_base_model(make_spec(shape, lora=lora, precision=precision)) for lora in (LORA, None))
    for name, weight in exact.named_parameters():
        error = (rounded.get_parameter(name) - weight).norm() / weight.norm()
        assert (0.08 < error < 0.1) if "_proj" in name else error == 0, (name, error)


def test_losses_are_those_of_adapters_on_the_rounded_base(workers, spec, one_rank, tmp_path):
    """The base in plain numbers with the values of the 4 bits, and adapters without `quantize`."""
    rounded = save_rounded(spec, tmp_path / "rounded")
    plain = {name: value for name, value in LORA.items() if name != "quantize"}
    (result,) = workers.run("run_training", {"spec": spec | {"model": rounded, "lora": plain, "micro_batch_size": 8}})
    assert losses(result) == pytest.approx(one_rank, abs=TOLERANCE, rel=0)
    (result,) = workers.run("run_training", {"spec": spec | {"lora": plain, "micro_batch_size": 8}})
    assert losses(result) != pytest.approx(one_rank, abs=1e-3, rel=0)


@pytest.mark.parametrize(
    ("change", "ranks"),
    [
        ({"strategy": "fsdp"}, 1),
        ({"strategy": "fsdp"}, 2),
        ({"strategy": "fsdp"}, 4),
        ({"strategy": "ddp"}, 2),
        *(
            pytest.param(change, ranks, marks=pytest.mark.long)
            for change, ranks in [
                ({"strategy": "fsdp", "sharding": "no_shard"}, 2),
                ({"strategy": "fsdp", "sharding": "shard_grad_op"}, 2),
                ({"strategy": "fsdp", "sharding": "hybrid", "shard_size": 2}, 4),
                ({"strategy": "fsdp", "gradient_accumulation_steps": 2}, 2),
                ({"strategy": "fsdp", "gradient_accumulation_steps": 2, "accumulate": "whole"}, 2),
                ({"strategy": "fsdp", "activation_checkpointing": True}, 2),
                ({"strategy": "fsdp", "activation_checkpointing": True, "recompute": "cheap"}, 2),
                ({"strategy": "fsdp", "prefetch": 2}, 2),
                ({"strategy": "fsdp", "compile": True}, 2),
                ({"strategy": "none", "compile": True}, 1),
                ({"strategy": "fsdp", "context_parallel": 2}, 2),
            ]
        ),
    ],
    ids=str,
)
def test_every_strategy_has_the_losses_of_one_rank(workers, spec, one_rank, change, ranks):
    """Four ranks divide some of the quantised weights, and hold the others whole; a group of one rank holds all whole."""
    samples = 8 * change.get("context_parallel", 1) // ranks // change.get("gradient_accumulation_steps", 1)
    for result in workers.run("run_training", {"spec": spec | change | {"micro_batch_size": samples}}, world_size=ranks):
        assert losses(result) == pytest.approx(one_rank, abs=TOLERANCE, rel=0)


def test_resume_is_bit_exact(workers, spec, tmp_path):
    """With dropout."""
    spec = spec | {"strategy": "fsdp", "precision": "bf16", "lora": LORA | {"lora_dropout": 0.1}, "max_steps": 4}
    whole, all_batches, end = run_in_stages(workers, spec, [(2, None)], folder=tmp_path / "whole")
    resumed, batches, outcome = run_in_stages(workers, spec, [(2, 2), (2, None)], folder=tmp_path / "parts")
    assert (resumed, batches) == (whole, all_batches)
    assert have_same_state(end["checkpoint"], outcome["checkpoint"], tmp_path)


def test_weights_that_ranks_do_not_divide_are_named_once(workers, spec):
    workers.run("run_training", {"spec": spec | {"strategy": "fsdp", "micro_batch_size": 2, "max_steps": 1}}, world_size=4)
    message = "4 weights in 4 bits are whole on every rank: 4 ranks do not divide them"
    assert [message in workers.log(rank) for rank in range(4)] == [True, False, False, False]


def test_exports_have_the_logits_of_the_run(workers, spec, tmp_path):
    """PEFT's files on the rounded base, and the merged model, from two ranks with shards."""
    changes = {"strategy": "fsdp", "max_steps": 3, "checkpoint_dir": str(tmp_path / "c")}
    workers.run("run_training", {"spec": spec | changes}, world_size=2)
    checkpoint = tmp_path / "c" / "step-000003"
    (actual,) = workers.run("compute_logits", {"spec": spec | {"resume": str(checkpoint)}})
    assert main([str(checkpoint), str(tmp_path / "peft")]) == 0
    assert len(load_file(tmp_path / "peft" / "adapter_model.safetensors")) == 2 * 7 * 2
    assert "quantize" not in (tmp_path / "peft" / "adapter_config.json").read_text()
    assert main([str(checkpoint), str(tmp_path / "merged"), "--merge"]) == 0
    rounded = transformers.AutoModelForCausalLM.from_pretrained(save_rounded(spec, tmp_path / "rounded"))
    adapted = load_with_peft(tmp_path / "peft", rounded)
    for model in (adapted, transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "merged")):
        assert torch.allclose(compute_logits(model), torch.tensor(actual), rtol=0, atol=1e-5)


@pytest.mark.parametrize("architecture", ["qwen2", "gpt_neox"])
def test_biases_of_quantised_layers_are_trained(workers, tiny, tmp_path, architecture):
    """On two ranks with shards; the embeddings of qwen2 are tied."""
    shape = SIZES | {"architecture": architecture, "vocab_size": 320, "tie_word_embeddings": architecture == "qwen2"}
    spec = tiny | {"model": shape, "vocab_size": None, "lora": LORA | {"bias": "all"}, "strategy": "fsdp", "max_steps": 2}
    (one,) = workers.run("run_training", {"spec": spec | {"strategy": "none", "micro_batch_size": 8}})
    for result in workers.run("run_training", {"spec": spec | {"checkpoint_dir": str(tmp_path)}}, world_size=2):
        assert losses(result) == pytest.approx(losses(one), abs=TOLERANCE, rel=0)
    names = FileSystemReader(tmp_path / "step-000002").read_metadata().state_dict_metadata
    assert any(name.startswith("model.") and name.endswith("bias") for name in names)


def test_model_without_such_layers_is_refused(tmp_path):
    """GPT-2 has no linear layers but Conv1D, and the trainer knows no shape of it."""
    transformers.GPT2Config(n_embd=32, n_head=2, n_layer=1).save_pretrained(tmp_path)
    with pytest.raises(KfjobError, match=r"GPT2LMHeadModel has no layer for `lora.quantize`"):
        build(make_spec(str(tmp_path)))


def test_missing_torchao_is_one_message(monkeypatch, base):
    monkeypatch.setitem(sys.modules, "torchao.quantization.quantize_.workflows.nf4", None)
    with pytest.raises(KfjobError, match=r"`lora.quantize: nf4` needs the package torchao"):
        build(make_spec(base))
