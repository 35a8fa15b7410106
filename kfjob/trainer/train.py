"""The training loop, from top to bottom."""

from __future__ import annotations

from contextlib import ExitStack

from kfjob.trainer import flops, metrics
from kfjob.trainer.anomalies import AnomalyDetector
from kfjob.trainer.data.prefetch import Prefetcher
from kfjob.trainer.distributed import Ranks
from kfjob.trainer.evaluate import is_evaluation_due
from kfjob.trainer.garbage import collect_by_schedule, collect_if_due
from kfjob.trainer.metrics import Outcome, log
from kfjob.trainer.optim import compute_learning_rate, set_learning_rate
from kfjob.trainer.prepare import prepare_run
from kfjob.trainer.profiler import StepProfiler
from kfjob.trainer.progress import Progress
from kfjob.trainer.shapes import count_frozen
from kfjob.trainer.step import Stepper
from kfjob.trainer.stop_request import StopRequest
from kfjob.trainer.strategies import log_communication
from kfjob.trainer.trackers import Trackers
from kfjob.trainer.training_run import TrainingRun
from kfjob.trainspec.train_spec import TrainSpec, resolve_micro_batch_size


def train(
    spec: TrainSpec, ranks: Ranks, stop: StopRequest, startup: metrics.StartupTimer, progress: Progress | None = None
) -> Outcome:
    """Train until the last step, or until a rank requests a stop; every rank calls this. On return every save is complete.

    How the run ended is recorded beside its checkpoints.

    `progress` shows the caller what the run has reached, also if it fails.

    Raises:
        KfjobError: an error that the user can fix.
    """
    progress = progress or Progress()
    with ExitStack() as stack:
        run = prepare_run(spec, ranks, stop, startup, progress, stack=stack)
        progress.stop_reason = _train(run, startup, stack)
    return progress.make_outcome()


def _train(run: TrainingRun, startup: metrics.StartupTimer, stack: ExitStack) -> str | None:  # noqa: C901 -- a straight line
    """Take the steps; return the reason of a stop, None after the last step."""
    spec, progress, data = run.spec, run.progress, run.data
    samples = stack.enter_context(_open_prefetcher(run))
    anomalies = AnomalyDetector(spec)
    stepper = Stepper(
        model=run.model,
        optimizer=run.optimizer,
        strategy=run.strategy,
        anomalies=anomalies,
        stop=run.stop,
        ranks=run.ranks,
        seed=spec.seed,
    )
    throughput = _start_throughput(run)
    profiler = stack.enter_context(StepProfiler(spec, run.ranks))
    stack.enter_context(log_communication(spec))
    stack.enter_context(collect_by_schedule())
    total_steps, stop_reason = run.count_steps(samples), None
    while True:
        # Evaluate and save what the last step, or an interrupted run, has left to do.
        with throughput.excluded():
            if progress.evaluation_due:
                stop_reason = run.evaluate()
            if progress.save_due:
                run.save()
        if stop_reason or progress.step >= total_steps:
            break
        step = progress.step + 1
        last = step == total_steps
        log_due = last or startup.running or _is_due(step, spec.log_every)
        save_due = last or _is_due(step, spec.checkpoint_every)

        # Read the step's samples, and take the step.
        profiler.begin_step(step)
        collect_if_due(progress.step)
        micro_batches = samples.next_step()
        run.stop.has_begun = True
        lr = _set_learning_rate(run, total_steps)
        result = stepper.take(progress.step, micro_batches, judge=log_due or save_due)
        if result.stop_reason:
            stop_reason = result.stop_reason
            break
        action, reason = result.verdict.action, result.verdict.reason
        if action == "roll back":
            with throughput.excluded():
                checkpoint = run.roll_back(samples, repeated=result.verdict.repeated)
            log.warning("Step %s rolled back to %s: %s", step, checkpoint.name, reason)
            total_steps = run.count_steps(samples)
            continue
        progress.advance(
            samples.position(),
            loss=progress.loss if action == "skip" else result.loss,
            evaluation_due=bool(data.validation) and (last or is_evaluation_due(step, spec, run.global_batch, samples)),
            save_due=save_due,
        )
        throughput.add_samples(run.global_batch)

        # Log.
        if action == "skip":
            log.warning("Step %s skipped: %s", step, reason)
        elif log_due and result.loss is not None:
            _log_step(step, throughput.step_metrics(loss=result.loss, lr=lr, grad_norm=result.grad_norm), run.trackers)
        if startup.running:
            log.info(startup.line())

    # A stop saves what is not saved, and so does a start elsewhere that has no step to take.
    if progress.loss is None:
        progress.loss = stepper.read_loss()
    if not progress.is_saved and (stop_reason or progress.step):
        run.save()
    return stop_reason


def _open_prefetcher(run: TrainingRun) -> Prefetcher:
    size = resolve_micro_batch_size(run.spec)
    micro_batches = run.global_batch // (size * run.ranks.data_world_size)
    return Prefetcher(run.data.train, run.ranks.device, micro_batches=micro_batches, size=size)


def _set_learning_rate(run: TrainingRun, total_steps: int) -> float:
    lr = compute_learning_rate(run.progress.step, total_steps, run.spec, factor=run.plateau.factor)
    set_learning_rate(run.optimizer, lr)
    return lr


def _start_throughput(run: TrainingRun) -> metrics.Throughput:
    spec, model, parameters = run.spec, run.model, run.manifest.count_parameters()
    return metrics.Throughput(
        sequence_length=spec.sequence_length,
        devices=run.ranks.world_size,
        flops_per_token=flops.model_flops_per_token(model, parameters, spec.sequence_length, frozen=count_frozen(model)),
        peak_flops=flops.device_peak_flops(spec, run.ranks.device),
    )


def _log_step(step: int, values: metrics.StepMetrics, trackers: Trackers) -> None:
    log.info(metrics.progress_line(step, loss=values.loss, speed=values.samples_per_second, lr=values.lr))
    log.info(metrics.metrics_line(step, values))
    trackers.log_metrics(step, **vars(values))


def _is_due(step: int, interval: int) -> bool:
    return interval > 0 and step % interval == 0
