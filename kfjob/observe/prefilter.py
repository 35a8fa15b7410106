"""Which lines can matter at all: asked of raw lines, before an event is made of them.

A follower that only feeds the view (master, rounds, progress) may drop every other line. What that costs depends on how many
literals are looked for, so it pays to know the trainer: from the spec, or from `view.training.format` once a line was read
(`replace(config, trainer=…)`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kfjob.observe import milestones
from kfjob.observe.agent_log import HEADING
from kfjob.observe.config import ObserveConfig
from kfjob.observe.progress import KFJOB, reader
from kfjob.observe.rendezvous import FIELDS

Sieve = Callable[[Sequence[str]], list[str]]

_BLOCK = 4 * len(FIELDS)
"""Lines after a heading that are kept whatever they hold: the plain form of a block (torch 2.0) has no prefix to look for."""


def markers(config: ObserveConfig) -> tuple[str, ...]:
    """Literals of which one is in every line that can matter; empty when the caller's pattern has to be tried on every line.

    A plain block whose heading was rotated away is found by `AgentLog`, but not through these.
    """
    if config.trainer == KFJOB and config.progress_pattern is None:
        # our trainer needs a torch whose agent writes `api.py:552]`, as the trainer itself writes `train.py:18]`
        return (milestones.MARKER,) if config.rendezvous in {"c10d", "etcd-v2", "static"} else (milestones.MARKER, "endezvous")
    wanted = reader(config.trainer, config.progress_pattern).markers
    return tuple(dict.fromkeys(("elastic", "endezvous", *wanted))) if wanted else ()


def sieve(config: ObserveConfig) -> Sieve:
    """A function that keeps, out of a batch of one container's lines, those that can matter."""
    wanted = markers(config)
    if not wanted:
        return list
    keep = _keep(wanted)

    def sift(lines: Sequence[str]) -> list[str]:
        kept = keep(lines)
        if not any(HEADING in line for line in kept):
            return kept
        numbers = {i + after for i, line in enumerate(lines) if HEADING in line for after in range(_BLOCK)}
        hits = set(map(id, kept))
        return [line for i, line in enumerate(lines) if i in numbers or id(line) in hits]

    return sift


def _keep(wanted: tuple[str, ...]) -> Sieve:
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
