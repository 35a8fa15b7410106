"""Rules for the arguments of kfjob's own trainer that depend on the whole job."""

from __future__ import annotations

import math
from collections.abc import Iterator

from kfjob.lint.job import Job
from kfjob.lint.rules import Violation, rule
from kfjob.spec.train import resolve_final_lr
from kfjob.text import plural


def _world_sizes(job: Job) -> tuple[int, ...]:
    """Return the possible numbers of ranks in ascending order; none if only the nodes know them."""
    if job.processes is None:
        return ()
    return tuple(nodes * job.processes for nodes in range(job.plan.min_nodes, job.plan.max_nodes + 1))


@rule("single-process", "error", local=True)
def single_process(job: Job) -> Iterator[Violation]:
    """A job with strategy `none` has one process.

    The trainer refuses to start otherwise: each process would train its own model and overwrite the checkpoints of the others.
    """
    train, worlds = job.spec.train, _world_sizes(job)
    if train and train.strategy == "none" and worlds and worlds[-1] > 1:
        message = f"strategy `none` needs a single process, and the job has {worlds[-1]}"
        yield Violation(path="train.strategy", message=message, hint="use `fsdp` or `ddp`")


@rule("lanes", "warning", local=True)
def lanes(job: Job) -> Iterator[Violation]:
    """The lanes of streamed text can be divided among every possible number of ranks.

    The trainer splits text into `lanes` parts, so that a run can continue with another number of ranks. It refuses a number of
    ranks that does not divide them, at the start or after it lost an agent. Tokenised data has no lanes.
    """
    train = job.spec.train
    bad = [world for world in _world_sizes(job) if train and train.lanes % world]
    if train and bad:
        yield Violation(
            path="train.lanes",
            message=f"{plural(train.lanes, 'lane')} cannot be divided among {plural(bad[0], 'rank')}",
            hint=_lanes_hint(train.lanes, _world_sizes(job)),
        )


def _lanes_hint(lanes: int, worlds: tuple[int, ...]) -> str:
    multiple = math.lcm(lanes, *worlds)
    return f"use `lanes: {multiple}`" if multiple <= 64 * lanes else "choose numbers of nodes with a small common multiple"


@rule("constant-learning-rate", "warning", local=True)
def rate_never_falls(job: Job) -> Iterator[Violation]:
    """`min_lr` is lower than `lr` for a schedule that decreases.

    Otherwise the learning rate is constant after the warm-up.
    """
    train = job.spec.train
    if train and train.schedule != "constant" and resolve_final_lr(train) == train.lr:
        message = f"`min_lr` equals `lr`, so the {train.schedule} schedule is constant"
        yield Violation(path="train.min_lr", message=message, hint="lower `min_lr`, or set `schedule: constant`")
