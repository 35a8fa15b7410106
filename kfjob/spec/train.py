"""What the trainer is told: one definition, read from the `train:` section of a job spec and from the trainer's command line
(`kfjob.spec.arguments`).
"""

from __future__ import annotations

import difflib
from typing import Annotated, Literal, Self

from pydantic import (
    ConfigDict,
    Discriminator,
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    Tag,
    ValidationInfo,
    field_validator,
    model_validator,
)

from kfjob.spec.base import SpecModel
from kfjob.spec.models import PRESETS, ModelShape

Strategy = Literal["fsdp", "ddp", "dp", "deepspeed", "none"]
Sharding = Literal["full", "shard_grad_op", "hybrid", "hybrid_shard_grad_op", "no_shard"]
Precision = Literal["fp32", "bf16", "fp16", "bf16-true"]
Recompute = Literal["all", "cheap"]
Accumulate = Literal["whole", "sharded"]
OnNan = Literal["stop", "skip", "roll_back"]
OnSpike = Literal["ignore", "skip", "stop", "roll_back"]
LogModel = Literal["none", "end", "all"]
DataFormat = Literal["text", "chat"]
Packing = Literal["stream", "documents", "pad"]
Schedule = Literal["cosine", "linear", "constant", "exponential", "plateau", "wsd"]


def _way(model: object) -> str:
    """Which of the two ways to say what the model is: a fault is then told of that one only."""
    return "ModelShape" if isinstance(model, dict | ModelShape) else "str"


Model = Annotated[Annotated[str, Tag("str")] | Annotated[ModelShape, Tag("ModelShape")], Discriminator(_way)]


class TrainSpec(SpecModel):
    """Every argument of the trainer. Steps are optimiser steps; batch sizes count samples of `sequence_length` tokens."""

    model_config = ConfigDict(allow_inf_nan=False, protected_namespaces=(), validate_default=False)

    model: Model = Field(
        description="a preset's name, a folder with a Hugging Face config.json (and weights, which are loaded), a model of the "
        "hub (`owner/name`), or a shape"
    )
    model_revision: str | None = Field(default=None, description="commit or branch of a model of the hub; the newest if unset")
    vocab_size: PositiveInt | None = Field(default=None, description="rows of the embedding, where it is not the preset's own")

    data: str = Field(
        description="a .jsonl, .txt or .parquet file, a folder with train* and validation*, a tokenised folder, a data set of "
        "the hub by name, or `synthetic`"
    )
    data_config: str | None = Field(default=None, description="configuration of a data set of the hub")
    data_revision: str | None = Field(default=None, description="its commit or branch; the newest if unset")
    data_split: str = Field(default="train", description="split to train on, of the hub or of a folder")
    validation: str | None = Field(default=None, description="file to evaluate on, where `data` is a file")
    validation_split: str = Field(default="validation", description="split to evaluate on, of the hub or of a folder")
    data_format: DataFormat = Field(
        default="text", description="text; chat (`messages` or `prompt` and `completion`), where only answers are learnt"
    )
    packing: Packing | None = Field(
        default=None,
        description="stream (text without a gap), documents (whole ones together in a sample, attention stays inside each), "
        "pad (one in a sample); unset, stream for text and documents for chat",
    )
    tokenizer: str | None = Field(default=None, description="folder with tokenizer.json; `data`/tokenizer if there is one")
    text_field: str = Field(default="text", description="the field or column that holds the text")
    sequence_length: PositiveInt = Field(default=1024, description="tokens in a sample")
    lanes: PositiveInt = Field(
        default=64, description="parts that streamed text is read in; a multiple of every world size the run may have"
    )
    shuffle_window: PositiveInt = Field(default=256, description="documents of a lane shuffled together; 1 keeps the order")

    strategy: Strategy = Field(
        default="fsdp",
        description="fsdp shards, ddp copies, deepspeed does as zero_stage says, dp and none are a single process",
    )
    sharding: Sharding = Field(
        default="full",
        description="fsdp: full; shard_grad_op (parameters stay whole after forward); both also hybrid (within shard_size "
        "ranks, whose groups hold the same); no_shard",
    )
    shard_size: PositiveInt | None = Field(default=None, description="hybrid: ranks that share a model; unset, those of a node")
    wrap: tuple[str, ...] | None = Field(
        default=None, description="fsdp: classes of the layers that are units; unset, the model's decoder layers"
    )
    accumulate: Accumulate = Field(
        default="whole",
        description="fsdp: gradients between micro-batches whole (exchanged once a step) or sharded (each time, less memory)",
    )
    prefetch: PositiveInt = Field(default=1, description="fsdp: units gathered ahead of the one that computes")
    cpu_offload: bool = Field(
        default=False,
        description="fsdp: parameters, gradients, optimiser on the host; deepspeed: the optimiser, at stage 3 parameters too",
    )
    disk_offload: str | None = Field(
        default=None,
        description="deepspeed at zero_stage 3: folder of a fast local disk that holds parameters and optimiser",
    )
    zero_stage: NonNegativeInt = Field(
        default=3,
        le=3,
        description="deepspeed: ranks share nothing (0), the optimiser (1), gradients too (2), parameters too (3)",
    )
    comms_logger: bool = Field(default=False, description="deepspeed: count what is exchanged, and print it at the end")
    precision: Precision = Field(
        default="bf16",
        description="of the arithmetic, with parameters and optimiser in fp32; bf16-true has those in bf16 too",
    )
    activation_checkpointing: bool = Field(default=False, description="recompute layers in the backward pass")
    recompute: Recompute = Field(
        default="all", description="with activation_checkpointing: all of a layer, or what is cheap (no matrix products)"
    )
    recompute_every: PositiveInt = Field(default=1, description="with activation_checkpointing: every n-th layer only")
    activation_offload: bool = Field(default=False, description="keep what the forward pass keeps on the host")
    compile: bool = Field(default=False, description="torch.compile, layer by layer")

    loss_chunk: NonNegativeInt = Field(
        default=1024, description="tokens whose logits stand at once, to save memory; 0 computes those of a micro-batch at once"
    )

    micro_batch_size: PositiveInt = Field(default=1, description="samples in one forward pass of one rank")
    gradient_accumulation_steps: PositiveInt = Field(default=1, description="forward passes in an optimiser step")
    max_steps: PositiveInt | None = Field(default=None, description="optimiser steps to train for")
    epochs: PositiveInt | None = Field(default=None, description="passes over tokenised data; with max_steps, what ends first")
    max_minutes: PositiveFloat | None = Field(default=None, description="stop with a checkpoint after this time")

    lr: PositiveFloat = Field(default=1e-4, description="peak learning rate")
    min_lr: NonNegativeFloat | None = Field(default=None, description="learning rate at the last step; a tenth of lr if unset")
    schedule: Schedule = Field(
        default="cosine",
        description="how the rate falls after the warm-up; plateau: when evaluations stop improving; wsd: at the end only",
    )
    lr_decay_iters: PositiveInt | None = Field(default=None, description="step at which min_lr is reached; the last if unset")
    decay_fraction: PositiveFloat = Field(default=0.2, le=1, description="wsd: share of the steps in which the rate falls")
    plateau_patience: NonNegativeInt = Field(default=2, description="plateau: evaluations without progress that are borne")
    plateau_factor: PositiveFloat = Field(default=0.5, lt=1, description="plateau: what the rate is multiplied by then")
    warmup_steps: NonNegativeInt | None = Field(default=None, description="steps of linear warm-up")
    warmup_fraction: NonNegativeFloat | None = Field(default=None, le=1, description="the same as a share of all steps")
    weight_decay: NonNegativeFloat = Field(default=0.1, description="on matrices; norms and biases have none")
    betas: tuple[float, float] = Field(default=(0.9, 0.95), description="of AdamW")
    eps: PositiveFloat = Field(default=1e-8, description="of AdamW")
    grad_clip: NonNegativeFloat = Field(default=1.0, description="largest norm of the gradient; 0 does not clip")
    seed: NonNegativeInt = Field(default=12345, description="of weights, data order and dropout")

    checkpoint_dir: str | None = Field(
        default=None, description="folder of the checkpoints, shared by all ranks, or s3://bucket/folder; none if unset"
    )
    resume: str = Field(
        default="auto",
        description="auto (newest complete checkpoint, else afresh), none, or a folder: a checkpoint, or the newest in it",
    )
    checkpoint_every: NonNegativeInt = Field(
        default=1000, description="steps between checkpoints; 0 writes one at the end only"
    )
    keep_last: NonNegativeInt = Field(default=3, description="complete checkpoints to keep; 0 keeps all")
    keep_every: NonNegativeInt = Field(default=0, description="keep those of multiples of this many steps besides; 0: none")
    async_checkpoint: bool = Field(default=True, description="write checkpoints while the training goes on")
    full_state_dict: bool = Field(default=False, description="put the weights into each checkpoint as one file too, model.pt")

    on_nan: OnNan = Field(default="stop", description="a loss or gradient that is no number: stop, skip the step, or roll back")
    on_spike: OnSpike = Field(
        default="ignore", description="a loss far above the last ones: ignore, skip the step, stop, or roll back"
    )
    spike_factor: PositiveFloat = Field(default=2.0, gt=1, description="times the median of the last 50 losses that is a spike")

    log_every: PositiveInt = Field(default=1, description="steps between progress lines")
    log_rank: NonNegativeInt = Field(
        default=0, description="the rank that prints and reports; others print warnings and errors"
    )
    metrics_file: str | None = Field(default=None, description="file that gets a JSON line for each progress line")
    tensorboard_dir: str | None = Field(default=None, description="folder of TensorBoard events")
    wandb_project: str | None = Field(default=None, description="Weights & Biases project; its key is WANDB_API_KEY")
    wandb_entity: str | None = Field(default=None, description="Weights & Biases user or team")
    wandb_log_model: LogModel = Field(
        default="none", description="checkpoints that become artifacts: none, end (the last), all"
    )
    peak_tflops: PositiveFloat | None = Field(
        default=None, description="of one device in the arithmetic's precision, for MFU; known for common GPUs"
    )
    eval_every: NonNegativeInt = Field(default=0, description="steps between evaluations; 0 is never")
    evals_per_epoch: NonNegativeInt = Field(
        default=0, description="evaluations spread over an epoch of tokenised data, the last at its end; 2 is middle and end"
    )
    eval_batches: PositiveInt = Field(default=10, description="batches in an evaluation, over all ranks together")
    eval_batch_size: PositiveInt | None = Field(default=None, description="samples in such a batch; micro_batch_size if unset")
    deterministic: bool = Field(default=False, description="only algorithms that give the same bits each time; slower")
    profile_from: PositiveInt | None = Field(default=None, description="first step that the profiler records; never if unset")
    profile_steps: PositiveInt = Field(default=3, description="steps that the profiler records")
    profile_dir: str = Field(default="profile", description="folder of Chrome traces and memory snapshots")
    spawn: PositiveInt | None = Field(
        default=None, description="ranks that each process starts by itself, where no launcher starts them (launcher: python)"
    )
    dry_run: bool = Field(default=False, description="build on the meta device, print parts and memory, and stop")
    debug: bool = Field(default=False, description="show tracebacks of errors that have a message of their own")

    @field_validator("model")
    @classmethod
    def _known_preset(cls, model: str | ModelShape) -> str | ModelShape:
        if isinstance(model, str) and "/" not in model and model not in PRESETS and not model.startswith("."):
            near = difflib.get_close_matches(model, PRESETS, n=1)
            known = f"did you mean `{near[0]}`" if near else f"the presets are {', '.join(PRESETS)}"
            raise ValueError(f"no preset `{model}` ({known}; a folder and a model of the hub have a slash)")
        return model

    @field_validator("resume")
    @classmethod
    def _no_switch(cls, resume: str) -> str:
        if resume.lower() in ("true", "false"):  # another script's switch by this name, see `kfjob.spec.script_arguments`
            raise ValueError(f"`{resume}` is auto or none here (a folder of that name: `./{resume}`)")
        return resume

    @field_validator("min_lr")
    @classmethod
    def _below_peak(cls, min_lr: float | None, info: ValidationInfo) -> float | None:
        lr = info.data.get("lr")
        if min_lr is not None and lr is not None and min_lr > lr:
            raise ValueError(f"min_lr {min_lr:g} is above lr {lr:g}")
        return min_lr

    @field_validator("warmup_fraction")
    @classmethod
    def _one_warmup(cls, fraction: float | None, info: ValidationInfo) -> float | None:
        if fraction is not None and info.data.get("warmup_steps") is not None:
            raise ValueError("give warmup_steps or warmup_fraction, not both")
        return fraction

    @field_validator("wrap", mode="before")
    @classmethod
    def _names(cls, wrap: object) -> object:
        return tuple(wrap.split(",")) if isinstance(wrap, str) else wrap

    @field_validator("betas")
    @classmethod
    def _below_one(cls, betas: tuple[float, float]) -> tuple[float, float]:
        if not all(0 <= beta < 1 for beta in betas):
            raise ValueError("each value of `betas` must be at least 0 and below 1")
        return betas

    @model_validator(mode="after")
    def _ends_and_fits(self) -> Self:
        if self.data_format == "chat" and self.packing == "stream":
            raise ValueError("packing stream cuts conversations apart: with data_format chat use documents or pad")
        if self.max_steps is None and self.epochs is None:
            raise ValueError("give max_steps or epochs: nothing says when the training ends")
        if self.schedule == "plateau" and not (self.eval_every or self.evals_per_epoch):
            raise ValueError("schedule plateau goes by evaluations: give eval_every")
        if self.schedule == "exponential" and resolve_final_lr(self) == 0:
            raise ValueError("schedule exponential never reaches 0: give a min_lr above it")
        if self.cpu_offload and (
            self.strategy not in ("fsdp", "deepspeed") or (self.strategy, self.zero_stage) == ("deepspeed", 0)
        ):
            raise ValueError("cpu_offload is of strategy fsdp, and of deepspeed from zero_stage 1")
        if self.disk_offload and ((self.strategy, self.zero_stage) != ("deepspeed", 3) or self.cpu_offload):
            raise ValueError("disk_offload is of strategy deepspeed at zero_stage 3, in place of cpu_offload")
        if self.strategy == "deepspeed" and {self.on_nan, self.on_spike} & {"skip", "roll_back"}:
            raise ValueError("strategy deepspeed cannot skip steps or roll back: on_nan and on_spike may stop the run")
        if self.wandb_log_model != "none" and "://" in (self.checkpoint_dir or "://"):
            raise ValueError("wandb_log_model copies checkpoints from a folder: give a checkpoint_dir that is one")
        shape = get_shape(self)
        if shape and self.sequence_length > shape.max_position_embeddings:
            raise ValueError(
                f"sequence_length {self.sequence_length} is above the model's {shape.max_position_embeddings} positions"
            )
        return self


def get_shape(spec: TrainSpec) -> ModelShape | None:
    """The model's shape with `vocab_size` applied; None where only a folder's config.json knows it."""
    shape = PRESETS.get(spec.model) if isinstance(spec.model, str) else spec.model
    return shape.model_copy(update={"vocab_size": spec.vocab_size}) if shape and spec.vocab_size else shape


def resolve_packing(spec: TrainSpec) -> Packing:
    """How documents become samples."""
    return spec.packing or ("documents" if spec.data_format == "chat" else "stream")


def resolve_eval_batch_size(spec: TrainSpec) -> int:
    """Samples in a batch of an evaluation."""
    return spec.eval_batch_size or spec.micro_batch_size


def resolve_final_lr(spec: TrainSpec) -> float:
    """The learning rate that the schedule ends at."""
    return spec.lr / 10 if spec.min_lr is None else spec.min_lr


def resolve_warmup_steps(spec: TrainSpec, total_steps: int) -> int:
    """Steps of warm-up out of `total_steps`."""
    return spec.warmup_steps or round((spec.warmup_fraction or 0) * total_steps)
