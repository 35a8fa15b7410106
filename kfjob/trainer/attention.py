"""Attention of packed documents without a mask: each token attends to the tokens before it in its own document.

transformers derives a dense mask (length x length for each sample) from positions that restart, and asks the device whether
there are any, which makes the host wait in every forward pass. A function of its own attention interface gets neither
(`_preprocess_mask_arguments`, transformers 5 masking_utils.py: a function without a mask function gets no mask).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from kfjob.spec.train import TrainSpec

NAME = "kfjob_documents"
"""The name in transformers' attention interface."""
_WINDOWS = ("sliding_window", "attention_chunk_size")
"""Settings of models whose tokens attend only to near ones."""
_VARLEN_DTYPES = (torch.float16, torch.bfloat16)
_VARLEN_HEAD_DIM = 256
"""The largest head of the flash kernels."""


def use_document_attention(model: Any, spec: TrainSpec) -> None:
    """Make the model use this attention, unless its own attention is not plain causal attention.

    DataParallel on several GPUs splits all tensors by samples, and thus cannot split the documents' boundaries.
    """
    config = model.config
    windows = [getattr(config, name, None) for name in _WINDOWS]
    is_plain = config._attn_implementation == "sdpa" and all(not window or window >= spec.sequence_length for window in windows)  # noqa: SLF001 -- transformers has no public name
    splits_tensors = spec.strategy == "dp" and torch.cuda.device_count() > 1
    if is_plain and model._can_set_attn_implementation() and not splits_tensors:  # noqa: SLF001
        from transformers import AttentionInterface

        AttentionInterface.register(NAME, attend)
        model.set_attn_implementation(NAME)


def has_document_attention(model: Any) -> bool:
    """Return whether the model, wrapped or not, takes the boundaries of documents."""
    return bool(getattr(model, "module", model).config._attn_implementation == NAME)  # noqa: SLF001


def attend(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    dropout: float = 0.0,
    scaling: float | None = None,
    cu_seq_lens_q: Tensor | None = None,
    max_length_q: int | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """Return the attention shaped (samples, length, heads, head size), for tensors shaped (samples, heads, length, head size).

    `cu_seq_lens_q` are the boundaries of the documents in all samples, one after the other, and `max_length_q` a bound of their
    lengths (the names of transformers' flash attention). Without them each sample is one document.
    """
    if cu_seq_lens_q is None or max_length_q is None:
        from transformers.integrations.sdpa_attention import sdpa_attention_forward

        output, _ = sdpa_attention_forward(
            module, query, key, value, attention_mask, dropout=dropout, scaling=scaling, **kwargs
        )
        return output, None
    samples, _, length, _ = query.shape
    flat_query, flat_key, flat_value = (part.transpose(1, 2).flatten(0, 1) for part in (query, key, value))
    if query.is_cuda and query.dtype in _VARLEN_DTYPES and query.shape[-1] <= _VARLEN_HEAD_DIM and not dropout:
        attended = _attend_with_varlen(flat_query, flat_key, flat_value, cu_seq_lens_q, longest=max_length_q, scaling=scaling)
    else:
        attended = _attend_eagerly(flat_query, flat_key, flat_value, cu_seq_lens_q, dropout=dropout, scaling=scaling)
    return attended.view(samples, length, *attended.shape[1:]), None


def _attend_with_varlen(
    query: Tensor, key: Tensor, value: Tensor, boundaries: Tensor, *, longest: int, scaling: float | None
) -> Tensor:
    """Call torch's attention for sequences of different lengths; its flash kernel groups heads itself."""
    from torch.nn.attention.varlen import varlen_attn

    options: dict[str, Any] = {"scale": scaling, "window_size": (-1, 0)}
    if query.shape[1] != key.shape[1] and _GROUPS_HEADS:
        options["enable_gqa"] = True
    output: Any = varlen_attn(query, key, value, boundaries, boundaries, longest, longest, **options)
    attended: Tensor = output
    return attended


def _varlen_groups_heads() -> bool:
    """Return whether this torch's varlen_attn must be told of grouped heads; older ones have no such argument."""
    from inspect import signature

    from torch.nn.attention.varlen import varlen_attn

    return "enable_gqa" in signature(varlen_attn).parameters


_GROUPS_HEADS = _varlen_groups_heads()


def _attend_by_document(
    query: Tensor, key: Tensor, value: Tensor, boundaries: Tensor, *, dropout: float, scaling: float | None
) -> Tensor:
    """Compute one document after the other; empty ones fill the boundaries up."""
    outputs = []
    for begin, end in pairwise(boundaries.tolist()):
        if begin == end:
            break
        parts = (part[begin:end].transpose(0, 1).unsqueeze(0) for part in (query, key, value))
        outputs.append(_causal_attention(*parts, dropout_p=dropout, scale=scaling, enable_gqa=query.shape[1] != key.shape[1]))
    return torch.cat(outputs, dim=2).squeeze(0).transpose(0, 1)


_disable_compilation: Any = torch.compiler.disable
_attend_eagerly: Callable[..., Tensor] = _disable_compilation(_attend_by_document)
_causal_attention: Callable[..., Tensor] = partial(torch.nn.functional.scaled_dot_product_attention, is_causal=True)
