"""The training run, from top to bottom."""

from __future__ import annotations

import os
from contextlib import ExitStack
from functools import partial

import torch
from torch import nn

from kfjob.errors import KfjobError
from kfjob.spec.train import TrainSpec, resolve_eval_batch_size, resolve_micro_batch_size
from kfjob.text import join_names, plural
from kfjob.trainer import flops, metrics
from kfjob.trainer.anomalies import AnomalyDetector
from kfjob.trainer.base_model import check_base, describe_base, identify_base
from kfjob.trainer.checkpoint import Checkpoint, load_checkpoint, parameter_shapes, prepare_storage, read_attention
from kfjob.trainer.checkpoint_writer import open_checkpoint_writer
from kfjob.trainer.data.prefetch import Prefetcher
from kfjob.trainer.data.sources import CONTENT_KEYS, RunData, is_same_data, open_data
from kfjob.trainer.data.stream import SampleStream
from kfjob.trainer.device_defaults import choose_device_defaults
from kfjob.trainer.distributed import Ranks
from kfjob.trainer.evaluate import Evaluation, evaluate, is_evaluation_due
from kfjob.trainer.experts import get_router_factor
from kfjob.trainer.garbage import collect_by_schedule, collect_if_due
from kfjob.trainer.lease import hold_lease
from kfjob.trainer.manifest import Manifest
from kfjob.trainer.metrics import Outcome, log
from kfjob.trainer.model import build_model
from kfjob.trainer.optim import ReduceOnPlateau, compute_learning_rate, set_learning_rate
from kfjob.trainer.profiler import StepProfiler, explain_out_of_memory
from kfjob.trainer.progress import Progress
from kfjob.trainer.redact import redact_urls
from kfjob.trainer.resume import describe_changes, find_checkpoint, roll_back
from kfjob.trainer.shapes import count_frozen
from kfjob.trainer.step import Stepper
from kfjob.trainer.stop_request import StopRequest
from kfjob.trainer.storage import open_storage
from kfjob.trainer.strategies import describe_strategy, log_communication, make_strategy
from kfjob.trainer.trackers import Trackers, open_trackers


def train(spec: TrainSpec, ranks: Ranks, stop: StopRequest, startup: metrics.StartupTimer) -> Outcome:
    """Train until the last step, or until a rank requests a stop; every rank calls this. On return every save is complete.

    Raises:
        KfjobError: an error that the user can fix.
    """
    with ExitStack() as stack:
        return _train(spec, ranks, stop, startup, stack)


def _train(  # noqa: C901, PLR0912, PLR0915 -- one straight line of steps, on purpose
    spec: TrainSpec, ranks: Ranks, stop: StopRequest, startup: metrics.StartupTimer, stack: ExitStack
) -> Outcome:
    _check_log_rank(spec, ranks)
    ranks = ranks.share_samples(spec.context_parallel)

    # The data and the checkpoint. Errors of the spec and the data appear here, before any computation.
    storage = open_storage(spec.checkpoint_dir) if spec.checkpoint_dir else None
    strategy = make_strategy(spec, ranks)
    with ranks.fail_together():
        data = open_data(spec, rank=ranks.data_rank, world_size=ranks.data_world_size)
    lease = stack.enter_context(hold_lease(storage, ranks, os.getpid())) if storage else None
    if storage:
        prepare_storage(storage, ranks)
    pins = stack.enter_context(ExitStack())
    start = find_checkpoint(spec.resume, storage, ranks, pins=pins)
    global_batch = _compute_global_batch(spec, start, ranks)
    defaults = choose_device_defaults(spec, ranks, samples=global_batch // ranks.data_world_size)
    asked, spec = spec, defaults.spec
    micro_batch_size = resolve_micro_batch_size(spec)
    accumulation = global_batch // (micro_batch_size * ranks.data_world_size)
    stack.enter_context(explain_out_of_memory(spec, ranks))
    if start and is_same_data(start.manifest.data_identity, data.identity):
        with ranks.fail_together():
            _seek(data.train, start)
    total_steps = _compute_total_steps(spec, data.train, global_batch, start.manifest.step if start else 0)
    startup.lap("data")

    # The model and the optimiser.
    with ranks.fail_together():
        model = build_model(
            spec, strategy, ranks.device, vocab_size=data.vocab_size, resumes=start is not None, context=ranks.context
        )
    optimizer = strategy.make_optimizer(model)
    state = strategy.checkpoint_state(model, optimizer)
    plateau = ReduceOnPlateau(spec.plateau_patience, spec.plateau_factor)
    run = _describe_run(asked, ranks, model, data, global_batch)
    startup.lap("model")

    # The trackers and the checkpoint writer, then the state of the checkpoint.
    with ranks.fail_together():
        trackers = stack.enter_context(open_trackers(spec, log_rank=ranks.rank == spec.log_rank))
    writer = None
    if storage:
        check_lease = lease.check if lease else None
        writer = stack.enter_context(
            open_checkpoint_writer(spec, storage, state, ranks, before_commit=check_lease, on_commit=trackers.log_checkpoint)
        )
    make_evaluation = partial(
        _evaluate, spec=asked, model=model, data=data, plateau=plateau, ranks=ranks, trackers=trackers, stop=stop
    )
    _log_start(spec, ranks, run, start, total_steps, model=model)
    for choice in defaults.choices:
        log.info(metrics.default_line(choice))
    progress = Progress(run, writer, strategy, plateau, ranks, position=data.train.position(), evaluates=bool(data.validation))
    if start:
        check_base(start, run.base)
        load_checkpoint(start, model, state, ranks, trusted=spec.trust_checkpoint)
        pins.close()
        progress.restore(start)
        _log_changes(asked, start, data)
    startup.lap("resume")

    # The steps.
    anomalies = AnomalyDetector(spec)
    stepper = Stepper(
        model=model, optimizer=optimizer, strategy=strategy, anomalies=anomalies, stop=stop, ranks=ranks, seed=spec.seed
    )
    throughput = _start_throughput(spec, ranks, model, run)
    profiler = stack.enter_context(StepProfiler(spec, ranks))
    stack.enter_context(log_communication(spec))
    stack.enter_context(collect_by_schedule())
    samples = stack.enter_context(Prefetcher(data.train, ranks.device, micro_batches=accumulation, size=micro_batch_size))
    rolled_back_to: int | None = None
    stop_reason, save_due = None, False
    while True:
        # Evaluate and save what the last step, or an interrupted run, has left to do.
        with throughput.excluded():
            if progress.evaluation_due:
                stop_reason = make_evaluation(progress.step)
                if not stop_reason:
                    progress.end_evaluation()
            if save_due:
                progress.save()
        if stop_reason or progress.step >= total_steps:
            break
        step = progress.step + 1
        profiler.begin_step(step)
        collect_if_due(progress.step)
        last = step == total_steps
        log_due = last or startup.running or _is_due(step, spec.log_every)
        save_due = last or _is_due(step, spec.checkpoint_every)

        # Read the step's samples, and take the step.
        micro_batches = samples.next_step()
        lr = compute_learning_rate(progress.step, total_steps, spec, factor=plateau.factor)
        set_learning_rate(optimizer, lr)
        result = stepper.take(progress.step, micro_batches, judge=log_due or save_due)
        action, reason = result.verdict.action, result.verdict.reason
        if action == "stop":
            stop_reason = reason
            progress.loss = progress.loss if result.loss is None else result.loss
            break
        if action == "roll back":
            checkpoint = roll_back(writer, model, state, ranks, before=rolled_back_to if anomalies.roll_backs > 1 else None)
            log.warning("Step %s rolled back to %s: %s", step, checkpoint.name, reason)
            progress.restore(checkpoint)
            progress.pass_over(samples.position())
            rolled_back_to, save_due = progress.step, False
            total_steps = _compute_total_steps(spec, samples, global_batch, progress.step)
            continue
        progress.advance(samples.position())
        throughput.add_samples(global_batch)
        progress.evaluation_due = bool(data.validation) and (last or is_evaluation_due(step, spec, global_batch, samples))

        # Log.
        if action == "skip":
            log.warning("Step %s skipped: %s", step, reason)
        elif result.loss is not None:
            progress.loss = result.loss
            if log_due:
                _log_step(step, throughput.step_metrics(loss=result.loss, lr=lr, grad_norm=result.grad_norm), trackers)
        if startup.running:
            log.info(startup.line())
    if not progress.is_saved and (stop_reason or progress.step):  # a stop, or a start elsewhere without a step to take
        progress.save()

    return Outcome(
        outcome="stopped" if stop_reason else "finished",
        step=progress.step,
        loss=progress.loss,
        checkpoint=progress.saved.path if progress.saved else None,
        reason=stop_reason,
    )


def _check_log_rank(spec: TrainSpec, ranks: Ranks) -> None:
    if spec.log_rank >= ranks.world_size:
        title = f"`log_rank: {spec.log_rank}` does not exist in a run of {plural(ranks.world_size, 'rank')}"
        raise KfjobError(title, location="log_rank")


def _describe_run(spec: TrainSpec, ranks: Ranks, model: nn.Module, data: RunData, global_batch: int) -> Manifest:
    """Return the manifest of the run before its first step; `Progress.save` adds what changes."""
    return Manifest(
        step=0,
        loss=None,
        run_id=ranks.run_id,
        global_batch=global_batch,
        parameters=parameter_shapes(model),
        attention=read_attention(model),
        base=identify_base(spec, ranks),
        data_identity=data.identity,
        data_position={},
        spec=redact_urls(spec.model_dump(mode="json")),
        torch_version=torch.__version__,
    )


def _log_start(
    spec: TrainSpec, ranks: Ranks, run: Manifest, start: Checkpoint | None, total_steps: int, *, model: nn.Module
) -> None:
    line = metrics.start_line(
        model=spec.model if isinstance(spec.model, str) else spec.model.architecture,
        parameters=run.count_parameters(),
        strategy=describe_strategy(spec),
        world_size=ranks.world_size,
        global_batch=run.global_batch,
        total_steps=total_steps,
    )
    log.info(line)
    if run.base:
        log.info(metrics.adapters_line(run.count_parameters() - count_frozen(model), describe_base(run.base)))
    if factor := get_router_factor(model):
        log.info(metrics.router_line(factor))
    log.info(metrics.resume_line(start.name if start else None, start.path if start else None))


def _log_changes(spec: TrainSpec, start: Checkpoint, data: RunData) -> None:
    if changes := describe_changes(start, spec):
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


def _start_throughput(spec: TrainSpec, ranks: Ranks, model: nn.Module, run: Manifest) -> metrics.Throughput:
    parameters, frozen = run.count_parameters(), count_frozen(model)
    return metrics.Throughput(
        sequence_length=spec.sequence_length,
        devices=ranks.world_size,
        flops_per_token=flops.model_flops_per_token(model, parameters, spec.sequence_length, frozen=frozen),
        peak_flops=flops.device_peak_flops(spec, ranks.device),
    )


def _log_step(step: int, values: metrics.StepMetrics, trackers: Trackers) -> None:
    log.info(metrics.progress_line(step, loss=values.loss, speed=values.samples_per_second, lr=values.lr))
    log.info(metrics.metrics_line(step, values))
    trackers.log_metrics(step, **vars(values))


def _evaluate(
    step: int,
    *,
    spec: TrainSpec,
    model: nn.Module,
    data: RunData,
    plateau: ReduceOnPlateau,
    ranks: Ranks,
    trackers: Trackers,
    stop: StopRequest,
) -> str | None:
    """Evaluate and log the result; return the reason of a stop that interrupted it."""
    evaluation = evaluate(model, data.validation, batch_size=resolve_eval_batch_size(spec), ranks=ranks, stop=stop)
    if evaluation is None:
        return stop.ask(ranks)
    _log_evaluation(step, evaluation, trackers)
    plateau.step(evaluation.loss)
    return None


def _log_evaluation(step: int, evaluation: Evaluation, trackers: Trackers) -> None:
    log.info(metrics.evaluation_line(step, loss=evaluation.loss, tokens=evaluation.tokens))
    trackers.log_metrics(step, eval_loss=evaluation.loss, eval_tokens=evaluation.tokens)


def _is_due(step: int, interval: int) -> bool:
    return interval > 0 and step % interval == 0


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
    return start.manifest.global_batch


def _compute_total_steps(spec: TrainSpec, data: SampleStream | Prefetcher, global_batch: int, step: int) -> int:
    """Return the number of the last step: `max_steps` or the end of `epochs`, whichever is first.

    Epochs count samples: with another global batch, or after a roll-back, the run still ends where the data ends.
    """
    if spec.epochs is None or data.samples_per_epoch is None:
        return spec.max_steps or 0
    steps = step + max(0, spec.epochs * data.samples_per_epoch - data.samples_read) // global_batch
    if steps == 0:
        title = f"{plural(spec.epochs, 'epoch')} of data are smaller than one global batch of {plural(global_batch, 'sample')}"
        raise KfjobError(title, location="epochs")
    return min(steps, spec.max_steps or steps)
