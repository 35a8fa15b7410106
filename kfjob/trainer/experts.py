"""Models with experts (mixtures of experts, MoE): how experts compute, and the loss that balances their load.

The loss of a micro-batch is transformers' (modeling_mixtral, load_balancing_loss_func; Fedus et al. 2021, equations 4 to 6):

    factor x experts x sum over experts of (share of the tokens that chose it) x (mean of its probability)

Share and mean are over all layers and all tokens of the micro-batch on one rank, so the loss depends on the size of
micro-batches. In a step each micro-batch has the weight of its targets, as in its cross-entropy. Tokens after the last target
of a sample, such as padding, do not count.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import torch
from torch import Tensor, nn

from kfjob.base.errors import KfjobError
from kfjob.trainer.context import Context, get_context
from kfjob.trainer.data.packing import IGNORE
from kfjob.trainer.shapes import full_shape, unwrap
from kfjob.trainspec.train_spec import TrainSpec

NAME = "kfjob_grouped"
"""The name in transformers' interface of experts."""


def prepare_experts(model: Any, spec: TrainSpec) -> None:
    """Set how the experts of a transformers model compute, and the factor of its router's loss; other models do not change.

    Raises:
        KfjobError: the spec has a factor, and the model has no router whose logits transformers returns.
    """
    has_router = "router_logits" in (getattr(type(model.base_model), "_can_record_outputs", None) or {})
    if spec.router_aux_loss_coef and not has_router:
        title = f"{type(model).__name__} has no router with a load-balancing loss"
        raise KfjobError(title, location="router_aux_loss_coef", hint="remove `router_aux_loss_coef`")
    if not has_router:
        return
    factor, config = spec.router_aux_loss_coef, model.config
    vars(model)["router_factor"] = float(getattr(config, "router_aux_loss_coef", 0) or 0) if factor is None else factor
    if getattr(config, "_experts_implementation", None) == "grouped_mm":
        from transformers.integrations.moe import ALL_EXPERTS_FUNCTIONS

        ALL_EXPERTS_FUNCTIONS.register(NAME, compute_experts)
        model.set_experts_implementation(NAME)
    if spec.compile and spec.activation_checkpointing:
        # transformers' hooks collect the logits in a list, which must not be filled again when a layer is recomputed
        dynamo: Any = torch._dynamo  # noqa: SLF001 -- it has no public name
        dynamo.config.skip_fwd_side_effects_in_bwd_under_checkpoint = True


def get_router_factor(model: nn.Module) -> float:
    """Return the factor of the router's loss in the training of a model, wrapped or not; 0 in an evaluation."""
    return float(getattr(unwrap(model), "router_factor", 0.0)) if model.training else 0.0


def count_routed_tokens(targets: Tensor) -> Tensor:
    """Return 1 for each token that counts for the load of experts, else 0; `targets` are shaped (samples, length).

    Integers, because FSDP casts floating-point arguments of the model to the type of the arithmetic.
    """
    return (targets != IGNORE).flip(-1).cumsum(-1).flip(-1).clamp(max=1)


def compute_router_loss(model: Any, router_logits: Sequence[Tensor] | None, targets: Tensor, counts: Tensor) -> Tensor:
    """Return the loss of the router times the number of targets, for the sum of the cross-entropies.

    `router_logits` are those of each layer, shaped (tokens, experts); `targets` and `counts` (of `count_routed_tokens`) are
    shaped (samples, length). Ranks that share samples have the same balance, each for its own targets.
    """
    if not router_logits:
        raise KfjobError(f"{type(model).__name__} returns no router logits", hint="set `router_aux_loss_coef: 0`")
    balance = compute_balance(router_logits, model.config.num_experts_per_tok, counts.flatten(), get_context(model))
    return get_router_factor(model) * (targets != IGNORE).sum() * balance


def compute_balance(router_logits: Sequence[Tensor], chosen: int, counts: Tensor, context: Context | None = None) -> Tensor:
    """Return the balance in fp32, about `chosen` if all experts have the same load; `counts` is 1 for a token that counts."""
    with torch.autocast(counts.device.type, enabled=False):
        return _compute_balance(router_logits, chosen, counts.float(), context)


def _compute_balance(router_logits: Sequence[Tensor], chosen: int, counts: Tensor, context: Context | None) -> Tensor:
    experts = router_logits[0].shape[-1]
    load = torch.zeros(experts, device=counts.device)
    probability = torch.zeros(experts, device=counts.device)
    for logits in router_logits:
        probabilities = logits.float().softmax(-1)
        choices = torch.zeros_like(probabilities).scatter_(-1, probabilities.detach().topk(chosen).indices, 1.0)
        load = load + counts @ choices
        probability = probability + counts @ probabilities
    rows = counts.sum() * len(router_logits)
    if context:
        sums = context.sum(torch.cat([load, probability, rows[None]]))
        load, probability, rows = sums[:experts], sums[experts:-1], sums[-1]
    rows = rows.clamp(min=1)
    return experts * (load / rows) @ (probability / rows)


def compute_experts(module: Any, hidden: Tensor, chosen: Tensor, weights: Tensor) -> Tensor:
    """Compute all experts with one grouped matrix product, as transformers does, also in the type of autocast.

    Autocast does not know grouped products: it would compute fp32 parameters in fp32. An expert without tokens gets zeros as
    its gradient, so that every rank has the same gradients.
    """
    from transformers.integrations.moe import grouped_mm_experts_forward

    device = hidden.device.type
    if torch.is_autocast_enabled(device):
        dtype = torch.get_autocast_dtype(device)
        module, hidden = _Cast(module, dtype), hidden.to(dtype)
    output: Tensor = grouped_mm_experts_forward(module, hidden, chosen, weights)
    return output


class _Cast:
    """The experts with parameters of another type."""

    def __init__(self, module: nn.Module, dtype: torch.dtype) -> None:
        self._module, self._dtype = module, dtype

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._module, name)
        return value.to(self._dtype) if isinstance(value, Tensor) else value


def is_experts_parameter(parameter: nn.Parameter) -> bool:
    """Return whether a parameter holds the matrices of all experts of a layer, shaped (experts, rows, columns)."""
    return len(full_shape(parameter)) == 3


def count_idle(model: Any) -> int:
    """Return the number of parameters of the experts that do not compute a token; the model may be wrapped."""
    model = unwrap(model)
    chosen, idle = getattr(model.config, "num_experts_per_tok", None), 0
    for module in model.modules() if chosen else ():
        experts = getattr(module, "num_experts", None)
        parameters = [p for p in module.parameters(recurse=False) if is_experts_parameter(p) and full_shape(p)[0] == experts]
        idle += sum(prod(full_shape(parameter)) // experts * (experts - chosen) for parameter in parameters if experts)
    return idle
