"""Model shapes and presets."""

from __future__ import annotations

import pytest

from kfjob.base.errors import SpecError
from kfjob.trainspec.model_shapes import PRESETS, ModelShape, count_embedding_parameters, count_parameters, find_config_problems

PUBLISHED = {
    "llama-2-7b": 6738415616,
    "llama-2-13b": 13015864320,
    "llama-2-70b": 68976648192,
    "llama-3-8b": 8030261248,
    "llama-3-70b": 70553706496,
    "llama-3.2-1b": 1235814400,
    "llama-3.2-3b": 3212749824,
    "mistral-7b": 7241732096,
    "qwen2-1.5b": 1543714304,
    "mixtral-8x7b": 46702792704,
    "qwen3-30b-a3b": 30532122624,
}
WITH_THE_EKS_VOCABULARY = {"llama-2-7b": 6889410560, "llama-2-13b": 13204608000, "llama-2-70b": 69278638080}


@pytest.mark.parametrize(("name", "count"), PUBLISHED.items())
def test_presets_have_the_published_counts(name, count):
    assert count_parameters(PRESETS[name]) == count


@pytest.mark.parametrize(("name", "count"), WITH_THE_EKS_VOCABULARY.items())
def test_count_depends_on_the_vocabulary(name, count):
    assert count_parameters(PRESETS[name].model_copy(update={"vocab_size": 50432})) == count


def test_count_of_embedding_parameters():
    assert count_embedding_parameters(PRESETS["llama-2-7b"]) == 32000 * 4096


MIXTURE = {"architecture": "mixtral", "num_experts": 4, "num_experts_per_tok": 2}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"num_attention_heads": 3}, "3 heads do not divide `hidden_size` 64"),
        ({"num_key_value_heads": 3}, "3 key and value heads do not divide 4 query heads"),
        ({"architecture": "gpt_neox", "num_key_value_heads": 2}, "gpt_neox does not support grouped"),
        ({"hidden_size": 0}, "`hidden_size` must be more than 0, not `0`"),
        ({"n_layers": 2}, "unknown field `n_layers`"),
        ({"num_experts": 4}, "a llama model has no experts"),
        ({"architecture": "mixtral", "num_experts": 4}, "a mixtral model needs `num_experts_per_tok`"),
        (MIXTURE | {"num_experts_per_tok": 5}, "`num_experts_per_tok` 5 is above `num_experts` 4"),
        (MIXTURE | {"moe_intermediate_size": 8}, "a mixtral model has no `moe_intermediate_size`"),
        (MIXTURE | {"architecture": "qwen3_moe"}, "a qwen3_moe model needs `moe_intermediate_size`"),
        (MIXTURE | {"intermediate_size": 12}, "`intermediate_size` 12 is not a multiple of 8"),
        ({"architecture": "gpt_neox", "head_dim": 8}, "gpt_neox does not support `head_dim`"),
        ({"head_dim": 7}, "an attention head has the width 7, and rotary position embeddings need an even one"),
        ({"hidden_size": 28}, r"has the width 7 \(`hidden_size` 28 / `num_attention_heads` 4\)"),
        ({"architecture": "gpt_neox", "rotary_pct": 0.2}, "`rotary_pct` 0.2 rotates 3 of the 16 numbers of a head"),
        ({"architecture": "gpt_neox", "rotary_pct": 0.01}, "`rotary_pct` 0.01 rotates 0 of the 16 numbers of a head"),
        ({"vocab_size": 10**9}, "`vocab_size` must be at most 16777216, not `1000000000`"),
        ({"num_hidden_layers": 10**6}, "`num_hidden_layers` must be at most 16384"),
        (MIXTURE | {"num_experts": 10**9}, "`num_experts` must be at most 65536, not `1000000000`"),
        ({"hidden_size": 2**20, "num_hidden_layers": 2**14}, "has 7.2e[+]16 parameters, and the limit is 1e[+]13"),
    ],
)
def test_invalid_shape_is_an_error(change, message):
    valid = {"vocab_size": 8, "hidden_size": 64, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 4}
    with pytest.raises(SpecError, match=message):
        ModelShape(**{**valid, **change})


def test_consequences_of_a_wrong_number_are_not_reported():
    shape = {"vocab_size": 8, "hidden_size": 64, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 3}
    with pytest.raises(SpecError) as caught:
        ModelShape(**shape, head_dim=-1)
    assert [problem.path for problem in caught.value.problems] == ["head_dim"]


@pytest.mark.parametrize(
    ("change", "problems"),
    [
        ({}, []),
        ({"head_dim": None}, []),
        ({"hidden_size": 28}, ["an attention head has the width 7"]),
        ({"num_hidden_layers": 0}, ["`num_hidden_layers` must be more than 0"]),
        ({"model_type": "gpt_neox", "rotary_pct": 0.2}, ["`rotary_pct` 0.2 rotates 3"]),
        ({"model_type": "bert", "hidden_size": 28}, []),
        ({"hidden_size": None}, []),
    ],
)
def test_config_of_a_folder_is_checked(change, problems):
    config = {"model_type": "llama", "vocab_size": 8, "hidden_size": 64, "intermediate_size": 8, "num_hidden_layers": 1}
    titles = find_config_problems(config | {"num_attention_heads": 4, "torch_dtype": "bfloat16"} | change)
    assert len(titles) == len(problems)
    assert all(title.startswith(problem) for title, problem in zip(titles, problems, strict=True))
