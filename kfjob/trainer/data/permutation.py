"""A pseudo-random permutation of `range(size)` that is computed element by element."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

_ROUNDS = 4
_MASK = (1 << 64) - 1
_A, _B, _C = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB

Numbers = npt.NDArray[np.uint64]


def permute(index: int, size: int, key: int) -> int:
    """Return the image of `index` in the permutation that `key` selects.

    It is a Feistel network over the next even power of two, applied until the result is inside the range (Black and Rogaway,
    "Ciphers with arbitrary finite domains"). It needs no memory for a billion samples. It uses no library's generator, whose
    stream may change: a run resumed with another version of torch or numpy reads the same samples.
    """
    if size < 2:
        return index
    half = ((size - 1).bit_length() + 1) // 2
    mask = (1 << half) - 1
    while True:
        left, right = index >> half, index & mask
        for turn in range(_ROUNDS):
            left, right = right, left ^ (mix(right, key + turn) & mask)
        index = left << half | right
        if index < size:
            return index


def permute_many(indices: Numbers, size: int, key: int) -> Numbers:
    """Apply `permute` to an array."""
    if size < 2:
        return indices
    half = ((size - 1).bit_length() + 1) // 2
    mask, shift = np.uint64((1 << half) - 1), np.uint64(half)
    result, outside = indices.copy(), np.ones(len(indices), dtype=np.bool_)
    while outside.any():
        left, right = result[outside] >> shift, result[outside] & mask
        for turn in range(_ROUNDS):
            left, right = right, left ^ (_mix_many(right, key + turn) & mask)
        result[outside] = left << shift | right
        outside = result >= np.uint64(size)
    return result


def mix(value: int, key: int) -> int:
    """Return 64 well-mixed bits of two numbers (the finaliser of SplitMix64)."""
    z = (value * _A + (key + 1) * _B) & _MASK
    z = ((z ^ z >> 30) * _B) & _MASK
    z = ((z ^ z >> 27) * _C) & _MASK
    return z ^ z >> 31


def _mix_many(values: Numbers, key: int) -> Numbers:
    """Apply `mix` to an array; unsigned integers wrap around."""
    z = values * np.uint64(_A) + np.uint64((key + 1) * _B & _MASK)
    z = (z ^ z >> np.uint64(30)) * np.uint64(_B)
    z = (z ^ z >> np.uint64(27)) * np.uint64(_C)
    return z ^ z >> np.uint64(31)
