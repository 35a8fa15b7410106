"""The arguments of the trainer, each with its type, default and description; the rules across them are in `train_rules`."""

from typing import Annotated, Literal

from pydantic import (
    ConfigDict,
    Discriminator,
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    Tag,
    field_validator,
)

from kfjob.trainspec.model_shapes import MAX_VOCABULARY, ModelShape
from kfjob.validation.spec_model import SpecModel, field_error

Strategy = Literal["fsdp", "ddp", "dp", "deepspeed", "none"]
Sharding = Literal["full", "shard_grad_op", "hybrid", "hybrid_shard_grad_op", "no_shard"]
Precision = Literal["fp32", "bf16", "fp16", "bf16-true", "fp8"]
Float8Recipe = Literal["tensorwise", "rowwise"]
Rounding = Literal["stochastic", "nearest"]
Recompute = Literal["all", "cheap"]
Accumulate = Literal["whole", "sharded"]
OnNan = Literal["stop", "skip", "roll_back"]
OnSpike = Literal["ignore", "skip", "stop", "roll_back"]
OnSaveError = Literal["stop", "continue"]
LogModel = Literal["none", "end", "all"]
DataFormat = Literal["text", "chat"]
Packing = Literal["stream", "documents", "pad"]
Schedule = Literal["cosine", "linear", "constant", "exponential", "plateau", "wsd"]
ALL_LINEAR = "all-linear"
"""PEFT's name for every linear layer but the head."""
TrainedBiases = Literal["none", "lora_only", "all"]
Quantization = Literal["nf4"]


def _tag_model(model: object) -> str:
    """Return the branch of the union that a value belongs to, so that pydantic reports problems of that branch only."""
    return "ModelShape" if isinstance(model, dict | ModelShape) else "str"


MAX_BATCH = 1_000_000
"""Samples of a batch, batches of a step or an evaluation, and lanes: more would take hours before the first step."""
ModelSource = Annotated[Annotated[str, Tag("str")] | Annotated[ModelShape, Tag("ModelShape")], Discriminator(_tag_model)]
"""The name of a model, or its shape."""


class LoraSpec(SpecModel):
    """Low-rank adapters (LoRA). Only they are trained, the base model is frozen. The names are those of PEFT's LoraConfig."""

    model_config = ConfigDict(validate_default=False)

    r: PositiveInt = Field(default=16, description="Rank of the adapters")
    lora_alpha: PositiveInt = Field(
        default=32, description="Scale of the adapters: their output is multiplied by `lora_alpha` / `r`"
    )
    lora_dropout: NonNegativeFloat = Field(default=0.0, lt=1, description="Dropout of the adapters' inputs")
    target_modules: tuple[str, ...] = Field(
        default=(ALL_LINEAR,),
        min_length=1,
        description="Names of the linear layers with an adapter, such as `q_proj`; `all-linear` is all but the head",
    )
    exclude_modules: tuple[str, ...] = Field(default=(), description="Names of linear layers without an adapter")
    bias: TrainedBiases = Field(
        default="none",
        description="Biases of the base that are trained: `none`, `lora_only` (of layers with an adapter), or `all`",
    )
    use_rslora: bool = Field(default=False, description="Scale the adapters by `lora_alpha` / sqrt(`r`) (rank-stabilised LoRA)")
    quantize: Quantization | None = Field(
        default=None, description="Form of the frozen linear layers: `nf4` is 4 bits (QLoRA); left out, that of the arithmetic"
    )

    @field_validator("target_modules", "exclude_modules", mode="before")
    @classmethod
    def _split_names(cls, names: object) -> object:
        return tuple(names.split(",")) if isinstance(names, str) else names

    @field_validator("target_modules")
    @classmethod
    def _check_targets(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        if ALL_LINEAR in names and len(names) > 1:
            raise field_error("targets", f"`{ALL_LINEAR}` includes every other name", hint="remove the other names")
        return names


class TrainFields(SpecModel, defer_build=True):
    """The fields of a `TrainSpec`, whose rules read them; programs make a `TrainSpec` only."""

    model_config = ConfigDict(allow_inf_nan=False, protected_namespaces=(), validate_default=False)

    model: ModelSource = Field(
        description="Model: a preset, a folder with a Hugging Face config.json (and weights, which the trainer loads), a model "
        "on the hub (`owner/name`), or a shape"
    )
    model_revision: str | None = Field(default=None, description="Commit or branch of a model on the hub; default: the newest")
    vocab_size: PositiveInt | None = Field(
        default=None, le=MAX_VOCABULARY, description="Rows of the embedding; default: those of the model"
    )

    lora: LoraSpec | None = Field(
        default=None, description="Low-rank adapters (LoRA), trained instead of the model's weights; `{}` uses the defaults"
    )

    data: str = Field(
        description="Data: a .jsonl, .txt or .parquet file, a folder with train* and validation* files, a tokenised folder, a "
        "data set on the hub, or `synthetic`"
    )
    data_config: str | None = Field(default=None, description="Configuration of a data set on the hub")
    data_revision: str | None = Field(
        default=None, description="Commit or branch of a data set on the hub; default: the newest"
    )
    data_split: str = Field(default="train", description="Split of a hub data set or a folder to train on")
    validation: str | None = Field(default=None, description="File to evaluate on, if `data` is a file")
    validation_split: str = Field(default="validation", description="Split of a hub data set or a folder to evaluate on")
    data_format: DataFormat = Field(
        default="text",
        description="Format of the data: `text`, or `chat` (`messages`, or `prompt` and `completion`), which trains on the "
        "answers only",
    )
    packing: Packing | None = Field(
        default=None,
        description="Packing of documents into samples: `stream` (text without gaps), `documents` (whole documents together, "
        "with separate attention) or `pad` (one document per sample); default: `stream` for text, `documents` for chat",
    )
    tokenizer: str | None = Field(
        default=None,
        description="Folder with tokenizer.json, or model on the hub; default: the folder `tokenizer` inside `data`, or that "
        "of a `model` folder",
    )
    text_field: str = Field(default="text", description="Field or column that holds the text")
    sequence_length: PositiveInt = Field(default=1024, description="Tokens in a sample")
    lanes: PositiveInt = Field(
        default=64,
        le=MAX_BATCH,
        description="Parts that streamed text is split into; a multiple of every world size that the job may have",
    )
    shuffle_window: PositiveInt = Field(
        default=256, description="Documents of a lane that are shuffled together; 1 keeps the order"
    )

    strategy: Strategy = Field(
        default="fsdp",
        description="Parallelism: `fsdp` shards the model, `ddp` replicates it, `deepspeed` shards it as `zero_stage` says, "
        "`dp` and `none` use a single process",
    )
    sharding: Sharding = Field(
        default="full",
        description="Sharding of FSDP: `full`, `shard_grad_op` (parameters stay gathered after the forward pass), `hybrid` "
        "and `hybrid_shard_grad_op` (the same within groups of `shard_size` ranks, which replicate the model), or `no_shard`",
    )
    shard_size: PositiveInt | None = Field(
        default=None, description="Ranks in a group of hybrid sharding; default: the ranks of a node"
    )
    wrap: tuple[str, ...] | None = Field(
        default=None, description="Classes of the layers that become FSDP units; default: the model's decoder layers"
    )
    accumulate: Accumulate = Field(
        default="sharded",
        description="Gradients between micro-batches with FSDP: `sharded` (one reduction per micro-batch) or `whole` (one per "
        "step, with all gradients in fp32 on every rank)",
    )
    prefetch: PositiveInt = Field(default=1, description="FSDP units that are gathered ahead of the current one")
    cpu_offload: bool = Field(
        default=False,
        description="Keep parameters, gradients and optimiser state on the host (fsdp), or the optimiser state (deepspeed; at "
        "stage 3 also the parameters)",
    )
    disk_offload: str | None = Field(
        default=None, description="Folder on a fast local disk for parameters and optimiser state (deepspeed with zero_stage 3)"
    )
    zero_stage: NonNegativeInt = Field(
        default=3,
        le=3,
        description="ZeRO stage of DeepSpeed, which shards nothing (0), optimiser state (1), also gradients (2), also "
        "parameters (3)",
    )
    comms_logger: bool = Field(default=False, description="Count DeepSpeed's collectives, and print the counts at the end")
    context_parallel: PositiveInt = Field(
        default=1,
        description="Ranks that share each sample, each with a part of its tokens, for sequences that are too long for one "
        "rank; a divisor of the number of ranks",
    )
    precision: Precision = Field(
        default="bf16",
        description="Precision of the arithmetic; a CPU computes in fp32 unless it is set. Parameters and optimiser state are "
        "fp32, but bf16 with `bf16-true`. `fp8` is bf16 with the decoder's matrix products in fp8, on an H100, L40S, L4 or "
        "newer",
    )
    fp8_recipe: Float8Recipe = Field(
        default="tensorwise",
        description="Scales of `precision: fp8`: `tensorwise`, one for each matrix (the fastest), or `rowwise`, one for each "
        "row (more accurate)",
    )
    fp8_emulate: bool = Field(
        default=False,
        description="Compute the products of `precision: fp8` in a wider type, slowly, for trials on a device without fp8",
    )
    rounding: Rounding = Field(
        default="stochastic",
        description="Rounding of parameters and optimiser state with `bf16-true`: `stochastic`, or `nearest`, which drops "
        "small updates",
    )
    activation_checkpointing: bool | None = Field(
        default=None,
        description="Recompute the activations of layers in the backward pass; default: on a GPU, if the model needs it by the "
        "memory estimate",
    )
    recompute: Recompute = Field(
        default="all",
        description="Operations that activation checkpointing recomputes: `all`, or `cheap` (all except matrix products)",
    )
    recompute_every: PositiveInt = Field(default=1, description="Apply activation checkpointing to every n-th layer only")
    activation_offload: bool = Field(
        default=False, description="Keep activations on the host between forward and backward pass"
    )
    compile: bool | None = Field(
        default=None,
        description="Compile every layer with torch.compile; default: on a GPU, unless another setting prevents it",
    )

    loss_chunk: NonNegativeInt = Field(
        default=1024,
        description="Tokens per chunk of the loss, to limit the memory for logits; 0 computes a micro-batch in one chunk",
    )

    router_aux_loss_coef: NonNegativeFloat | None = Field(
        default=None,
        description="Factor of the load-balancing loss of a model with experts, which is added to the loss; default: that of "
        "the model's configuration; 0 leaves it out",
    )

    micro_batch_size: PositiveInt | None = Field(
        default=None,
        le=MAX_BATCH,
        description="Samples per rank in one forward pass; default: 1, but on a GPU as many of the samples of a step as fit by "
        "the memory estimate, in fewer forward passes",
    )
    gradient_accumulation_steps: PositiveInt = Field(
        default=1,
        le=MAX_BATCH,
        description="Forward passes per optimiser step; without `micro_batch_size`, samples per rank in a step",
    )
    max_steps: PositiveInt | None = Field(default=None, description="Optimiser steps to train for")
    epochs: PositiveInt | None = Field(
        default=None, description="Passes over tokenised data; with `max_steps`, training ends at the earlier limit"
    )
    max_minutes: PositiveFloat | None = Field(default=None, description="Minutes after which training stops with a checkpoint")

    lr: PositiveFloat = Field(default=1e-4, description="Peak learning rate")
    min_lr: NonNegativeFloat | None = Field(
        default=None, description="Learning rate at the last step; default: a tenth of `lr`"
    )
    schedule: Schedule = Field(
        default="cosine",
        description="Decay of the learning rate after the warm-up; `plateau` decays when evaluations stop improving, `wsd` "
        "only at the end",
    )
    lr_decay_iters: PositiveInt | None = Field(
        default=None, description="Step at which the learning rate reaches `min_lr`; default: the last step"
    )
    decay_fraction: PositiveFloat = Field(default=0.2, le=1, description="Fraction of the steps in which `wsd` decays")
    plateau_patience: NonNegativeInt = Field(default=2, description="Evaluations without improvement before `plateau` decays")
    plateau_factor: PositiveFloat = Field(
        default=0.5, lt=1, description="Factor by which `plateau` multiplies the learning rate"
    )
    warmup_steps: NonNegativeInt | None = Field(default=None, description="Steps of linear warm-up")
    warmup_fraction: NonNegativeFloat | None = Field(
        default=None, le=1, description="Warm-up as a fraction of all steps, instead of `warmup_steps`"
    )
    weight_decay: NonNegativeFloat = Field(default=0.1, description="Weight decay of matrices; norms and biases have none")
    betas: tuple[float, float] = Field(default=(0.9, 0.95), description="Betas of AdamW")
    eps: PositiveFloat = Field(default=1e-8, description="Epsilon of AdamW")
    grad_clip: NonNegativeFloat = Field(default=1.0, description="Largest norm of the gradient; 0 disables clipping")
    seed: NonNegativeInt = Field(default=12345, le=2**63 - 1, description="Seed of weights, data order and dropout")

    checkpoint_dir: str | None = Field(
        default=None,
        description="Folder for checkpoints that all ranks share, or `s3://bucket/folder`; default: no checkpoints",
    )
    resume: str = Field(
        default="auto",
        description="Start of the training: `auto` (the newest complete checkpoint, else from scratch), `none` (from "
        "scratch; earlier checkpoints in `checkpoint_dir` are renamed to `earlier-…`), or a checkpoint or a "
        "folder with checkpoints",
    )
    continues: str = Field(
        default="",
        description="Rendezvous id of an earlier launch: `resume` then applies only if that launch and those that continue it "
        "have written no checkpoint; `kfjob relaunch` and the guard set it",
    )
    trust_checkpoint: bool = Field(
        default=False,
        description="Unpickle the checkpoint of `resume` without restrictions, which can run code; checkpoints of this trainer "
        "never need it",
    )
    checkpoint_every: NonNegativeInt = Field(
        default=1000, description="Steps between checkpoints; 0 writes one checkpoint at the end only"
    )
    keep_last: NonNegativeInt = Field(default=3, description="Number of newest complete checkpoints to keep; 0 keeps all")
    keep_every: NonNegativeInt = Field(
        default=0, description="Also keep the checkpoints at multiples of this number of steps; 0 keeps none of them"
    )
    async_checkpoint: bool = Field(default=True, description="Write checkpoints while training continues")
    on_save_error: OnSaveError = Field(
        default="stop",
        description="Action if a checkpoint cannot be written: `stop`, or `continue` with the last complete one; the run fails "
        "if its last checkpoint cannot be written",
    )
    full_state_dict: bool = Field(default=False, description="Also write the weights of each checkpoint as one file, model.pt")

    on_nan: OnNan = Field(
        default="stop", description="Action for a loss or gradient that is NaN or infinite: stop, skip the step, or roll back"
    )
    on_spike: OnSpike = Field(
        default="ignore",
        description="Action for a loss far above the recent ones: ignore it, skip the step, stop, or roll back",
    )
    spike_factor: PositiveFloat = Field(
        default=2.0, gt=1, description="Multiple of the median of the last 50 losses above which a loss is a spike"
    )

    log_every: PositiveInt = Field(
        default=10, description="Steps between progress lines; the first and the last step of a launch are always logged"
    )
    log_rank: NonNegativeInt = Field(
        default=0, description="Rank that prints and reports; other ranks print warnings and errors only"
    )
    metrics_file: str | None = Field(default=None, description="File that gets one JSON line per progress line")
    tensorboard_dir: str | None = Field(default=None, description="Folder for TensorBoard events")
    wandb_project: str | None = Field(default=None, description="Weights & Biases project; WANDB_API_KEY holds its key")
    wandb_entity: str | None = Field(default=None, description="Weights & Biases user or team")
    wandb_log_model: LogModel = Field(
        default="none", description="Checkpoints to upload as artifacts: none, end (the last one), or all"
    )
    peak_tflops: PositiveFloat | None = Field(
        default=None,
        description="Peak TFLOPS of one device in the precision of the arithmetic, for MFU; default: known for common GPUs",
    )
    eval_every: NonNegativeInt = Field(default=0, description="Steps between evaluations; 0 disables them")
    evals_per_epoch: NonNegativeInt = Field(
        default=0,
        description="Evaluations per epoch of tokenised data, the last one at its end; 2 evaluates in the middle and at the "
        "end",
    )
    eval_batches: PositiveInt = Field(default=10, le=MAX_BATCH, description="Batches in an evaluation, over all ranks together")
    eval_batch_size: PositiveInt | None = Field(
        default=None, le=MAX_BATCH, description="Samples in a batch of an evaluation; default: `micro_batch_size`"
    )
    deterministic: bool = Field(default=False, description="Use only deterministic algorithms, which are slower")
    profile_from: PositiveInt | None = Field(default=None, description="First step to profile; default: no profiling")
    profile_steps: PositiveInt = Field(default=3, description="Number of steps to profile")
    profile_dir: str = Field(default="profile", description="Folder for Chrome traces and memory snapshots")
    spawn: PositiveInt | None = Field(
        default=None, description="Ranks that each process starts itself, if no launcher does (`launcher: python`)"
    )
    dry_run: bool = Field(default=False, description="Build the model on the meta device, print its parts and memory, and exit")
    debug: bool = Field(default=False, description="Show tracebacks also for errors that have a message")
