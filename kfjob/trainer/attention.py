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

from kfjob.base.errors import KfjobError
from kfjob.trainer.context import Context, set_context
from kfjob.trainer.shapes import unwrap
from kfjob.trainspec.train_spec import TrainSpec

NAME = "kfjob_documents"
"""The name in transformers' attention interface."""
_WINDOWS = ("sliding_window", "attention_chunk_size")
"""Settings of models whose tokens attend only to near ones."""
_VARLEN_DTYPES = (torch.float16, torch.bfloat16)
_VARLEN_HEAD_DIM = 256
"""The largest head of the flash kernels."""


def use_document_attention(model: Any, spec: TrainSpec, context: Context | None = None) -> None:
    """Make the model use this attention, unless its own attention is not plain causal attention.

    DataParallel on several GPUs splits all tensors by samples, and thus cannot split the documents' boundaries.

    Raises:
        KfjobError: ranks share samples (`context`), and the layers of the model mix tokens in another way too.
    """
    config = model.config
    windows = [getattr(config, name, None) for name in _WINDOWS]
    is_plain = config._attn_implementation == "sdpa" and all(not window or window >= spec.sequence_length for window in windows)  # noqa: SLF001 -- transformers has no public name
    splits_tensors = spec.strategy == "dp" and torch.cuda.device_count() > 1
    if is_plain and model._can_set_attn_implementation() and not splits_tensors:  # noqa: SLF001
        from transformers import AttentionInterface

        AttentionInterface.register(NAME, partial(_attend_in_parts, context) if context else attend)
        model.set_attn_implementation(NAME)
    if context and not (has_document_attention(model) and _mixes_tokens_in_attention_only(model)):
        title = f"`context_parallel` does not support {type(model).__name__}"
        cause = "its layers have no plain causal attention, or mix tokens in another way too"
        raise KfjobError(title, location="context_parallel", cause=cause, hint="remove `context_parallel`")
    set_context(model, context)


def _mixes_tokens_in_attention_only(model: Any) -> bool:
    """Return whether no layer has a window, a convolution over tokens or a recurrence."""
    kinds = set(getattr(model.config, "layer_types", None) or ())
    layers = [module for module in model.modules() if type(module).__name__ in set(model._no_split_modules or ())]  # noqa: SLF001
    has_attention = all(any("Attention" in type(module).__name__ for module in layer.modules()) for layer in layers)
    has_convolution = any(isinstance(module, torch.nn.Conv1d) for module in model.modules())
    return kinds <= {"full_attention"} and bool(layers) and has_attention and not has_convolution


def has_document_attention(model: Any) -> bool:
    """Return whether the model, wrapped or not, takes the boundaries of documents."""
    return bool(unwrap(model).config._attn_implementation == NAME)  # noqa: SLF001


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
    queries, keys, values = (part.transpose(1, 2).flatten(0, 1) for part in (query, key, value))
    attended = _attend_to_documents(
        queries, keys, values, cu_seq_lens_q, cu_seq_lens_q, longest=max_length_q, dropout=dropout, scaling=scaling
    )
    return attended.view(samples, length, *attended.shape[1:]), None


def attend_in_parts(  # noqa: PLR0917 -- transformers passes them by position
    context: Context,
    module: Any,  # noqa: ARG001 -- transformers passes it
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,  # noqa: ARG001
    *,
    dropout: float = 0.0,
    scaling: float | None = None,
    cu_seq_lens_q: Tensor | None = None,
    max_length_q: int | None = None,
    **_: Any,
) -> tuple[Tensor, None]:
    """Return the attention of this rank's tokens to those of whole samples; arguments as `attend`, the length is the own part.

    `cu_seq_lens_q` counts the tokens of whole samples. Each of the two chunks attends to the tokens up to its last one.
    """
    samples, own, length = query.shape[0], query.shape[2], query.shape[2] * context.size
    keys, values = (context.gather(part.transpose(1, 2)) for part in (key, value))
    boundaries = cu_seq_lens_q
    if boundaries is None:
        boundaries = torch.arange(0, (samples + 1) * length, length, dtype=torch.int32, device=query.device)
    outputs = []
    for queries, place in zip(query.transpose(1, 2).chunk(2, 1), context.list_chunks(length), strict=True):
        sample, position = boundaries // length, boundaries % length
        attended = _attend_to_documents(
            queries.flatten(0, 1),
            keys[:, : place.stop].flatten(0, 1),
            values[:, : place.stop].flatten(0, 1),
            sample * (own // 2) + (position - place.start).clamp(0, own // 2),
            sample * place.stop + position.clamp(max=place.stop),
            longest=max_length_q or length,
            dropout=dropout,
            scaling=scaling,
        )
        outputs.append(attended.view(samples, own // 2, *attended.shape[1:]))
    return torch.cat(outputs, 1), None


def _attend_to_documents(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    query_ends: Tensor,
    key_ends: Tensor,
    *,
    longest: int,
    dropout: float,
    scaling: float | None,
) -> Tensor:
    """Return the causal attention of documents one after the other, shaped (tokens, heads, head size).

    The last token of a document's queries is that of its keys. `query_ends` and `key_ends` are the boundaries of documents.
    """
    if query.is_cuda and query.dtype in _VARLEN_DTYPES and query.shape[-1] <= _VARLEN_HEAD_DIM and not dropout:
        return _attend_with_varlen(query, key, value, query_ends, key_ends, longest=longest, scaling=scaling)
    return _attend_eagerly(query, key, value, query_ends, key_ends, dropout=dropout, scaling=scaling)


def _attend_with_varlen(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    query_ends: Tensor,
    key_ends: Tensor,
    *,
    longest: int,
    scaling: float | None,
) -> Tensor:
    """Call torch's attention for sequences of different lengths; its flash kernel groups heads itself.

    The kernel aligns the last query with the last key.
    """
    from torch.nn.attention.varlen import varlen_attn

    options: dict[str, Any] = {"scale": scaling, "window_size": (-1, 0)}
    if query.shape[1] != key.shape[1] and _GROUPS_HEADS:
        options["enable_gqa"] = True
    output: Any = varlen_attn(query, key, value, query_ends, key_ends, longest, longest, **options)
    attended: Tensor = output
    return attended


def _varlen_groups_heads() -> bool:
    """Return whether this torch's varlen_attn must be told of grouped heads; older ones have no such argument."""
    from inspect import signature

    from torch.nn.attention.varlen import varlen_attn

    return "enable_gqa" in signature(varlen_attn).parameters


_GROUPS_HEADS = _varlen_groups_heads()


def _attend_by_document(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    query_ends: Tensor,
    key_ends: Tensor,
    *,
    dropout: float,
    scaling: float | None,
) -> Tensor:
    """Compute one document after the other; empty ones fill the boundaries up."""
    outputs = []
    for (begin, end), (key_begin, key_end) in zip(pairwise(query_ends.tolist()), pairwise(key_ends.tolist()), strict=True):
        if begin == end:
            continue
        queries = query[begin:end].transpose(0, 1).unsqueeze(0)
        keys, values = (part[key_begin:key_end].transpose(0, 1).unsqueeze(0) for part in (key, value))
        rest = (key_end - key_begin) - (end - begin)
        mask = torch.ones(end - begin, key_end - key_begin, dtype=torch.bool, device=query.device).tril(rest) if rest else None
        attend = partial(_sdpa, attn_mask=mask, is_causal=mask is None, enable_gqa=query.shape[1] != key.shape[1])
        outputs.append(attend(queries, keys, values, dropout_p=dropout, scale=scaling))
    return torch.cat(outputs, dim=2).squeeze(0).transpose(0, 1)


_disable_compilation: Any = torch.compiler.disable
_attend_eagerly: Callable[..., Tensor] = _disable_compilation(_attend_by_document)
_attend_in_parts: Callable[..., tuple[Tensor, None]] = _disable_compilation(attend_in_parts)
_sdpa: Callable[..., Tensor] = torch.nn.functional.scaled_dot_product_attention
