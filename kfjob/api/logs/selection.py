"""Which pods of a job are meant: by name, node, global rank, by having failed, or all of them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from kfjob.errors import NotFound, UsageError
from kfjob.events import PodChanged, PodPhase
from kfjob.observe.master import format_ranks
from kfjob.observe.pods import PodView
from kfjob.observe.view import JobView

LAST = -1
"""Stands for the last rank, whatever its number."""

_RANKS = re.compile(r"(\d+)(?:-(\d+))?")
_SHOWN = 5  # names in a message


@dataclass(frozen=True, kw_only=True)
class PodSelection:
    """Pods that any of the first three names, and of these, with `failed`, those that have failed. Empty: every pod."""

    pods: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()
    ranks: tuple[tuple[int, int], ...] = ()  # first and last of each span, `LAST` for the last
    failed: bool = False

    @property
    def named(self) -> bool:
        """Whether some pods are meant and not all."""
        return bool(self.pods or self.nodes or self.ranks)

    def of(self, pods: Iterable[PodChanged], view: JobView | None = None) -> tuple[PodChanged, ...]:
        """The pods that are meant. `view` is needed for ranks only.

        Raises:
            NotFound: a pod, a node or a rank that was named is not one of the job's, or no pod has failed.
        """
        known = tuple(pods)
        chosen = set(self.pods) | self._on_nodes(known) | (self._with_ranks(view) if view and self.ranks else set())
        if strange := [name for name in self.pods if name not in {pod.pod for pod in known}]:
            raise NotFound(f"the job has no pod `{strange[0]}`", hint=f"its pods: {_listed([pod.pod for pod in known])}")
        meant = tuple(pod for pod in known if not self.named or pod.pod in chosen)
        if self.failed and not (meant := tuple(pod for pod in meant if has_failed(pod))):
            raise NotFound("no pod of the job has failed")
        return meant

    def _on_nodes(self, known: Sequence[PodChanged]) -> set[str]:
        nodes = {pod.node for pod in known if pod.node}
        if strange := [node for node in self.nodes if node not in nodes]:
            raise NotFound(f"no pod of the job is on node `{strange[0]}`", hint=f"its nodes: {_listed(sorted(nodes))}")
        return {pod.pod for pod in known if pod.node in self.nodes}

    def _with_ranks(self, view: JobView) -> set[str]:
        owners, highest = _owners(view)
        if not owners:
            raise NotFound(
                "which pod has which rank is not known yet",
                cause="no agent has told the result of a rendezvous",
                hint="`--pod` and `--node` name pods without it",
            )
        found = set()
        for first, last in self.ranks:
            for rank in range(highest if first == LAST else first, (highest if last == LAST else last) + 1):
                if rank not in owners:
                    raise NotFound(
                        f"no pod of the job is known to have rank {rank}", hint=f"known ranks: {format_ranks(owners)}"
                    )
                found.add(owners[rank])
        return found


def _owners(view: JobView) -> tuple[dict[int, str], int]:
    """Which pod has which global rank, and the highest rank: by the newest results, as an elastic job gives ranks anew."""

    def when(pod: PodView) -> tuple[int, int]:
        said = pod.log.result_line
        return (said.resolve_time(view.reference_time) or 0, said.order) if said else (0, 0)

    told = sorted((pod for pod in view.pods.values() if pod.global_ranks), key=when)
    owners = {rank: pod.name for pod in told for rank in pod.global_ranks}
    sizes = [pod.log.result.global_world_sizes[0] for pod in told if pod.log.result and pod.log.result.global_world_sizes]
    highest = sizes[-1] - 1 if sizes else max(owners, default=0)
    return {rank: pod for rank, pod in owners.items() if rank <= highest}, highest


def ranks(text: str) -> tuple[tuple[int, int], ...]:
    """Spans of `0,8-15,last`.

    Raises:
        UsageError: it is none.
    """
    spans = []
    for part in text.split(","):
        found = _RANKS.fullmatch(part.strip())
        if part.strip() == "last":
            spans.append((LAST, LAST))
        elif found and int(found[2] or found[1]) >= int(found[1]):
            spans.append((int(found[1]), int(found[2] or found[1])))
        else:
            raise UsageError(f"`{part}` is not a rank", hint="write for example `--rank 0,8-15,last`")
    return tuple(spans)


def has_failed(pod: PodChanged) -> bool:
    """Whether its newest end was a failure; it may run again since."""
    return pod.phase is PodPhase.FAILED or bool(pod.exit_code)


def failed_before(pod: PodChanged) -> bool:
    """Whether that end was of the container before the present one."""
    return has_failed(pod) and pod.restarts > 0 and not pod.phase.ended


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more if names else "none yet"
