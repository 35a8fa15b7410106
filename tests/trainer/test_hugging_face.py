"""The loss of padded and of packed documents is what transformers' own model says of each document alone."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from kfjob.trainer.data.documents import Document
from kfjob.trainer.data.packing import best_fit, pack_documents
from kfjob.trainer.loss import count_targets, to_batch, token_loss
from tests.trainer.test_loss import CPU, FAMILIES, SMALL, built

SIZES = [9, 17, 2, 30, 5, 12, 24, 3]
LENGTH = 40


def documents():
    draw = np.random.default_rng(5)
    return [Document(draw.integers(0, 64, size + 1)) for size in SIZES]


def padded(everything):
    return np.stack([pack_documents([document], LENGTH, padding=0, positions=False) for document in everything])


def packed(everything):
    bins = best_fit(SIZES, LENGTH)
    assert len(bins) < len(SIZES)
    return np.stack([pack_documents((everything[n] for n in numbers), LENGTH, padding=0, positions=True) for numbers in bins])


@pytest.mark.parametrize("chunk", [0, 16])
@pytest.mark.parametrize("form", [padded, packed])
@pytest.mark.parametrize("family", FAMILIES)
def test_the_loss_of_documents_is_transformers_own(family, form, chunk):
    ours = built(model=SMALL | FAMILIES[family], loss_chunk=chunk)
    theirs = type(ours)(ours.config)  # never on the meta device, and nothing done to its head
    theirs.load_state_dict(ours.state_dict())
    everything = documents()
    total = 0.0
    for document in everything:
        ids = torch.tensor(document.tokens)[None]
        total += theirs(input_ids=ids, labels=ids).loss.item() * (len(document.tokens) - 1)
    samples = form(everything)
    assert count_targets(samples) == sum(SIZES)
    mean = token_loss(ours, *to_batch(samples, CPU)).item() / sum(SIZES)
    assert mean == pytest.approx(total / sum(SIZES), abs=1e-5)


@pytest.mark.parametrize("family", FAMILIES)
def test_padding_on_the_right_needs_no_mask(family):
    """Nothing looks ahead, so what transformers computes with a mask over the padding is the same."""
    ours = built(model=SMALL | FAMILIES[family])
    theirs = type(ours)(ours.config)
    theirs.load_state_dict(ours.state_dict())
    inputs, targets, *_ = to_batch(padded(documents()), CPU)
    mask = torch.tensor([[at < size for at in range(LENGTH)] for size in SIZES]).long()
    logits = theirs(input_ids=inputs, attention_mask=mask).logits
    expected = torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=-100)
    mean = token_loss(ours, inputs, targets) / count_targets(padded(documents()))
    assert mean.item() == pytest.approx(expected.item(), abs=1e-5)
