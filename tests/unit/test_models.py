"""Model shapes and presets."""

from __future__ import annotations

import pytest

from kfjob.errors import SpecError
from kfjob.spec.models import PRESETS, ModelShape, count_embedding_parameters, count_parameters

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
        (MIXTURE | {"num_experts_per_tok": 5}, "a token cannot have 5 of 4 experts"),
        (MIXTURE | {"moe_intermediate_size": 8}, "a mixtral model has no `moe_intermediate_size`"),
        (MIXTURE | {"architecture": "qwen3_moe"}, "a qwen3_moe model needs `moe_intermediate_size`"),
        (MIXTURE | {"intermediate_size": 12}, "`intermediate_size` 12 is not a multiple of 8"),
        ({"architecture": "gpt_neox", "head_dim": 8}, "gpt_neox does not support `head_dim`"),
    ],
)
def test_invalid_shape_is_an_error(change, message):
    valid = {"vocab_size": 8, "hidden_size": 64, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 4}
    with pytest.raises(SpecError, match=message):
        ModelShape(**{**valid, **change})
