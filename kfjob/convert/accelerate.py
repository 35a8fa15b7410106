"""An Accelerate config file <-> a spec. Pure.

Keys that `accelerate launch` has an option for become options of the command (accelerate 1.15, commands/launch.py); machines
and processes become fields of the spec; every other key is kept in an annotation, so that `export` gives it back.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from kfjob.convert.conversion import Conversion, Note, job_name
from kfjob.errors import Problem, SpecError
from kfjob.spec import api_objects
from kfjob.spec.job import JobSpec
from kfjob.spec.train import TrainSpec

_KINDS = {"FSDP": "use_fsdp", "DEEPSPEED": "use_deepspeed", "MULTI_GPU": "multi_gpu"}
_SWITCHES = {"use_cpu": "cpu", "downcast_bf16": "downcast_bf16", "same_network": "same_network", "debug": "debug"}
_SWITCHES |= {"enable_cpu_affinity": "enable_cpu_affinity"}
_TOP = ("mixed_precision", "gpu_ids")
_SECTIONS = {
    "fsdp_config": (
        "fsdp_version",
        "fsdp_offload_params",
        "fsdp_min_num_params",
        "fsdp_sharding_strategy",
        "fsdp_reshard_after_forward",
        "fsdp_auto_wrap_policy",
        "fsdp_transformer_layer_cls_to_wrap",
        "fsdp_backward_prefetch",
        "fsdp_state_dict_type",
        "fsdp_forward_prefetch",
        "fsdp_use_orig_params",
        "fsdp_cpu_ram_efficient_loading",
        "fsdp_sync_module_states",
        "fsdp_activation_checkpointing",
    ),
    "deepspeed_config": (
        "deepspeed_config_file",
        "zero_stage",
        "offload_optimizer_device",
        "offload_param_device",
        "offload_optimizer_nvme_path",
        "offload_param_nvme_path",
        "gradient_accumulation_steps",
        "gradient_clipping",
        "zero3_init_flag",
        "zero3_save_16bit_model",
    ),
}
_OLD_NAMES = {"fsdp_backward_prefetch_policy": "fsdp_backward_prefetch"}
_BY_THE_JOB = {
    "machine_rank": "each pod has its own",
    "main_process_ip": "the Master's, which the operator tells to each pod",
    "main_process_port": "the Master's, which the operator tells to each pod",
    "rdzv_backend": "static, with the Master's address",
}
_SAYS_NOTHING = ("compute_environment", "main_training_function", "distributed_type")
_SHARDING = {"full": "FULL_SHARD", "shard_grad_op": "SHARD_GRAD_OP", "hybrid": "HYBRID_SHARD"}
_SHARDING |= {"hybrid_shard_grad_op": "_HYBRID_SHARD_ZERO2", "no_shard": "NO_SHARD"}


def from_accelerate(config: Any, *, program: Sequence[str] = (), name: str | None = None) -> Conversion:
    """The spec of a job that `accelerate launch` starts on every node with this config.

    Raises:
        SpecError: this is not such a config, or the processes cannot be shared out evenly.
    """
    if not isinstance(config, dict) or "num_processes" not in config:
        hint = "`accelerate config` writes one, for example to ~/.cache/huggingface/accelerate/default_config.yaml"
        raise SpecError([Problem(title="this is not an Accelerate config: it has no `num_processes`", hint=hint)])
    notes: list[Note] = []
    nodes, processes = _counts(config)
    rest = {key: value for key, value in config.items() if key not in ("num_machines", "num_processes")}
    options = [*_options(rest)]
    rest = dict(_left(rest, notes))
    if not program:
        program = ("train.py",)
        notes.append(Note(what="train.py", why="the config names no program: put yours in its place in `command`"))
    spec: dict[str, Any] = {"name": name or job_name(program[0]), "nodes": nodes, "processes_per_node": processes}
    spec["launcher"] = "accelerate"
    if not config.get("use_cpu") and config.get("distributed_type") not in ("NO", "MULTI_CPU"):
        spec["resources"] = {"gpus": processes}
        notes.append(Note(what=f"num_processes: {config['num_processes']}", why=f"taken for {processes} GPUs a node"))
    if rest:
        spec["annotations"] = {api_objects.ANNOTATION_ACCELERATE: json.dumps(rest, separators=(",", ":"))}
    spec["command"] = ["accelerate", "launch", *options, *program]
    return Conversion(spec=spec, notes=tuple(notes))


def to_accelerate(spec: JobSpec, processes: int) -> dict[str, Any]:
    """The config of a spec's job, for machine 0; `processes` of each node, as they were decided."""
    made: dict[str, Any] = {"compute_environment": "LOCAL_MACHINE"}
    made |= _of_trainer(spec.train) if spec.train else _of_command(spec.command or ())
    if "distributed_type" not in made:
        made["distributed_type"] = "MULTI_GPU" if spec.nodes * processes > 1 else "NO"
    made |= {"machine_rank": 0, "num_machines": spec.nodes, "num_processes": spec.nodes * processes, "rdzv_backend": "static"}
    kept = json.loads(spec.annotations.get(api_objects.ANNOTATION_ACCELERATE, "{}"))
    for old, new in _OLD_NAMES.items():
        if old in kept.get("fsdp_config", {}):
            made.get("fsdp_config", {}).pop(new, None)
    for key, value in kept.items():
        made[key] = made.get(key, {}) | value if isinstance(value, dict) and isinstance(made.get(key, {}), dict) else value
    return made


def _counts(config: Mapping[str, Any]) -> tuple[int, int]:
    nodes, total = config.get("num_machines", 1), config["num_processes"]
    if not isinstance(nodes, int) or not isinstance(total, int) or nodes < 1 or total < nodes or total % nodes:
        title = f"`num_processes: {total}` cannot be shared out evenly over `num_machines: {nodes}`"
        raise SpecError([Problem(title=title, path="num_processes", hint="write the processes of all machines together")])
    return nodes, total // nodes


def _options(config: Mapping[str, Any]) -> Iterator[str]:
    if switch := _KINDS.get(str(config.get("distributed_type"))):
        yield f"--{switch}"
    for key, switch in _SWITCHES.items():
        if config.get(key) is True:
            yield f"--{switch}"
    for key in _TOP:
        if _is_text(config.get(key)):
            yield f"--{key}={_text(config[key])}"
    for section, keys in _SECTIONS.items():
        said = config.get(section) or {}
        for key, value in said.items():
            option = _OLD_NAMES.get(key, key)
            if option in keys and _is_text(value):
                yield f"--{option}={_text(value)}"


def _left(config: Mapping[str, Any], notes: list[Note]) -> Iterator[tuple[str, Any]]:
    """The keys that no option says, or says in other words."""
    for key, value in config.items():
        if key in _SECTIONS:
            said = {inner: one for inner, one in (value or {}).items() if inner not in _SECTIONS[key] or not _is_text(one)}
            if said or not value:
                yield key, said if value else value
            notes += [Note(what=f"{key}.{inner}", why=_KEPT) for inner in said if inner not in _OLD_NAMES]
        elif (
            (key in _TOP and _is_text(value))
            or (key in _SWITCHES and value is True)
            or (key == "distributed_type" and value in _KINDS)
        ):
            continue
        else:
            yield key, value
            if why := _told(key, value):
                notes.append(Note(what=f"{key}: {json.dumps(value)}", why=why))


_KEPT = "kept for `kfjob export accelerate`, but `accelerate launch` is not told"


def _told(key: str, value: Any) -> str | None:
    """Why a key that is kept does nothing in the job; None where there is nothing to say."""
    if key in _BY_THE_JOB:
        return f"{_BY_THE_JOB[key]}; kept for export" if value not in (None, 0, "static") else None
    without_effect = key in _SAYS_NOTHING and value in ("LOCAL_MACHINE", "main", "NO", "MULTI_CPU")
    return None if without_effect or value in (None, False, "no", "no_", [], {}) else _KEPT


def _is_text(value: Any) -> bool:
    """Whether an option can say this value, and say it back."""
    return isinstance(value, bool | int | float | str) and _typed(_text(value)) == value and _text(value) != ""


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _typed(text: str) -> Any:
    if text in ("true", "false"):
        return text == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _of_command(words: Sequence[str]) -> dict[str, Any]:
    """What the options of an `accelerate launch` say."""
    made: dict[str, Any] = {}
    sections = {option: section for section, options in _SECTIONS.items() for option in options}
    for word in words[2:] if tuple(words[:2]) == ("accelerate", "launch") else ():
        option, equals, value = word.partition("=")
        if not option.startswith("--"):
            break
        key = option.removeprefix("--").replace("-", "_")
        if key in sections and equals:
            made.setdefault(sections[key], {})[key] = _typed(value)
        elif key in _TOP and equals:
            made[key] = _typed(value)
        elif kind := next((kind for kind, switch in _KINDS.items() if key == switch), None):
            made["distributed_type"] = kind
        made |= {name: True for name, switch in _SWITCHES.items() if key == switch}
    return made


def _of_trainer(train: TrainSpec) -> dict[str, Any]:
    """What the trainer's own strategy is called there."""
    made: dict[str, Any] = {"mixed_precision": "no" if train.precision == "fp32" else train.precision.removesuffix("-true")}
    if train.strategy == "fsdp":
        made["distributed_type"] = "FSDP"
        made["fsdp_config"] = {
            "fsdp_sharding_strategy": _SHARDING[train.sharding],
            "fsdp_auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
            "fsdp_activation_checkpointing": train.activation_checkpointing,
        }
    return made
