"""A pseudo-random permutation of `range(size)` that is computed element by element."""

from __future__ import annotations

_ROUNDS = 4
_MASK = (1 << 64) - 1


def permuted(index: int, size: int, key: int) -> int:
    """Where `index` goes in the permutation that `key` chooses.

    A Feistel network over the next even power of two, walked until it lands inside (Black and Rogaway, "Ciphers with arbitrary
    finite domains"). It needs no memory for a billion samples, and no library's generator, whose stream may change, so that a
    run resumed with another version of torch or numpy still meets the samples that would have come.
    """
    if size < 2:
        return index
    half = ((size - 1).bit_length() + 1) // 2
    mask = (1 << half) - 1
    while True:
        left, right = index >> half, index & mask
        for turn in range(_ROUNDS):
            left, right = right, left ^ (mixed(right, key + turn) & mask)
        index = left << half | right
        if index < size:
            return index


def mixed(value: int, key: int) -> int:
    """64 well-mixed bits of two numbers (the finaliser of SplitMix64)."""
    z = (value * 0x9E3779B97F4A7C15 + (key + 1) * 0xBF58476D1CE4E5B9) & _MASK
    z = ((z ^ z >> 30) * 0xBF58476D1CE4E5B9) & _MASK
    z = ((z ^ z >> 27) * 0x94D049BB133111EB) & _MASK
    return z ^ z >> 31
