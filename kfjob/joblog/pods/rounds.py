"""Rendezvous rounds, assembled from the results in the logs of all agents: the pods of each round and their ranks."""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from kfjob.base.units import SECOND
from kfjob.joblog.agents.agent_records import RendezvousResult
from kfjob.joblog.pods.pod_view import EvidenceLine

MAX_ROUNDS = 32
"""Rendezvous rounds in memory."""
SAME_ROUND = 15 * SECOND
"""Agents print the result of one round within this time (they poll the store about once a second)."""


class Member(Struct, frozen=True, kw_only=True):
    """One pod in one round."""

    pod: str
    container: str  # container id
    result: RendezvousResult
    line: EvidenceLine


class Round(Struct, frozen=True, kw_only=True):
    """One rendezvous round, as far as its logs were read."""

    members: tuple[Member, ...]

    @property
    def first_line(self) -> EvidenceLine:
        """The earliest line about this round."""
        return min((member.line for member in self.members), key=lambda line: (line.resolve_time(None) or 0, line.order))

    @property
    def group_world_size(self) -> int | None:
        """Number of pods in the round according to the agents."""
        return next((member.result.group_world_size for member in self.members if member.result.group_world_size), None)


def add_member(rounds: tuple[Round, ...], new: Member) -> tuple[Round, ...]:
    """Return the rounds with one more result in the round it belongs to; logs of pods may come one after the other."""
    for index in range(len(rounds) - 1, -1, -1):
        if (same := _find_same(rounds[index], new)) is not None:
            members = tuple(new if member is same else member for member in rounds[index].members)
            return (*rounds[:index], replace(rounds[index], members=members), *rounds[index + 1 :])
    candidates = [candidate for candidate in rounds if _accepts(candidate, new)]
    if candidates:
        best = min(reversed(candidates), key=lambda candidate: _distance(candidate, new))
        extended = replace(best, members=(*best.members, new))
        return tuple(extended if item is best else item for item in rounds)
    added = (*rounds, Round(members=(new,)))
    return tuple(sorted(added, key=lambda item: item.first_line.resolve_time(None) or 0)[-MAX_ROUNDS:])


def _find_same(candidate: Round, new: Member) -> Member | None:
    """Return the member that `new` extends: the same block, or another line of the same agent about the same round."""
    for member in candidate.members:
        if (member.pod, member.container) != (new.pod, new.container):
            continue
        is_same_block = member.result.line == new.result.line
        is_other_source = member.result.source != new.result.source and member.result.group_rank == new.result.group_rank
        if is_same_block or (is_other_source and _time_between(member.line, new.line) <= SAME_ROUND):
            return member
    return None


def _accepts(candidate: Round, new: Member) -> bool:
    """Return whether the pod can be in the round: pod and rank are free, the size and the time fit."""
    if any(member.pod == new.pod for member in candidate.members):
        return False
    size = candidate.group_world_size
    if size and new.result.group_world_size and size != new.result.group_world_size:
        return False
    if any(member.result.group_rank == new.result.group_rank for member in candidate.members):
        return False
    return _distance(candidate, new) <= SAME_ROUND


def _distance(candidate: Round, new: Member) -> int:
    """Return the nanoseconds between this result and the closest one of the round; 0 if times are unknown."""
    return min(_time_between(member.line, new.line) for member in candidate.members)


def _time_between(line: EvidenceLine, other: EvidenceLine) -> int:
    first, second = line.resolve_time(other.time), other.resolve_time(line.time)
    return abs(first - second) if first is not None and second is not None else 0
