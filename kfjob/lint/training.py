"""Rules for the arguments of kfjob's own trainer that depend on the whole job."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator

from kfjob.base.text import plural
from kfjob.lint.job import Job
from kfjob.lint.rules import Violation, rule
from kfjob.trainspec.train_spec import TrainSpec, get_shape, resolve_final_lr


def _world_sizes(job: Job) -> tuple[int, ...]:
    """Return the possible numbers of ranks in ascending order; none if only the nodes know them."""
    if job.processes is None:
        return ()
    return tuple(nodes * job.processes for nodes in range(job.spec.min_nodes, job.spec.max_nodes + 1))


@rule("single-process", "error", local=True)
def single_process(job: Job) -> Iterator[Violation]:
    """A job with strategy `none` or `dp` has one process.

    The trainer refuses to start otherwise: each process would train its own model and overwrite the checkpoints of the others.
    """
    train, worlds = job.spec.train, _world_sizes(job)
    if train and train.strategy in ("none", "dp") and worlds and worlds[-1] > 1:
        message = f"strategy `{train.strategy}` needs a single process, and the job has {worlds[-1]}"
        one_node = ", or `processes_per_node: 1`" if train.strategy == "dp" and job.spec.max_nodes == 1 else ""
        yield Violation(path="train.strategy", message=message, hint=f"use `fsdp` or `ddp`{one_node}")


@rule("shard-groups", "error", local=True)
def shard_groups(job: Job) -> Iterator[Violation]:
    """The groups of hybrid sharding divide every possible number of ranks.

    FSDP makes groups of `shard_size` ranks, or of the ranks of a node, and the trainer refuses
    a number of ranks that has a rest.
    """
    train = job.spec.train
    if not train or train.strategy != "fsdp" or not train.sharding.startswith("hybrid") or not job.processes:
        return
    size = train.shard_size or job.processes
    for world in _world_sizes(job):
        if world % size:
            path = "train.shard_size" if train.shard_size else "train.sharding"
            message = f"{plural(world, 'rank')} cannot be divided into groups of {size}"
            yield Violation(path=path, message=message, hint="use a `shard_size` that divides the number of ranks")
            return


@rule("context-groups", "error", local=True)
def context_groups(job: Job) -> Iterator[Violation]:
    """The groups of ranks that share samples divide every possible number of ranks.

    With `context_parallel: 4` the trainer makes groups of four ranks, and refuses a number of ranks that has a rest.
    """
    train = job.spec.train
    bad = [world for world in _world_sizes(job) if train and world % train.context_parallel]
    if train and bad:
        message = f"{plural(bad[0], 'rank')} cannot be divided into groups of {train.context_parallel} that share samples"
        yield Violation(path="train.context_parallel", message=message, hint="use a divisor of the number of ranks")


@rule("log-rank", "error", local=True)
def log_rank(job: Job) -> Iterator[Violation]:
    """The rank that prints progress exists.

    The trainer refuses a `log_rank` that is not below the number of ranks. An elastic job needs it with the fewest agents too.
    """
    train, worlds = job.spec.train, _world_sizes(job)
    if train and worlds and train.log_rank >= worlds[0]:
        message = f"`log_rank: {train.log_rank}` does not exist in a run of {plural(worlds[0], 'rank')}"
        yield Violation(path="train.log_rank", message=message, hint=f"use a rank from 0 to {worlds[0] - 1}")


@rule("hub-tokenizer", "error", local=True)
def hub_tokenizer(job: Job) -> Iterator[Violation]:
    """Text from the hub has a tokenizer.

    A preset or a shape has no tokenizer, and a data set on the hub brings none. The trainer stops before its first step.
    """
    train = job.spec.train
    if train and _is_on_hub(train) and not train.tokenizer and get_shape(train):
        message = f"the text of `{train.data}` needs a tokenizer, and a preset or a shape has none"
        yield Violation(path="train.data", message=message, hint="set `train.tokenizer` to a folder with tokenizer.json")


def _is_on_hub(train: TrainSpec) -> bool:
    """Return whether `data` is surely a data set on the hub; a relative folder can have the same form."""
    is_name = re.fullmatch(r"[\w.-]+/[\w.-]+", train.data) is not None and train.data[0] != "."
    return is_name and bool(train.data_config or train.data_revision)


@rule("lanes", "warning", local=True)
def lanes(job: Job) -> Iterator[Violation]:
    """The lanes of streamed text can be divided among every possible number of ranks.

    The trainer splits text into `lanes` parts, so that a run can continue with another number of ranks. It refuses a number of
    ranks that does not divide them, at the start or after it lost an agent. Tokenised data has no lanes.
    """
    train = job.spec.train
    sharers = train.context_parallel if train else 1
    groups = tuple(world // sharers for world in _world_sizes(job) if world % sharers == 0)
    bad = [group for group in groups if train and train.lanes % group]
    if train and bad:
        readers = plural(bad[0], "rank") if sharers == 1 else f"{plural(bad[0], 'group')} of ranks that share samples"
        yield Violation(
            path="train.lanes",
            message=f"{plural(train.lanes, 'lane')} cannot be divided among {readers}",
            hint=_lanes_hint(train.lanes, groups),
        )


def _lanes_hint(lanes: int, worlds: tuple[int, ...]) -> str:
    multiple = math.lcm(lanes, *worlds)
    return f"use `lanes: {multiple}`" if multiple <= 64 * lanes else "choose numbers of nodes with a small common multiple"


_TYPICAL_WEIGHT = 0.02
"""The standard deviation with which transformers initialises most matrices."""
_BF16_HALF_SPACING = 2**-8
"""The largest relative error of a value that is rounded to bf16."""


@rule("lost-updates", "warning", local=True)
def lost_updates(job: Job) -> Iterator[Violation]:
    """Weights in bf16 are not rounded to the nearest value if the learning rate is small.

    A step of Adam changes a weight by about `lr`. A weight of 0.02 in bf16 stays the same if it changes by less than 8e-5, so
    most weights never move. Stochastic rounding keeps the average of the updates.
    """
    train = job.spec.train
    smallest = _TYPICAL_WEIGHT * _BF16_HALF_SPACING
    if train and train.precision == "bf16-true" and train.rounding == "nearest" and train.lr < smallest:
        message = f"with `rounding: nearest`, steps of `lr` {train.lr:g} do not change most weights in bf16"
        yield Violation(path="train.rounding", message=message, hint="remove `rounding`, or use `precision: bf16`")


@rule("constant-rate", "warning", local=True)
def constant_rate(job: Job) -> Iterator[Violation]:
    """A schedule that lowers the learning rate has a lower rate to end at.

    With `min_lr` equal to `lr`, no schedule changes the rate after the warm-up.
    """
    train = job.spec.train
    if train and train.schedule in ("cosine", "linear", "exponential", "wsd") and resolve_final_lr(train) == train.lr:
        message = f"`min_lr` and `lr` are both {train.lr:g}, so the learning rate does not decay"
        yield Violation(path="train.min_lr", message=message, hint="lower `min_lr`, or set `schedule: constant`")


@rule("adapters-of-new-weights", "warning", local=True)
def adapters_of_new_weights(job: Job) -> Iterator[Violation]:
    """Adapters (`lora`) are trained on a model with pretrained weights.

    A preset or a shape gets new random weights. They stay as they are, and adapters of them learn little.
    """
    train = job.spec.train
    if train and train.lora and get_shape(train):
        subject = f"`model: {train.model}`" if isinstance(train.model, str) else "a shape"
        hint = "set `train.model` to a folder with weights, or to a model on the hub (`owner/name`)"
        yield Violation(path="train.model", message=f"{subject} has new random weights, which `lora` freezes", hint=hint)
