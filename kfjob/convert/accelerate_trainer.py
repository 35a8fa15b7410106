"""Convert the strategy of kfjob's own trainer to an Accelerate config (accelerate 1.15, commands/launch.py). Pure.

Every setting of the spec has a key in the config, or a note.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from kfjob.base.common_types import JsonObject
from kfjob.convert.conversion import Conversion, Note
from kfjob.trainspec.train_spec import TrainSpec

_SHARDING = {"full": "FULL_SHARD", "shard_grad_op": "SHARD_GRAD_OP", "hybrid": "HYBRID_SHARD"}
_SHARDING |= {"hybrid_shard_grad_op": "_HYBRID_SHARD_ZERO2", "no_shard": "NO_SHARD"}
_ALWAYS = frozenset({"strategy", "precision", "compile"})
"""Fields that the config of every strategy holds, unless `_explain_losses` names their values."""
_OF_STRATEGY: Mapping[str, frozenset[str]] = {
    "fsdp": frozenset({"sharding", "wrap", "cpu_offload", "full_state_dict", "activation_checkpointing"}),
    "deepspeed": frozenset({"zero_stage", "cpu_offload", "disk_offload", "gradient_accumulation_steps", "grad_clip"}),
}
"""Fields that the config of one strategy holds."""
_PARALLELISM = {
    "sharding": "only FSDP has it",
    "shard_size": "Accelerate shards within a node",
    "wrap": "only FSDP has it",
    "context_parallel": "the program sets it in `Accelerator(parallelism_config=…)`",
    "accumulate": "the program chooses when gradients are reduced",
    "prefetch": "Accelerate gathers one unit ahead",
    "cpu_offload": "the config of this strategy has no key for it",
    "disk_offload": "the config of this strategy has no key for it",
    "zero_stage": "only DeepSpeed has it",
    "comms_logger": "a DeepSpeed config file holds it",
    "fp8_recipe": "the program sets it in `AORecipeKwargs`",
    "fp8_emulate": "the program sets it in `AORecipeKwargs`",
    "rounding": "the optimiser of the program decides it",
    "activation_checkpointing": "the program enables it for this strategy",
    "recompute": "Accelerate recomputes all operations",
    "recompute_every": "Accelerate recomputes every layer",
    "activation_offload": "Accelerate has no such setting",
    "loss_chunk": "the loss belongs to the program",
    "full_state_dict": "the program writes its checkpoints",
    "gradient_accumulation_steps": "the program sets it in `Accelerator(gradient_accumulation_steps=…)`",
    "grad_clip": "the program calls `accelerator.clip_grad_norm_`",
}
"""Fields that Accelerate or its strategies could mean, and the reason why a config may lack them."""


def convert_trainer(train: TrainSpec, ranks: int, *, gpus: bool) -> Conversion:
    """Return the config for the trainer's strategy on `ranks` processes, and a note for each setting that it cannot hold."""
    config: JsonObject = {"mixed_precision": "no" if train.precision == "fp32" else train.precision.removesuffix("-true")}
    if train.strategy == "fsdp":
        config |= {"distributed_type": "FSDP", "fsdp_config": _convert_fsdp(train)}
    elif train.strategy == "deepspeed":
        config |= {"distributed_type": "DEEPSPEED", "deepspeed_config": _convert_deepspeed(train)}
    else:
        config["distributed_type"] = ("MULTI_GPU" if gpus else "MULTI_CPU") if ranks > 1 else "NO"
    if train.compile:
        config["dynamo_config"] = {"dynamo_backend": "INDUCTOR", "dynamo_use_regional_compilation": True}
    return Conversion(spec=config, notes=tuple(_explain_losses(train)))


def _convert_fsdp(train: TrainSpec) -> JsonObject:
    section: JsonObject = {
        "fsdp_sharding_strategy": _SHARDING[train.sharding],
        "fsdp_auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
        "fsdp_activation_checkpointing": bool(train.activation_checkpointing),
        "fsdp_offload_params": train.cpu_offload,
        "fsdp_state_dict_type": "FULL_STATE_DICT" if train.full_state_dict else "SHARDED_STATE_DICT",
    }
    return section | ({"fsdp_transformer_layer_cls_to_wrap": ",".join(train.wrap)} if train.wrap else {})


def _convert_deepspeed(train: TrainSpec) -> JsonObject:
    device = "nvme" if train.disk_offload else "cpu" if train.cpu_offload else "none"
    is_stage_3 = train.zero_stage == 3  # noqa: PLR2004 - the stage
    section: JsonObject = {
        "zero_stage": train.zero_stage,
        "offload_optimizer_device": device,
        "offload_param_device": device if is_stage_3 else "none",
        "gradient_accumulation_steps": train.gradient_accumulation_steps,
        "zero3_init_flag": is_stage_3,
    }
    if train.disk_offload:
        section |= {"offload_optimizer_nvme_path": train.disk_offload, "offload_param_nvme_path": train.disk_offload}
    return section | ({"gradient_clipping": train.grad_clip} if train.grad_clip else {})


def _explain_losses(train: TrainSpec) -> Iterator[Note]:
    """Yield a note for each setting about parallelism that has no key, and one for all settings of the program."""
    if train.strategy == "dp":
        yield Note(item="strategy: dp", reason="Accelerate has no DataParallel; the config has one process")
    if train.precision == "bf16-true":
        yield Note(
            item="precision: bf16-true", reason="written as bf16, which keeps parameters in fp32: load the model in bf16"
        )
    if train.precision == "fp8":
        yield Note(item="precision: fp8", reason="written as mixed_precision: fp8; choose the layers with `AORecipeKwargs`")
    written = _ALWAYS | _OF_STRATEGY.get(train.strategy, frozenset())
    changed = [name for name in type(train).model_fields if _differs_from_default(train, name) and name not in written]
    for name in changed:
        if name in _PARALLELISM:
            yield Note(item=f"{name}: {_format(getattr(train, name))}", reason=f"left out: {_PARALLELISM[name]}")
    if settings := [name for name in changed if name not in _PARALLELISM]:
        yield Note(item=", ".join(settings), reason="left out: settings of the program that `accelerate launch` starts")


def _differs_from_default(train: TrainSpec, name: str) -> bool:
    return bool(getattr(train, name) != type(train).model_fields[name].default)


def _format(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else ",".join(value) if isinstance(value, tuple) else str(value)
