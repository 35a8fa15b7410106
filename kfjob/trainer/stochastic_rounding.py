"""AdamW for parameters in bf16, which computes in fp32 and rounds stochastically.

bf16 has 8 significant bits. A weight of 0.02 changes only by multiples of 6e-5, so rounding to the nearest value drops most
updates of a small learning rate: at 2e-5, 92 % of the weights never move. Stochastic rounding rounds up with the probability of
the dropped fraction, so that the expected weight is the exact one (Zamirai et al. 2020, "Revisiting BFloat16 Training").
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor

from kfjob.trainer.data.permutation import mix

_DROPPED_BITS = 16


class StochasticAdamW(torch.optim.AdamW):
    """AdamW with the state and the settings of torch's; the moments have the dtype of the parameters too."""

    def __init__(self, parameters: Iterable[Any], *, lr: float, betas: tuple[float, float], eps: float, seed: int) -> None:
        """Round by random numbers that depend on `seed`, the step and the shard, so that replicas and resumed runs agree."""
        super().__init__(parameters, lr=lr, betas=betas, eps=eps, foreach=False)
        self._seed = seed

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        """Take a step."""
        del closure
        generators: dict[torch.device, torch.Generator] = {}
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is None:
                    continue
                state = self._prepare_state(parameter)
                state["step"] += 1
                local = [_to_local(tensor) for tensor in (parameter, parameter.grad, state["exp_avg"], state["exp_avg_sq"])]
                device = local[0].device
                if device not in generators:
                    key = mix(_shard_number(parameter), mix(int(state["step"]), self._seed))
                    generators[device] = torch.Generator(device).manual_seed(key % 2**63)
                _update(*local, group=group, step=float(state["step"]), generator=generators[device])

    def _prepare_state(self, parameter: Tensor) -> dict[str, Tensor]:
        state: dict[str, Tensor] = self.state[parameter]
        if not state:
            state |= {
                "step": torch.zeros(()),
                "exp_avg": torch.zeros_like(parameter),
                "exp_avg_sq": torch.zeros_like(parameter),
            }
        return state


def _update(
    parameter: Tensor,
    gradient: Tensor,
    mean: Tensor,
    square: Tensor,
    *,
    group: dict[str, Any],
    step: float,
    generator: torch.Generator,
) -> None:
    """Take the step of one tensor, as torch's AdamW does in fp32."""
    beta1, beta2 = group["betas"]
    gradient = gradient.float()
    new_mean = mean.float().lerp_(gradient, 1 - beta1)
    new_square = square.float().mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)
    denominator = (new_square / (1 - beta2**step)).sqrt_().add_(group["eps"])
    new_parameter = parameter.float().mul_(1 - group["lr"] * group["weight_decay"])
    new_parameter.addcdiv_(new_mean, denominator, value=-group["lr"] / (1 - beta1**step))
    for target, value in ((mean, new_mean), (square, new_square), (parameter, new_parameter)):
        target.copy_(round_stochastically(value, target.dtype, generator))


def round_stochastically(values: Tensor, dtype: torch.dtype, generator: torch.Generator) -> Tensor:
    """Return fp32 `values` in `dtype`; the mean of many roundings to bf16 is the exact value."""
    if dtype != torch.bfloat16:
        return values.to(dtype)
    bits = values.view(torch.int32)
    noise = torch.randint(1 << _DROPPED_BITS, bits.shape, dtype=torch.int32, device=bits.device, generator=generator)
    rounded = (bits + noise).bitwise_and_(-1 << _DROPPED_BITS).view(torch.float32)
    return torch.where(values.isfinite(), rounded, values).to(dtype)


def _to_local(tensor: Tensor) -> Tensor:
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def _shard_number(parameter: Tensor) -> int:
    """Return the number of this rank's shard; replicas of a shard have the same one."""
    if not isinstance(parameter, DTensor):
        return 0
    coordinate: Sequence[int] = parameter.device_mesh.get_coordinate() or ()
    number = 0
    for index, size, placement in zip(coordinate, parameter.device_mesh.shape, parameter.placements, strict=True):
        number = number * size + index if placement.is_shard() else number
    return number
