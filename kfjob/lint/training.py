"""Rules about the arguments of kfjob's own trainer that only the whole job shows to be wrong."""

from __future__ import annotations

import math
from collections.abc import Iterator

from kfjob.lint.job import Job
from kfjob.lint.rules import Violation, rule
from kfjob.spec.train import resolve_final_lr


def _worlds(job: Job) -> tuple[int, ...]:
    """The numbers of ranks that the job may have, the fewest first; none where only the nodes know."""
    if job.processes is None:
        return ()
    return tuple(nodes * job.processes for nodes in range(job.plan.min_nodes, job.plan.max_nodes + 1))


@rule("single-process", "error", local=True)
def single_process(job: Job) -> Iterator[Violation]:
    """Strategy `none` is one process.

    The trainer refuses to start: each process would train a model of its own and write over the others' checkpoints.
    """
    train, worlds = job.spec.train, _worlds(job)
    if train and train.strategy == "none" and worlds and worlds[-1] > 1:
        message = f"strategy `none` is a single process, the job has {worlds[-1]}"
        yield Violation(path="train.strategy", message=message, hint="use `fsdp` or `ddp`")


@rule("lanes", "warning", local=True)
def lanes(job: Job) -> Iterator[Violation]:
    """Lanes of streamed text can be divided among the ranks, for every number of them.

    The trainer reads text in as many parts as `lanes` says, so that a run can go on with another number of ranks. It refuses a
    number that they cannot be divided among, at the start or after a pod was lost. Tokenised data has no lanes.
    """
    train = job.spec.train
    bad = [world for world in _worlds(job) if train and train.lanes % world]
    if train and bad:
        yield Violation(
            path="train.lanes",
            message=f"{train.lanes} lanes cannot be divided among {bad[0]} ranks",
            hint=_lanes_hint(train.lanes, _worlds(job)),
        )


def _lanes_hint(now: int, worlds: tuple[int, ...]) -> str:
    enough = math.lcm(now, *worlds)
    return f"`lanes: {enough}` serves" if enough <= 64 * now else "choose numbers of nodes with a small common multiple"


@rule("rate-never-falls", "warning", local=True)
def rate_never_falls(job: Job) -> Iterator[Violation]:
    """A schedule that falls needs somewhere to fall to.

    With `min_lr` equal to `lr` every schedule is constant after the warm-up.
    """
    train = job.spec.train
    if train and train.schedule != "constant" and resolve_final_lr(train) == train.lr:
        message = f"`min_lr` equals `lr`, so the {train.schedule} schedule never falls"
        yield Violation(path="train.min_lr", message=message, hint="lower `min_lr`, or say `schedule: constant`")
