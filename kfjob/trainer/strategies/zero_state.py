"""The checkpoint state of a DeepSpeed engine, in the form of every other strategy: full tensors by parameter name.

DeepSpeed's own checkpoints depend on the stage and the world size. Here each full parameter has one owner: rank n mod the world
size owns the n-th. So a checkpoint loads into every strategy on any number of ranks, and no rank ever holds more than its share
and one full parameter.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import groupby
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor, nn

from kfjob.trainer.distributed import Ranks
from kfjob.trainer.optim import decays
from kfjob.trainer.shapes import full_shape

_MOMENTS = ("exp_avg", "exp_avg_sq")


class _OwnedParameter(NamedTuple):
    """A parameter, and the rank that writes it to a checkpoint."""

    owner: int
    names: list[str]
    """A tied parameter has two names."""
    parameter: nn.Parameter


class ZeroState:
    """Reads and restores an engine of stage 1, 2 or 3 with DeepSpeed's functions for single parameters."""

    def __init__(self, engine: Any, ranks: Ranks) -> None:
        """Use this engine before its first step; its optimiser state is created here, so that a checkpoint can be loaded."""
        self._engine, self._ranks = engine, ranks
        self._stage = engine.zero_optimization_stage()
        self._zero, self._adam = engine.optimizer, engine.optimizer.optimizer
        if not self._has_optimizer_state():
            for group, flat in enumerate(self._partitions()):
                with self._in_memory(group):
                    self._adam.state[flat] = {"step": torch.zeros((), device=flat.device)}
                    self._adam.state[flat] |= {moment: torch.zeros_like(flat) for moment in _MOMENTS}
        if self._stage < 3:
            # DeepSpeed's first step links them as soon as the first group has a state, and omits the second group
            self._zero._hp_optimizer_states_linked = False  # noqa: SLF001
            self._zero._lazy_init_hp_params_optimizer_state()  # noqa: SLF001

    def state_dict(self) -> dict[str, Any]:
        """Return the full tensors that this rank owns."""
        model: dict[str, Tensor] = {}
        state: dict[str, dict[str, Tensor]] = {}
        for entry in self._each_parameter():
            owned = self._owns(entry)
            value = _copy_to_host(self._gather(entry.parameter), owned=owned)
            moments = {moment: _copy_to_host(self._gather(entry.parameter, moment), owned=owned) for moment in _MOMENTS}
            if owned:
                model |= dict.fromkeys(entry.names, value)
                state[entry.names[0]] = {"step": self._step_count(), **moments}
        return {"model": model | self._buffers(), "optimizer": {"state": state, "param_groups": self._param_groups()}}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Broadcast each parameter from its owner, and store every rank's part."""
        moments: dict[str, dict[str, Tensor]] = state["optimizer"]["state"]
        first = self._parameters()[0]
        step = self._broadcast(moments[first.names[0]]["step"] if self._owns(first) else None, torch.zeros(()), first.owner)
        for entry in self._each_parameter():
            name = entry.names[0]
            for key in (None, *_MOMENTS):
                value = (state["model"][name] if key is None else moments[name][key]) if self._owns(entry) else None
                self._store(entry.parameter, self._broadcast(value, entry.parameter, entry.owner), key)
        for adam_state in self._adam.state.values():
            adam_state["step"].fill_(float(step))
        self._update_compute_parameters()

    def full_weights(self) -> dict[str, Tensor]:
        """Return all full weights on rank 0, nothing on the other ranks."""
        weights: dict[str, Tensor] = {}
        for entry in self._each_parameter():
            value = _copy_to_host(self._gather(entry.parameter), owned=self._ranks.is_rank_zero)
            weights |= dict.fromkeys(entry.names, value) if self._ranks.is_rank_zero else {}
        return weights

    def _parameters(self) -> list[_OwnedParameter]:
        """Return all trained parameters in the model's order."""
        names: dict[nn.Parameter, list[str]] = {}
        for name, parameter in self._engine.module.named_parameters(remove_duplicate=False):
            if parameter.requires_grad:
                names.setdefault(parameter, []).append(name)
        return [
            _OwnedParameter(number % self._ranks.world_size, all_names, parameter)
            for number, (parameter, all_names) in enumerate(names.items())
        ]

    def _each_parameter(self) -> Iterator[_OwnedParameter]:
        """Yield the parameters by flat partition, so that only one offloaded partition is in memory."""
        for partition, entries in groupby(sorted(self._parameters(), key=self._partition), key=self._partition):
            with self._in_memory(partition):
                yield from entries

    def _owns(self, entry: _OwnedParameter) -> bool:
        return entry.owner == self._ranks.rank

    def _partition(self, entry: _OwnedParameter) -> int:
        """Return the number of the parameter's flat partition."""
        return self._locate(entry.parameter)[0] if self._stage == 3 else 0

    def _locate(self, parameter: nn.Parameter) -> tuple[int, int, int]:
        """Return (number of the flat partition, offset in it, size) of this rank's part; stage 3 only."""
        group, begin, size = self._zero.grad_position[self._zero.get_param_id(parameter)]
        return group, int(begin), size

    @contextmanager
    def _in_memory(self, group: int) -> Iterator[None]:
        """Keep a flat partition and its moments in memory during the block; they may be in files."""
        in_files = self._stage == 3 and self._zero._swappable_optimizer_subgroup(group)  # noqa: SLF001
        if in_files:
            self._zero._optimizer_states_and_gradient_swap_in(group)  # noqa: SLF001
        try:
            yield
        finally:
            if in_files:
                self._zero._optimizer_states_and_gradient_swap_out(group)  # noqa: SLF001

    def _buffers(self) -> dict[str, Tensor]:
        """Return the persistent buffers; every rank has the same."""
        persistent = self._engine.module.state_dict().keys()
        return {name: buffer for name, buffer in self._engine.module.named_buffers() if name in persistent}

    def _param_groups(self) -> list[dict[str, Any]]:
        """Return the optimiser's parameter groups in torch's form, with names for parameters."""
        names_by_decay: dict[bool, list[str]] = {True: [], False: []}
        for entry in self._parameters():
            names_by_decay[decays(entry.parameter)].append(entry.names[0])
        members = [names for names in (names_by_decay[True], names_by_decay[False]) if names]
        options = [{name: value for name, value in group.items() if name != "params"} for group in self._adam.param_groups]
        return [{"params": names, **_torch_options(group)} for names, group in zip(members, options, strict=True)]

    def _step_count(self) -> Tensor:
        return torch.tensor(float(next(iter(self._adam.state.values()))["step"]))

    def _partitions(self) -> list[Tensor]:
        """Return the flat fp32 partitions of this rank's optimiser."""
        parts: list[Tensor]
        parts = self._zero.fp32_partitioned_groups_flat if self._stage == 3 else self._zero.single_partition_of_fp32_groups
        return parts

    def _has_optimizer_state(self) -> bool:
        return all("exp_avg" in self._adam.state.get(flat, {}) for flat in self._partitions())

    def _broadcast(self, value: Tensor | None, like: Any, owner: int) -> Tensor:
        """Return the owner's value on every rank."""
        device = self._ranks.device
        full = torch.empty(full_shape(like), device=device) if value is None else value.to(device, torch.float32).contiguous()
        dist.broadcast(full, src=owner)
        return full

    def _gather(self, parameter: nn.Parameter, key: str | None = None) -> Tensor:
        """Return a full parameter in fp32 (`key` None) or a full moment."""
        from deepspeed.utils import safe_get_full_fp32_param, safe_get_full_optimizer_state

        full: Tensor
        if self._stage == 3:
            full = self._zero._fp32_state_allgather(parameter, self._part(parameter, key).to(self._ranks.device))  # noqa: SLF001
        elif key is None:
            full = safe_get_full_fp32_param(parameter)
        else:
            full = safe_get_full_optimizer_state(parameter, key)
        return full

    def _store(self, parameter: nn.Parameter, value: Tensor, key: str | None) -> None:
        """Store this rank's part of a parameter (`key` None) or of a moment."""
        from deepspeed.utils import safe_set_full_fp32_param, safe_set_full_optimizer_state

        if self._stage == 3:
            part = self._part(parameter, key)
            padded = torch.zeros(part.numel() * self._ranks.world_size, device=value.device)
            padded[: value.numel()] = value.flatten()
            part.copy_(padded[part.numel() * self._ranks.rank :][: part.numel()])
        elif key is None:
            safe_set_full_fp32_param(parameter, value)
        else:
            safe_set_full_optimizer_state(parameter, value, key)

    def _part(self, parameter: nn.Parameter, key: str | None) -> Tensor:
        """Return a view of this rank's part at stage 3.

        DeepSpeed's own functions read a partition from its files and write it back for each parameter, and its setter for full
        values has no room for the last rank's padding.
        """
        group, begin, size = self._locate(parameter)
        flat = self._partitions()[group]
        tensor: Tensor = flat if key is None else self._adam.state[flat][key]
        return tensor.detach().narrow(0, begin, size)

    def _update_compute_parameters(self) -> None:
        """Update the parameters in the compute dtype from the fp32 ones."""
        if self._stage < 3:
            self._zero.update_lp_params()
            return
        for group in range(len(self._zero.fp16_groups)):
            with self._in_memory(group):
                self._zero._reassign_or_swap_out_partitioned_parameters(group)  # noqa: SLF001 -- as after a step
        if persistent := self._zero.persistent_parameters:
            persistent[0].partition(persistent)
            persistent[0].all_gather(persistent)


def _copy_to_host(value: Tensor, *, owned: bool) -> Tensor:
    return value.detach().to("cpu", copy=True) if owned else torch.empty(0)


def _torch_options(options: dict[str, Any]) -> dict[str, Any]:
    """Return the options without those that DeepSpeed adds."""
    names = torch.optim.AdamW([nn.Parameter(torch.empty(1))]).param_groups[0]
    return {name: options[name] for name in names if name in options and name != "params"}
