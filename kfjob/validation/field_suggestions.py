"""What an unknown field of a spec probably means: a name of another program, a field of another section, or a typing error."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from types import MappingProxyType

from msgspec import Struct
from pydantic import BaseModel

from kfjob.base.text import find_similar, snake_case
from kfjob.validation.field_paths import Path, join_path, parse_path
from kfjob.validation.model_fields import find_model, list_fields

_MAX_CHOICES = 3
"""Fields that the hint for an unknown field names."""
_ALIASES: Mapping[str, str] = MappingProxyType(
    {
        "nodes": "num_nodes nnodes replicas workers",
        "processes_per_node": "nproc_per_node ntasks_per_node",
        "command": "cmd entrypoint script",
        "env": "environment environment_variables",
        "resources.gpus": "gpu gpus_per_node num_gpus nvidia_com_gpu",
        "rendezvous.backend": "rdzv_backend",
        "rendezvous.endpoint": "rdzv_endpoint",
        "rendezvous.id": "rdzv_id",
        "rendezvous.conf": "rdzv_conf",
        "rendezvous.port": "master_port",
        "restarts.max": "max_restarts",
        "restarts.policy": "restart_policy",
        "run.deadline": "active_deadline_seconds timeout",
        "run.ttl": "ttl_seconds_after_finished",
        "run.clean_pods": "clean_pod_policy",
        "scheduling.priority_class": "priority_class_name",
        "scheduling.queue": "queue_name",
        "scheduling.spread": "topology_spread_constraints",
        "shared_memory": "shm shm_size",
        "pod.grace": "termination_grace_period_seconds",
        "pod.sidecars": "containers",
        "pod.working_dir": "workdir",
        "train.model": "model_name_or_path",
        "train.data": "dataset dataset_name",
        "train.sequence_length": "block_size max_length max_seq_length seq_len",
        "train.precision": "dtype mixed_precision",
        "train.activation_checkpointing": "gradient_checkpointing",
        "train.lora.quantize": "load_in_4bit",
        "train.micro_batch_size": "batch_size per_device_train_batch_size",
        "train.max_steps": "steps",
        "train.epochs": "num_epochs num_train_epochs",
        "train.lr": "learning_rate",
        "train.schedule": "lr_scheduler lr_scheduler_type",
        "train.warmup_fraction": "warmup_ratio",
        "train.grad_clip": "max_grad_norm",
        "train.checkpoint_dir": "output_dir",
        "train.checkpoint_every": "save_steps",
        "train.keep_last": "save_total_limit",
        "train.resume": "resume_from_checkpoint",
        "train.log_every": "logging_steps",
        "train.eval_every": "eval_steps",
    }
)
"""Names of Kubernetes, torchrun, Slurm and Hugging Face's Trainer that are not similar to the field with their meaning."""
_PARALLEL = "kfjob does not support tensor, pipeline or expert parallelism; `train.strategy` shards the model"
_EXPLANATIONS: Mapping[str, str] = MappingProxyType(
    {
        "backend": "use the option `--backend`, or `backend` in kfjob.toml; the rendezvous has `rendezvous.backend`",
        "global_batch_size": "it is `train.micro_batch_size` x `train.gradient_accumulation_steps` x the number of processes",
        "optim": "the trainer's optimiser is AdamW; remove it",
        "optimizer": "the trainer's optimiser is AdamW; remove it",
        **{f"{kind}_parallel{end}": _PARALLEL for kind in ("tensor", "pipeline", "expert") for end in ("", "_size")},
    }
)
"""The hints for names without a field of their meaning."""


class Suggestion(Struct, frozen=True, kw_only=True):
    """What an unknown name may mean."""

    hint: str
    field: Path | None = None
    """The only field with the meaning below the same root; None without a field or with several."""


def suggest_field(path: Path, root: type[BaseModel]) -> Suggestion:
    """Return the meaning of the unknown field at a path below `root`: a job spec, or a part of one."""
    word, model = snake_case(str(path[-1])), find_model(root, path[:-1])
    own = sorted(model.model_fields) if model else []
    if word not in own and (explanation := _EXPLANATIONS.get(word)):
        return Suggestion(hint=explanation)
    if word not in own and (others := _find_elsewhere(word, root)):
        return _suggest(others, "use {}")
    if similar := find_similar(word, own):
        return _suggest([(*path[:-1], similar)], "did you mean {}?")
    return Suggestion(hint=f"the fields are {', '.join(own)}")


@cache
def map_aliases() -> Mapping[str, Path]:
    """Return the path of the field that each alias means, in a job spec."""
    return MappingProxyType({word: parse_path(field) for field, words in _ALIASES.items() for word in words.split()})


def _find_elsewhere(word: str, root: type[BaseModel]) -> list[Path]:
    """Return the few fields of the root that an alias means, or that have this name in another section."""
    fields = list_fields(root)
    if alias := map_aliases().get(word):
        below = (alias[start:] for start in range(len(alias)))  # the root may be a part of a spec
        return [path for path in below if path in fields.get(str(alias[-1]), ())][:1]
    paths = fields.get(word, ())
    return list(paths) if len(paths) <= _MAX_CHOICES else []


def _suggest(paths: list[Path], form: str) -> Suggestion:
    names = " or ".join(f"`{join_path(path)}`" for path in paths)
    return Suggestion(hint=form.format(names), field=paths[0] if len(paths) == 1 else None)
