"""Model and optimiser of a DeepSpeed engine as every other strategy has them: whole tensors by the names of the parameters.

DeepSpeed's own checkpoints are of one stage and one number of ranks. Here every rank takes its turn to keep a whole parameter
(the n-th goes to rank n modulo the world size), so that a checkpoint loads into any strategy on any number of ranks, and no
rank ever holds more than its share and one parameter.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from kfjob.trainer.distributed import Ranks
from kfjob.trainer.shapes import whole_shape

_MOMENTS = ("exp_avg", "exp_avg_sq")


class ZeroState:
    """Reads and writes an engine of stage 1, 2 or 3 through DeepSpeed's functions for single parameters."""

    def __init__(self, engine: Any, ranks: Ranks) -> None:
        """Of this engine, before its first step: the state of its optimiser is made here, so that there is one to load into."""
        self._engine, self._ranks = engine, ranks
        self._stage = engine.zero_optimization_stage()
        self._zero, self._adam = engine.optimizer, engine.optimizer.optimizer
        if not self._zero_states_exist():
            for flat in self._partitions():
                self._adam.state[flat] = {"step": torch.zeros((), device=flat.device)}
                self._adam.state[flat] |= {moment: torch.zeros_like(flat) for moment in _MOMENTS}
        if self._stage < 3:
            # its first step does so as soon as the first group has a state, and leaves the second group out
            self._zero._hp_optimizer_states_linked = False  # noqa: SLF001
            self._zero._lazy_init_hp_params_optimizer_state()  # noqa: SLF001

    def read(self) -> dict[str, Any]:
        """This rank's turns."""
        from deepspeed.utils import safe_get_full_fp32_param, safe_get_full_optimizer_state

        model: dict[str, Tensor] = {}
        state: dict[str, dict[str, Tensor]] = {}
        for mine, names, parameter in self._turns():
            value = _kept(safe_get_full_fp32_param(parameter), mine=mine)
            moments = {moment: _kept(safe_get_full_optimizer_state(parameter, moment), mine=mine) for moment in _MOMENTS}
            if mine:
                model |= dict.fromkeys(names, value)
                state[names[0]] = {"step": self._step(), **moments}
        return {"model": model | self._buffers(), "optimizer": {"state": state, "param_groups": self._groups()}}

    def write(self, state: dict[str, Any]) -> None:
        """Give every rank its part of what the ranks have by turns."""
        step = torch.zeros(())
        for number, (mine, names, parameter) in enumerate(self._turns()):
            owner = number % self._ranks.world_size
            kept = state["optimizer"]["state"][names[0]] if mine else {}
            for key in (None, *_MOMENTS):
                value = (state["model"][names[0]] if key is None else kept[key]) if mine else None
                self._put(parameter, self._shared(value, parameter, owner), key)
            step = kept["step"] if mine else step
            if number == 0:
                step = self._shared(step, step, owner)
        for one in self._adam.state.values():
            one["step"].fill_(float(step))
        self._round()

    def weights(self) -> dict[str, Tensor]:
        """All of them, on rank 0 only."""
        from deepspeed.utils import safe_get_full_fp32_param

        whole: dict[str, Tensor] = {}
        for _, names, parameter in self._turns():
            value = _kept(safe_get_full_fp32_param(parameter), mine=self._ranks.first)
            whole |= dict.fromkeys(names, value) if self._ranks.first else {}
        return whole

    def _turns(self) -> Iterator[tuple[bool, list[str], nn.Parameter]]:
        """(whether it is this rank's turn, its names, of which tied ones have two, parameter)."""
        names: dict[nn.Parameter, list[str]] = {}
        for name, parameter in self._engine.module.named_parameters(remove_duplicate=False):
            names.setdefault(parameter, []).append(name)
        for number, (parameter, all_names) in enumerate(names.items()):
            yield number % self._ranks.world_size == self._ranks.rank, all_names, parameter

    def _buffers(self) -> dict[str, Tensor]:
        """Those that a state dict has; every rank has the same."""
        persistent = self._engine.module.state_dict().keys()
        return {name: buffer for name, buffer in self._engine.module.named_buffers() if name in persistent}

    def _groups(self) -> list[dict[str, Any]]:
        """Options of the optimiser's groups, in torch's form, with names for parameters."""
        decaying: dict[bool, list[str]] = {True: [], False: []}
        for _, names, parameter in self._turns():
            decaying[len(whole_shape(parameter)) >= 2].append(names[0])
        members = [names for names in (decaying[True], decaying[False]) if names]
        options = [{name: value for name, value in group.items() if name != "params"} for group in self._adam.param_groups]
        return [{"params": names, **_plain(group)} for names, group in zip(members, options, strict=True)]

    def _step(self) -> Tensor:
        return torch.tensor(float(next(iter(self._adam.state.values()))["step"]))

    def _partitions(self) -> list[Tensor]:
        """The flat fp32 parts that this rank's optimiser works on."""
        parts: list[Tensor]
        parts = self._zero.fp32_partitioned_groups_flat if self._stage == 3 else self._zero.single_partition_of_fp32_groups
        return parts

    def _zero_states_exist(self) -> bool:
        return all("exp_avg" in self._adam.state.get(flat, {}) for flat in self._partitions())

    def _shared(self, value: Tensor | None, like: Any, owner: int) -> Tensor:
        """The owner's value on every rank."""
        device = self._ranks.device
        whole = torch.empty(whole_shape(like), device=device) if value is None else value.to(device, torch.float32).contiguous()
        dist.broadcast(whole, src=owner)
        return whole

    def _put(self, parameter: nn.Parameter, value: Tensor, key: str | None) -> None:
        """Set this rank's part of a parameter (`key` None) or of a moment."""
        from deepspeed.utils import (
            safe_set_full_fp32_param,
            safe_set_full_optimizer_state,
            safe_set_local_fp32_param,
            safe_set_local_optimizer_state,
        )

        if self._stage < 3:
            if key is None:
                safe_set_full_fp32_param(parameter, value)
            else:
                safe_set_full_optimizer_state(parameter, value, key)
            return
        # its own setter of whole values has no room for the last rank's padding
        size = parameter.ds_tensor.ds_numel  # type: ignore[attr-defined]
        padded = torch.zeros(size * self._ranks.world_size, device=value.device)
        padded[: value.numel()] = value.flatten()
        part = padded[size * self._ranks.rank :][:size]
        if key is None:
            safe_set_local_fp32_param(parameter, part)
        else:
            safe_set_local_optimizer_state(parameter, part, key)

    def _round(self) -> None:
        """Make the parameters that compute out of the fp32 ones."""
        if self._stage < 3:
            self._zero.update_lp_params()
            return
        for number in range(len(self._zero.fp16_groups)):
            self._zero._reassign_or_swap_out_partitioned_parameters(number)  # noqa: SLF001 -- as after a step
        if lasting := self._zero.persistent_parameters:
            lasting[0].partition(lasting)
            lasting[0].all_gather(lasting)


def _kept(value: Tensor, *, mine: bool) -> Tensor:
    return value.detach().to("cpu", copy=True) if mine else torch.empty(0)


def _plain(options: dict[str, Any]) -> dict[str, Any]:
    """Without what DeepSpeed adds."""
    known = torch.optim.AdamW([nn.Parameter(torch.empty(1))]).param_groups[0]
    return {name: options[name] for name in known if name in options and name != "params"}
