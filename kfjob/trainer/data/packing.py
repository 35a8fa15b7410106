"""From documents to samples of one length.

A sample has rows of `length` numbers: what the model reads, what it must say (IGNORE where nothing is asked), and, where
several documents are in it, each token's position in its document. Positions that begin again tell transformers' masks where
attention ends (`find_packed_sequence_indices`, transformers 5 masking_utils.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

from kfjob.trainer.data.documents import Document, Tokens

Sample = npt.NDArray[np.int64]
"""Shaped (2 or 3, length): inputs, targets, perhaps positions."""
IGNORE = -100
"""A target that counts for nothing."""


def from_stream(tokens: Tokens) -> Sample:
    """A piece of `length` + 1 tokens of a stream."""
    return np.stack([tokens[:-1], tokens[1:]])


def best_fit(sizes: Sequence[int], capacity: int) -> list[list[int]]:
    """Put things into as few bins as best-fit-decreasing does; the numbers of the things in each bin.

    Depends on nothing but its arguments. What room there is stands in the bits of one integer.
    """
    bins: list[list[int]] = []
    with_room: list[list[int]] = [[] for _ in range(capacity + 1)]
    rooms = 0
    for number in sorted(range(len(sizes)), key=lambda number: -sizes[number]):
        size = sizes[number]
        if fitting := rooms >> size:
            room = size + (fitting & -fitting).bit_length() - 1
            chosen = with_room[room].pop()
            if not with_room[room]:
                rooms ^= 1 << room
            bins[chosen].append(number)
        else:
            room, chosen = capacity, len(bins)
            bins.append([number])
        if left := room - size:
            with_room[left].append(chosen)
            rooms |= 1 << left
    return bins


def pieces(document: Document, length: int, *, cut: bool) -> list[Document]:
    """Parts of the document that fit into a sample: all of it, or the first; those without anything to learn are left out.

    A part begins with the last token of the one before it, so that every token but the first is asked for once.
    """
    ends = range(length, len(document.tokens) - 1 + length, length) if cut else (length,)
    parts = [_part(document, end - length, end + 1) for end in ends]
    return [part for part in parts if len(part.tokens) > 1 and (part.learnt is None or part.learnt[1:].any())]


def _part(document: Document, begin: int, end: int) -> Document:
    return Document(document.tokens[begin:end], None if document.learnt is None else document.learnt[begin:end])


def joined(documents: Iterable[Document], length: int, *, padding: int, positions: bool) -> Sample:
    """One sample out of documents that fit into it together; what is left over is filled with `padding` and not asked for."""
    sample = np.full((3, length), padding, dtype=np.int64)
    sample[1] = IGNORE
    at = 0
    for document in documents:
        size = len(document.tokens) - 1
        sample[0, at : at + size] = document.tokens[:-1]
        targets = document.tokens[1:]
        sample[1, at : at + size] = targets if document.learnt is None else np.where(document.learnt[1:], targets, IGNORE)
        sample[2, at : at + size] = np.arange(size)
        at += size
    sample[2, at:] = np.arange(length - at)
    return sample if positions else sample[:2]
