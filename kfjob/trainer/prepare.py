"""Prepares a run from top to bottom: the data, the model, the trackers, and the state of the checkpoint."""

from __future__ import annotations

import os
from contextlib import ExitStack
from typing import Any

import torch
from torch import nn

from kfjob.base.errors import KfjobError
from kfjob.base.text import join_names, plural
from kfjob.trainer import metrics
from kfjob.trainer.base_model import check_base, describe_base, identify_base
from kfjob.trainer.checkpoint import load_checkpoint, parameter_shapes, prepare_storage
from kfjob.trainer.checkpoint_writer import open_checkpoint_writer
from kfjob.trainer.data.sources import CONTENT_KEYS, RunData, is_same_data, open_data
from kfjob.trainer.data.stream import SampleStream
from kfjob.trainer.device_defaults import choose_device_defaults, find_slow_precision
from kfjob.trainer.distributed import Ranks
from kfjob.trainer.experts import get_router_factor
from kfjob.trainer.lease import hold_lease
from kfjob.trainer.manifest import Manifest
from kfjob.trainer.metrics import log
from kfjob.trainer.model import build_model
from kfjob.trainer.model_settings import read_settings
from kfjob.trainer.optim import ReduceOnPlateau
from kfjob.trainer.profiler import explain_out_of_memory
from kfjob.trainer.progress import Progress, record_outcome
from kfjob.trainer.redact import redact_urls
from kfjob.trainer.resume import describe_changes, find_checkpoint
from kfjob.trainer.shapes import count_frozen
from kfjob.trainer.stop_request import StopRequest
from kfjob.trainer.storage import Checkpoint, open_storage
from kfjob.trainer.strategies import describe_strategy, make_strategy
from kfjob.trainer.trackers import open_trackers
from kfjob.trainer.training_run import TrainingRun, compute_total_steps
from kfjob.trainspec.defaults import resolve_precision
from kfjob.trainspec.train_spec import TrainSpec, resolve_eval_batch_size, resolve_micro_batch_size


def prepare_run(
    spec: TrainSpec, ranks: Ranks, stop: StopRequest, startup: metrics.StartupTimer, progress: Progress, *, stack: ExitStack
) -> TrainingRun:
    """Prepare everything up to the next step, and log its lines; `stack` closes what is opened.

    Raises:
        KfjobError: an error of the spec, the data or the checkpoint that the user can fix.
    """
    # The folder of the checkpoints, in which no other run records an outcome from here on.
    storage = open_storage(spec.checkpoint_dir) if spec.checkpoint_dir else None
    lease = stack.enter_context(hold_lease(storage, ranks, os.getpid())) if storage else None
    check_lease = lease.check if lease else None
    if storage:
        stack.enter_context(record_outcome(progress, storage, ranks))
        prepare_storage(storage, ranks, check_lease=check_lease)

    # The data and the checkpoint. Errors of the spec and the data appear here, before any computation.
    _check_log_rank(spec, ranks)
    ranks = ranks.share_samples(spec.context_parallel)
    spec = resolve_precision(spec, ranks.device.type)
    strategy = make_strategy(spec, ranks)
    with ranks.fail_together():
        data = open_data(spec, rank=ranks.data_rank, world_size=ranks.data_world_size)
    pins = stack.enter_context(ExitStack())
    start = find_checkpoint(spec.resume, storage, ranks, continues=spec.continues, pins=pins)
    if start and start.storage == storage:
        progress.note_commit(start)
    global_batch = _compute_global_batch(spec, start, ranks)
    defaults = choose_device_defaults(spec, ranks, samples=global_batch // ranks.data_world_size)
    asked, spec = spec, defaults.spec
    stack.enter_context(explain_out_of_memory(spec, ranks))
    if start and is_same_data(start.manifest.data_identity, data.identity):
        with ranks.fail_together():
            _seek(data.train, start)
    progress.position = data.train.position()
    total_steps = compute_total_steps(spec, data.train, global_batch, start.manifest.step if start else 0)
    startup.lap("data")

    # The model and the optimiser.
    with ranks.fail_together():
        model = build_model(
            spec, strategy, ranks.device, vocab_size=data.vocab_size, resumes=start is not None, context=ranks.context
        )
    optimizer = strategy.make_optimizer(model)
    state = strategy.checkpoint_state(model, optimizer)
    manifest = _describe_run(asked, ranks, model, data, global_batch)
    startup.lap("model")

    # The trackers and the checkpoint writer, then the state of the checkpoint.
    with ranks.fail_together():
        trackers = stack.enter_context(open_trackers(spec, log_rank=ranks.rank == spec.log_rank, total_steps=total_steps))
    writer = None
    if storage:
        on_commit = (progress.note_commit, trackers.log_checkpoint)
        writer = stack.enter_context(
            open_checkpoint_writer(spec, storage, state, ranks, before_commit=check_lease, on_commit=on_commit)
        )
    run = TrainingRun(
        spec=spec,
        ranks=ranks,
        stop=stop,
        data=data,
        eval_batch_size=resolve_eval_batch_size(asked),
        model=model,
        optimizer=optimizer,
        strategy=strategy,
        state=state,
        plateau=ReduceOnPlateau(spec.plateau_patience, spec.plateau_factor),
        trackers=trackers,
        writer=writer,
        manifest=manifest,
        progress=progress,
    )
    _log_start(run, start, total_steps)
    for choice in defaults.choices:
        log.info(metrics.default_line(choice))
    if start:
        check_base(start, manifest.base)
        load_checkpoint(start, model, state, ranks, trusted=spec.trust_checkpoint)
        pins.close()
        run.restore(start)
        _log_changes(asked, start, data, manifest.model_settings)
    startup.lap("resume")
    return run


def _check_log_rank(spec: TrainSpec, ranks: Ranks) -> None:
    if spec.log_rank >= ranks.world_size:
        title = f"`log_rank: {spec.log_rank}` does not exist in a run of {plural(ranks.world_size, 'rank')}"
        raise KfjobError(title, location="log_rank")


def _describe_run(spec: TrainSpec, ranks: Ranks, model: nn.Module, data: RunData, global_batch: int) -> Manifest:
    """Return the manifest of the run before its first step; `TrainingRun.save` adds what changes."""
    return Manifest(
        step=0,
        loss=None,
        run_id=ranks.run_id,
        agents=list(ranks.agents),
        global_batch=global_batch,
        parameters=parameter_shapes(model),
        model_settings=read_settings(model),
        base=identify_base(spec, ranks),
        data_identity=data.identity,
        data_position={},
        spec=redact_urls(spec.model_dump(mode="json")),
        torch_version=torch.__version__,
    )


def _log_start(run: TrainingRun, start: Checkpoint | None, total_steps: int) -> None:
    spec, manifest = run.spec, run.manifest
    line = metrics.start_line(
        model=spec.model if isinstance(spec.model, str) else spec.model.architecture,
        parameters=manifest.count_parameters(),
        strategy=describe_strategy(spec),
        world_size=run.ranks.world_size,
        global_batch=run.global_batch,
        total_steps=total_steps,
    )
    log.info(line)
    if manifest.base:
        trained = manifest.count_parameters() - count_frozen(run.model)
        log.info(metrics.adapters_line(trained, describe_base(manifest.base)))
    if factor := get_router_factor(run.model):
        log.info(metrics.router_line(factor))
    log.info(metrics.resume_line(start.name if start else None, start.path if start else None))
    if start and start.manifest.step >= total_steps:
        log.info("Note step %s of %s is done: raise `max_steps` or `epochs` to train on", start.manifest.step, total_steps)
    if run.writer is None:
        log.info("Note this run writes no checkpoint: `checkpoint_dir` is not set")
    if warning := find_slow_precision(spec, run.ranks.device):
        log.warning(warning)


def _log_changes(spec: TrainSpec, start: Checkpoint, data: RunData, settings: dict[str, Any]) -> None:
    if changes := describe_changes(start, spec, settings):
        log.info(metrics.changes_line(start.name, changes))
    stored = start.manifest.data_identity
    if is_same_data(stored, data.identity):
        if missing := [name for name in CONTENT_KEYS if name in data.identity and name not in stored]:
            log.info("Note %s is of an earlier version: the %s of the data is not compared", start.name, join_names(missing))
    else:
        log.warning("Data differs from what %s was trained on: it is read from its beginning", start.name)


def _seek(stream: SampleStream, start: Checkpoint) -> None:
    """Continue at the position of a checkpoint.

    Raises:
        KfjobError: it is none, or this number of ranks cannot continue there.
    """
    try:
        stream.seek(start.manifest.data_position)
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        cause = f"{type(error).__name__}: {error}"
        raise KfjobError(f"`{start.path}` holds no valid data position", location="resume", cause=cause) from error


def _compute_global_batch(spec: TrainSpec, start: Checkpoint | None, ranks: Ranks) -> int:
    """Return the samples in an optimiser step. A run that only resumes on another number of ranks keeps its global batch."""
    micro_batches = resolve_micro_batch_size(spec) * ranks.data_world_size
    from_spec = micro_batches * spec.gradient_accumulation_steps
    if start is None or start.manifest.global_batch == from_spec:
        return from_spec
    previous = TrainSpec.model_construct(**start.manifest.spec)  # earlier versions allowed other values
    settings = (resolve_micro_batch_size(spec), spec.gradient_accumulation_steps)
    if (resolve_micro_batch_size(previous), previous.gradient_accumulation_steps) != settings:
        return from_spec
    if start.manifest.global_batch % micro_batches:
        raise KfjobError(
            f"a global batch of {start.manifest.global_batch} samples cannot be kept with {plural(ranks.world_size, 'rank')}",
            cause=f"{start.name} was written with it, and a micro-batch on every rank is {plural(micro_batches, 'sample')}",
            hint="change micro_batch_size or gradient_accumulation_steps to choose a new one",
        )
    accumulation = start.manifest.global_batch // micro_batches
    log.info(metrics.kept_batch_line(start.name, start.manifest.global_batch, accumulation, spec.gradient_accumulation_steps))
    return start.manifest.global_batch
