"""The rank that printed a line, and the GPU of a rank."""

from __future__ import annotations

from kfjob.joblog.lines.prefixes import split_prefix


def find_rank(text: str, ranks: tuple[int, ...]) -> int | None:
    """Return the global rank that printed the line: from its prefix, else the pod's only rank."""
    prefix, _ = split_prefix(text)
    if prefix.rank is None:
        return ranks[0] if len(ranks) == 1 else None
    if not prefix.is_local_rank:
        return prefix.rank
    return ranks[prefix.rank] if prefix.rank < len(ranks) else None


def find_gpu(rank: int, ranks: tuple[int, ...]) -> int:
    """Return the local number of a rank, which is that of its GPU; the rank itself if the pod's ranks are unknown."""
    return ranks.index(rank) if rank in ranks else rank
