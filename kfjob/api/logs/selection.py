"""Select pods of a job by name, node, global rank or failure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from msgspec import Struct

from kfjob.base.errors import NotFound, UsageError
from kfjob.base.text import join_names
from kfjob.joblog.events import PodChanged, PodPhase
from kfjob.joblog.master.evidence import format_ranks
from kfjob.joblog.pods.pod_view import PodView
from kfjob.joblog.view.job_view import JobView

LAST = -1
"""Stands for the last rank."""

_RANKS = re.compile(r"(\d+)(?:-(\d+))?")


class PodSelection(Struct, frozen=True, kw_only=True):
    """The pods that any of the first three fields names; with `failed`, only those that have failed. Empty: every pod."""

    pods: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()
    ranks: tuple[tuple[int, int], ...] = ()  # first and last rank of each range, `LAST` for the last rank
    failed: bool = False

    @property
    def names_pods(self) -> bool:
        """Whether the selection names pods, nodes or ranks."""
        return bool(self.pods or self.nodes or self.ranks)

    def select(self, pods: Iterable[PodChanged], view: JobView | None = None) -> tuple[PodChanged, ...]:
        """Return the selected pods. `view` is needed for ranks only.

        Raises:
            NotFound: the job has no such pod, node or rank, or no pod has failed.
        """
        job_pods = tuple(pods)
        names = set(self.pods) | self._on_nodes(job_pods) | (self._with_ranks(view) if view and self.ranks else set())
        if unknown := [name for name in self.pods if name not in {pod.pod for pod in job_pods}]:
            known = join_names((pod.pod for pod in job_pods), empty="none yet")
            raise NotFound(f"the job has no pod `{unknown[0]}`", hint=f"its pods: {known}")
        selected = tuple(pod for pod in job_pods if not self.names_pods or pod.pod in names)
        if self.failed and not (selected := tuple(pod for pod in selected if has_failed(pod))):
            raise NotFound("no pod of the job has failed")
        return selected

    def _on_nodes(self, pods: Sequence[PodChanged]) -> set[str]:
        nodes = {pod.node for pod in pods if pod.node}
        if unknown := [node for node in self.nodes if node not in nodes]:
            hint = f"its nodes: {join_names(sorted(nodes), empty='none yet')}"
            raise NotFound(f"no pod of the job is on node `{unknown[0]}`", hint=hint)
        return {pod.pod for pod in pods if pod.node in self.nodes}

    def _with_ranks(self, view: JobView) -> set[str]:
        pods_by_rank, last_rank = _assign_ranks(view)
        if not pods_by_rank:
            raise NotFound(
                "the ranks of the pods are not known yet",
                cause="no agent has printed the result of a rendezvous",
                hint="select pods with `--pod`",
            )
        names = set()
        for first, last in self.ranks:
            for rank in range(last_rank if first == LAST else first, (last_rank if last == LAST else last) + 1):
                if rank not in pods_by_rank:
                    raise NotFound(
                        f"no pod of the job is known to have rank {rank}", hint=f"known ranks: {format_ranks(pods_by_rank)}"
                    )
                names.add(pods_by_rank[rank])
        return names


def parse_ranks(text: str) -> tuple[tuple[int, int], ...]:
    """Parse ranks and ranges of ranks, such as `0,8-15,last`.

    Raises:
        UsageError: the text has another form.
    """
    ranges = []
    for part in text.split(","):
        match = _RANKS.fullmatch(part.strip())
        if part.strip() == "last":
            ranges.append((LAST, LAST))
        elif match and int(match[2] or match[1]) >= int(match[1]):
            ranges.append((int(match[1]), int(match[2] or match[1])))
        else:
            raise UsageError(f"`{part}` is not a rank", hint="write for example `--rank 0,8-15,last`")
    return tuple(ranges)


def has_failed(pod: PodChanged) -> bool:
    """Return whether the pod's last container that ended has failed; the pod may run again."""
    return pod.phase is PodPhase.FAILED or bool(pod.exit_code)


def has_restarted_after_failure(pod: PodChanged) -> bool:
    """Return whether the pod runs again after a failure, so that the log of the failure is the previous container's."""
    return has_failed(pod) and pod.restarts > 0 and not pod.phase.ended


def _assign_ranks(view: JobView) -> tuple[dict[int, str], int]:
    """Return the pod of each global rank, and the last rank. The newest result counts: an elastic job assigns ranks again."""

    def age(pod: PodView) -> tuple[int, int]:
        line = pod.log.result_line
        return (line.resolve_time(view.reference_time) or 0, line.order) if line else (0, 0)

    pods = sorted((pod for pod in view.pods.values() if pod.global_ranks), key=age)
    pods_by_rank = {rank: pod.name for pod in pods for rank in pod.global_ranks}
    world_sizes = [pod.log.result.global_world_sizes[0] for pod in pods if pod.log.result and pod.log.result.global_world_sizes]
    last_rank = world_sizes[-1] - 1 if world_sizes else max(pods_by_rank, default=0)
    return {rank: pod for rank, pod in pods_by_rank.items() if rank <= last_rank}, last_rank
