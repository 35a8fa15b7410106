"""Which lines can matter at all: asked of raw lines, before an event is made of them.

A follower that only feeds the view (master, rounds, progress) may drop every other line. What that costs depends on how many
literals are looked for, so it pays to know the trainer: from the spec, or from `view.training.format` once a line was read
(`replace(config, trainer=…)`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kfjob.observe import milestones
from kfjob.observe.agent_log import HEADINGS
from kfjob.observe.config import ObserveConfig
from kfjob.observe.progress import KFJOB, reader

_AFTER = 40
"""Lines after a heading that are kept whatever they hold: what follows it may have no prefix to look for."""


def markers(config: ObserveConfig) -> tuple[str, ...]:
    """Literals of which one is in every line that can matter; empty when the caller's pattern has to be tried on every line.

    A plain block whose heading was rotated away is found by `AgentLog`, but not through these.
    """
    if config.trainer == KFJOB and config.progress_pattern is None:
        # our trainer needs a torch whose agent writes `api.py:552]`, as the trainer itself writes `train.py:18]`
        return (milestones.MARKER,) if config.rendezvous in {"c10d", "etcd-v2", "static"} else (milestones.MARKER, "endezvous")
    wanted = reader(config.trainer, config.progress_pattern).markers
    return tuple(dict.fromkeys(("elastic", "endezvous", *wanted))) if wanted else ()


class Sieve:
    """Keeps, out of one container's lines, those that can matter. One for each container: it knows where a heading was."""

    def __init__(self, config: ObserveConfig) -> None:
        """Look for what this job's lines may hold."""
        wanted = markers(config)
        self._keep = _keep(wanted) if wanted else list
        self._after = 0  # lines that are still to be kept

    def sift(self, lines: Sequence[str]) -> list[str]:
        """The lines of the next batch that can matter."""
        kept = self._keep(lines)
        if not self._after and not any(heading in line for line in kept for heading in HEADINGS):
            return kept
        return self._with_what_follows(lines, set(map(id, kept)))

    def _with_what_follows(self, lines: Sequence[str], kept: set[int]) -> list[str]:
        out = []
        for line in lines:
            if any(heading in line for heading in HEADINGS):
                self._after = _AFTER + 1
            if self._after or id(line) in kept:
                out.append(line)
            self._after = max(self._after - 1, 0)
        return out


def _keep(wanted: tuple[str, ...]) -> Callable[[Sequence[str]], list[str]]:
    """The scan, written out for as many literals as there are: a loop over them would cost five times as much."""
    match wanted:
        case (a,):
            return lambda lines: [line for line in lines if a in line]
        case (a, b):
            return lambda lines: [line for line in lines if a in line or b in line]
        case (a, b, c):
            return lambda lines: [line for line in lines if a in line or b in line or c in line]
        case (a, b, c, d):
            return lambda lines: [line for line in lines if a in line or b in line or c in line or d in line]
        case (a, b, c, d, e):
            return lambda lines: [line for line in lines if a in line or b in line or c in line or d in line or e in line]
    return lambda lines: [line for line in lines if any(marker in line for marker in wanted)]
