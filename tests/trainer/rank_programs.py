"""What the tests run on one rank or two, in processes that stay. Every function takes the ranks and returns JSON."""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import hashlib
import importlib
import io
import json
import logging
import math
import os
import signal
import sys
import traceback
import warnings
from itertools import accumulate
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import FileStore
from torch._subclasses import FakeTensor
from torch.utils._python_dispatch import TorchDispatchMode

from kfjob.errors import KfjobError
from kfjob.spec.train import TrainSpec, resolve_eval_batch_size
from kfjob.trainer import checkpoint, metrics
from kfjob.trainer.data.sources import open_data
from kfjob.trainer.data.stream import SampleStream
from kfjob.trainer.distributed import Ranks
from kfjob.trainer.evaluate import evaluate
from kfjob.trainer.loss import token_loss
from kfjob.trainer.model import build_model
from kfjob.trainer.storage import open_storage
from kfjob.trainer.strategies import make_strategy
from kfjob.trainer.train import train

LINEAR = torch.nn.functional.linear


class StopAfter:
    """Stands in for the signal handler: asks to stop when the loop has asked so many times."""

    out_of_time = False

    def __init__(self, steps: int | None) -> None:
        self._left = steps

    @property
    def signal(self) -> signal.Signals | None:
        if self._left is None:
            return None
        self._left -= 1
        return signal.SIGTERM if self._left < 0 else None


def run_training(
    ranks: Ranks,
    *,
    spec: dict[str, Any],
    stop_after: int | None = None,
    only_rank: int | None = None,
    environment: dict[str, str] | None = None,
) -> dict[str, Any]:
    """A whole run: loss of each step in full precision, hash of every sample, and the outcome."""
    os.environ.update(environment or {})
    losses: dict[int, float] = {}
    batches: list[list[str]] = []
    evaluations: list[tuple[int, int, float]] = []
    progress, evaluation, batch = metrics.progress_line, metrics.evaluation_line, SampleStream.read_batch

    def heard(step: int, **figures: Any) -> str:
        losses[step] = figures["loss"]
        return progress(step, **figures)

    def heard_evaluation(step: int, **figures: Any) -> str:
        evaluations.append((step, figures["tokens"], figures["loss"]))
        return evaluation(step, **figures)

    def seen(self: SampleStream, size: int) -> Any:
        samples = batch(self, size)
        batches.append([hashlib.sha256(sample.tobytes()).hexdigest()[:16] for sample in samples])
        return samples

    metrics.progress_line, metrics.evaluation_line, SampleStream.read_batch = heard, heard_evaluation, seen  # type: ignore[method-assign]
    try:
        stop = StopAfter(stop_after if only_rank in (None, ranks.rank) else None)
        outcome = train(TrainSpec(**spec), ranks, stop, metrics.StartupTimer())  # type: ignore[arg-type]
    finally:
        metrics.progress_line, metrics.evaluation_line, SampleStream.read_batch = progress, evaluation, batch  # type: ignore[method-assign]
    return {"losses": losses, "batches": batches, "outcome": vars(outcome), "evaluations": evaluations}


def run_compiled(ranks: Ranks, *, spec: dict[str, Any]) -> dict[str, Any]:
    """The same with compiled layers, and the number of graphs that torch has made."""
    from torch._dynamo.utils import counters

    torch._dynamo.reset()
    counters.clear()
    result = run_training(ranks, spec=spec | {"compile": True})
    return result | {"graphs": counters["stats"]["unique_graphs"]}


def train_with_nan(ranks: Ranks, *, spec: dict[str, Any], steps: list[int], rank: int) -> dict[str, Any]:
    """A whole run in which the loss of one rank is no number when those steps are computed for the first time."""
    heard: list[tuple[int, float]] = []
    trainer: Any = sys.modules[train.__module__]
    number, own = [0], trainer.token_loss
    progress = metrics.progress_line

    def bad(*args: Any) -> Any:
        number[0] += 1
        return own(*args) * (math.nan if number[0] in steps and ranks.rank == rank else 1.0)

    def told(step: int, **figures: Any) -> str:
        heard.append((step, figures["loss"]))
        return progress(step, **figures)

    trainer.token_loss, metrics.progress_line = bad, told
    try:
        return {**run_training(ranks, spec=spec), "heard": heard}
    finally:
        trainer.token_loss, metrics.progress_line = own, progress


def error_of_train_with_nan(ranks: Ranks, **arguments: Any) -> str:
    """The message of such a run."""
    try:
        train_with_nan(ranks, **arguments)
    except KfjobError as error:
        return str(error)
    raise AssertionError("the run was not refused")


def train_out_of_memory(ranks: Ranks, *, spec: dict[str, Any]) -> str:
    """The message of a run whose first forward pass finds no memory."""
    trainer: Any = sys.modules[train.__module__]
    own = trainer.token_loss

    def full(*args: Any) -> Any:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB.\nmore words")

    trainer.token_loss = full
    try:
        return error_of_training(ranks, spec=spec)
    finally:
        trainer.token_loss = own


def compute_logits(ranks: Ranks, *, spec: dict[str, Any]) -> list[Any]:
    """What the model of the spec says of the tokens 0 to 31, after loading the checkpoint that `resume` names."""
    parsed = TrainSpec(**spec)
    strategy = make_strategy(parsed, ranks)
    model = build_model(parsed, strategy, ranks.device)
    if parsed.resume != "auto":
        found = checkpoint.find_checkpoint(parsed.resume, None, ranks)
        assert found
        checkpoint.load_checkpoint(found, model, checkpoint.ModelState(model, strategy.make_optimizer(model)))
    ids = torch.arange(32).reshape(2, 16)
    with torch.no_grad():
        said: list[Any] = model.eval()(input_ids=ids).logits.tolist()
    return said


def compute_transformers_loss(ranks: Ranks, *, spec: dict[str, Any]) -> float:
    """Of the model as transformers loads it, on the first micro-batch."""
    from transformers import AutoModelForCausalLM

    parsed = TrainSpec(**spec)
    samples = open_data(parsed, rank=ranks.rank, world_size=ranks.world_size).train.read_batch(parsed.micro_batch_size)
    model = AutoModelForCausalLM.from_pretrained(str(parsed.model)).train()
    said = model(input_ids=torch.from_numpy(samples[:, 0])).logits
    targets = torch.from_numpy(samples[:, 1])
    return torch.nn.functional.cross_entropy(said.flatten(0, 1), targets.flatten()).item()


def error_of_training(ranks: Ranks, *, spec: dict[str, Any]) -> str:
    """The message of a run that must not start."""
    try:
        train(TrainSpec(**spec), ranks, StopAfter(None), metrics.StartupTimer())  # type: ignore[arg-type]
    except KfjobError as error:
        return str(error)
    raise AssertionError("the run was not refused")


def count_local_elements(ranks: Ranks, *, spec: dict[str, Any]) -> dict[str, Any]:
    """Elements of parameters and of optimiser state that this rank holds after a step, and their types."""
    parsed = TrainSpec(**spec)
    strategy = make_strategy(parsed, ranks)
    model = build_model(parsed, strategy, ranks.device)
    optimizer = strategy.make_optimizer(model)
    with strategy.micro_batch(model, last=True), strategy.autocast():
        model(input_ids=torch.zeros(1, 8, dtype=torch.long), use_cache=False).logits.float().sum().backward()
    optimizer.step()

    def local(tensor: Any) -> int:
        return int((tensor.to_local() if hasattr(tensor, "to_local") else tensor).numel())

    state = [value for values in optimizer.state.values() for name, value in values.items() if name.startswith("exp_avg")]
    return {
        "parameters": sum(local(parameter) for parameter in model.parameters()),
        "optimizer": sum(local(value) for value in state),
        "dtypes": sorted({str(tensor.dtype) for tensor in [*model.parameters(), *state]}),
    }


def measure_bytes(ranks: Ranks, *, spec: dict[str, Any]) -> dict[str, int]:
    """Bytes that this rank holds: parameters, gradients, optimiser state, what a forward pass keeps for the backward one."""
    parsed = TrainSpec(**spec)
    strategy = make_strategy(parsed, ranks)
    model = build_model(parsed, strategy, ranks.device)
    optimizer = strategy.make_optimizer(model)
    inputs = torch.zeros(parsed.micro_batch_size, parsed.sequence_length, dtype=torch.long)
    kept: list[torch.Tensor] = []
    whole_gradients: list[torch.Tensor] = []

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        if tensor.numel() % inputs.numel() == 0:  # weights are not: the test's shapes see to it
            kept.append(tensor)
        return tensor

    last = parsed.gradient_accumulation_steps - 1
    for number in range(last + 1):
        kept.clear()
        with strategy.micro_batch(model, last=number == last):
            with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor), strategy.autocast():
                loss = token_loss(model, inputs, inputs)
            activations = _nbytes(kept)
            torch.autograd.backward(loss)
        if number < last and parsed.strategy == "fsdp":
            whole_gradients = _whole_gradients(model)
    gradients = max(_nbytes(whole_gradients), _nbytes([parameter.grad for parameter in model.parameters()]))
    measured = {"gradients": gradients, "activations": activations}
    optimizer.step()
    state = [value for values in optimizer.state.values() for value in values.values()]
    return measured | {"parameters": _nbytes(list(model.parameters())), "optimizer": _nbytes(state)}


def measure_zero_bytes(ranks: Ranks, *, spec: dict[str, Any]) -> dict[str, int]:
    """Bytes of parameters, gradients (the most after any micro-batch) and optimiser that DeepSpeed holds on this rank."""
    parsed = TrainSpec(**spec)
    strategy = make_strategy(parsed, ranks)
    engine: Any = build_model(parsed, strategy, ranks.device)
    optimizer: Any = strategy.make_optimizer(engine)
    inputs = torch.zeros(parsed.micro_batch_size, parsed.sequence_length, dtype=torch.long)
    gradients = 0
    for number in range(parsed.gradient_accumulation_steps):
        with strategy.micro_batch(engine, last=number == parsed.gradient_accumulation_steps - 1):
            strategy.backward(engine, token_loss(engine, inputs, inputs))
            whole = [parameter.grad for parameter in engine.module.parameters()]
            averaged = [one for group in getattr(optimizer, "averaged_gradients", {}).values() for one in group or ()]
            shards = [getattr(optimizer, "grad_partitions_flat_buffer", None)]
            gradients = max(gradients, _nbytes([one for one in (*whole, *averaged, *shards) if one is not None]))
    strategy.step(engine, optimizer)
    adam = getattr(optimizer, "optimizer", optimizer)
    state = [value for values in adam.state.values() for value in values.values()]
    masters = getattr(optimizer, "fp32_partitioned_groups_flat", None) or getattr(
        optimizer, "single_partition_of_fp32_groups", []
    )
    parameters = list(engine.module.parameters())
    held = [*parameters, *(parameter.ds_tensor for parameter in parameters if hasattr(parameter, "ds_tensor"))]
    return {"parameters": _nbytes(held), "gradients": gradients, "optimizer": _nbytes([*state, *masters])}


class Collectives(TorchDispatchMode):
    """Notes what the ranks exchange: (operation, type, bytes of its input, the values in it, at most four)."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[str, str, int, list[float]]] = []

    def __torch_dispatch__(self, operation: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if operation.namespace == "c10d":
            given = args[1] if isinstance(args[0], torch.Tensor) else args[0][0]
            name = operation.name().removeprefix("c10d::").strip("_").removesuffix("_base")
            self.seen.append((name, str(given.dtype), given.nbytes, given.unique()[:4].tolist()))
        return operation(*args, **(kwargs or {}))


def record_collectives(ranks: Ranks, *, spec: dict[str, Any]) -> dict[str, Any]:
    """What FSDP2 exchanges in a forward and in a backward pass; all numbers of layer n are n, from 1, all others 0."""
    parsed = TrainSpec(**spec)
    strategy = make_strategy(parsed, ranks)
    model: Any = build_model(parsed, strategy, ranks.device)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
        for number, layer in enumerate(model.model.layers):
            for parameter in layer.parameters():
                parameter.fill_(number + 1)
    inputs = torch.zeros(1, parsed.sequence_length, dtype=torch.long)
    with strategy.micro_batch(model, last=True):
        with Collectives() as forward:
            loss = token_loss(model, inputs, inputs)
        with Collectives() as backward:
            strategy.backward(model, loss)
    held = [sum(parameter.to_local().numel() for parameter in layer.parameters()) for layer in model.model.layers]
    return {"forward": forward.seen, "backward": backward.seen, "held": held}


def record_gradient_reductions(ranks: Ranks, *, spec: dict[str, Any]) -> list[tuple[str, int]]:
    """The sums over ranks, and their bytes, that the micro-batches of a step take."""
    parsed = TrainSpec(**spec)
    strategy = make_strategy(parsed, ranks)
    model = build_model(parsed, strategy, ranks.device)
    strategy.make_optimizer(model)
    inputs = torch.zeros(1, parsed.sequence_length, dtype=torch.long)
    with Collectives() as met:
        for number in range(parsed.gradient_accumulation_steps):
            with strategy.micro_batch(model, last=number == parsed.gradient_accumulation_steps - 1):
                strategy.backward(model, token_loss(model, inputs, inputs))
    return [(name, size) for name, _, size, _ in met.seen if "reduce" in name]


def measure_build_peak(ranks: Ranks, *, spec: dict[str, Any]) -> int:
    """Most bytes at once while the model is built, by the allocator's own account."""
    parsed = TrainSpec(**spec)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profiler:
        build_model(parsed, make_strategy(parsed, ranks), ranks.device)
    return most_at_once(profiler)


def measure_offloaded_bytes(ranks: Ranks, *, spec: dict[str, Any]) -> list[int]:
    """Bytes of every tensor that DeepSpeed and the model hold after a step: of all, and of the largest of them.

    Device and host are one here.
    """
    gc.collect()
    before = _living()
    parsed = TrainSpec(**spec)
    strategy = make_strategy(parsed, ranks)
    engine: Any = build_model(parsed, strategy, ranks.device)
    optimizer: Any = strategy.make_optimizer(engine)
    for number in range(parsed.gradient_accumulation_steps):
        inputs = torch.zeros(parsed.micro_batch_size, parsed.sequence_length, dtype=torch.long)
        with strategy.micro_batch(engine, last=number == parsed.gradient_accumulation_steps - 1):
            strategy.backward(engine, token_loss(engine, inputs, inputs))
    strategy.step(engine, optimizer)
    gc.collect()
    sizes = [size for place, size in _living().items() if place not in before]
    return [sum(sizes), max(sizes)]


def _living() -> dict[int, int]:
    """The bytes behind every tensor of this process, by their place."""
    found = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # some of what is looked at is deprecated
        tensors = [one for one in gc.get_objects() if issubclass(type(one), torch.Tensor)]
    for tensor in tensors:
        if isinstance(tensor, FakeTensor):  # an earlier compiler's, without memory
            continue
        with contextlib.suppress(RuntimeError):  # of a compiler's other tensors, too
            found[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
    return found


class Listener(logging.Handler):
    """Keeps what is logged."""

    def __init__(self, said: list[str]) -> None:
        super().__init__()
        self._said = said

    def emit(self, record: logging.LogRecord) -> None:
        self._said.append(record.getMessage())


def run_with_comms_logger(ranks: Ranks, *, spec: dict[str, Any]) -> dict[str, Any]:
    """What a run with `comms_logger` moved, by operation in bytes, what it printed of that, and what ranks said they hold."""
    from deepspeed.comm.comm import comms_logger

    comms_logger.reset_data()
    said: list[str] = []
    handler = Listener(said)
    metrics.log.addHandler(handler)
    printed = io.StringIO()
    try:
        with contextlib.redirect_stdout(printed):
            run_training(ranks, spec=spec)
    finally:
        metrics.log.removeHandler(handler)
        comms_logger.enabled = False
    moved = {name: sum(size * entry[0] for size, entry in sizes.items()) for name, sizes in comms_logger.comms_dict.items()}
    return {"moved": moved, "printed": printed.getvalue(), "lines": [line for line in said if line.startswith("Device ")]}


def measure_training_peak(ranks: Ranks, *, spec: dict[str, Any]) -> int:
    """Most bytes at once, from before the model is built to after the second step, by the allocator's own account."""
    parsed = TrainSpec(**spec)
    inputs = torch.zeros(parsed.micro_batch_size, parsed.sequence_length, dtype=torch.long)
    gc.collect()  # what an earlier program of this process has left would be counted as freed in the midst
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profiler:
        strategy = make_strategy(parsed, ranks)
        model = build_model(parsed, strategy, ranks.device)
        optimizer = strategy.make_optimizer(model)
        for _ in range(2):
            last = parsed.gradient_accumulation_steps - 1
            for number in range(last + 1):
                with strategy.micro_batch(model, last=number == last):
                    with strategy.autocast():
                        loss = token_loss(model, inputs, inputs)
                    torch.autograd.backward(loss)
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
    return most_at_once(profiler)


def most_at_once(profiler: Any) -> int:
    """Bytes."""
    events = [event for event in profiler.profiler.kineto_results.events() if event.name() == "[memory]"]
    changes: list[int] = [event.nbytes() for event in sorted(events, key=lambda event: event.start_ns())]
    return max(accumulate(changes))


def _whole_gradients(model: Any) -> list[torch.Tensor]:
    """What FSDP2 keeps of micro-batches that are not exchanged; it has no public way to them."""
    groups = [unit._get_fsdp_state()._fsdp_param_group for unit in model.modules() if hasattr(unit, "_get_fsdp_state")]
    found = [p._unsharded_param.grad for group in groups if group for p in group.fsdp_params]
    return [gradient for gradient in found if gradient is not None]


def _nbytes(tensors: list[Any]) -> int:
    """Bytes of the memory behind `tensors`, each part once."""
    local = [tensor.to_local() if hasattr(tensor, "to_local") else tensor for tensor in tensors]
    return sum({t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in local}.values())


def run_evaluation(ranks: Ranks, *, spec: dict[str, Any]) -> list[float]:
    """The validation loss of fresh weights."""
    parsed = TrainSpec(**spec)
    strategy = make_strategy(parsed, ranks)
    samples = open_data(parsed, rank=ranks.rank, world_size=ranks.world_size).validation
    model = build_model(parsed, strategy, ranks.device)
    loss, tokens = evaluate(model, samples, batch_size=resolve_eval_batch_size(parsed), ranks=ranks, strategy=strategy)
    return [loss, tokens]


def find_newest_checkpoint(ranks: Ranks, *, folder: str, resume: str = "auto", run_id: str = "") -> str | None:
    """The name of the checkpoint that a run of the launch `run_id` would go on from."""
    ranks = dataclasses.replace(ranks, run_id=run_id)
    result = checkpoint.find_checkpoint(resume, open_storage(folder), ranks)
    return result.name if result else None


def fail_some_ranks(ranks: Ranks, *, failing: list[int]) -> str:
    """What a rank hears when some ranks fail."""
    try:
        with ranks.fail_together():
            _fail(ranks.rank, failing)
    except KfjobError as error:
        return error.title
    return "went on"


def _fail(rank: int, failing: list[int]) -> None:
    if rank in failing:
        raise KfjobError(f"rank {rank} has no data")


def forget_groups() -> None:
    """DeepSpeed keeps things of the run before, and a process elsewhere has one run only.

    Process groups, and the numbers it gives to modules and parameters, which must be the same on all ranks: here one rank may
    have had more runs than another. And its stage 3 puts a linear layer of its own in the place of torch's.
    """
    torch.nn.functional.linear = LINEAR
    if groups := sys.modules.get("deepspeed.utils.groups"):
        importlib.reload(groups)
        sys.modules["deepspeed.comm.comm"].cdb = None  # type: ignore[attr-defined]
    if offload := sys.modules.get("deepspeed.runtime.zero.parameter_offload"):
        offload.DeepSpeedZeRoOffload._register_deepspeed_module.__defaults__[0][0] = 0
        sys.modules["deepspeed.runtime.zero.partition_parameters"].Init.param_id = 0


def serve(requests: int, answers: int) -> None:
    """Run what is asked for until there is nothing more to come."""
    if not sys.warnoptions:  # an older torch warns of itself: PYTHONWARNINGS=default
        warnings.simplefilter("error")
    warnings.filterwarnings("ignore", "The .grad attribute of a Tensor that is not a leaf")  # torch's own tracer looks at it
    with os.fdopen(requests) as asked, os.fdopen(answers, "w") as answer:
        for line in asked:
            request = json.loads(line)
            rank, world_size = request["rank"], request["world_size"]
            os.environ.update(RANK=str(rank), WORLD_SIZE=str(world_size))
            os.environ.update(
                LOCAL_RANK=str(rank % request["local_world_size"]), LOCAL_WORLD_SIZE=str(request["local_world_size"])
            )
            metrics.start_logging(verbose=rank == 0)
            try:
                ranks = Ranks.join(FileStore(request["store"], world_size))
                result = {"result": globals()[request["program"]](ranks, **request["arguments"])}
            except BaseException:  # noqa: BLE001 -- the test shows it
                result = {"error": traceback.format_exc()}
            if dist.is_initialized():
                dist.destroy_process_group()
            forget_groups()
            answer.write(json.dumps(result, default=str) + "\n")
            answer.flush()


if __name__ == "__main__":
    serve(int(sys.argv[1]), int(sys.argv[2]))
