"""The command `estimate`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from kfjob.base.text import plural
from kfjob.cli.options import Settings, notify, output_option, target_options
from kfjob.cli.output import hide_secrets, print_json
from kfjob.cli.spec_options import spec_argument

if TYPE_CHECKING:
    from kfjob.api.job_files import JobFiles
    from kfjob.api.specs.estimate import Estimate


@click.command()
@spec_argument
@click.option(
    "--tokens-per-second",
    type=click.FloatRange(min=0, min_open=True),
    metavar="N",
    help="Measured speed of the whole job.",
)
@click.option("--job", metavar="JOB", help="Use the speed that this job shows, running or ended.")
@click.option(
    "--mfu",
    type=click.FloatRange(0, 1, min_open=True),
    metavar="SHARE",
    help="Share of the GPUs' peak FLOPs, without a measured speed. Default: 0.4.",
)
@output_option("text", "json")
@target_options
def estimate(
    *,
    files: JobFiles,
    tokens_per_second: float | None,
    job: str | None,
    mfu: float | None,
    output: str,
    settings: Settings,
) -> None:
    """Estimate the memory, the time and the GPU hours of a training.

    The table compares the memory of a GPU with every strategy: DP, DDP, the stages of ZeRO, and FSDP. Nothing is started,
    and no GPU is needed.
    """
    from kfjob.api.specs.estimate import estimate as estimate_spec

    loaded = files.read_spec(hide=hide_secrets)
    result = estimate_spec(loaded, settings=settings, notify=notify, tokens_per_second=tokens_per_second, job=job, mfu=mfu)
    if output == "json":
        print_json(result.describe(), indent=2)
    else:
        click.echo("\n".join(_format(result)))


def _format(result: Estimate) -> Iterator[str]:
    from kfjob.trainspec.memory_table import describe_memory
    from kfjob.trainspec.model_shapes import count_embedding_parameters

    model = result.train.model if isinstance(result.train.model, str) else "the model"
    outside = result.parameters - count_embedding_parameters(result.shape)
    yield f"{model}: {result.parameters} parameters ({outside} without the embedding)"
    if result.world_size > 1:
        yield f"{-(-result.parameters // result.world_size)} of them per rank where {result.world_size} ranks share them"
    if result.train.lora:
        form = f", its linear layers in {result.train.lora.quantize}" if result.train.lora.quantize else ""
        yield f"{result.trained} trained parameters in adapters (lora); the model is frozen{form}"
    for choice in result.choices:
        yield f"default {choice.text}"
    yield ""
    yield from describe_memory(result.train, result.world_size, result.local_world_size)
    if result.gpus:
        yield ""
        yield from _format_gpu_memory(result)
    yield ""
    yield from _format_time(result)


def _format_gpu_memory(result: Estimate) -> Iterator[str]:
    from kfjob.base.units import GIB, format_gib
    from kfjob.trainspec.memory import RESERVED

    own = [f"; this one needs {format_gib(row.needed)}" for row in result.rows if row.is_own]
    yield f"a GPU needs {RESERVED // GIB} GiB more than the peak, for the CUDA context, NCCL and fragmentation{''.join(own)}"
    if result.gpu_memory:
        too_large = [row.name for row in result.rows if not result.fits(row)]
        yield f"a GPU has {format_gib(result.gpu_memory)}; too large: {', '.join(too_large) or 'none'}"
    if result.min_nodes < result.nodes:
        fewest = plural(result.min_nodes, "node")
        yield f"the table is for {plural(result.nodes, 'node')}; `kfjob validate` checks {fewest}, the fewest of this job"


def _format_time(result: Estimate) -> Iterator[str]:
    from kfjob.cli.formatting import format_duration

    yield f"{result.tokens_per_step} tokens per step"
    if result.tokens is None:
        yield "time: unknown, because `epochs` depends on the data; set `max_steps`"
        return
    yield f"{result.tokens} tokens in {plural(result.train.max_steps or 0, 'step')}"
    if result.speed is None or result.seconds is None:
        yield "time: unknown; give `--tokens-per-second`, `--job`, or an `instance` with GPUs"
        return
    hours = f", {result.gpu_hours:.1f} GPU hours" if result.gpu_hours is not None else ""
    yield f"speed: {result.speed.tokens_per_second:.0f} tokens/s ({result.speed.source})"
    yield f"time: {format_duration(result.seconds)}{hours}"
