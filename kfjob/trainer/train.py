"""The training run, from top to bottom."""

from __future__ import annotations

import math
import time
from contextlib import ExitStack

import torch

from kfjob.errors import KfjobError
from kfjob.spec.train import TrainSpec, resolve_eval_batch_size
from kfjob.trainer import flops, metrics
from kfjob.trainer.checkpoint import Checkpoint, find, load, make_checkpoints, parameter_shapes, prepare, roll_back
from kfjob.trainer.data.permutation import mix
from kfjob.trainer.data.sources import RunData, open_data
from kfjob.trainer.data.stream import Position, merge_positions
from kfjob.trainer.distributed import Ranks
from kfjob.trainer.evaluate import evaluate, evaluation_due
from kfjob.trainer.guards import Guard
from kfjob.trainer.loss import batch_of, counted, token_loss
from kfjob.trainer.manifest import Manifest
from kfjob.trainer.metrics import Outcome, log
from kfjob.trainer.model import build_model
from kfjob.trainer.optim import Plateau, learning_rate, set_learning_rate
from kfjob.trainer.profile import Window, out_of_memory
from kfjob.trainer.reports import open_reports
from kfjob.trainer.stopping import SIGNALLED, StopRequest
from kfjob.trainer.storage import storage_of
from kfjob.trainer.strategies import make_strategy, named


def train(spec: TrainSpec, ranks: Ranks, stop: StopRequest, startup: metrics.Startup) -> Outcome:
    """Train until the last step, or until a rank is asked to stop; every rank calls this. What was saved is then complete.

    Raises:
        KfjobError: something that the user can put right.
    """
    with ExitStack() as closing:
        return _train(spec, ranks, stop, startup, closing)


def _train(  # noqa: C901, PLR0912, PLR0915 -- one straight line of steps, on purpose
    spec: TrainSpec, ranks: Ranks, stop: StopRequest, startup: metrics.Startup, closing: ExitStack
) -> Outcome:
    closing.enter_context(out_of_memory(spec, ranks))
    if spec.log_rank >= ranks.world_size:
        raise KfjobError(f"there is no rank {spec.log_rank} among {ranks.world_size}", location="log_rank")

    # What goes in. Faults of the spec and the data show here, before anything is computed.
    storage = storage_of(spec.checkpoint_dir) if spec.checkpoint_dir else None
    strategy = make_strategy(spec, ranks)
    with ranks.together():
        data = open_data(spec, rank=ranks.rank, world_size=ranks.world_size)
    if storage:
        prepare(storage, ranks)
    found = find(spec.resume, storage, ranks)
    global_batch = _global_batch(spec, found, ranks)
    accumulation = global_batch // (spec.micro_batch_size * ranks.world_size)
    total_steps = _total_steps(spec, data, global_batch)
    startup.lap("data")

    # The model, the optimiser, and where they were left.
    with ranks.together():
        model = build_model(spec, strategy, ranks.device, vocab_size=data.vocab_size)
    optimizer = strategy.optimizer(model)
    plateau = Plateau(spec.plateau_patience, spec.plateau_factor)
    shapes = parameter_shapes(model)
    parameters = sum(math.prod(shape) for shape in shapes.values())
    startup.lap("model")
    state = strategy.held(model, optimizer)
    with ranks.together():
        reports = closing.enter_context(open_reports(spec, log_rank=ranks.rank == spec.log_rank))
    checkpoints = None
    if storage:
        checkpoints = closing.enter_context(make_checkpoints(spec, storage, state, ranks, reports.checkpoint))
    step, loss, saved = 0, None, None
    log.info(
        metrics.start(
            model=spec.model if isinstance(spec.model, str) else spec.model.architecture,
            parameters=parameters,
            strategy=named(spec),
            world_size=ranks.world_size,
            global_batch=global_batch,
            total_steps=total_steps,
        )
    )
    log.info(metrics.resume(found.name if found else None, found.path if found else None))
    if found:
        load(found, model, state)
        strategy.restore(found.manifest.loss_scale)
        plateau.restore(found.manifest.plateau)
        step, loss = found.manifest.step, found.manifest.loss
        saved = found if found.storage == storage else None
        if found.manifest.data_identity == data.identity:
            data.train.seek(found.manifest.data_position)
        else:
            log.warning("Data differs from what %s was trained on: it is read from its beginning", found.name)
    startup.lap("resume")

    def save(at: int, position: Position) -> Checkpoint | None:
        if checkpoints is None:
            return None
        about = Manifest(
            step=at,
            loss=loss,
            run_id=ranks.run_id,
            global_batch=global_batch,
            parameters=shapes,
            data_identity=data.identity,
            data_position=merge_positions(ranks.gather(position)),
            spec=spec.model_dump(mode="json"),
            loss_scale=strategy.state(),
            plateau=plateau.state(),
            torch_version=torch.__version__,
        )
        return checkpoints.save(about)

    window = closing.enter_context(Window(spec, ranks))
    guard = Guard(spec)
    speed = metrics.Speed(
        sequence_length=spec.sequence_length,
        devices=ranks.world_size,
        flops_per_token=flops.of_model(model, parameters, spec.sequence_length),
        peak_flops=flops.peak_of(spec, ranks.device),
    )
    reason = None
    while step < total_steps:
        window.begin(step + 1)
        # The step's samples, and at the same time: is anyone asked to stop?
        position = data.train.position()
        micro_batches = [data.train.read_batch(spec.micro_batch_size) for _ in range(accumulation)]
        own_tokens = sum(map(counted, micro_batches))
        tokens, signals, out_of_time = ranks.total([own_tokens, stop.signal is not None, stop.out_of_time])
        if signals or out_of_time:
            reason = SIGNALLED if signals else f"max_minutes {spec.max_minutes:g}"
            if saved is None or saved.manifest.step != step:
                saved = save(step, position)
            break

        # Forward, backward, update. Randomness is a function of seed, step and rank, so it needs no place in a checkpoint.
        torch.manual_seed(mix(ranks.rank, mix(step, spec.seed)))
        own_loss = torch.zeros((), device=ranks.device)
        for number, samples in enumerate(micro_batches):
            batch = batch_of(samples, ranks.device)
            with strategy.forward_backward(model, last=number == accumulation - 1):
                with strategy.autocast():
                    part = token_loss(model, *batch) / tokens
                strategy.backward(model, part)
            own_loss += part.detach()
        grad_norm = strategy.clip(model, optimizer)

        # Is it a good step? All ranks have the same numbers, so they decide alike.
        last = step + 1 == total_steps
        log_due = last or _due(step + 1, spec.log_every)
        save_due = last or _due(step + 1, spec.checkpoint_every)
        skipped = False
        if log_due or save_due or guard.every_step:
            step_loss = ranks.total([float(own_loss)])[0]
            norm = None if grad_norm is None else metrics.whole(grad_norm)
            verdict = guard.judge(step + 1, loss=step_loss, grad_norm=norm)
            skipped = verdict.action != "go on"
            if verdict.action == "roll back":
                saved = roll_back(checkpoints, model, state, ranks)
                log.warning("Step %s rolled back to %s: %s", step + 1, saved.name, verdict.why)
                strategy.skip(optimizer)
                strategy.restore(saved.manifest.loss_scale)
                plateau.restore(saved.manifest.plateau)
                step, loss = saved.manifest.step, saved.manifest.loss
                continue
            loss = loss if skipped else step_loss
        lr = learning_rate(step, total_steps, spec, factor=plateau.factor)
        set_learning_rate(optimizer, lr)
        if skipped:
            log.warning("Step %s skipped: %s", step + 1, verdict.why)
            strategy.skip(optimizer)
        else:
            updated_norm = strategy.update(model, optimizer)
            grad_norm = updated_norm if grad_norm is None else grad_norm
        step += 1
        speed.add(global_batch)

        # What is to be said and kept of it.
        if log_due and not skipped and loss is not None:
            told = speed.figures(loss=loss, lr=lr, grad_norm=metrics.whole(grad_norm))
            log.info(metrics.progress(step, loss=loss, speed=told.samples_per_second, lr=lr))
            log.info(metrics.figures(step, told))
            reports.figures(step, **vars(told))
        began = time.monotonic()
        if data.validation and (last or evaluation_due(step, spec, global_batch, data.train.samples_per_epoch)):
            held_out, evaluated = evaluate(
                model, data.validation, batch_size=resolve_eval_batch_size(spec), ranks=ranks, strategy=strategy
            )
            log.info(metrics.evaluation(step, loss=held_out, tokens=evaluated))
            reports.figures(step, eval_loss=held_out, eval_tokens=evaluated)
            plateau.heard(held_out)
        if save_due:
            saved = save(step, data.train.position())
        speed.leave_out(began)
        if startup.running:
            log.info(startup.line())

    strategy.finish()
    return Outcome(
        outcome="stopped" if reason else "finished",
        step=step,
        loss=loss,
        checkpoint=saved.path if saved else None,
        reason=reason,
    )


def _due(step: int, every: int) -> bool:
    return every > 0 and step % every == 0


def _global_batch(spec: TrainSpec, found: Checkpoint | None, ranks: Ranks) -> int:
    """Samples in a step. A run that goes on with another number of ranks, and nothing else changed, keeps what it had."""
    here = spec.micro_batch_size * ranks.world_size
    wanted = here * spec.gradient_accumulation_steps
    if found is None or found.manifest.global_batch == wanted:
        return wanted
    before = TrainSpec.model_validate(found.manifest.spec)
    asked = (spec.micro_batch_size, spec.gradient_accumulation_steps)
    if (before.micro_batch_size, before.gradient_accumulation_steps) != asked:
        return wanted
    if found.manifest.global_batch % here:
        raise KfjobError(
            f"a global batch of {found.manifest.global_batch} samples cannot be kept with {ranks.world_size} ranks",
            cause=f"{found.name} was written with it, and a micro-batch on every rank is {here} samples",
            hint="change micro_batch_size or gradient_accumulation_steps to choose a new one",
        )
    return found.manifest.global_batch


def _total_steps(spec: TrainSpec, data: RunData, global_batch: int) -> int:
    """The last step: of max_steps and epochs what comes first."""
    if spec.epochs is None or data.train.samples_per_epoch is None:
        return spec.max_steps or 0
    steps = spec.epochs * data.train.samples_per_epoch // global_batch
    if steps == 0:
        raise KfjobError(f"{spec.epochs} epochs have fewer samples than one global batch of {global_batch}", location="epochs")
    return min(steps, spec.max_steps or steps)
