"""The last line and the newest step of each rank, from the newest lines of its pod."""

from __future__ import annotations

from collections.abc import Iterator

from kfjob.joblog.agents.agent_log import find_agent_message
from kfjob.joblog.diagnose.activity import MAX_LENGTH, find_count
from kfjob.joblog.diagnose.job_evidence import JobEvidence
from kfjob.joblog.diagnose.occurrences import PodHistory
from kfjob.joblog.diagnose.ranks import find_rank
from kfjob.joblog.view.silence import MAX_TEXT, LastLine
from kfjob.redaction import cut_text


def read_rank_lines(job: JobEvidence) -> Iterator[LastLine]:
    """Yield the last line of each rank of the live pods; a pod whose lines name no rank has one."""
    for name, history in job.history.pods.items():
        if name in job.view.pods and job.view.pods[name].live:
            lines = list(_read_pod(name, history))
            printed = {line.rank for line in lines}
            silent = [rank for rank in job.view.pods[name].global_ranks if rank not in printed]
            yield from lines
            if not lines:
                yield LastLine(pod=name, rank=silent[0] if len(silent) == 1 else None)
            elif None not in printed:
                yield from (LastLine(pod=name, rank=rank) for rank in silent)


def _read_pod(name: str, history: PodHistory) -> Iterator[LastLine]:
    last: dict[int | None, tuple[int | None, str]] = {}
    steps: dict[int | None, int] = {}
    for time, text in history.recent.dated_texts():
        rank = find_rank(text, history.ranks) if text.strip() else None
        if not text.strip() or (rank in steps and rank in last) or find_agent_message(text) is not None:
            continue
        last.setdefault(rank, (time, text.strip()))
        step = None if "epoch" in text.lower() else find_count(text[-MAX_LENGTH:])  # a step may count within its epoch
        if rank not in steps and step is not None:
            steps[rank] = int(step)
    if history.ranks and last.keys() >= set(history.ranks):
        last.pop(None, None)  # lines of the agent
    for rank, (time, text) in sorted(last.items(), key=lambda item: item[0] or 0):
        yield LastLine(pod=name, rank=rank, step=steps.get(rank), text=cut_text(text, MAX_TEXT), time=time)
