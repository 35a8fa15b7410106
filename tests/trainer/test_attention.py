"""Packed documents attend to themselves only, as with one forward pass per document, and no mask is built."""

from __future__ import annotations

from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch
import transformers
from torch._subclasses import FakeTensorMode
from torch.nn.attention.varlen import varlen_attn
from torch.utils._python_dispatch import TorchDispatchMode

from kfjob.trainer.attention import NAME, attend, use_document_attention
from kfjob.trainer.data.batches import find_documents, to_batch
from kfjob.trainer.data.packing import IGNORE
from kfjob.trainer.loss import token_loss
from kfjob.trainspec.train_spec import TrainSpec

LENGTH = 56
"""Tokens in a sample; no dimension of the models is equal to it."""
SPEC = TrainSpec(model="micro-llama", data="-", max_steps=1, sequence_length=LENGTH)
FAMILIES = ("Llama", "Qwen2", "Qwen3", "Mistral", "GPTNeoX")
SIZES = {"uneven": [[1, 19, 2, 34], [55, 1]], "whole": [[56], [56]], "padded": [[30, 11], [3, 4, 5]], "ones": [[1] * 56, [56]]}
"""The sizes of the documents in two samples; the rest is padding."""


def make_model(family, **changes):
    torch.manual_seed(0)
    groups = {} if family == "GPTNeoX" else {"num_key_value_heads": 2}
    config = getattr(transformers, f"{family}Config")(
        vocab_size=64,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        max_position_embeddings=64,
        **groups | changes,
    )
    model = getattr(transformers, f"{family}ForCausalLM")(config)
    use_document_attention(model, SPEC)
    return model


def make_samples(sizes):
    """Return samples shaped (2, 3, length) with random tokens."""
    draw = np.random.default_rng(3)
    samples = np.zeros((2, 3, LENGTH), dtype=np.int64)
    samples[:, 1] = IGNORE
    for sample, documents in zip(samples, sizes, strict=True):
        used = sum(documents)
        sample[:2, :used] = draw.integers(1, 64, (2, used))
        sample[2] = np.concatenate([np.arange(size) for size in (*documents, LENGTH - used)])
    return samples


def gradients(model):
    return [parameter.grad.clone() for parameter in model.parameters()]


class Shapes(TorchDispatchMode):
    """Records the operators, and the shapes of their results."""

    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()
        self.shapes: set[tuple[int, ...]] = set()

    def __torch_dispatch__(self, operation: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = operation(*args, **(kwargs or {}))
        self.names.add(operation.name())
        self.shapes |= {tuple(value.shape) for value in torch.utils._pytree.tree_leaves(result) if hasattr(value, "shape")}
        return result

    def has_mask(self):
        return any(shape[-2:] == (LENGTH, LENGTH) for shape in self.shapes)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("sizes", SIZES.values(), ids=SIZES)
def test_packed_documents_equal_one_forward_per_document(family, sizes):
    model, samples = make_model(family), make_samples(sizes)
    assert model.config._attn_implementation == NAME
    with Shapes() as packed:
        loss = token_loss(model, *to_batch(samples, torch.device("cpu")))
        loss.backward()
    actual = gradients(model)
    model.zero_grad()

    expected = torch.zeros(())
    model.set_attn_implementation("sdpa")
    for sample, documents in zip(samples, sizes, strict=True):
        for part in np.split(sample[:2], np.cumsum(documents), axis=1)[:-1]:
            expected = expected + token_loss(model, *to_batch(part[None], torch.device("cpu")))
    expected.backward()
    assert loss.item() == pytest.approx(expected.item(), rel=1e-6)
    for gradient, reference in zip(actual, gradients(model), strict=True):
        torch.testing.assert_close(gradient, reference, atol=1e-5, rtol=0)
    assert not packed.has_mask()


def test_transformers_builds_a_mask_without_this_attention():
    """The recorder above would see it."""
    model = make_model("Llama")
    model.set_attn_implementation("sdpa")
    with Shapes() as packed:
        token_loss(model, *to_batch(make_samples(SIZES["uneven"]), torch.device("cpu")))
    assert packed.has_mask()


@pytest.mark.parametrize(("window", "name"), [(None, NAME), (LENGTH, NAME), (LENGTH - 1, "sdpa")])
def test_model_with_a_short_window_keeps_its_own_attention(window, name):
    model = make_model("Mistral", sliding_window=window)
    assert model.config._attn_implementation == name
    samples = make_samples(SIZES["uneven"])
    assert token_loss(model, *to_batch(samples, torch.device("cpu"))).isfinite()


def test_cuda_uses_attention_for_sequences_of_different_lengths(monkeypatch):
    """Without a GPU only shapes are computed."""
    monkeypatch.setattr(torch._C, "_get_cudnn_sdp_enabled", lambda: False)  # the choice would ask the GPU
    causal = mock.patch("torch.nn.attention.varlen.varlen_attn", wraps=varlen_attn)
    with FakeTensorMode(), Shapes() as recorded, causal as call:
        query, key = (torch.empty(2, heads, LENGTH, 16, device="cuda", dtype=torch.bfloat16) for heads in (4, 2))
        boundaries = torch.empty(8, device="cuda", dtype=torch.int32)
        output, _ = attend(None, query, key, key, None, cu_seq_lens_q=boundaries, max_length_q=64, scaling=0.25)
    assert output.shape == (2, LENGTH, 4, 16)
    assert "torch_attn::_varlen_attn" in recorded.names
    assert call.call_args.kwargs["window_size"] == (-1, 0)  # all tokens before, none after
    assert not recorded.has_mask()


def test_boundaries_have_few_different_shapes():
    sizes = [len(find_documents(np.tile(np.arange(size), 120))[0]) for size in (1, 2, 30)]
    assert sizes == [128, 128, 128]
    assert {len(find_documents(make_samples([[1] * count, [56]])[:, 2])[0]) for count in range(1, 57)} == {64}
    boundaries, longest = find_documents(make_samples(SIZES["padded"])[:, 2])
    assert boundaries.tolist() == [0, 30, 41, 56, 59, 63, 68] + [112] * 57
    assert longest == 512
    assert find_documents(np.arange(1500)[None])[1] == 2048
