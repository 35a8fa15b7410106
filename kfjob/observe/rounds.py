"""Rounds: which pods met when, and which ranks each was given. Put together from what every agent says of itself."""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from kfjob.observe.agent_records import RendezvousResult
from kfjob.observe.pods import EvidenceLine
from kfjob.units import SECOND

KEPT = 32
TOGETHER = 15 * SECOND
"""Agents learn the result of one round within this time (they ask the store about once a second)."""


class Member(Struct, frozen=True, kw_only=True):
    """One pod in one round."""

    pod: str
    container: str  # its id
    result: RendezvousResult
    said: EvidenceLine


class Round(Struct, frozen=True, kw_only=True):
    """One meeting of the agents, as far as its logs were read."""

    members: tuple[Member, ...]

    @property
    def first(self) -> EvidenceLine:
        """The first that was said of it."""
        return min((member.said for member in self.members), key=lambda said: (said.resolve_time(None) or 0, said.order))

    @property
    def world(self) -> int | None:
        """Pods in it, as the agents say."""
        return next((member.result.group_world_size for member in self.members if member.result.group_world_size), None)

    def ranks(self) -> dict[str, int | None]:
        """Group rank by pod."""
        return {member.pod: member.result.group_rank for member in self.members}


def joined(rounds: tuple[Round, ...], new: Member) -> tuple[Round, ...]:
    """The rounds with one more result, put where it belongs: logs of different pods may be read one after the other."""
    for index in range(len(rounds) - 1, -1, -1):
        if (same := _same(rounds[index], new)) is not None:
            members = tuple(new if member is same else member for member in rounds[index].members)
            return (*rounds[:index], replace(rounds[index], members=members), *rounds[index + 1 :])
    open_rounds = [one for one in rounds if _takes(one, new)]
    if open_rounds:
        best = min(reversed(open_rounds), key=lambda one: _apart(one, new))
        grown = replace(best, members=(*best.members, new))
        return tuple(grown if one is best else one for one in rounds)
    return tuple(sorted((*rounds, Round(members=(new,))), key=lambda one: one.first.resolve_time(None) or 0))[-KEPT:]


def _same(one: Round, new: Member) -> Member | None:
    """The member that this result tells more of: the same block, or another line of the same agent about the same round."""
    for member in one.members:
        if (member.pod, member.container) != (new.pod, new.container):
            continue
        again = member.result.line == new.result.line
        better = member.result.source != new.result.source and member.result.group_rank == new.result.group_rank
        if again or (better and _between(member.said, new.said) <= TOGETHER):
            return member
    return None


def _takes(one: Round, new: Member) -> bool:
    """Whether the round can hold this pod."""
    if any(member.pod == new.pod for member in one.members):
        return False
    if one.world and new.result.group_world_size and one.world != new.result.group_world_size:
        return False
    if any(member.result.group_rank == new.result.group_rank for member in one.members):
        return False
    return _apart(one, new) <= TOGETHER


def _apart(one: Round, new: Member) -> int:
    """Nanoseconds between this result and the nearest of the round; 0 when times are not known."""
    return min(_between(member.said, new.said) for member in one.members)


def _between(one: EvidenceLine, other: EvidenceLine) -> int:
    first, second = one.resolve_time(other.time), other.resolve_time(one.time)
    return abs(first - second) if first is not None and second is not None else 0
