"""The loss equals that of transformers with padding, packing, accumulation and chunks."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from kfjob.base.errors import KfjobError
from kfjob.trainer.data.batches import to_batch
from kfjob.trainer.data.documents import Document
from kfjob.trainer.data.packing import IGNORE, best_fit, pack_documents
from kfjob.trainer.loss import ChunkedCrossEntropy, chunk_head, token_loss
from kfjob.trainer.model import build_model
from kfjob.trainer.strategies import SingleProcess, make_strategy
from kfjob.trainspec.train_spec import TrainSpec
from tests.trainer.test_model import SINGLE_RANK

SMALL = {"vocab_size": 64, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
FAMILIES = {
    "llama": {"architecture": "llama", "num_key_value_heads": 2},
    "mistral": {"architecture": "mistral", "sliding_window": 7},
    "qwen2": {"architecture": "qwen2", "tie_word_embeddings": True},
    "gpt_neox": {"architecture": "gpt_neox", "rotary_pct": 0.25},
}
CPU = torch.device("cpu")


def build(**changes):
    base = {"model": SMALL | FAMILIES["llama"], "data": "-", "max_steps": 10, "sequence_length": 8, "precision": "fp32"}
    spec = TrainSpec(**base | changes)
    torch.manual_seed(0)
    return build_model(spec, SingleProcess(spec, SINGLE_RANK), CPU)


def random_tokens(samples, length):
    return torch.randint(0, 64, (samples, length), generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("chunk", [0, 5, 1024])
def test_loss_equals_transformers(family, chunk):
    model = build(model=SMALL | FAMILIES[family], loss_chunk=chunk)
    samples = random_tokens(3, 33)
    labels = samples.clone()
    labels[1, 4:19] = labels[2, :7] = IGNORE
    reference = build(model=SMALL | FAMILIES[family], loss_chunk=0)(input_ids=samples, labels=labels).loss
    targets = labels[:, 1:]
    actual = token_loss(model, samples[:, :-1], targets) / (targets != IGNORE).sum()
    assert actual.item() == pytest.approx(reference.item(), abs=1e-5)
    assert model(input_ids=samples).logits.shape == (3, 33, 64)  # a call of the model returns logits, even with chunks


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_chunks_do_not_change_loss_or_gradients(family, precision):
    samples = random_tokens(2, 41)
    inputs, targets = samples[:, :-1], samples[:, 1:].clone()
    targets[0, 3:20] = IGNORE
    results = []
    for chunk in (0, 7):
        model = build(model=SMALL | FAMILIES[family], loss_chunk=chunk)
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=precision == "bf16"):
            loss = token_loss(model, inputs, targets) / (targets != IGNORE).sum()
        loss.backward()
        results.append((loss.item(), {name: parameter.grad for name, parameter in model.named_parameters()}))
    (expected, gradients), (chunked, chunked_gradients) = results
    tolerance = 1e-6 if precision == "fp32" else 2e-3
    assert chunked == pytest.approx(expected, abs=tolerance)
    for name, gradient in gradients.items():
        assert torch.allclose(chunked_gradients[name], gradient, atol=tolerance * 5, rtol=0), name


def test_chunked_gradients_equal_autograd():
    """Gradients of hidden states, weight and bias; some targets are ignored, and the last chunk is shorter."""
    hidden = torch.randn(11, 5, requires_grad=True, generator=torch.Generator().manual_seed(2))
    weight = torch.randn(9, 5, requires_grad=True, generator=torch.Generator().manual_seed(3))
    bias = torch.randn(9, requires_grad=True, generator=torch.Generator().manual_seed(4))
    targets = torch.tensor([0, 8, IGNORE, 3, 3, 1, 2, IGNORE, 7, 5, 6])
    plain = torch.nn.functional.cross_entropy(
        torch.nn.functional.linear(hidden, weight, bias), targets, ignore_index=IGNORE, reduction="sum"
    )
    expected = torch.autograd.grad(plain * 3, (hidden, weight, bias))
    loss = ChunkedCrossEntropy.apply(hidden, weight, bias, targets, 4)
    assert loss.item() == pytest.approx(plain.item(), abs=1e-5)
    for actual, reference in zip(torch.autograd.grad(loss * 3, (hidden, weight, bias)), expected, strict=True):
        assert torch.allclose(actual, reference, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32], ids=str)
def test_scale_of_chunked_gradients_is_not_rounded(dtype):
    """A loss is divided by its tokens: 1 / 381 has no exact value in 16 bits. The products are computed in fp32, in place."""
    draw = torch.Generator().manual_seed(6)
    hidden, weight = (torch.randn(size, 16, generator=draw).to(dtype).requires_grad_() for size in (40, 72))
    targets = torch.randint(0, 72, (40,), generator=draw)
    scale = torch.tensor(1 / 381)
    whole, scaled = (ChunkedCrossEntropy.apply(hidden, weight, None, targets, 16) for _ in range(2))
    gradients = torch.autograd.grad(whole, (hidden, weight))
    with Products() as products:
        results = torch.autograd.grad(scaled, (hidden, weight), scale)
    for gradient, result in zip(gradients, results, strict=True):
        assert torch.equal(result, (gradient.float() * scale).to(dtype))
    assert products.dtypes == [torch.float32] * 2


class Products(TorchDispatchMode):
    """Records the dtype in which CUDA computes each product in place. A CPU does not round a factor without dimensions."""

    def __init__(self) -> None:
        super().__init__()
        self.dtypes: list[torch.dtype] = []

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> object:
        if function is torch.ops.aten.mul_.Tensor:
            self.dtypes.append(torch.result_type(*args))
        return function(*args, **(kwargs or {}))


def test_compiled_chunks_equal_eager_ones():
    """Loss and gradients in bf16; the last chunk is shorter. A compiled chunk has half as many tokens more."""
    draw = torch.Generator().manual_seed(5)
    hidden, weight = (torch.randn(size, 16, generator=draw).bfloat16().requires_grad_() for size in (40, 72))
    targets = torch.randint(0, 72, (40,), generator=draw)
    targets[3:9] = IGNORE
    results = []
    for compiled in (False, True):
        loss = ChunkedCrossEntropy.apply(hidden, weight, None, targets, 8, compiled)
        results.append((loss.item(), *torch.autograd.grad(loss, (hidden, weight))))
    (expected, *gradients), (actual, *compiled_gradients) = results
    assert actual == pytest.approx(expected, rel=1e-5)
    for gradient, reference in zip(compiled_gradients, gradients, strict=True):
        torch.testing.assert_close(gradient, reference, atol=2e-2, rtol=2e-2)
    plain = torch.nn.functional.cross_entropy(hidden.float() @ weight.float().T, targets, ignore_index=IGNORE, reduction="sum")
    exact = torch.autograd.grad(plain, (hidden, weight))
    for compiled_gradient, eager, reference in zip(compiled_gradients, gradients, exact, strict=True):
        assert (compiled_gradient - reference).norm() <= 1.1 * (eager - reference).norm() + 1e-3


@pytest.mark.parametrize("family", FAMILIES)
def test_packed_documents_do_not_attend_to_each_other(family):
    """Loss and gradients of packed documents are the sums of those of each document, which is padded."""
    draw = np.random.default_rng(3)
    sizes = [9, 17, 2, 30, 5, 12, 24, 3]
    documents = [Document(draw.integers(0, 64, size + 1)) for size in sizes]
    bins = best_fit(sizes, 40)
    assert any(len(numbers) > 2 for numbers in bins)
    samples = np.stack([pack_documents((documents[n] for n in numbers), 40, padding=0, positions=True) for numbers in bins])
    packed_model = build(model=SMALL | FAMILIES[family])
    packed_loss = token_loss(packed_model, *to_batch(samples, CPU))
    packed_loss.backward()
    single_model = build(model=SMALL | FAMILIES[family])
    losses = [
        token_loss(single_model, *to_batch(pack_documents([document], 40, padding=0, positions=False)[None], CPU))
        for document in documents
    ]
    torch.stack(losses).sum().backward()
    assert packed_loss.item() == pytest.approx(sum(loss.item() for loss in losses), rel=1e-6)
    for actual, reference in zip(packed_model.parameters(), single_model.parameters(), strict=True):
        assert torch.allclose(actual.grad, reference.grad, atol=2e-5)
    unmasked_loss = token_loss(packed_model, *to_batch(samples, CPU)._replace(documents=None))
    assert abs(unmasked_loss.item() - packed_loss.item()) > 1e-2


def replicate(model):
    """Return a replica as DataParallel makes it (torch 2.15 nn/parallel/replicate.py), on the CPU, with its own weights."""
    modules = list(model.modules())
    copies = {module: module._replicate_for_data_parallel() for module in modules}
    parameters = {parameter: parameter.detach().clone().requires_grad_() for parameter in model.parameters()}
    for module in modules:
        for name, child in module._modules.items():
            copies[module]._modules[name] = copies[child]
        for name, parameter in module._parameters.items():
            setattr(copies[module], name, None if parameter is None else parameters[parameter])
        copies[module]._buffers = dict(module._buffers)
    return copies[model], list(parameters.values())


@pytest.mark.parametrize("tied", [False, True])
def test_replica_of_data_parallel_uses_its_own_weights_and_targets(tied):
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(1)
    shape: dict[str, Any] = {
        "vocab_size": 64,
        "hidden_size": 16,
        "intermediate_size": 32,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
    }
    model: Any = LlamaForCausalLM(LlamaConfig(**shape, tie_word_embeddings=tied))
    plain: Any = LlamaForCausalLM(LlamaConfig(**shape, tie_word_embeddings=tied))
    chunk_head(model, 3)
    replica, parameters = replicate(model)
    with torch.no_grad():
        for parameter in model.parameters():  # so a use of the original's weights would show
            parameter.fill_(torch.nan)
        for own, same in zip(parameters, plain.parameters(), strict=True):
            same.copy_(own)
    inputs, targets = torch.randint(64, (2, 2, 8))
    loss = token_loss(replica, inputs, targets)
    expected = token_loss(plain, inputs, targets)
    assert loss.item() == pytest.approx(expected.item(), rel=1e-6)
    torch.autograd.backward([loss, expected])
    for own, same in zip(parameters, plain.parameters(), strict=True):
        assert torch.allclose(own.grad, same.grad, atol=1e-5)
    assert replica.lm_head.targets is None
    assert replica(input_ids=inputs).logits.shape == (2, 8, 64)


@pytest.mark.parametrize("setting", ["activation_checkpointing", "activation_offload", "compile"])
def test_data_parallel_on_several_gpus_refuses_replaced_layers(monkeypatch, setting):
    """Only torch's count of GPUs is replaced."""
    spec = TrainSpec(model="micro-llama", data="-", max_steps=1, sequence_length=8, strategy="dp", **{setting: True})
    for count in (0, 1):
        monkeypatch.setattr(torch.cuda, "device_count", partial(int, count))
        assert make_strategy(spec, SINGLE_RANK)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    with pytest.raises(KfjobError, match=f"strategy `dp` on 2 GPUs does not support `{setting}`"):
        make_strategy(spec, SINGLE_RANK)
