"""Packing of documents into samples of one length.

A sample has rows of `length` numbers: the inputs, the targets (IGNORE for those without a loss), and, if it holds several
documents, the position of each token in its document. transformers derives the boundaries of attention from positions that
restart (`find_packed_sequence_indices`, transformers 5 masking_utils.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

from kfjob.trainer.data.documents import Document

Sample = npt.NDArray[np.int64]
"""Shaped (2 or 3, length): inputs, targets, and positions if documents are packed."""
IGNORE = -100
"""A target without a loss."""


def shift_tokens(tokens: npt.NDArray[np.integer]) -> Sample:
    """Return the sample of `length` + 1 consecutive tokens."""
    sample = np.empty((2, len(tokens) - 1), dtype=np.int64)
    sample[0], sample[1] = tokens[:-1], tokens[1:]
    return sample


def best_fit(sizes: Sequence[int], capacity: int) -> list[list[int]]:
    """Pack items into bins by best-fit-decreasing, and return the item numbers of each bin.

    The result depends only on the arguments. The bits of one integer mark the free sizes for which a bin exists.
    """
    bins: list[list[int]] = []
    bins_by_room: list[list[int]] = [[] for _ in range(capacity + 1)]
    rooms = 0
    for number in sorted(range(len(sizes)), key=lambda number: -sizes[number]):
        size = sizes[number]
        if fitting := rooms >> size:
            room = size + (fitting & -fitting).bit_length() - 1
            target = bins_by_room[room].pop()
            if not bins_by_room[room]:
                rooms ^= 1 << room
            bins[target].append(number)
        else:
            room, target = capacity, len(bins)
            bins.append([number])
        if rest := room - size:
            bins_by_room[rest].append(target)
            rooms |= 1 << rest
    return bins


def split_document(document: Document, length: int, *, truncate: bool) -> list[Document]:
    """Return the parts of the document that fit into a sample, without those that have no loss; `truncate` keeps the first.

    A part begins with the last token of the part before it, so that every token but the first is a target once.
    """
    ends = (length,) if truncate else range(length, len(document.tokens) - 1 + length, length)
    parts = [_slice_document(document, end - length, end + 1) for end in ends]
    return [part for part in parts if len(part.tokens) > 1 and (part.loss_mask is None or part.loss_mask[1:].any())]


def _slice_document(document: Document, begin: int, end: int) -> Document:
    return Document(document.tokens[begin:end], None if document.loss_mask is None else document.loss_mask[begin:end])


def pack_documents(documents: Iterable[Document], length: int, *, padding: int, positions: bool) -> Sample:
    """Return one sample of documents that fit into it together; the rest is `padding`, without a loss."""
    sample = np.full((3, length), padding, dtype=np.int64)
    sample[1] = IGNORE
    begin = 0
    for document in documents:
        size = len(document.tokens) - 1
        end = begin + size
        sample[0, begin:end] = document.tokens[:-1]
        targets = document.tokens[1:]
        sample[1, begin:end] = targets if document.loss_mask is None else np.where(document.loss_mask[1:], targets, IGNORE)
        sample[2, begin:end] = np.arange(size)
        begin = end
    sample[2, begin:] = np.arange(length - begin)
    return sample if positions else sample[:2]
