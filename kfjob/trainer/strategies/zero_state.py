"""Model and optimiser of a DeepSpeed engine as every other strategy has them: whole tensors by the names of the parameters.

DeepSpeed's own checkpoints are of one stage and one number of ranks. Here every rank takes its turn to keep a whole parameter
(the n-th goes to rank n modulo the world size), so that a checkpoint loads into any strategy on any number of ranks, and no
rank ever holds more than its share and one parameter.
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
from kfjob.trainer.shapes import whole_shape

_MOMENTS = ("exp_avg", "exp_avg_sq")


class _Turn(NamedTuple):
    """Which rank keeps a parameter in a checkpoint."""

    owner: int
    names: list[str]
    """Tied ones have two."""
    parameter: nn.Parameter


class ZeroState:
    """Reads and writes an engine of stage 1, 2 or 3 through DeepSpeed's functions for single parameters."""

    def __init__(self, engine: Any, ranks: Ranks) -> None:
        """Of this engine, before its first step: the state of its optimiser is made here, so that there is one to load into."""
        self._engine, self._ranks = engine, ranks
        self._stage = engine.zero_optimization_stage()
        self._zero, self._adam = engine.optimizer, engine.optimizer.optimizer
        if not self._zero_states_exist():
            for group, flat in enumerate(self._partitions()):
                with self._in_memory(group):
                    self._adam.state[flat] = {"step": torch.zeros((), device=flat.device)}
                    self._adam.state[flat] |= {moment: torch.zeros_like(flat) for moment in _MOMENTS}
        if self._stage < 3:
            # its first step does so as soon as the first group has a state, and leaves the second group out
            self._zero._hp_optimizer_states_linked = False  # noqa: SLF001
            self._zero._lazy_init_hp_params_optimizer_state()  # noqa: SLF001

    def read(self) -> dict[str, Any]:
        """This rank's turns."""
        model: dict[str, Tensor] = {}
        state: dict[str, dict[str, Tensor]] = {}
        for turn in self._in_turn():
            mine = self._mine(turn)
            value = _kept(self._whole(turn.parameter), mine=mine)
            moments = {moment: _kept(self._whole(turn.parameter, moment), mine=mine) for moment in _MOMENTS}
            if mine:
                model |= dict.fromkeys(turn.names, value)
                state[turn.names[0]] = {"step": self._step(), **moments}
        return {"model": model | self._buffers(), "optimizer": {"state": state, "param_groups": self._groups()}}

    def write(self, state: dict[str, Any]) -> None:
        """Give every rank its part of what the ranks have by turns."""
        kept: dict[str, dict[str, Tensor]] = state["optimizer"]["state"]
        first = self._turns()[0]
        step = self._shared(kept[first.names[0]]["step"] if self._mine(first) else None, torch.zeros(()), first.owner)
        for turn in self._in_turn():
            name = turn.names[0]
            for key in (None, *_MOMENTS):
                value = (state["model"][name] if key is None else kept[name][key]) if self._mine(turn) else None
                self._put(turn.parameter, self._shared(value, turn.parameter, turn.owner), key)
        for one in self._adam.state.values():
            one["step"].fill_(float(step))
        self._round()

    def weights(self) -> dict[str, Tensor]:
        """All of them, on rank 0 only."""
        whole: dict[str, Tensor] = {}
        for turn in self._in_turn():
            value = _kept(self._whole(turn.parameter), mine=self._ranks.first)
            whole |= dict.fromkeys(turn.names, value) if self._ranks.first else {}
        return whole

    def _turns(self) -> list[_Turn]:
        """Of all parameters, in the model's order."""
        names: dict[nn.Parameter, list[str]] = {}
        for name, parameter in self._engine.module.named_parameters(remove_duplicate=False):
            names.setdefault(parameter, []).append(name)
        owned = enumerate(names.items())
        return [_Turn(number % self._ranks.world_size, all_names, parameter) for number, (parameter, all_names) in owned]

    def _in_turn(self) -> Iterator[_Turn]:
        """The same, those together that DeepSpeed keeps together: of what it has put into files only so much is in memory."""
        for group, turns in groupby(sorted(self._turns(), key=self._group), key=self._group):
            with self._in_memory(group):
                yield from turns

    def _mine(self, turn: _Turn) -> bool:
        return turn.owner == self._ranks.rank

    def _group(self, turn: _Turn) -> int:
        """The number of the flat partition that the parameter is in."""
        return self._place(turn.parameter)[0] if self._stage == 3 else 0

    def _place(self, parameter: nn.Parameter) -> tuple[int, int, int]:
        """(number of the flat partition, where in it, how much of it) of this rank's part; stage 3."""
        group, begin, size = self._zero.grad_position[self._zero.get_param_id(parameter)]
        return group, int(begin), size

    @contextmanager
    def _in_memory(self, group: int) -> Iterator[None]:
        """Have a flat partition and its moments there while the block runs; they may be in files."""
        in_files = self._stage == 3 and self._zero._swappable_optimizer_subgroup(group)  # noqa: SLF001
        if in_files:
            self._zero._optimizer_states_and_gradient_swap_in(group)  # noqa: SLF001
        yield
        if in_files:
            self._zero._optimizer_states_and_gradient_swap_out(group)  # noqa: SLF001

    def _buffers(self) -> dict[str, Tensor]:
        """Those that a state dict has; every rank has the same."""
        persistent = self._engine.module.state_dict().keys()
        return {name: buffer for name, buffer in self._engine.module.named_buffers() if name in persistent}

    def _groups(self) -> list[dict[str, Any]]:
        """Options of the optimiser's groups, in torch's form, with names for parameters."""
        decaying: dict[bool, list[str]] = {True: [], False: []}
        for turn in self._turns():
            decaying[len(whole_shape(turn.parameter)) >= 2].append(turn.names[0])
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

    def _whole(self, parameter: nn.Parameter, key: str | None = None) -> Tensor:
        """A parameter in fp32 (`key` None) or a moment."""
        from deepspeed.utils import safe_get_full_fp32_param, safe_get_full_optimizer_state

        whole: Tensor
        if self._stage == 3:
            whole = self._zero._fp32_state_allgather(parameter, self._part(parameter, key).to(self._ranks.device))  # noqa: SLF001
        elif key is None:
            whole = safe_get_full_fp32_param(parameter)
        else:
            whole = safe_get_full_optimizer_state(parameter, key)
        return whole

    def _put(self, parameter: nn.Parameter, value: Tensor, key: str | None) -> None:
        """Set this rank's part of a parameter (`key` None) or of a moment."""
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
        """This rank's part at stage 3, where it stands.

        DeepSpeed's own functions for it read a partition from its files and write it back for each parameter, and its setter of
        whole values has no room for the last rank's padding.
        """
        group, begin, size = self._place(parameter)
        flat = self._partitions()[group]
        held: Tensor = flat if key is None else self._adam.state[flat][key]
        return held.detach().narrow(0, begin, size)

    def _round(self) -> None:
        """Make the parameters that compute out of the fp32 ones."""
        if self._stage < 3:
            self._zero.update_lp_params()
            return
        for group in range(len(self._zero.fp16_groups)):
            with self._in_memory(group):
                self._zero._reassign_or_swap_out_partitioned_parameters(group)  # noqa: SLF001 -- as after a step
        if lasting := self._zero.persistent_parameters:
            lasting[0].partition(lasting)
            lasting[0].all_gather(lasting)


def _kept(value: Tensor, *, mine: bool) -> Tensor:
    return value.detach().to("cpu", copy=True) if mine else torch.empty(0)


def _plain(options: dict[str, Any]) -> dict[str, Any]:
    """Without what DeepSpeed adds."""
    known = torch.optim.AdamW([nn.Parameter(torch.empty(1))]).param_groups[0]
    return {name: options[name] for name in known if name in options and name != "params"}
