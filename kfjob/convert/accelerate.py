"""Convert an Accelerate config file to a spec, and back. Pure.

Keys with an option of `accelerate launch` become options of the command (accelerate 1.15, commands/launch.py). Machines and
processes become fields of the spec. An annotation keeps every other key, so that `kfjob export` restores it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from kfjob.base.common_types import JsonMapping, JsonObject
from kfjob.base.errors import Problem, SpecError
from kfjob.base.parsing import ParseError, parse_json_object
from kfjob.base.text import plural
from kfjob.convert.accelerate_trainer import convert_trainer
from kfjob.convert.conversion import Conversion, Note, make_job_name
from kfjob.objects import api_objects
from kfjob.shell.commands import split_program
from kfjob.spec.job import JobSpec

_DISTRIBUTED_TYPES = {"FSDP": "use_fsdp", "DEEPSPEED": "use_deepspeed", "MULTI_GPU": "multi_gpu"}
_ON_GPUS = (*_DISTRIBUTED_TYPES, "MEGATRON_LM", "TP")
"""Values of `distributed_type` that train on GPUs, unless `use_cpu` is set."""
_SWITCHES = {"use_cpu": "cpu", "downcast_bf16": "downcast_bf16", "same_network": "same_network", "debug": "debug"}
_SWITCHES |= {"enable_cpu_affinity": "enable_cpu_affinity"}
_TOP_OPTIONS = ("mixed_precision", "gpu_ids")
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
_SET_BY_THE_JOB = {
    "machine_rank": "each pod has its own",
    "main_process_ip": "the operator gives each pod the Master's",
    "main_process_port": "the operator gives each pod the Master's",
    "rdzv_backend": "it is static, with the Master's address",
}
_INFORMATIVE = ("compute_environment", "main_training_function", "distributed_type")
_NO_OPTION_REASON = "kept for `kfjob export accelerate`, but `accelerate launch` does not get it"


def from_accelerate(config: Any, *, program: Sequence[str] = (), name: str | None = None) -> Conversion:
    """Return the spec of a job that `accelerate launch` starts on every node with this config.

    Raises:
        SpecError: the config is not one of Accelerate, or the nodes cannot have equal numbers of processes.
    """
    if not isinstance(config, dict) or "num_processes" not in config:
        hint = "`accelerate config` writes one, for example to ~/.cache/huggingface/accelerate/default_config.yaml"
        raise SpecError([Problem(title="this is not an Accelerate config: it has no `num_processes`", hint=hint)])
    config = _check_types(config)
    nodes, processes = _find_counts(config)
    other_keys = {key: value for key, value in config.items() if key not in ("num_machines", "num_processes")}
    environment: JsonObject = {}
    mode = {"distributed_type": config.get("distributed_type")}
    if config.get("use_cpu") and (nodes * processes > 1 or mode["distributed_type"] in ("FSDP", "DEEPSPEED")):
        environment = {"ACCELERATE_USE_CPU": "true"}
        del other_keys["use_cpu"]
        if mode["distributed_type"] not in _DISTRIBUTED_TYPES:
            mode["distributed_type"] = "MULTI_GPU"  # the launcher of several processes; without it, one process starts
    annotation = dict(_find_keys_without_option(other_keys)) | ({"use_cpu": True} if environment else {})
    notes = [*_explain_kept_keys(other_keys)]
    if not program:
        program = ("train.py",)
        notes.append(Note(item="train.py", reason="the config has no program: replace it by yours in `command`"))
    spec: JsonObject = {"name": name or make_job_name(program[0]), "nodes": nodes, "processes_per_node": processes}
    spec["launcher"] = "accelerate"
    if source := _find_gpu_key(config):
        spec["resources"] = {"gpus": processes}
        gpus = plural(processes, "GPU")
        reason = f"`{source}` is assumed to mean one GPU per process, {gpus} per node; `resources: {{gpus: 0}}` requests none"
        notes.append(Note(item=f"num_processes: {config['num_processes']}", reason=reason))
    if environment:
        spec["env"] = environment
        reason = "it becomes `env.ACCELERATE_USE_CPU`, because with `--cpu` one process starts; on CPUs Accelerate uses DDP"
        notes.append(Note(item="use_cpu: true", reason=reason))
    if annotation:
        spec["annotations"] = {api_objects.ANNOTATION_ACCELERATE: json.dumps(annotation, separators=(",", ":"))}
    spec["command"] = ["accelerate", "launch", *_make_options(other_keys | mode), *program]
    return Conversion(spec=spec, notes=tuple(notes))


def _find_gpu_key(config: JsonMapping) -> str:
    """Return the key and the value by which each process has a GPU; "" if nothing says so."""
    if config.get("use_cpu"):
        return ""
    kind, ids = config.get("distributed_type"), config.get("gpu_ids")
    if kind in _ON_GPUS:
        return f"distributed_type: {kind}"
    return "" if kind in ("NO", "MULTI_CPU") or ids in (None, "") else f"gpu_ids: {ids}"


def to_accelerate(spec: JobSpec, processes: int) -> Conversion:
    """Return the config of a spec's job, with the plan's number of `processes` per node; for machine 0, if none was imported.

    A note names each setting that the config cannot hold.
    """
    ranks = spec.nodes * processes
    if spec.train:
        conversion = convert_trainer(spec.train, ranks, gpus=spec.resources.gpus != 0)
    else:
        conversion = _convert_command(spec.command or ())
    config: JsonObject = {"compute_environment": "LOCAL_MACHINE"} | conversion.spec
    if "distributed_type" not in config:
        config["distributed_type"] = "MULTI_GPU" if ranks > 1 else "NO"
    config |= {"machine_rank": 0, "num_machines": spec.nodes, "num_processes": ranks, "rdzv_backend": "static"}
    annotation = _read_annotation(spec)
    for old, new in _OLD_NAMES.items():
        if old in (annotation.get("fsdp_config") or {}):
            config.get("fsdp_config", {}).pop(new, None)
    for key, value in annotation.items():
        section = config.get(key, {})
        config[key] = section | value if isinstance(value, dict) and isinstance(section, dict) else value
    return Conversion(spec=config, notes=conversion.notes)


def _read_annotation(spec: JobSpec) -> JsonObject:
    """Return the keys of an imported config that no option holds."""
    try:
        return _check_types(parse_json_object(spec.annotations.get(api_objects.ANNOTATION_ACCELERATE, "{}")))
    except ParseError as error:
        title, hint = "the annotation is not the JSON object that `kfjob import accelerate` writes", "remove it"
        path = f"annotations.{api_objects.ANNOTATION_ACCELERATE}"
        raise SpecError([Problem(title=title, path=path, detail=str(error), hint=hint)]) from error


def _check_types(config: JsonMapping) -> JsonObject:
    """Return the config with texts for what JSON does not have, such as dates."""
    checked = parse_json_object(json.dumps(config, default=str, skipkeys=True))
    for key, value in checked.items():
        if key in _SECTIONS and value is not None and not isinstance(value, dict):
            raise SpecError([Problem(title=f"`{key}` must be a mapping, not `{value}`", path=key)])
        if key == "distributed_type" and value is not None and not isinstance(value, str):
            raise SpecError([Problem(title=f"`{key}` must be a text, not `{value}`", path=key)])
    return checked


def _find_counts(config: JsonMapping) -> tuple[int, int]:
    """Return the number of nodes, and of processes per node."""
    nodes, total = config.get("num_machines", 1), config["num_processes"]
    if not isinstance(nodes, int) or not isinstance(total, int) or nodes < 1 or total < nodes or total % nodes:
        title = f"`num_processes: {total}` is not a multiple of `num_machines: {nodes}`"
        raise SpecError([Problem(title=title, path="num_processes", hint="write the number of processes on all machines")])
    return nodes, total // nodes


def _make_options(config: JsonMapping) -> Iterator[str]:
    """Yield the options of `accelerate launch`."""
    if switch := _DISTRIBUTED_TYPES.get(str(config.get("distributed_type"))):
        yield f"--{switch}"
    for key, switch in _SWITCHES.items():
        if config.get(key) is True:
            yield f"--{switch}"
    for key in _TOP_OPTIONS:
        if _has_option_text(config.get(key)):
            yield f"--{key}={_format_value(config[key])}"
    for section, options in _SECTIONS.items():
        for key, value in (config.get(section) or {}).items():
            option = _OLD_NAMES.get(key, key)
            if option in options and _has_option_text(value):
                yield f"--{option}={_format_value(value)}"


def _find_keys_without_option(config: JsonMapping) -> Iterator[tuple[str, Any]]:
    """Yield the keys that have no option, or an option with another name or value."""
    for key, value in config.items():
        if key in _SECTIONS:
            section = _find_section_keys_without_option(key, value)
            if section or not value:
                yield key, section if value else value
        elif not _has_option(key, value):
            yield key, value


def _find_section_keys_without_option(section: str, values: JsonMapping | None) -> JsonObject:
    options = _SECTIONS[section]
    return {key: value for key, value in (values or {}).items() if key not in options or not _has_option_text(value)}


def _has_option(key: str, value: Any) -> bool:
    is_top_option = key in _TOP_OPTIONS and _has_option_text(value)
    is_switch = key in _SWITCHES and value is True
    return is_top_option or is_switch or (key == "distributed_type" and value in _DISTRIBUTED_TYPES)


def _explain_kept_keys(config: JsonMapping) -> Iterator[Note]:
    for key, value in config.items():
        if key in _SECTIONS:
            for inner in _find_section_keys_without_option(key, value):
                if inner not in _OLD_NAMES:
                    yield Note(item=f"{key}.{inner}", reason=_NO_OPTION_REASON)
        elif not _has_option(key, value) and (reason := _find_reason(key, value)):
            yield Note(item=f"{key}: {json.dumps(value)}", reason=reason)


def _find_reason(key: str, value: Any) -> str | None:
    """Return why a key without an option has no effect in the job; None if the user needs no note."""
    if key in _SET_BY_THE_JOB:
        return f"{_SET_BY_THE_JOB[key]}; kept for export" if value not in (None, 0, "static") else None
    is_default = key in _INFORMATIVE and value in ("LOCAL_MACHINE", "main", "NO", "MULTI_CPU")
    return None if is_default or value in (None, False, "no", "no_", [], {}) else _NO_OPTION_REASON


def _has_option_text(value: Any) -> bool:
    """Return whether the text of an option can hold a value without loss."""
    return (
        isinstance(value, bool | int | float | str)
        and _parse_value(_format_value(value)) == value
        and _format_value(value) != ""
    )


def _format_value(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _parse_value(text: str) -> Any:
    if text in ("true", "false"):
        return text == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _convert_command(words: Sequence[str]) -> Conversion:
    """Return the config for the options of an `accelerate launch` command, and a note for each option without a key."""
    if tuple(words[:2]) != ("accelerate", "launch"):
        reason = "only its machines and processes are written: it does not begin with `accelerate launch`"
        return Conversion(spec={}, notes=(Note(item="command", reason=reason),))
    config: JsonObject = {}
    notes = []
    sections = {option: section for section, options in _SECTIONS.items() for option in options}
    kinds = {switch: kind for kind, switch in _DISTRIBUTED_TYPES.items()}
    for option, value in _split_options(split_program(words, "accelerate").options):
        key = option.removeprefix("--").replace("-", "_")
        if key in sections and value is not None:
            config.setdefault(sections[key], {})[key] = _parse_value(value)
        elif key in _TOP_OPTIONS and value is not None:
            config[key] = _parse_value(value)
        elif key in kinds:
            config["distributed_type"] = kinds[key]
        elif switches := [name for name, switch in _SWITCHES.items() if key == switch]:
            config |= dict.fromkeys(switches, True)
        elif key not in _FROM_PLAN:
            notes.append(Note(item=option, reason="left out: an Accelerate config has no key for this option"))
    return Conversion(spec=config, notes=tuple(notes))


_FROM_PLAN = ("num_machines", "num_processes", "machine_rank", "main_process_ip", "main_process_port", "rdzv_backend")
"""Options whose values come from the plan."""


def _split_options(words: Sequence[str]) -> Iterator[tuple[str, str | None]]:
    """Yield each launch option with its value, which follows `=` or is the next word; None for a switch."""
    remaining = list(words)
    while remaining:
        option, equals, value = remaining.pop(0).partition("=")
        if not equals and remaining and not remaining[0].startswith("-"):
            value, equals = remaining.pop(0), "="
        yield option, value if equals else None
