"""Programs that the tests run on one or more ranks, in worker processes. Every program takes the ranks and returns JSON."""

from __future__ import annotations

import contextlib
import copy
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
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import accumulate, pairwise
from multiprocessing.connection import Connection
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
import torch
import torch.distributed as dist
from torch._C._distributed_c10d import FileStore
from torch._subclasses import FakeTensor
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor
from torch.utils._python_dispatch import TorchDispatchMode

from kfjob.base.errors import KfjobError
from kfjob.trainer import checkpoint, checkpoint_writer, device_defaults, metrics
from kfjob.trainer.checkpoint_writer import CheckpointWriter
from kfjob.trainer.data.batches import HostBatches, count_targets, to_batch
from kfjob.trainer.data.prefetch import Prefetcher
from kfjob.trainer.data.sources import open_data
from kfjob.trainer.distributed import Ranks
from kfjob.trainer.evaluate import evaluate
from kfjob.trainer.float8 import is_converted
from kfjob.trainer.lease import LEASE_FILE, Lease
from kfjob.trainer.loss import token_loss
from kfjob.trainer.model import build_model
from kfjob.trainer.nf4 import is_quantized
from kfjob.trainer.optim import compute_learning_rate
from kfjob.trainer.pins import delete_unless_pinned
from kfjob.trainer.prepare import prepare_run
from kfjob.trainer.process_identity import ProcessIdentity
from kfjob.trainer.profiler import StepProfiler
from kfjob.trainer.resume import find_checkpoint, roll_back
from kfjob.trainer.step import Stepper
from kfjob.trainer.stochastic_rounding import StochasticAdamW
from kfjob.trainer.stop_request import StopRequest
from kfjob.trainer.storage import open_storage, split_location
from kfjob.trainer.storage.folder import FolderStorage
from kfjob.trainer.strategies import Strategy, make_strategy
from kfjob.trainer.train import train
from kfjob.trainer.training_run import TrainingRun
from kfjob.trainer.weights import PretrainedWeights
from kfjob.trainspec.defaults import Device
from kfjob.trainspec.train_spec import TrainSpec, resolve_eval_batch_size, resolve_micro_batch_size

LINEAR = torch.nn.functional.linear
TO_LIST = torch.Tensor.tolist


class StopAfter(StopRequest):
    """Replaces the signal handler: requests a stop after `steps` steps and `micro_batches` micro-batches of the next one."""

    def __init__(self, steps: int | None, micro_batches: int = 0) -> None:
        self._max_minutes = self._deadline = self.signal = None
        self._steps, self._micro_batches = steps, micro_batches
        self._begun, self._asked = 0, 0

    def begin_step(self) -> None:
        self._begun, self._asked = self._begun + 1, 0

    def ask(self, ranks: Ranks) -> str | None:
        if self._steps is not None and (self._begun - 1, self._asked) >= (self._steps, self._micro_batches):
            self.signal = signal.SIGTERM
        self._asked += 1
        return super().ask(ranks)


@contextlib.contextmanager
def observe(owner: Any, name: str, call: Callable[..., object]) -> Iterator[None]:
    """Call `call` with the arguments of each call of a function or method before it."""
    original = getattr(owner, name)

    def call_both(*args: Any, **kwargs: Any) -> Any:
        call(*args, **kwargs)
        return original(*args, **kwargs)

    with mock.patch.object(owner, name, call_both):
        yield


def before_each_step(call: Callable[[int], object]) -> contextlib.AbstractContextManager[None]:
    """Call `call` with the number of each step before it begins."""
    return observe(StepProfiler, "begin_step", lambda _, step: call(step))


def build(ranks: Ranks, spec: dict[str, Any]) -> tuple[TrainSpec, Strategy, Any, Any]:
    """Return a spec, its strategy, and a new model with its optimiser."""
    parsed = TrainSpec(**spec)
    strategy = make_strategy(parsed, ranks)
    model = build_model(parsed, strategy, ranks.device)
    return parsed, strategy, model, strategy.make_optimizer(model)


def accumulate_zeros(spec: TrainSpec, strategy: Strategy, model: Any, samples: int = 1) -> None:
    """Accumulate the gradients of a step whose tokens are 0."""
    inputs = torch.zeros(samples, spec.sequence_length, dtype=torch.long)
    last = spec.gradient_accumulation_steps - 1
    for number in range(last + 1):
        strategy.accumulate(model, partial(token_loss, model, inputs, inputs), last=number == last)


def run_training(
    ranks: Ranks,
    *,
    spec: dict[str, Any],
    stop_after: int | None = None,
    micro_batches: int = 0,
    only_rank: int | None = None,
    environment: dict[str, str] | None = None,
) -> dict[str, Any]:
    """Train, and return the loss of each step in full precision, a hash of every sample, and the outcome."""
    os.environ.update(environment or {})
    losses: dict[int, float] = {}
    batches: list[list[str]] = []
    evaluations: list[tuple[int, int, float]] = []
    next_step = Prefetcher.next_step
    stop = StopAfter(stop_after if only_rank in (None, ranks.rank) else None, micro_batches)

    def record_loss(step: int, **values: Any) -> None:
        losses[step] = values["loss"]

    def record_evaluation(step: int, **values: Any) -> None:
        evaluations.append((step, values["tokens"], values["loss"]))

    def record_step(self: Prefetcher) -> HostBatches:
        step = next_step(self)
        batches.extend([hashlib.sha256(sample.tobytes()).hexdigest()[:16] for sample in part] for part in step.samples())
        return step

    with (
        observe(metrics, "progress_line", record_loss),
        observe(metrics, "evaluation_line", record_evaluation),
        before_each_step(lambda _: stop.begin_step()),
        mock.patch.object(Prefetcher, "next_step", record_step),
    ):
        outcome = train(TrainSpec(**({"log_every": 1} | spec)), ranks, stop, metrics.StartupTimer())
    return {"losses": losses, "batches": batches, "outcome": vars(outcome), "evaluations": evaluations}


class HostReads(TorchDispatchMode):
    """Counts the numbers that the host reads from tensors; with a GPU each read waits for the device.

    The collectives of `Ranks` use host tensors in double precision, and are not counted.
    """

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, operation: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += operation.name() == "aten::_local_scalar_dense" and args[0].dtype != torch.float64
        return operation(*args, **(kwargs or {}))

    def read_list(self, tensor: torch.Tensor) -> Any:
        """Replaces `Tensor.tolist`, which is no operator. Boundaries of documents are integers, and read on the CPU only."""
        self.count += tensor.is_floating_point()
        return TO_LIST(tensor)


def count_host_reads(ranks: Ranks, *, spec: dict[str, Any]) -> list[int]:
    """Return the number of values that the host reads in each step."""
    counts: list[int] = []
    reads = HostReads()
    with (
        before_each_step(lambda _: counts.append(reads.count)),
        mock.patch.object(torch.Tensor, "tolist", lambda tensor: reads.read_list(tensor)),  # noqa: PLW0108 -- a bound method would not get the tensor
        reads,
    ):
        train(TrainSpec(**spec), ranks, StopAfter(None), metrics.StartupTimer())
    return [after - before for before, after in pairwise([*counts, reads.count])]


def train_peft_by_hand(ranks: Ranks, *, spec: dict[str, Any]) -> list[float]:
    """Return the losses of PEFT's own model on transformers' own base in a plain loop, with one forward pass per document.

    The adapters start with the trainer's values, and the data is the trainer's.
    """
    import peft
    from transformers import AutoModelForCausalLM

    parsed = TrainSpec(**spec)
    settings = {name: getattr(parsed.lora, name) for name in ("r", "lora_alpha", "use_rslora")}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # of transformers about PEFT
        base = AutoModelForCausalLM.from_pretrained(str(parsed.model), dtype=torch.float32)
        model: Any = peft.get_peft_model(base, peft.LoraConfig(target_modules="all-linear", task_type="CAUSAL_LM", **settings))
    start = build_model(parsed, make_strategy(parsed, ranks), ranks.device)
    adapters = {name: parameter for name, parameter in start.named_parameters() if parameter.requires_grad}
    assert not model.base_model.model.load_state_dict(adapters, strict=False).unexpected_keys
    assert sum(parameter.requires_grad for parameter in model.parameters()) == len(adapters)

    def compute_loss(rows: Any, *_: object, **__: object) -> torch.Tensor:
        loss = torch.zeros(())
        for sample in rows:
            begins = np.flatnonzero(sample[2] == 0)[1:] if len(sample) == 3 else np.zeros(0, dtype=int)
            for inputs, targets in np.split(sample[:2], begins, axis=1):
                logits = model(input_ids=torch.from_numpy(inputs)[None], use_cache=False).logits[0]
                loss = loss + torch.nn.functional.cross_entropy(logits, torch.from_numpy(targets), reduction="sum")
        return loss

    return train_by_hand(parsed, model, compute_loss, 1)


def train_experts_by_hand(ranks: Ranks, *, spec: dict[str, Any], world_size: int) -> list[float]:
    """Return the losses of transformers' own model with experts in a plain loop; `spec` is that of a run on `world_size` ranks.

    Each expert computes by itself, and each micro-batch of each rank has the weight of its targets.
    """
    parsed = TrainSpec(**spec)
    single = parsed.model_copy(update={"strategy": "none", "loss_chunk": 0})
    model: Any = build_model(single, make_strategy(single, ranks), ranks.device)
    model.set_attn_implementation("sdpa")
    model.set_experts_implementation("eager")
    balance = vars(sys.modules[type(model).__module__])["load_balancing_loss_func"]
    config = model.config

    def compute_loss(rows: Any, inputs: torch.Tensor, targets: torch.Tensor, **arguments: Any) -> torch.Tensor:
        output = model(input_ids=inputs, use_cache=False, output_router_logits=True, **arguments)
        entropy = torch.nn.functional.cross_entropy(output.logits.flatten(0, 1), targets.flatten(), reduction="sum")
        last = torch.tensor([int(np.flatnonzero(row[1] >= 0).max(initial=-1)) for row in rows])
        mask = torch.arange(inputs.shape[1])[None] <= last[:, None]
        router = balance(output.router_logits, config.num_experts, config.num_experts_per_tok, mask)
        if mask.all():
            torch.testing.assert_close(router, output.aux_loss)
        loss: torch.Tensor = entropy + count_targets(rows) * (parsed.router_aux_loss_coef or 0) * router
        return loss

    return train_by_hand(parsed, model, compute_loss, world_size)


def train_float8_by_hand(ranks: Ranks, *, spec: dict[str, Any], world_size: int) -> list[float]:
    """Return the losses of transformers' own model, which torchao converts, in a plain loop; `spec` as for experts."""
    from torchao.float8 import Float8LinearConfig, convert_to_float8_training

    parsed = TrainSpec(**spec)
    changes = {"strategy": "none", "loss_chunk": 0, "precision": "bf16", "activation_checkpointing": False}
    single = parsed.model_copy(update=changes | {"fp8_recipe": "tensorwise", "fp8_emulate": False})
    model: Any = build_model(single, make_strategy(single, ranks), ranks.device)
    model.set_attn_implementation("sdpa")
    config = dataclasses.replace(Float8LinearConfig.from_recipe_name(parsed.fp8_recipe), emulate=True)
    convert_to_float8_training(model, config=config, module_filter_fn=lambda _, name: name != "lm_head")

    def compute_loss(_rows: Any, inputs: torch.Tensor, targets: torch.Tensor, **arguments: Any) -> torch.Tensor:
        logits = model(input_ids=inputs, use_cache=False, **arguments).logits.float()
        return torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="sum")

    return train_by_hand(parsed, model, compute_loss, world_size)


def train_by_hand(spec: TrainSpec, model: Any, compute_loss: Callable[..., torch.Tensor], world_size: int) -> list[float]:
    """Return the losses of a plain loop in one process, with the micro-batches of a run on `world_size` ranks.

    `compute_loss` gets the rows of a micro-batch, its inputs and its targets, and returns the sum over the targets.
    """
    optimizer = torch.optim.AdamW(
        [
            {"params": [p for p in model.parameters() if p.dim() > 1], "weight_decay": spec.weight_decay},
            {"params": [p for p in model.parameters() if p.dim() == 1], "weight_decay": 0.0},
        ],
        betas=spec.betas,
        eps=spec.eps,
    )
    size, parts = resolve_micro_batch_size(spec), spec.gradient_accumulation_steps
    data = open_data(spec, rank=0, world_size=1).train
    losses = []
    for step in range(spec.max_steps or 0):
        samples = data.read_batch(size * parts * world_size)
        tokens, total = count_targets(samples), 0.0
        by_rank = samples.reshape(parts, size, world_size, *samples.shape[1:]).swapaxes(1, 2)
        for rows in by_rank.reshape(-1, size, *samples.shape[1:]):
            inputs, targets, *positions = torch.from_numpy(rows).unbind(1)
            loss = compute_loss(rows, inputs, targets, **({"position_ids": positions[0]} if positions else {})) / tokens
            loss.backward()
            total += loss.item()
        torch.nn.utils.clip_grad_norm_(model.parameters(), spec.grad_clip)
        for group in optimizer.param_groups:
            group["lr"] = compute_learning_rate(step, spec.max_steps or 0, spec)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(total)
    return losses


def record_collections(ranks: Ranks, *, spec: dict[str, Any]) -> list[int]:
    """Return the steps of a run before which Python's garbage collector ran."""
    begun, steps = [0], []

    def record(phase: str, _: dict[str, int]) -> None:
        if phase == "start" and begun[-1]:
            steps.append(begun[-1])

    gc.callbacks.append(record)
    try:
        with before_each_step(begun.append):
            train(TrainSpec(**spec), ranks, StopAfter(None), metrics.StartupTimer())
    finally:
        gc.callbacks.remove(record)
    return steps


def record_expert_dtypes(ranks: Ranks, *, spec: dict[str, Any]) -> list[tuple[str, str]]:
    """Train, and return the types of the inputs of grouped matrix products, each pair once."""
    dtypes: set[tuple[str, str]] = set()

    def record(left: torch.Tensor, right: torch.Tensor, **_: Any) -> None:
        dtypes.add((str(left.dtype), str(right.dtype)))

    with observe(torch.nn.functional, "grouped_mm", record):
        run_training(ranks, spec=spec)
    return sorted(dtypes)


def run_as_on_gpu(ranks: Ranks, *, spec: dict[str, Any], memory: int, stop_after: int | None = None) -> dict[str, Any]:
    """Train with the defaults of a GPU with `memory` bytes that cannot compile."""
    device = Device(kind="cuda", memory=memory, obstacle="this is a test")
    with mock.patch.object(device_defaults, "find_device", return_value=device):
        return run_training(ranks, spec=spec, stop_after=stop_after)


def run_compiled(ranks: Ranks, *, spec: dict[str, Any]) -> dict[str, Any]:
    """Train with compiled layers; the result also has the number of graphs that torch has compiled, in all and by step."""
    from torch._dynamo.utils import counters

    torch._dynamo.reset()
    counters.clear()
    counts: list[int] = []
    with before_each_step(lambda _: counts.append(counters["stats"]["unique_graphs"])):
        result = run_training(ranks, spec=spec | {"compile": True})
    counts.append(counters["stats"]["unique_graphs"])
    return result | {"graphs": counts[-1], "graphs by step": [after - before for before, after in pairwise(counts)]}


def train_with_nan(
    ranks: Ranks,
    *,
    spec: dict[str, Any],
    steps: list[int],
    rank: int,
    loss: bool = True,
    gradients: bool = True,
    stop_after: int | None = None,
) -> dict[str, Any]:
    """Train; on rank `rank` the `loss` and the `gradients` of each step in `steps` are NaN the first time."""
    logged: list[tuple[int, float]] = []
    calls = 0

    def nan_loss(*args: Any) -> Any:
        nonlocal calls
        calls += 1
        value = token_loss(*args)
        if calls not in steps or ranks.rank != rank:
            return value
        if not loss:
            return torch.where(value > 0, value, (value - value).sqrt())  # the gradient of the other branch is 0 times infinity
        return value * math.nan if gradients else value + math.nan

    def record_loss(step: int, **values: Any) -> None:
        logged.append((step, values["loss"]))

    with mock.patch("kfjob.trainer.step.token_loss", nan_loss), observe(metrics, "progress_line", record_loss):
        return {**run_training(ranks, spec=spec, stop_after=stop_after), "steps": logged}


def train_as_on_cpu_with_fp16(ranks: Ranks, *, spec: dict[str, Any], steps: Sequence[int] = (), **options: Any) -> Any:
    """Train, with NaN in `steps` or without, on a CPU that DeepSpeed takes for one with units for fp16; torch needs none."""
    os.environ.setdefault("DS_ACCELERATOR", "cpu")
    from deepspeed.accelerator.cpu_accelerator import CPU_Accelerator

    with mock.patch.object(CPU_Accelerator, "is_fp16_supported", return_value=True):
        return train_with_nan(ranks, spec=spec, steps=list(steps), rank=0, **options)


def error_of_train_with_nan(ranks: Ranks, **arguments: Any) -> str:
    """Return the error message of `train_with_nan`."""
    return error_of(train_with_nan, ranks, **arguments)


def error_of_train_with_infinite_norm(ranks: Ranks, *, spec: dict[str, Any], step: int) -> str:
    """Return the error message of a run whose gradient norm is infinite in a step; the loss and each gradient are finite.

    Clipping makes the gradients of that step 0, so the weights stay finite, too.
    """
    calls = 0

    def add_gradients(model: Any, *batch: Any) -> Any:
        nonlocal calls
        calls += 1
        loss = token_loss(model, *batch)
        if calls != step:
            return loss
        weight = model.get_input_embeddings().weight
        return loss + ((weight - weight.detach()) * 1e38).sum() * count_targets(torch.stack(batch[:2], 1).numpy())

    with mock.patch("kfjob.trainer.step.token_loss", add_gradients):
        return error_of_training(ranks, spec=spec)


def record_speeds(ranks: Ranks, *, spec: dict[str, Any], nan_at: int) -> list[tuple[int, float]]:
    """Return the logged speeds by a clock on which a step takes 1 s, and everything else between two steps 1000 s.

    The loss of micro-batch `nan_at` is NaN.
    """
    now, speeds = 0.0, []

    def pass_time(original: Callable[..., Any], seconds: float) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            nonlocal now
            now += seconds
            return original(*args, **kwargs)

        return call

    def record_speed(step: int, **values: Any) -> str:
        speeds.append((step, values["speed"]))
        return ""

    with contextlib.ExitStack() as stack:
        patch = stack.enter_context
        for name in ("evaluate", "save", "roll_back"):
            patch(mock.patch.object(TrainingRun, name, pass_time(getattr(TrainingRun, name), 1000)))
        patch(mock.patch.object(Stepper, "take", pass_time(Stepper.take, 1)))
        patch(mock.patch.object(metrics, "Throughput", partial(metrics.Throughput, lambda: now)))
        patch(mock.patch.object(metrics, "progress_line", record_speed))
        train_with_nan(ranks, spec=spec, steps=[nan_at], rank=0)
    return speeds


def round_shards(ranks: Ranks) -> list[float]:
    """Return this rank's shard of a parameter in bf16 after a step. All its values were equal, and so were the gradients.

    Of four ranks each two hold the same shard.
    """
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard"))
    placements = [Replicate(), Shard(0)]
    parameter = torch.nn.Parameter(distribute_tensor(torch.full((128, 2), 0.02, dtype=torch.bfloat16), mesh, placements))
    parameter.grad = distribute_tensor(torch.ones(128, 2, dtype=torch.bfloat16), mesh, placements)
    StochasticAdamW([parameter], lr=3e-5, betas=(0.9, 0.95), eps=1e-8, seed=1).step()
    local: Any = parameter.detach()
    values: list[float] = local.to_local().flatten().tolist()
    return values


def save_not_finite(ranks: Ranks, *, spec: dict[str, Any], source: str, step: int) -> None:
    """Write a checkpoint with a NaN next to the checkpoint `source`, as earlier versions did."""
    _, strategy, model, optimizer = build(ranks, spec)
    state = strategy.checkpoint_state(model, optimizer)
    with torch.no_grad():
        next(iter(model.parameters())).view(-1)[0] = math.nan
    storage, name = split_location(source)
    with (
        mock.patch.object(checkpoint_writer, "is_finite", return_value=True),
        CheckpointWriter(storage, state, ranks) as writer,
    ):
        writer.save(dataclasses.replace(storage.read_manifest(name), step=step, files={}))


def train_with_failing(ranks: Ranks, *, spec: dict[str, Any], function: str, at: int) -> tuple[str, str]:
    """Train while a function of `checkpoint_writer` fails from its call number `at` on; return the outcome and the error."""
    calls = 0

    def fail(*_: object) -> None:
        nonlocal calls
        calls += 1
        if calls >= at:
            raise KfjobError(f"{function} failed")

    with observe(checkpoint_writer, function, fail):
        try:
            return str(run_training(ranks, spec=spec)["outcome"]["outcome"]), ""
        except KfjobError as error:
            return "failed", error.title


def weights_after_a_step(ranks: Ranks, *, spec: dict[str, Any]) -> bool:
    """Return whether the full weights that a save took are still the same after the parameters have changed."""
    _, strategy, model, optimizer = build(ranks, spec)
    weights = strategy.checkpoint_state(model, optimizer).full_weights()
    saved = {name: tensor.clone() for name, tensor in weights.items()}
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(1)
    return all(torch.equal(tensor, saved[name]) for name, tensor in weights.items())


def seeds_and_modes(ranks: Ranks, *, spec: dict[str, Any]) -> list[tuple[int, bool]]:
    """Train, and return torch's seed in each micro-batch, and whether the model was in training mode."""
    recorded = []

    def record(model: Any, *_: object) -> None:
        recorded.append((torch.initial_seed(), model.training))

    with observe(sys.modules[Stepper.__module__], "token_loss", record):
        run_training(ranks, spec=spec)
    return recorded


def roll_back_to(ranks: Ranks, *, spec: dict[str, Any], before: int | None) -> str:
    """Return the name of the checkpoint to which a run rolls back."""
    parsed, strategy, model, optimizer = build(ranks, spec)
    state = strategy.checkpoint_state(model, optimizer)
    with CheckpointWriter(open_storage(str(parsed.checkpoint_dir)), state, ranks) as writer:
        try:
            return roll_back(writer, model, state, ranks, before=before).name
        except KfjobError as error:
            return str(error)


def train_out_of_memory(ranks: Ranks, *, spec: dict[str, Any]) -> str:
    """Return the error message of a run whose first forward pass is out of memory."""
    error = torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB.\nmore details")
    with mock.patch("kfjob.trainer.step.token_loss", side_effect=error):
        return error_of_training(ranks, spec=spec)


def compute_logits(ranks: Ranks, *, spec: dict[str, Any]) -> list[Any]:
    """Return the model's logits of the tokens 0 to 31; the weights are those of the checkpoint `resume`."""
    parsed, _, model, optimizer = build(ranks, spec)
    if parsed.resume != "auto":
        source = find_checkpoint(parsed.resume, None, ranks)
        assert source
        checkpoint.load_checkpoint(source, model, checkpoint.ModelState(model, optimizer), ranks)
    ids = torch.arange(32).reshape(2, 16)
    with torch.no_grad():
        values: list[Any] = model.eval()(input_ids=ids).logits.tolist()
    return values


def count_read_weights(ranks: Ranks, *, spec: dict[str, Any]) -> int:
    """Return the number of pretrained numbers that this rank reads before its first step."""
    module = sys.modules[PretrainedWeights.__module__]
    safe_open, count = vars(module)["safe_open"], 0

    class CountedSlice:
        def __init__(self, part: Any) -> None:
            self._part, self.get_shape = part, part.get_shape

        def __getitem__(self, place: Any) -> torch.Tensor:
            nonlocal count
            values: torch.Tensor = self._part[place]
            count += values.numel()
            return values

    @contextlib.contextmanager
    def open_counted(*args: Any, **kwargs: Any) -> Any:
        with safe_open(*args, **kwargs) as tensors:
            yield SimpleNamespace(keys=tensors.keys, get_slice=lambda name: CountedSlice(tensors.get_slice(name)))

    with mock.patch.object(module, "safe_open", open_counted):
        run_training(ranks, spec=spec)
    return count


def compute_transformers_loss(ranks: Ranks, *, spec: dict[str, Any]) -> float:
    """Return the loss of transformers' own model on the first micro-batch."""
    from transformers import AutoModelForCausalLM

    parsed = TrainSpec(**spec)
    samples = open_data(parsed, rank=ranks.rank, world_size=ranks.world_size).train.read_batch(resolve_micro_batch_size(parsed))
    model = AutoModelForCausalLM.from_pretrained(str(parsed.model)).train()
    model_logits = model(input_ids=torch.from_numpy(samples[:, 0])).logits
    targets = torch.from_numpy(samples[:, 1])
    return torch.nn.functional.cross_entropy(model_logits.flatten(0, 1), targets.flatten()).item()


def error_of_training(ranks: Ranks, **arguments: Any) -> str:
    """Return the error message of `run_training`."""
    return error_of(run_training, ranks, **arguments)


def error_of(program: Callable[..., object], *arguments: Any, **options: Any) -> str:
    """Return the message of the error that a call raises."""
    try:
        program(*arguments, **options)
    except KfjobError as error:
        return str(error)
    raise AssertionError("the run raised no error")


def make_manifest_unreadable_while_training(ranks: Ranks, *, spec: dict[str, Any], folder: str, step: int) -> str:
    """Train, replace the manifest of a step by a link to itself when the step is logged, and return the outcome."""
    manifest = Path(folder) / f"step-{step:06d}" / "manifest.json"

    def break_manifest(name: str, *_: object) -> None:
        if name == manifest.parent.name:
            manifest.unlink()
            manifest.symlink_to(manifest.name)

    with observe(metrics, "checkpoint_line", break_manifest):
        return str(run_training(ranks, spec=spec)["outcome"]["outcome"])


def lose_lease_while_training(ranks: Ranks, *, spec: dict[str, Any], folder: str, at: int) -> str:
    """Train, remove the lease before step `at`, or if that is 0 just before a commit, and return the error."""

    def remove_lease(step: int) -> None:
        if step == at:
            (Path(folder) / LEASE_FILE).unlink(missing_ok=True)

    def take_over(storage: FolderStorage, *_: object) -> None:
        storage.remove_file(LEASE_FILE)
        storage.prepare()  # as the other job does

    with before_each_step(remove_lease) if at else observe(FolderStorage, "commit", take_over):
        return error_of_training(ranks, spec=spec | {"async_checkpoint": False})


def optimizer_settings_after_load(ranks: Ranks, *, spec: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the settings of the optimiser's groups after the checkpoint `resume` is loaded."""
    parsed, strategy, model, optimizer = build(ranks, spec)
    state = strategy.checkpoint_state(model, optimizer)
    source = find_checkpoint(parsed.resume, None, ranks)
    assert source
    checkpoint.load_checkpoint(source, model, state, ranks)
    return [{name: value for name, value in group.items() if name != "params"} for group in optimizer.param_groups]


def hash_weights_after_steps(ranks: Ranks, *, spec: dict[str, Any], steps: int) -> str:
    """Return a hash of this rank's parameters after some steps."""
    parsed, strategy, model, optimizer = build(ranks, spec)
    data = open_data(parsed, rank=ranks.rank, world_size=ranks.world_size).train
    for step in range(steps):
        torch.manual_seed(100 * step + ranks.rank)
        batch = to_batch(data.read_batch(resolve_micro_batch_size(parsed)), ranks.device)
        strategy.accumulate(model, lambda batch=batch: token_loss(model, *batch) / 100, last=True)  # type: ignore[misc]
        strategy.step(model, optimizer)
    parameters = [p.to_local() if hasattr(p, "to_local") else p for p in model.parameters()]
    content = b"".join(parameter.detach().contiguous().view(torch.uint8).numpy().tobytes() for parameter in parameters)
    return hashlib.sha256(content).hexdigest()


def measure_bytes(ranks: Ranks, *, spec: dict[str, Any]) -> dict[str, int]:
    """Return the bytes of this rank's parameters, gradients, optimiser state and saved activations."""
    parsed = TrainSpec(**spec)
    strategy = make_strategy(parsed, ranks)
    model = build_model(parsed, strategy, ranks.device, context=ranks.share_samples(parsed.context_parallel).context)
    optimizer = strategy.make_optimizer(model)
    inputs = torch.zeros(resolve_micro_batch_size(parsed), parsed.sequence_length, dtype=torch.long)
    saved: list[torch.Tensor] = []
    unsharded_gradients: list[torch.Tensor] = []

    def record(tensor: torch.Tensor) -> torch.Tensor:
        # weights are not multiples of the tokens, with the shapes of this test; only the attention of a CPU has masks
        is_mask = parsed.context_parallel > 1 and tensor.shape[:1] == (parsed.sequence_length // (2 * parsed.context_parallel),)
        if tensor.numel() % (inputs.numel() // parsed.context_parallel) == 0 and not is_mask:
            saved.append(tensor)
        return tensor

    activations = 0

    def compute_loss() -> torch.Tensor:
        nonlocal activations
        saved.clear()
        with torch.autograd.graph.saved_tensors_hooks(record, lambda tensor: tensor):
            loss = token_loss(model, inputs, inputs)
        activations = _nbytes(saved)
        return loss

    last = parsed.gradient_accumulation_steps - 1
    for number in range(last + 1):
        strategy.accumulate(model, compute_loss, last=number == last)
        if number < last and parsed.strategy == "fsdp":
            unsharded_gradients = _unsharded_gradients(model)
    gradients = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
    measured = {"gradients": max(_nbytes(unsharded_gradients), _nbytes(gradients)), "activations": activations}
    optimizer.step()
    state = [value for values in optimizer.state.values() for value in values.values()]
    return measured | {"parameters": _nbytes(list(model.parameters())), "optimizer": _nbytes(state)}


def measure_zero_bytes(ranks: Ranks, *, spec: dict[str, Any]) -> dict[str, int]:
    """Return the bytes of this rank's parameters, gradients (the largest after a micro-batch) and optimiser under DeepSpeed."""
    parsed, strategy, engine, optimizer = build(ranks, spec)
    inputs = torch.zeros(resolve_micro_batch_size(parsed), parsed.sequence_length, dtype=torch.long)
    gradients = 0
    for number in range(parsed.gradient_accumulation_steps):
        last = number == parsed.gradient_accumulation_steps - 1
        strategy.accumulate(engine, partial(token_loss, engine, inputs, inputs), last=last)
        full = [parameter.grad for parameter in engine.module.parameters()]
        averaged = [tensor for group in getattr(optimizer, "averaged_gradients", {}).values() for tensor in group or ()]
        shards = [getattr(optimizer, "grad_partitions_flat_buffer", None)]
        gradients = max(gradients, _nbytes([tensor for tensor in (*full, *averaged, *shards) if tensor is not None]))
    strategy.step(engine, optimizer)
    adam = getattr(optimizer, "optimizer", optimizer)
    state = [value for values in adam.state.values() for value in values.values()]
    masters = getattr(optimizer, "fp32_partitioned_groups_flat", None) or getattr(
        optimizer, "single_partition_of_fp32_groups", []
    )
    parameters = list(engine.module.parameters())
    tensors = [*parameters, *(parameter.ds_tensor for parameter in parameters if hasattr(parameter, "ds_tensor"))]
    return {"parameters": _nbytes(tensors), "gradients": gradients, "optimizer": _nbytes([*state, *masters])}


class Collectives(TorchDispatchMode):
    """Records collectives as (operation, dtype, bytes of its input, at most four distinct values of it)."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[tuple[str, str, int, list[float]]] = []

    def __torch_dispatch__(self, operation: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if operation.namespace == "c10d":
            tensor = args[1] if isinstance(args[0], torch.Tensor) else args[0][0]
            name = operation.name().removeprefix("c10d::").strip("_").removesuffix("_base")
            self.records.append((name, str(tensor.dtype), tensor.nbytes, tensor.unique()[:4].tolist()))
        return operation(*args, **(kwargs or {}))


def record_collectives(ranks: Ranks, *, spec: dict[str, Any]) -> dict[str, Any]:
    """Return FSDP2's collectives in a forward and a backward pass; the weights of layer n are n, from 1, all others 0."""
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
    forward: list[Any] = []

    def compute_loss() -> torch.Tensor:
        loss = token_loss(model, inputs, inputs)
        forward.extend(collectives.records)
        return loss

    with Collectives() as collectives:
        strategy.accumulate(model, compute_loss, last=True)
    local_elements = [sum(parameter.to_local().numel() for parameter in layer.parameters()) for layer in model.model.layers]
    return {"forward": forward, "backward": collectives.records[len(forward) :], "local_elements": local_elements}


def record_gradient_reductions(ranks: Ranks, *, spec: dict[str, Any]) -> list[tuple[str, int]]:
    """Return the reductions of a step's gradients, and their bytes."""
    parsed, strategy, model, _ = build(ranks, spec)
    with Collectives() as collectives:
        accumulate_zeros(parsed, strategy, model)
    return [(name, size) for name, _, size, _ in collectives.records if "reduce" in name]


def measure_build_peak(ranks: Ranks, *, spec: dict[str, Any]) -> int:
    """Return the peak bytes while the model is built, as the allocator reports them."""
    parsed = TrainSpec(**spec)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profiler:
        build_model(parsed, make_strategy(parsed, ranks), ranks.device)
    return peak_bytes(profiler)


def measure_offloaded_bytes(ranks: Ranks, *, spec: dict[str, Any]) -> list[int]:
    """Return the bytes of all tensors that DeepSpeed and the model hold after a step, and of the largest.

    Without a GPU, device and host share the memory.
    """
    gc.collect()
    before = _live_storages()
    parsed, strategy, engine, optimizer = build(ranks, spec)
    accumulate_zeros(parsed, strategy, engine, resolve_micro_batch_size(parsed))
    strategy.step(engine, optimizer)
    gc.collect()
    sizes = [size for address, size in _live_storages().items() if address not in before]
    return [sum(sizes), max(sizes)]


def _live_storages() -> dict[int, int]:
    """Return the bytes of every tensor storage of this process, by address."""
    storages = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # inspecting some objects raises deprecation warnings
        tensors = [value for value in gc.get_objects() if issubclass(type(value), torch.Tensor)]
    for tensor in tensors:
        if isinstance(tensor, FakeTensor):  # of an earlier compilation, without memory
            continue
        with contextlib.suppress(RuntimeError):  # other tensors of the compiler
            storages[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
    return storages


class MessageRecorder(logging.Handler):
    """Records log messages."""

    def __init__(self) -> None:
        super().__init__()
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.append(record.getMessage())


def run_with_comms_logger(ranks: Ranks, *, spec: dict[str, Any]) -> dict[str, Any]:
    """Train with `comms_logger`, and return the bytes by operation, the printed table, and the ranks' lines."""
    from deepspeed.comm.comm import comms_logger

    comms_logger.reset_data()
    handler = MessageRecorder()
    metrics.log.addHandler(handler)
    output = io.StringIO()
    try:
        with contextlib.redirect_stdout(output):
            run_training(ranks, spec=spec)
    finally:
        metrics.log.removeHandler(handler)
        comms_logger.enabled = False
    bytes_by_operation = {
        name: sum(size * entry[0] for size, entry in sizes.items()) for name, sizes in comms_logger.comms_dict.items()
    }
    return {
        "bytes": bytes_by_operation,
        "output": output.getvalue(),
        "lines": [line for line in handler.messages if line.startswith("Device ")],
        "totals": [line for line in handler.messages if line.startswith("Communication ")],
    }


def load_scaled_weights(ranks: Ranks, *, spec: dict[str, Any]) -> list[list[float]]:
    """Return the scales of weights in fp8 after a step, after a second one, and after the first weights are loaded."""
    parsed, strategy, model, optimizer = build(ranks, spec)

    def take_step() -> list[float]:
        accumulate_zeros(parsed, strategy, model)
        strategy.step(model, optimizer)
        return read_scales()

    def read_scales() -> list[float]:
        modules = [module for module in model.modules() if is_converted(module)]
        return [float(module.weight._local_tensor._precomputed_scale) for module in modules]

    first = take_step()
    saved = copy.deepcopy(strategy.checkpoint_state(model, optimizer).state_dict())
    second = take_step()
    strategy.checkpoint_state(model, optimizer).load_state_dict(saved)
    return [first, second, read_scales()]


def measure_training_peak(ranks: Ranks, *, spec: dict[str, Any]) -> int:
    """Return the peak bytes of a step, as the allocator reports them: the lowest of some steps, after the first one.

    gloo communicates in its own threads. On a busy machine they free buffers late, which only adds to a peak. One rank has the
    same peak in each step.
    """
    parsed = TrainSpec(**spec)
    gc.collect()  # otherwise tensors of an earlier program would count as freed during the measurement
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profiler:
        strategy = make_strategy(parsed, ranks)
        model = build_model(parsed, strategy, ranks.device, context=ranks.share_samples(parsed.context_parallel).context)
        optimizer = strategy.make_optimizer(model)
        for _ in range(2 if ranks.world_size == 1 else 5):
            with torch.profiler.record_function(STEP):
                accumulate_zeros(parsed, strategy, model, resolve_micro_batch_size(parsed))
                torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                optimizer.zero_grad()
    return min(step_peaks(profiler)[1:])


STEP = "one step"


def peak_bytes(profiler: Any) -> int:
    """Return the largest sum of allocations."""
    events = [event for event in profiler.profiler.kineto_results.events() if event.name() == "[memory]"]
    changes: list[int] = [event.nbytes() for event in sorted(events, key=lambda event: event.start_ns())]
    return max(accumulate(changes))


def step_peaks(profiler: Any) -> list[int]:
    """Return the largest sum of allocations in each step."""
    events = [event for event in profiler.profiler.kineto_results.events() if event.name() in ("[memory]", STEP)]
    peaks: list[int] = []
    total = 0
    for event in sorted(events, key=lambda event: event.start_ns()):
        if event.name() == STEP:
            peaks.append(total)
            continue
        total += event.nbytes()
        if peaks:
            peaks[-1] = max(peaks[-1], total)
    return peaks


def _unsharded_gradients(model: Any) -> list[torch.Tensor]:
    """Return the gradients that FSDP2 accumulates without communication; it has no public way to them."""
    groups = [unit._get_fsdp_state()._fsdp_param_group for unit in model.modules() if hasattr(unit, "_get_fsdp_state")]
    gradients = [p._unsharded_param.grad for group in groups if group for p in group.fsdp_params]
    return [gradient for gradient in gradients if gradient is not None]


def _nbytes(tensors: list[Any]) -> int:
    """Return the bytes of the storages of `tensors`, each storage once."""
    local = [tensor.to_local() if hasattr(tensor, "to_local") else tensor for tensor in tensors]
    local = [getattr(tensor, "_tensor", tensor) for tensor in local]  # of torchao, which has no storage of its own
    quantized = [tensor for tensor in local if is_quantized(tensor)]
    local = [tensor for tensor in local if not is_quantized(tensor)]
    local += [getattr(tensor, part) for tensor in quantized for part in tensor.__tensor_flatten__()[0]]
    return sum({t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in local}.values())


def run_evaluation(ranks: Ranks, *, spec: dict[str, Any]) -> list[float]:
    """Return the validation loss of new weights, and the number of targets."""
    parsed = TrainSpec(**spec)
    strategy = make_strategy(parsed, ranks)
    samples = open_data(parsed, rank=ranks.rank, world_size=ranks.world_size).validation
    model = build_model(parsed, strategy, ranks.device)
    return list(evaluate(model, samples, batch_size=resolve_eval_batch_size(parsed), ranks=ranks) or ())


def find_newest_checkpoint(
    ranks: Ranks,
    *,
    folder: str,
    resume: str = "auto",
    run_id: str = "",
    continues: str = "",
    agents: Sequence[dict[str, Any]] = (),
) -> str | None:
    """Return the name of the checkpoint from which a run of the launch `run_id` resumes."""
    ranks = dataclasses.replace(ranks, run_id=run_id, agents=tuple(ProcessIdentity(**agent) for agent in agents))
    result = find_checkpoint(resume, open_storage(folder), ranks, continues=continues)
    return result.name if result else None


def prepare_without_lease(ranks: Ranks, *, folder: str) -> str:
    """Return the error of a run whose lease and files another job removes while it prepares its storage."""
    storage = open_storage(folder)
    storage.create()
    lease = Lease(storage, "run-1", os.getpid())
    lease.acquire()
    probe = type(storage).probe

    def probe_and_lose(self: Any, name: str) -> None:
        probe(self, name)
        self.prepare()  # as the other job does
        self.remove_file(LEASE_FILE)

    with mock.patch.object(type(storage), "probe", probe_and_lose):
        try:
            checkpoint.prepare_storage(storage, ranks, check_lease=lease.check)
        except KfjobError as error:
            return str(error)
    return ""


def prepare_different_folders(ranks: Ranks, *, folder: str) -> str:
    """Return the error of ranks whose storage is not shared."""
    storage = open_storage(f"{folder}/{ranks.rank}")
    storage.create()
    try:
        checkpoint.prepare_storage(storage, ranks)
    except KfjobError as error:
        return str(error)
    finally:
        for name in storage.list_files(".probe-"):
            storage.remove_file(name)
    return "no error"


def delete_while_resuming(ranks: Ranks, *, spec: dict[str, Any], folder: str) -> int:
    """Return the last step of a run, while another run wants to delete the checkpoint from which it resumes."""

    def delete(*_: object, **__: object) -> None:
        if ranks.is_rank_zero:
            delete_unless_pinned(open_storage(folder), "step-000001")
        ranks.all_gather(None)

    with observe(sys.modules[prepare_run.__module__], "load_checkpoint", delete):
        return int(run_training(ranks, spec=spec)["outcome"]["step"])


def delete_after_resuming(ranks: Ranks, *, spec: dict[str, Any], folder: str) -> list[str]:
    """Return the checkpoints in `folder` that another run could not delete in the first step of a run that resumes from one."""
    storage = open_storage(folder)

    def delete(_: int) -> None:
        for name in storage.list_names():
            delete_unless_pinned(storage, name)

    with before_each_step(delete):
        train(TrainSpec(**spec), ranks, StopAfter(None), metrics.StartupTimer())
    return storage.list_names()


def fail_some_ranks(ranks: Ranks, *, failing: list[int]) -> str:
    """Return this rank's error if the ranks `failing` fail."""
    try:
        with ranks.fail_together():
            _fail(ranks.rank, failing)
    except KfjobError as error:
        return error.title
    return "no error"


def _fail(rank: int, failing: list[int]) -> None:
    if rank in failing:
        raise KfjobError(f"rank {rank} has no data")


def reset_deepspeed() -> None:
    """Reset DeepSpeed's global state, because it expects one run per process.

    It keeps process groups, and the ids of modules and parameters, which must be equal on all ranks: here one rank may have had
    more runs than another. Its stage 3 also replaces torch's linear function.
    """
    torch.nn.functional.linear = LINEAR
    if groups := sys.modules.get("deepspeed.utils.groups"):
        importlib.reload(groups)
        sys.modules["deepspeed.comm.comm"].cdb = None  # type: ignore[attr-defined]
    if offload := sys.modules.get("deepspeed.runtime.zero.parameter_offload"):
        offload.DeepSpeedZeRoOffload._register_deepspeed_module.__defaults__[0][0] = 0
        sys.modules["deepspeed.runtime.zero.partition_parameters"].Init.param_id = 0


def serve(requests: Connection) -> None:
    """Run the requested programs until the connection is closed."""
    if not sys.warnoptions:  # an older torch warns about its own code: set PYTHONWARNINGS=default
        warnings.simplefilter("error")
    warnings.filterwarnings("ignore", ".*invalid escape sequence")  # in packages that are compiled at their first import
    warnings.filterwarnings("ignore", "The .grad attribute of a Tensor that is not a leaf")  # raised by torch's own tracer
    freeze = gc.freeze
    gc.freeze = gc.unfreeze = lambda: None  # all that was imported stays frozen, and a run's own objects can be collected
    modules = len(sys.modules)
    while True:
        try:
            request = json.loads(requests.recv())
        except EOFError:
            return
        requests.send(json.dumps(run_request(request), default=str))
        if len(sys.modules) > modules:  # DeepSpeed, the compiler …: each run collects three times, and would visit all of it
            modules = len(sys.modules)
            freeze()


def run_request(request: dict[str, Any]) -> dict[str, Any]:
    """Run a program as one of the request's ranks, and return its result or its error."""
    rank, world_size = request["rank"], request["world_size"]
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(world_size))
    os.environ.update(LOCAL_RANK=str(rank % request["local_world_size"]), LOCAL_WORLD_SIZE=str(request["local_world_size"]))
    metrics.start_logging(verbose=rank == 0)
    try:
        ranks = Ranks.join(FileStore(request["store"], world_size))
        return {"result": globals()[request["program"]](ranks, **request["arguments"])}
    except BaseException:  # noqa: BLE001 -- the test shows it
        return {"error": traceback.format_exc()}
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()
        reset_deepspeed()
        gc.collect()  # a process group that is left in a cycle has three threads, and one of them polls
