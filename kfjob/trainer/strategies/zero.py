"""DeepSpeed: shards the optimiser state (stage 1), also the gradients (2), also the parameters (3), or nothing (0).

The loop works as with every other strategy: it divides the loss by the tokens of all ranks, decides which micro-batch is the
last of a step, and sets the learning rate. DeepSpeed handles precision, communication, clipping and the optimiser step. It is
imported only on use: it is an extra, and prints at import.
"""

from __future__ import annotations

import ctypes
import logging
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from kfjob.base.errors import KfjobError
from kfjob.base.units import MIB
from kfjob.trainer.checkpoint import CheckpointState, ModelState
from kfjob.trainer.distributed import Ranks
from kfjob.trainer.metrics import communication_line, log
from kfjob.trainer.optim import make_optimizer
from kfjob.trainer.strategies.base import COMPUTE_DTYPES, Accept, accept_always, clip_gradients
from kfjob.trainer.strategies.zero_state import ZeroState
from kfjob.trainspec.packages import Package
from kfjob.trainspec.train_spec import TrainSpec, resolve_micro_batch_size

SUB_GROUP_SIZE = 100_000_000
"""Optimiser elements to read from files at once; DeepSpeed holds four host buffers of this size."""
SCALER_FIELDS = ("cur_scale", "cur_iter", "last_overflow_iter", "cur_hysteresis")
"""What changes in the loss scaler (deepspeed 0.19, runtime/fp16/loss_scaler.py DynamicLossScaler)."""
_INFERENCE_OP = "deepspeed_shm_comm"
"""What DeepSpeed compiles on a CPU for the all-reduce of inference (deepspeed 0.19, comm/torch.py TorchBackend)."""
LOCK_TRIAL_BYTES = 64 * MIB
"""Bytes to lock as a trial: more than a container with the usual limit of 8 MiB or 64 KiB can lock."""


class DeepSpeed:
    """ZeRO, stages 0 to 3: adapts DeepSpeed's engine to the protocol of a strategy."""

    shards_units = False

    def __init__(self, spec: TrainSpec, ranks: Ranks) -> None:
        """Import DeepSpeed for this device.

        Raises:
            KfjobError: DeepSpeed is not installed, or does not support the spec.
        """
        self._spec, self._ranks, self._config = spec, ranks, make_config(spec, ranks)
        self._deepspeed = _import_deepspeed(ranks)
        check_precision(spec, self._deepspeed.accelerator.get_accelerator())
        self._deepspeed.init_distributed(dist_init_required=False, verbose=False)
        self._swapper: Any = None
        self._scaler: Any = None
        if spec.disk_offload:
            _check_disk_offload()

    def wrap(self, model: Any, units: Iterable[nn.Module]) -> nn.Module:
        """Create DeepSpeed's engine for the model and the optimiser; at stage 3 shard one unit after the other."""
        if self._spec.disk_offload:  # the size of the buffers for files: this rank's part of the largest parameter
            largest = max(parameter.numel() for parameter in model.parameters())
            self._config["zero_optimization"]["offload_param"]["buffer_size"] = -(-largest // self._ranks.world_size)
        for unit in units:
            if self._spec.zero_stage == 3:
                self._shard(unit)
        buffers = [(module, name, buffer) for module in model.modules() for name, buffer in module.named_buffers(recurse=False)]
        engine, *_ = self._deepspeed.initialize(
            model=model, optimizer=make_optimizer(model, self._spec), config=self._config, dist_init_required=False
        )
        for module, name, buffer in buffers:  # undo the engine's cast: rotary frequencies must be exact
            setattr(module, name, buffer.to(self._ranks.device))
        wrapped: nn.Module = engine
        return wrapped

    def _shard(self, unit: nn.Module) -> None:
        for parameter in unit.parameters():
            if not hasattr(parameter, "ds_id"):
                parameter.data = parameter.data.to(COMPUTE_DTYPES[self._spec.precision])
        context = self._deepspeed.zero.Init(module=unit, config_dict_or_path=self._config, param_swapper=self._swapper)
        self._swapper = context.param_swapper  # a new swapper would remove the files of the one before

    def make_optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        """Return the engine's optimiser, and log each rank's part of it."""
        engine: Any = model
        for line in self._ranks.all_gather(device_line(engine, self._ranks.rank, self._spec)):
            log.info(line)
        self._scaler = getattr(engine.optimizer, "loss_scaler", None)
        optimizer: torch.optim.Optimizer = engine.optimizer
        return optimizer

    def accumulate(self, model: nn.Module, compute_loss: Callable[[], Tensor], *, last: bool) -> Tensor:
        """Let the engine reduce gradients as its stage requires: on the last micro-batch, from stage 2 on each one.

        The loss is divided by the tokens of all ranks, so the engine's average over the ranks is undone.
        """
        engine: Any = model
        engine.set_gradient_accumulation_boundary(last)
        loss = compute_loss()
        engine.backward(loss * self._ranks.world_size, scale_wrt_gas=False)
        if not last:
            engine.step()  # only counts the micro-batch
        return loss.detach()

    def step(self, model: nn.Module, optimizer: torch.optim.Optimizer, accept: Accept = accept_always) -> Tensor:
        """Let the engine clip and update; it does not clip at stage 0. The spec allows no step to be refused."""
        del optimizer, accept
        engine: Any = model
        norm = None if self._spec.zero_stage else clip_gradients(model, self._spec.grad_clip)
        engine.step()
        return torch.as_tensor(engine.get_global_grad_norm()) if norm is None else norm

    def checkpoint_state(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> CheckpointState:
        """Return full tensors at every stage."""
        engine: Any = model
        return ZeroState(engine, self._ranks) if self._spec.zero_stage else ModelState(engine.module, optimizer)

    def state_dict(self) -> dict[str, Any]:
        """Return the state of DeepSpeed's loss scaler."""
        return {name: getattr(self._scaler, name) for name in SCALER_FIELDS} if self._spec.precision == "fp16" else {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the loss scaler; that of another strategy has other fields, and is ignored."""
        if state.keys() == self.state_dict().keys():
            for name, value in state.items():
                setattr(self._scaler, name, value)


@contextmanager
def log_communication(spec: TrainSpec) -> Iterator[None]:
    """Print DeepSpeed's summary of the communication after the block, and its sum, with `comms_logger`."""
    yield
    if spec.comms_logger:
        from deepspeed.comm.comm import comms_logger, log_summary

        counts = [(size, entry[0]) for sizes in comms_logger.comms_dict.values() for size, entry in sizes.items()]
        log_summary()
        log.info(communication_line(sum(size * calls for size, calls in counts), sum(calls for _, calls in counts)))


def make_config(spec: TrainSpec, ranks: Ranks) -> dict[str, Any]:
    """Return DeepSpeed's configuration (deepspeed 0.19, runtime/config.py)."""
    zero: dict[str, Any] = {"stage": spec.zero_stage}
    if spec.cpu_offload:
        device = {"device": "cpu", "pin_memory": ranks.device.type == "cuda"}
        zero["offload_optimizer"] = device
        if spec.zero_stage == 3:
            zero["offload_param"] = device
    if spec.disk_offload:
        device = {"device": "nvme", "nvme_path": spec.disk_offload, "pin_memory": ranks.device.type == "cuda"}
        zero["offload_optimizer"] = device
        zero["offload_param"] = device | {"max_in_cpu": 0}  # by default DeepSpeed keeps the first 10^9 elements on the host
        zero["sub_group_size"] = SUB_GROUP_SIZE
        zero["stage3_max_reuse_distance"] = 0  # a parameter kept for reuse occupies one of five buffers
    # the section alone enables the logger, even with `enabled: false` (deepspeed 0.19, comm/config.py), and it slows steps down
    logger = (
        {"comms_logger": {"enabled": True, "prof_all": True, "verbose": False, "debug": False}} if spec.comms_logger else {}
    )
    return logger | {
        "train_micro_batch_size_per_gpu": resolve_micro_batch_size(spec),
        "gradient_accumulation_steps": 1,  # the loop decides which micro-batch is the last
        "gradient_clipping": spec.grad_clip if spec.zero_stage else 0.0,
        "zero_optimization": zero,
        "zero_force_ds_cpu_optimizer": False,  # torch's fused AdamW is as fast on the host and needs no compiler
        "bf16": {"enabled": spec.precision == "bf16" and spec.zero_stage > 0},
        "torch_autocast": {"enabled": spec.precision == "bf16" and spec.zero_stage == 0, "dtype": "bfloat16"},
        "fp16": {"enabled": spec.precision == "fp16"},
        "steps_per_print": 10**9,
    }


def device_line(engine: Any, rank: int, spec: TrainSpec) -> str:
    """Return the line about this rank's part of the optimiser."""
    betas = f"({spec.betas[0]}, {spec.betas[1]})"
    return (
        f"Device {rank} | ZeRO Stage: {spec.zero_stage} | Optimizer: lr={spec.lr} | betas={betas} | eps={spec.eps} | "
        f"parameter count={count_optimizer_elements(engine)}"
    )


def count_optimizer_elements(engine: Any) -> int:
    """Return the number of elements in this rank's part of the optimiser.

    At stage 3 DeepSpeed empties the parameters, so counting them would give 0. The sizes of its flat partitions count instead,
    which DeepSpeed stores because the partitions may be in files.
    """
    optimizer = engine.optimizer
    if parts := getattr(optimizer, "fp16_partitioned_groups_flat_numel", None):
        return int(sum(parts))
    for flat in ("single_partition_of_fp32_groups", "fp32_groups_flat_partition"):
        if parts := getattr(optimizer, flat, None):
            return sum(part.numel() for part in parts)
    return sum(parameter.numel() for group in optimizer.param_groups for parameter in group["params"])


def check_precision(spec: TrainSpec, accelerator: Any) -> None:
    """Check that DeepSpeed computes in the spec's precision on this device.

    Raises:
        KfjobError: it does not.
    """
    supported = {"fp16": accelerator.is_fp16_supported, "bf16": accelerator.is_bf16_supported}
    if spec.precision in supported and not supported[spec.precision]():
        title = f"DeepSpeed does not support `precision: {spec.precision}` on {accelerator.device_name()}"
        other = next((name for name, is_supported in supported.items() if is_supported()), "fp32")
        raise KfjobError(title, location="precision", hint=f"use `precision: {other}`, or strategy `fsdp`")


def _check_disk_offload() -> None:
    """Check that memory can be locked, without which DeepSpeed ends the process, and that libaio is installed.

    Raises:
        KfjobError: one of them is not the case.
    """
    from deepspeed.ops.op_builder import AsyncIOBuilder

    buffer, libc = torch.empty(LOCK_TRIAL_BYTES, dtype=torch.uint8), ctypes.CDLL(None)
    region = ctypes.c_void_p(buffer.data_ptr()), ctypes.c_size_t(LOCK_TRIAL_BYTES)
    if libc.mlock(*region):
        cause = f"the limit of locked memory (`ulimit -l`) is below {LOCK_TRIAL_BYTES // MIB} MiB"
        hint = "set `container_security_context: {capabilities: {add: [IPC_LOCK]}}`"
        raise KfjobError("`disk_offload` needs locked memory", location="disk_offload", cause=cause, hint=hint)
    libc.munlock(*region)
    if not AsyncIOBuilder().is_compatible(verbose=False):
        cause = "DeepSpeed compiles its asynchronous I/O with libaio"
        hint = "apt-get update && apt-get install libaio-dev g++ ninja-build in the image"
        raise KfjobError("`disk_offload` needs libaio", location="disk_offload", cause=cause, hint=hint)
    log.info("Note the first run with `disk_offload` compiles DeepSpeed's asynchronous I/O, which can take minutes")


def _import_deepspeed(ranks: Ranks) -> Any:
    os.environ.setdefault("DS_ACCELERATOR", ranks.device.type)
    for name, value in (("RANK", ranks.rank), ("WORLD_SIZE", ranks.world_size), ("LOCAL_RANK", ranks.local_rank)):
        os.environ.setdefault(name, str(value))
    try:
        import deepspeed
    except ImportError as error:
        raise Package("deepspeed", "strategy", "strategy: deepspeed").make_missing() from error
    deepspeed.ops.__compatible_ops__[_INFERENCE_OP] = False  # do not compile what training does not use
    logging.getLogger("DeepSpeed").setLevel(logging.WARNING)
    return deepspeed
