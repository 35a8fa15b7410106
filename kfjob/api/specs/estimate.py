"""What a training will need: memory of each GPU with every strategy, time, and GPU hours."""

from __future__ import annotations

import re

from msgspec import Struct
from msgspec.structs import asdict

from kfjob.api.planning import plan_job
from kfjob.api.reader import open_job
from kfjob.api.settings import Settings
from kfjob.api.target import find_target
from kfjob.api.view import read_view
from kfjob.base.common_types import JsonObject, Notify
from kfjob.base.errors import NoEvidence, UsageError
from kfjob.joblog.master.evidence import Master
from kfjob.joblog.view.job_view import JobView
from kfjob.lint.fit import find_device, find_gpu_memory
from kfjob.plan import JobPlan
from kfjob.source.spec_text import LoadedSpec
from kfjob.trainspec.defaults import TrainerChoice, choose_defaults
from kfjob.trainspec.flops import peak_flops, shape_flops_per_token
from kfjob.trainspec.linear_layers import count_trained
from kfjob.trainspec.memory_table import MemoryRow, list_rows
from kfjob.trainspec.model_shapes import PRESETS, ModelShape, count_embedding_parameters, count_parameters
from kfjob.trainspec.train_spec import TrainSpec, get_shape, resolve_micro_batch_size

DEFAULT_MFU = 0.4
"""The share of the peak FLOPs that is assumed: published runs of this kind reach 33 to 57 % (docs/guides/estimate.md)."""
_HOUR = 3600
_PUBLISHER = re.compile(r"(?:meta-llama/(?:meta-)?|mistralai/|qwen/)")
_VARIANTS = ("-v0.1", "-chat", "-instruct", "-hf")
"""Ends of the names of models that have the shape of the base model."""


class Speed(Struct, frozen=True, kw_only=True):
    """The tokens per second of the whole job."""

    tokens_per_second: float
    source: str
    """Where the number comes from, as a phrase."""


class Estimate(Struct, frozen=True, kw_only=True):
    """The needs of one training."""

    name: str
    train: TrainSpec
    """The training, with a value in each field that the spec leaves open."""
    choices: tuple[TrainerChoice, ...]
    """The values of these fields, which a GPU run would choose, and why."""
    shape: ModelShape
    world_size: int
    local_world_size: int
    gpus: int
    """GPUs of the job; 0 without GPUs."""
    gpu_memory: int
    """Bytes of a GPU; 0 if unknown."""
    min_nodes: int
    """The fewest nodes that an elastic job may have, for which lint checks the memory; else all nodes."""
    nodes: int
    rows: tuple[MemoryRow, ...]
    speed: Speed | None
    """None without a measured speed and without known FLOPs of the device."""

    @property
    def parameters(self) -> int:
        """All parameters of the model; tied ones count once."""
        return count_parameters(self.shape)

    @property
    def trained(self) -> int:
        """The trained parameters: all of them, or those of adapters."""
        return count_trained(self.shape, self.train.lora) if self.train.lora else self.parameters

    @property
    def tokens_per_step(self) -> int:
        """The tokens of an optimiser step over all ranks."""
        train = self.train
        samples = (
            resolve_micro_batch_size(train) * train.gradient_accumulation_steps * self.world_size // train.context_parallel
        )
        return samples * train.sequence_length

    @property
    def tokens(self) -> int | None:
        """The tokens of the whole training; None if only the data sets its length."""
        return self.train.max_steps * self.tokens_per_step if self.train.max_steps else None

    @property
    def seconds(self) -> float | None:
        """The duration of the training; `max_minutes` ends it earlier."""
        if not self.speed or not self.tokens:
            return None
        seconds = self.tokens / self.speed.tokens_per_second
        return min(seconds, self.train.max_minutes * 60) if self.train.max_minutes else seconds

    @property
    def gpu_hours(self) -> float | None:
        """The duration multiplied by the number of GPUs."""
        return self.seconds * self.gpus / _HOUR if self.seconds is not None and self.gpus else None

    def fits(self, row: MemoryRow) -> bool | None:
        """Return whether a strategy fits into the memory of a GPU; None if that memory is unknown."""
        return row.needed <= self.gpu_memory if self.gpu_memory else None

    def describe(self) -> JsonObject:
        """Return the estimate for JSON output; sizes are bytes, times seconds."""
        return {
            "name": self.name,
            "parameters": self.parameters,
            "parameters_without_embedding": self.parameters - count_embedding_parameters(self.shape),
            "trained_parameters": self.trained,
            "parameters_per_rank": -(-self.parameters // self.world_size),
            "ranks": self.world_size,
            "ranks_per_node": self.local_world_size,
            "defaults": [{"field": choice.field, "value": choice.value, "reason": choice.reason} for choice in self.choices],
            "gpus": self.gpus,
            "gpu_memory": self.gpu_memory or None,
            "strategies": [
                {"name": row.name, "own": row.is_own, "fits": self.fits(row), **asdict(row.estimate), "needed": row.needed}
                for row in self.rows
            ],
            "tokens_per_step": self.tokens_per_step,
            "tokens": self.tokens,
            "tokens_per_second": self.speed.tokens_per_second if self.speed else None,
            "speed_source": self.speed.source if self.speed else None,
            "seconds": self.seconds,
            "gpu_hours": self.gpu_hours,
        }


def estimate(
    loaded: LoadedSpec,
    *,
    settings: Settings,
    notify: Notify,
    tokens_per_second: float | None = None,
    job: str | None = None,
    mfu: float | None = None,
) -> Estimate:
    """Return the needs of a spec's training.

    The speed is `tokens_per_second`, or what `job` shows, or `mfu` of the peak FLOPs of the instance's GPUs.

    Raises:
        SpecError: every problem of the spec.
        UsageError: the spec has no `train` section, or the model or the number of processes is unknown.
        NotFound, NoEvidence: the job does not exist, or shows no speed.
    """
    plan = plan_job(loaded, find_target(settings, notify=notify)).plan
    train = loaded.spec.train
    if train is None:
        hint = "`kfjob status JOB` shows the speed of a job with a `command`"
        raise UsageError("only a spec with a `train` section can be estimated", hint=hint)
    train = _replace_hub_model(train, notify)
    shape, local_world_size = get_shape(train), _count_processes(train, plan)
    if shape is None:
        hint = "use a preset or a shape, or run `kfjob.trainer --dry-run` where the model is"
        raise UsageError(f"the shape of the model `{train.model}` is in its folder or on the hub", hint=hint)
    world_size = plan.spec.nodes * local_world_size
    defaults = choose_defaults(train, find_device(plan), world_size=world_size, local_world_size=local_world_size)
    train = defaults.spec
    rows = list_rows(train, world_size=world_size, local_world_size=local_world_size)
    return Estimate(
        name=plan.name,
        train=train,
        choices=defaults.choices,
        shape=shape,
        world_size=world_size,
        local_world_size=local_world_size,
        gpus=plan.resources.gpus * plan.spec.nodes,
        gpu_memory=int(find_gpu_memory(plan) or 0),
        min_nodes=plan.spec.min_nodes,
        nodes=plan.spec.nodes,
        rows=tuple(rows),
        speed=_find_speed(train, shape, plan, settings, notify, tokens_per_second=tokens_per_second, job=job, mfu=mfu),
    )


def _find_preset(model: str) -> str | None:
    """Return the preset with the shape of a model on the hub: `llama-3-8b` for `meta-llama/Meta-Llama-3-8B-Instruct`."""
    publisher = _PUBLISHER.match(model.lower())
    if not publisher:
        return None
    preset = model.lower()[publisher.end() :]
    while variant := next((end for end in _VARIANTS if preset.endswith(end)), ""):
        preset = preset.removesuffix(variant)
    return preset if preset in PRESETS else None


def _replace_hub_model(train: TrainSpec, notify: Notify) -> TrainSpec:
    """Return the training with a preset in place of a model on the hub that has its shape."""
    preset = _find_preset(train.model) if isinstance(train.model, str) and get_shape(train) is None else None
    if preset is None:
        return train
    notify(f"`{train.model}` has the shape of the preset `{preset}`, which the estimate uses")
    return train.model_copy(update={"model": preset, "model_revision": None})


def _count_processes(train: TrainSpec, plan: JobPlan) -> int:
    processes = str(train.spawn or plan.processes_per_node)
    if not processes.isdecimal():
        cause = f"`processes_per_node` is `{processes}`, which each node decides for itself"
        raise UsageError("an estimate needs the number of processes", cause=cause, hint="`--set processes_per_node=8`")
    return int(processes)


def _find_speed(
    train: TrainSpec,
    shape: ModelShape,
    plan: JobPlan,
    settings: Settings,
    notify: Notify,
    *,
    tokens_per_second: float | None,
    job: str | None,
    mfu: float | None,
) -> Speed | None:
    if tokens_per_second:
        return Speed(tokens_per_second=tokens_per_second, source="as given")
    if job:
        view = read_view(open_job(job, settings, notify=notify))
        return Speed(tokens_per_second=_read_speed(job, view, train), source=f"measured in job `{job}`")
    peak = train.peak_tflops * 1e12 if train.peak_tflops else None
    accelerator = plan.instance.accelerator if plan.instance else ""
    if peak is None and accelerator:
        peak = peak_flops(accelerator, train.precision)
    if not peak or not plan.resources.gpus:
        return None
    share, device = mfu or DEFAULT_MFU, accelerator or "GPU"
    flops_per_token = shape_flops_per_token(shape, train.sequence_length, train.lora)
    speed = share * peak * plan.resources.gpus * plan.spec.nodes / flops_per_token
    source = f"{share:.0%} of the peak of {peak / 1e12:.0f} TFLOPS of each {device}{'' if mfu else ', an assumption'}"
    return Speed(tokens_per_second=speed, source=source)


def _read_speed(job: str, view: JobView, train: TrainSpec) -> float:
    """Return the tokens per second that all ranks of a job show.

    Raises:
        NoEvidence: it shows no speed in samples or tokens per second.
    """
    speed, unit = view.training.speed, view.training.unit
    ranks = (view.master.world_size if isinstance(view.master, Master) else None) if unit.endswith("/device") else 1
    if not speed or not ranks or not unit.startswith(("tokens/s", "samples/s")):
        hint = f"`kfjob status {job}` shows its progress; use `--tokens-per-second`"
        raise NoEvidence(f"job `{job}` shows no speed in samples or tokens per second", hint=hint)
    return speed * ranks * (1 if unit.startswith("tokens") else train.sequence_length)
