"""Everything that the memory of a rank depends on, and how a `train` section and a number of ranks determine it. Pure."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from kfjob.trainspec.linear_layers import count_adapters, count_float8_weights, count_trained
from kfjob.trainspec.model_shapes import ModelShape, count_parameters
from kfjob.trainspec.train_fields import Accumulate, Float8Recipe, LoraSpec, Precision, Recompute
from kfjob.trainspec.train_spec import TrainSpec, get_shape, resolve_micro_batch_size

Scheme = Literal["none", "ddp", "full", "shard_grad_op", "hybrid", "zero-1", "zero-2", "zero-3"]
"""The distribution of the state: a single process, DDP, FSDP2's three ways, the stages of DeepSpeed."""

FP32 = 4

_STAGES: tuple[Scheme, ...] = ("zero-1", "zero-2", "zero-3")


class MemorySetup(Struct, frozen=True, kw_only=True):
    """Everything that the memory of a rank depends on."""

    shape: ModelShape
    scheme: Scheme
    precision: Precision
    fp8_recipe: Float8Recipe = "tensorwise"
    world_size: int
    local_world_size: int
    micro_batch_size: int
    sequence_length: int
    context_parallel: int = 1
    """Ranks that share each sample."""
    accumulation: int = 1
    accumulate: Accumulate = "sharded"
    """The form in which FSDP keeps gradients between micro-batches."""
    activation_checkpointing: bool = False
    recompute: Recompute = "all"
    """With `cheap`, a layer keeps the results of its matrix products and of its attention beside its input."""
    recompute_every: int = 1
    activation_offload: bool = False
    """Whether the host holds the activations of layers between forward and backward pass."""
    loss_chunk: int = 0
    """Tokens whose logits exist at once; 0 is all of them."""
    lora: LoraSpec | None = None
    """The adapters of a frozen model; None if all parameters are trained."""
    cpu_offload: bool = False
    """Whether the host holds optimiser state and gradients, and also parameters if they are sharded."""

    @property
    def tokens(self) -> int:
        """The tokens of one micro-batch that a rank computes."""
        return self.micro_batch_size * self.sequence_length // self.context_parallel

    @property
    def compute_bytes(self) -> int:
        """The bytes of one number in the arithmetic; with fp8 the factors of some products are cast once more."""
        return FP32 if self.precision == "fp32" else 2

    @property
    def stored_bytes(self) -> int:
        """The bytes of a trained parameter, of its gradient and of each of its optimiser states."""
        return 2 if self.precision == "bf16-true" else FP32

    @property
    def float8_weights(self) -> int:
        """The number of weights of one decoder layer that a matrix product casts to fp8."""
        return count_float8_weights(self.shape) if self.precision == "fp8" else 0

    @property
    def frozen(self) -> int:
        """The number of parameters that are not trained; they have the type of a matrix product."""
        return count_parameters(self.shape) + self.adapters - self.trained

    @property
    def adapters(self) -> int:
        """The number of parameters that adapters add to the model."""
        return count_adapters(self.shape, self.lora) if self.lora else 0

    @property
    def trained(self) -> int:
        """The number of trained parameters."""
        return count_trained(self.shape, self.lora) if self.lora else count_parameters(self.shape)


def make_setup(spec: TrainSpec, *, world_size: int, local_world_size: int) -> MemorySetup | None:
    """Return the setup of a spec; None if the model's shape is only in a folder or on the hub, or no formula applies."""
    shape = get_shape(spec)
    if shape is None or spec.disk_offload:  # the formula does not know DeepSpeed's file buffers
        return None
    scheme: Scheme = "none" if spec.strategy in ("none", "dp") else "ddp"
    if spec.strategy == "fsdp":
        group = 1 if spec.sharding == "no_shard" else spec.shard_size or local_world_size
        scheme, world_size, local_world_size = _choose_fsdp_scheme(spec, world_size, local_world_size, group)
    elif spec.strategy == "deepspeed" and spec.zero_stage:  # stage 0 works like DDP: fp32 parameters, autocast
        scheme = _STAGES[spec.zero_stage - 1]
    return MemorySetup(
        shape=shape,
        scheme=scheme,
        precision=spec.precision,
        fp8_recipe=spec.fp8_recipe,
        world_size=world_size,
        local_world_size=local_world_size,
        micro_batch_size=resolve_micro_batch_size(spec),
        sequence_length=spec.sequence_length,
        context_parallel=spec.context_parallel,
        accumulation=spec.gradient_accumulation_steps,
        accumulate=spec.accumulate,
        lora=spec.lora,
        cpu_offload=spec.cpu_offload,
        activation_checkpointing=bool(spec.activation_checkpointing),
        recompute=spec.recompute,
        recompute_every=spec.recompute_every,
        activation_offload=spec.activation_offload,
        loss_chunk=spec.loss_chunk,
    )


def _choose_fsdp_scheme(spec: TrainSpec, ranks: int, local_ranks: int, group: int) -> tuple[Scheme, int, int]:
    """Return FSDP's scheme, the number of ranks, and the ranks that share the state; groups that replicate count as one."""
    if spec.sharding in ("hybrid", "no_shard"):
        return "hybrid", ranks, group
    if spec.sharding == "hybrid_shard_grad_op":
        return "shard_grad_op", group, group
    return ("full" if spec.sharding == "full" else "shard_grad_op"), ranks, local_ranks
