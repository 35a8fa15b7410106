"""Ranks that share samples: resuming, evaluations, experts and errors. test_equal.py compares the losses of strategies."""

from __future__ import annotations

import pytest
import torch

from kfjob.base.errors import KfjobError, SpecError
from kfjob.trainer.attention import use_document_attention
from kfjob.trainer.context import Context
from kfjob.trainspec.train_spec import TrainSpec
from tests.trainer.test_attention import make_model
from tests.trainer.test_run import losses

SHARED = {"context_parallel": 2}


@pytest.fixture(scope="module")
def spec(tiny):
    return tiny | {"strategy": "fsdp", "sequence_length": 24, "micro_batch_size": 4}


def test_chunks_are_a_partition_with_equal_work():
    tokens = torch.arange(16)
    contexts = [Context(size=4, index=index, group=None) for index in range(4)]
    parts = [context.cut(tokens).tolist() for context in contexts]
    assert parts[0] == [0, 1, 14, 15]
    assert sorted(token for part in parts for token in part) == tokens.tolist()
    assert len({sum(part) for part in parts}) == 1
    for context, part in zip(contexts, parts, strict=True):
        assert torch.cat([tokens[place] for place in context.list_chunks(16)]).tolist() == part


def test_resume_continues_on_other_groups(workers, spec, tmp_path):
    """Bit-exact with the same groups; the global batches stay the same without groups too."""
    spec = spec | {"checkpoint_every": 3, "async_checkpoint": False, "eval_every": 6} | SHARED
    whole = workers.run("run_training", {"spec": spec | {"checkpoint_dir": str(tmp_path / "whole")}}, world_size=2)
    split = {"spec": spec | {"checkpoint_dir": str(tmp_path / "split")}}
    workers.run("run_training", split | {"stop_after": 3}, world_size=2)
    rest = workers.run("run_training", split, world_size=2)
    assert [losses(result) for result in rest] == [losses(whole[0])[3:]] * 2
    alone = spec | {"context_parallel": 1, "resume": str(tmp_path / "split" / "step-000003")}
    (single,) = workers.run("run_training", {"spec": alone | {"checkpoint_dir": str(tmp_path / "alone")}})
    assert losses(single) == pytest.approx(losses(whole[0])[3:], abs=2e-6)
    assert single["batches"] == whole[0]["batches"][3:]
    ((step, tokens, loss),) = whole[0]["evaluations"]
    assert single["evaluations"] == [[step, tokens, pytest.approx(loss, abs=2e-6)]]


@pytest.mark.parametrize("loss_chunk", [0, 16])
def test_balance_of_experts_counts_whole_samples(workers, tokenised_chat, spec, loss_chunk):
    spec = spec | {"model": "micro-mixtral", "data": str(tokenised_chat), "max_steps": 3, "router_aux_loss_coef": 0.5}
    spec |= {"loss_chunk": loss_chunk, "sequence_length": 96, "micro_batch_size": 2, "gradient_accumulation_steps": 2}
    (expected,) = workers.run("train_experts_by_hand", {"spec": spec, "world_size": 1})
    for result in workers.run("run_training", {"spec": spec | SHARED}, world_size=2):
        assert losses(result) == pytest.approx(expected, abs=2e-6)


def test_groups_divide_the_ranks(workers, spec):
    (message,) = workers.run("error_of_training", {"spec": spec | SHARED})
    assert "1 rank cannot be divided into groups of 2 that share samples" in message


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"strategy": "none"}, "strategy `none` has one"),
        ({"sequence_length": 22}, "`sequence_length` 22 cannot be cut into 4 chunks"),
        ({"model": "mistral-7b", "sequence_length": 8192}, "does not support the model's window of 4096 tokens"),
        ({"compile": True}, "`compile` does not support `context_parallel`"),
    ],
)
def test_spec_that_cannot_share_samples_is_an_error(spec, change, message):
    with pytest.raises(SpecError, match=message):
        TrainSpec(**spec | SHARED | {"vocab_size": None, "data": "-"} | change)


@pytest.mark.parametrize("change", [{"sliding_window": 8}, {"layer_types": ["linear_attention", "full_attention"]}])
def test_model_that_mixes_tokens_in_another_way_is_an_error(change):
    model = make_model("Mistral")
    for name, value in change.items():
        setattr(model.config, name, value)
    model.set_attn_implementation("sdpa")
    spec = TrainSpec(model="./folder", data="-", max_steps=1, sequence_length=56, context_parallel=2)
    with pytest.raises(KfjobError, match="`context_parallel` does not support MistralForCausalLM"):
        use_document_attention(model, spec, Context(size=2, index=0, group=None))
