"""DeepSpeed: the ranks share the optimiser (stage 1), gradients too (2), parameters too (3), or nothing (0).

The loop keeps what it has everywhere else: it divides the loss by the tokens of all ranks, decides which micro-batch is the
last of a step, and sets the learning rate. DeepSpeed does the arithmetic type, the exchange, clipping and the update. It is
imported here only, on use: it is an extra, prints when it is imported, and compiles a part of itself.
"""

from __future__ import annotations

import ctypes
import logging
import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from kfjob.errors import KfjobError
from kfjob.spec.train import TrainSpec
from kfjob.trainer.checkpoint import State
from kfjob.trainer.distributed import Ranks
from kfjob.trainer.metrics import log
from kfjob.trainer.optim import make_optimizer
from kfjob.trainer.strategies.base import COMPUTE, Single
from kfjob.trainer.strategies.zero_state import ZeroState

AT_ONCE = 100_000_000
"""Elements of the optimiser that come out of files at once; DeepSpeed holds four buffers for so many on the host."""
LOCKED = 64 * 2**20
"""Bytes to lock as a trial: no container may lock so many that has the usual limit of 8 MiB or 64 KiB."""


class DeepSpeed(Single):
    """ZeRO, stages 0 to 3."""

    def __init__(self, spec: TrainSpec, ranks: Ranks) -> None:
        """Import DeepSpeed, for the device at hand.

        Raises:
            KfjobError: it is not installed, or cannot do what is asked of it.
        """
        super().__init__(spec, ranks)
        if spec.precision == "bf16-true":
            raise KfjobError(
                "DeepSpeed keeps fp32 parameters beside those in bf16", location="precision", hint="use `bf16`, or fsdp"
            )
        if spec.precision == "fp16" and spec.zero_stage == 0:
            cause = "its losses were seen to differ from all other stages' by a part in a thousand within four steps"
            raise KfjobError("DeepSpeed's stage 0 is not used in fp16", location="zero_stage", cause=cause, hint="use stage 1")
        self._ranks, self._config = ranks, configuration(spec, ranks)
        self._deepspeed = _imported(ranks)
        self._deepspeed.init_distributed(dist_init_required=False, verbose=False)
        self._files: Any = None
        if spec.disk_offload:
            _can_use_files()

    def plan(self, model: nn.Module) -> None:
        """Files are read into buffers that hold this rank's part of any parameter."""
        if self._spec.disk_offload:
            largest = max(parameter.numel() for parameter in model.parameters())
            self._config["zero_optimization"]["offload_param"]["buffer_size"] = -(-largest // self._ranks.world_size)

    def wrap_unit(self, unit: nn.Module) -> None:
        """Stage 3 shards a unit as soon as it has weights."""
        if self._spec.zero_stage == 3:
            for parameter in unit.parameters():
                if not hasattr(parameter, "ds_id"):
                    parameter.data = parameter.data.to(COMPUTE[self._spec.precision])
            made = self._deepspeed.zero.Init(module=unit, config_dict_or_path=self._config, param_swapper=self._files)
            self._files = made.param_swapper  # each would remove the files of the one before

    def wrap_model(self, model: nn.Module) -> nn.Module:
        """Hand model and optimiser to DeepSpeed's engine."""
        self.wrap_unit(model)
        buffers = [(module, name, buffer) for module in model.modules() for name, buffer in module.named_buffers(recurse=False)]
        engine, *_ = self._deepspeed.initialize(
            model=model, optimizer=make_optimizer(model, self._spec), config=self._config, dist_init_required=False
        )
        for module, name, buffer in buffers:  # the engine has cast them too, but rotary frequencies must be exact
            setattr(module, name, buffer.to(self._device))
        wrapped: nn.Module = engine
        return wrapped

    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        """The engine's; each rank's part of it is said."""
        engine: Any = model
        for line in self._ranks.gather(device_line(engine, self._ranks.rank, self._spec)):
            log.info(line)
        made: torch.optim.Optimizer = engine.optimizer
        return made

    @contextmanager
    def _micro_batch(self, engine: Any, *, last: bool) -> Iterator[None]:
        engine.set_gradient_accumulation_boundary(last)
        yield
        if not last:
            engine.step()  # counts; takes no step

    def forward_backward(self, model: nn.Module, *, last: bool) -> AbstractContextManager[object]:
        """Have the engine exchange gradients when its stage must: on the last micro-batch, from stage 2 on each."""
        return self._micro_batch(model, last=last)

    def autocast(self) -> AbstractContextManager[object]:
        """The engine's parameters have the arithmetic's type."""
        return nullcontext()

    def backward(self, model: nn.Module, loss: Tensor) -> None:
        """The engine averages over the ranks: undo it, since the loss is divided by the tokens of all ranks."""
        engine: Any = model
        engine.backward(loss * self._ranks.world_size, scale_wrt_gas=False)

    def clip(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> Tensor | None:
        """The engine does it in its step, but from stage 1 on only."""
        return None if self._spec.zero_stage else super().clip(model, optimizer)

    def update(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> Tensor | None:  # noqa: ARG002 -- the protocol's
        """Clip, step, forget the gradients."""
        engine: Any = model
        engine.step()
        return torch.as_tensor(engine.get_global_grad_norm()) if self._spec.zero_stage else None

    def skip(self, optimizer: torch.optim.Optimizer) -> None:
        """Forget the gradients as DeepSpeed does after an overflow."""
        zero: Any = optimizer
        zero.zero_grad(set_to_none=True)
        if self._spec.cpu_offload:
            zero.reset_cpu_buffers()
        elif self._spec.zero_stage:
            zero.averaged_gradients.clear()

    def held(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> State:
        """Whole tensors, whatever the stage."""
        engine: Any = model
        return ZeroState(engine, self._ranks) if self._spec.zero_stage else super().held(engine.module, optimizer)

    def finish(self) -> None:
        """The summary of what was exchanged."""
        if self._spec.comms_logger:
            self._deepspeed.comm.log_summary()


def configuration(spec: TrainSpec, ranks: Ranks) -> dict[str, Any]:
    """What DeepSpeed is told, in the words of its own configuration (deepspeed 0.19, runtime/config.py)."""
    zero: dict[str, Any] = {"stage": spec.zero_stage}
    if spec.cpu_offload:
        place = {"device": "cpu", "pin_memory": ranks.device.type == "cuda"}
        zero["offload_optimizer"] = place
        if spec.zero_stage == 3:
            zero["offload_param"] = place
    if spec.disk_offload:
        place = {"device": "nvme", "nvme_path": spec.disk_offload, "pin_memory": ranks.device.type == "cuda"}
        zero["offload_optimizer"] = place
        zero["offload_param"] = place | {"max_in_cpu": 0}  # DeepSpeed would leave the first thousand million on the host
        zero["sub_group_size"] = AT_ONCE
        zero["stage3_max_reuse_distance"] = 0  # a parameter that is kept for its next use keeps one of five buffers
    # the section alone switches it on, whatever its `enabled` says (deepspeed 0.19, comm/config.py), at the cost of waiting
    counted = (
        {"comms_logger": {"enabled": True, "prof_all": True, "verbose": False, "debug": False}} if spec.comms_logger else {}
    )
    return counted | {
        "train_micro_batch_size_per_gpu": spec.micro_batch_size,
        "gradient_accumulation_steps": 1,  # the loop says which micro-batch is the last
        "gradient_clipping": spec.grad_clip if spec.zero_stage else 0.0,
        "zero_optimization": zero,
        "zero_force_ds_cpu_optimizer": False,  # torch's fused AdamW is as good on the host, and needs no compiler
        "bf16": {"enabled": spec.precision == "bf16" and spec.zero_stage > 0},
        "torch_autocast": {"enabled": spec.precision == "bf16" and spec.zero_stage == 0, "dtype": "bfloat16"},
        "fp16": {"enabled": spec.precision == "fp16"},
        "steps_per_print": 10**9,
    }


def device_line(engine: Any, rank: int, spec: TrainSpec) -> str:
    """What this rank's optimiser holds."""
    betas = f"({spec.betas[0]}, {spec.betas[1]})"
    return (
        f"Device {rank} | ZeRO Stage: {spec.zero_stage} | Optimizer: lr={spec.lr} | betas={betas} | eps={spec.eps} | "
        f"parameter count={held_elements(engine)}"
    )


def held_elements(engine: Any) -> int:
    """Elements in this rank's part of the optimiser.

    At stage 3 DeepSpeed has emptied the parameters, and counting them would say 0: its own flat partitions are counted, whose
    sizes it notes, for they may be in files.
    """
    optimizer = engine.optimizer
    if parts := getattr(optimizer, "fp16_partitioned_groups_flat_numel", None):
        return int(sum(parts))
    for flat in ("single_partition_of_fp32_groups", "fp32_groups_flat_partition"):
        if parts := getattr(optimizer, flat, None):
            return sum(part.numel() for part in parts)
    return sum(parameter.numel() for group in optimizer.param_groups for parameter in group["params"])


def _can_use_files() -> None:
    """DeepSpeed compiles a part of itself for it, and ends the process where memory cannot be locked.

    Raises:
        KfjobError: it could not do the one or the other here.
    """
    from deepspeed.ops.op_builder import AsyncIOBuilder

    buffer, system = torch.empty(LOCKED, dtype=torch.uint8), ctypes.CDLL(None)
    where = ctypes.c_void_p(buffer.data_ptr()), ctypes.c_size_t(LOCKED)
    if system.mlock(*where):
        cause = f"the limit of locked memory (`ulimit -l`) is below {LOCKED >> 20} MiB"
        hint = "give the container a right: `container_security_context: {capabilities: {add: [IPC_LOCK]}}`"
        raise KfjobError("`disk_offload` needs memory that is not swapped", location="disk_offload", cause=cause, hint=hint)
    system.munlock(*where)
    if not AsyncIOBuilder().is_compatible(verbose=False):
        cause = "DeepSpeed compiles its asynchronous input and output with libaio"
        hint = "apt-get install libaio-dev g++ ninja-build in the image"
        raise KfjobError("`disk_offload` needs libaio", location="disk_offload", cause=cause, hint=hint)


def _imported(ranks: Ranks) -> Any:
    os.environ.setdefault("DS_ACCELERATOR", ranks.device.type)
    for name, value in (("RANK", ranks.rank), ("WORLD_SIZE", ranks.world_size), ("LOCAL_RANK", ranks.local_rank)):
        os.environ.setdefault(name, str(value))
    try:
        import deepspeed
    except ImportError as error:
        raise KfjobError(
            "strategy `deepspeed` needs the package deepspeed", cause=str(error), hint="pip install 'kfjob[deepspeed]'"
        ) from error
    logging.getLogger("DeepSpeed").setLevel(logging.WARNING)
    return deepspeed
