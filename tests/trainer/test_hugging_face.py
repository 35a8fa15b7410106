"""The loss of padded and packed documents equals that of transformers' own model on each document."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from kfjob.trainer.data.batches import count_targets, to_batch
from kfjob.trainer.data.documents import Document
from kfjob.trainer.data.packing import best_fit, pack_documents
from kfjob.trainer.loss import token_loss
from tests.trainer.test_loss import CPU, FAMILIES, SMALL, build

SIZES = [9, 17, 2, 30, 5, 12, 24, 3]
LENGTH = 40


def make_documents():
    draw = np.random.default_rng(5)
    return [Document(draw.integers(0, 64, size + 1)) for size in SIZES]


def pad(documents):
    return np.stack([pack_documents([document], LENGTH, padding=0, positions=False) for document in documents])


def pack(documents):
    bins = best_fit(SIZES, LENGTH)
    assert len(bins) < len(SIZES)
    return np.stack([pack_documents((documents[n] for n in numbers), LENGTH, padding=0, positions=True) for numbers in bins])


@pytest.mark.parametrize("chunk", [0, 16])
@pytest.mark.parametrize("arrange", [pad, pack])
@pytest.mark.parametrize("family", FAMILIES)
def test_loss_of_documents_equals_transformers(family, arrange, chunk):
    actual = build(model=SMALL | FAMILIES[family], loss_chunk=chunk)
    reference = type(actual)(actual.config)  # not built on the meta device, with an unchanged head
    reference.load_state_dict(actual.state_dict())
    documents = make_documents()
    total = 0.0
    for document in documents:
        ids = torch.tensor(document.tokens)[None]
        total += reference(input_ids=ids, labels=ids).loss.item() * (len(document.tokens) - 1)
    samples = arrange(documents)
    assert count_targets(samples) == sum(SIZES)
    mean = token_loss(actual, *to_batch(samples, CPU)).item() / sum(SIZES)
    assert mean == pytest.approx(total / sum(SIZES), abs=1e-5)


@pytest.mark.parametrize("family", FAMILIES)
def test_right_padding_needs_no_attention_mask(family):
    """Attention is causal, so transformers gives the same loss with a mask over the padding."""
    actual = build(model=SMALL | FAMILIES[family])
    reference = type(actual)(actual.config)
    reference.load_state_dict(actual.state_dict())
    inputs, targets, *_ = to_batch(pad(make_documents()), CPU)
    mask = torch.tensor([[position < size for position in range(LENGTH)] for size in SIZES]).long()
    logits = reference(input_ids=inputs, attention_mask=mask).logits
    expected = torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=-100)
    mean = token_loss(actual, inputs, targets) / count_targets(pad(make_documents()))
    assert mean.item() == pytest.approx(expected.item(), abs=1e-5)
