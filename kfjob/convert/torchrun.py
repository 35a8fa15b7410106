"""Convert a torchrun command line to a spec. Pure.

The options are those of torch 2.15 (torch/distributed/run.py `get_args_parser`), with hyphens or underscores, abbreviated as
argparse allows. The operator sets some options for every agent itself; the command must not contain them, because it would
override the operator's values.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Sequence
from typing import Any

from kfjob.base.common_types import JsonObject
from kfjob.base.errors import Problem, SpecError
from kfjob.base.text import is_whole
from kfjob.convert.conversion import NEW_ID_REASON, Conversion, Note, make_job_name
from kfjob.spec.rendezvous import TorchrunOptions
from kfjob.trainspec import OWN_TRAINER
from kfjob.trainspec.command_line import from_argv

_MODULES = ("torchrun", "torch.distributed.run", "torch.distributed.launch")
_SECTION = tuple(TorchrunOptions.model_fields)
_WITH_VALUE = frozenset(_SECTION) | {
    "nnodes",
    "nproc_per_node",
    "rdzv_backend",
    "rdzv_endpoint",
    "rdzv_id",
    "rdzv_conf",
    "max_restarts",
    "node_rank",
    "master_addr",
    "master_port",
    "local_addr",
    "logs_specs",
    "numa_binding",
}
_SWITCHES = frozenset({"standalone", "module", "no_python", "run_path", "virtual_local_rank", "use_env"})
_SHORT = {"-m": "module", "-r": "redirects", "-t": "tee"}
_COMMAND_OPTIONS = ("no_python", "run_path", "virtual_local_rank", "logs_specs", "numa_binding")
"""Options without a field, which stay in the command."""
_ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.DOTALL)
_Options = dict[str, str]


def from_torchrun(line: str | Sequence[str], *, name: str | None = None, assume_gpus: bool = True) -> Conversion:
    """Return the spec of a job that runs a torchrun command on every node.

    Assignments before the command become environment variables of the job. With `assume_gpus`, several processes per node
    mean one GPU for each.

    Raises:
        SpecError: the line does not start torchrun, or has an option that torchrun does not have.
    """
    env, words, module = _split_start(split_words(line))
    options, program = _split_options(words)
    if not program:
        raise _make_error("the command line has no program", hint="for example `torchrun --nproc-per-node=8 train.py`")
    spec: JsonObject = {"name": name or make_job_name(program[0])}
    notes: list[Note] = []
    for convert in (_convert_topology, *([_assume_gpus] if assume_gpus else []), _convert_rendezvous, _convert_other_options):
        fields, part_notes = convert(options)
        spec |= fields
        notes += part_notes
    if env:
        spec["env"] = env
    if module == "torch.distributed.launch":
        spec["launcher"] = "launch"
    if "use_env" in options:
        notes.append(Note(item="--use-env", reason="left out: it is the default"))
    spec |= _convert_program(options, program, starts_torchrun=module != "torch.distributed.launch")
    return Conversion(spec=spec, notes=tuple(notes))


def split_words(line: str | Sequence[str]) -> list[str]:
    """Return the words of a command line, which may be one text.

    Raises:
        SpecError: a quote is not closed.
    """
    if not isinstance(line, str):
        return list(line)
    try:
        return shlex.split(line.replace("\\\n", " "))
    except ValueError as error:
        raise _make_error(f"cannot split the command line into words: {str(error).lower()}") from None


def _split_start(words: list[str]) -> tuple[dict[str, str], list[str], str]:
    """Return the assignments before the command, the words after it, and the module that it starts."""
    env, words = split_assignments(words)
    program = words[0].rpartition("/")[2] if words else ""
    if program == "torchrun":
        return env, words[1:], "torchrun"
    if re.fullmatch(r"python[0-9.]*", program) and words[1:2] == ["-m"] and words[2:3] and words[2] in _MODULES:
        return env, words[3:], words[2]
    hint = "begin with `torchrun`, `python -m torch.distributed.run` or `python -m torch.distributed.launch`"
    raise _make_error("this is not a torchrun command line", hint=hint)


def split_assignments(words: list[str]) -> tuple[dict[str, str], list[str]]:
    """Return the assignments before a command, and the words of the command."""
    env: dict[str, str] = {}
    while words and (assignment := _ASSIGNMENT.fullmatch(words[0])):
        env[assignment[1]] = assignment[2]
        words = words[1:]
    return env, words


def _split_options(words: list[str]) -> tuple[_Options, list[str]]:
    """Return torchrun's own options by name, and the program with its arguments."""
    options: _Options = {}
    index = 0
    while index < len(words) and words[index].startswith("-") and words[index] != "--":
        flag, equals, value = words[index].partition("=")
        name = _find_option(flag)
        index += 1
        if name in _SWITCHES:
            value = "true"
        elif not equals:
            if index == len(words):
                raise _make_error(f"`{flag}` needs a value")
            value = words[index]
            index += 1
        options[name] = value
    return options, words[index + 1 :] if words[index : index + 1] == ["--"] else words[index:]


def _find_option(flag: str) -> str:
    """Return the name of an option that may be abbreviated."""
    if flag in _SHORT:
        return _SHORT[flag]
    prefix = flag.removeprefix("--").replace("-", "_")
    matches = [name for name in sorted(_WITH_VALUE | _SWITCHES) if name.startswith(prefix)] if flag.startswith("--") else []
    if prefix in matches or len(matches) == 1:
        return prefix if prefix in matches else matches[0]
    detail = f"it could be any of {', '.join(matches)}" if matches and prefix else None
    hint = "write the program's own options after the program"
    raise _make_error(f"torchrun has no option `{flag}`", detail=detail, hint=hint)


def _convert_topology(options: _Options) -> tuple[JsonObject, list[Note]]:
    nodes = options.get("nnodes", "1")
    node_range = re.fullmatch(r"(\d+)(?::(\d+))?", nodes)
    if not node_range:
        raise _make_error(f"`--nnodes={nodes}` is not a number of nodes", hint="replace a variable by its value")
    min_nodes, max_nodes = int(node_range[1]), int(node_range[2] or node_range[1])
    spec: JsonObject = {}
    notes = []
    if "standalone" in options:
        min_nodes = max_nodes = 1
        notes.append(Note(item="--standalone", reason="left out: the job has one node, and its agent uses its own pod"))
    if max_nodes != 1 or {"nnodes", "standalone"} & options.keys():
        spec["nodes"] = max_nodes
    if min_nodes != max_nodes:
        spec["elastic"] = {"min": min_nodes, "max": max_nodes}
    if "nproc_per_node" in options:
        spec["processes_per_node"] = _convert_number(options["nproc_per_node"])
    spec["restarts"] = {"max": _convert_number(options.get("max_restarts", "0"))}
    return spec, notes


def _assume_gpus(options: _Options) -> tuple[JsonObject, list[Note]]:
    processes = options.get("nproc_per_node", "1")
    if not is_whole(processes) or int(processes) <= 1:
        return {}, []
    reason = f"read as {processes} GPUs per node; change `resources` if the processes use no GPUs"
    return {"resources": {"gpus": int(processes)}}, [Note(item=f"--nproc-per-node={processes}", reason=reason)]


def _convert_rendezvous(options: _Options) -> tuple[JsonObject, list[Note]]:
    static_options = sorted({"node_rank", "master_addr"} & set(options))
    backend = options.get("rdzv_backend") or ("static" if static_options else "c10d")
    rendezvous: JsonObject = {} if backend == "c10d" else {"backend": backend}
    notes = []
    endpoint = options.get("rdzv_endpoint")
    if endpoint and backend in ("etcd", "etcd-v2"):
        rendezvous["endpoint"] = endpoint if ":" in endpoint else f"{endpoint}:2379"
    elif endpoint:
        reason = "left out: the rendezvous is on the first pod, under its name"
        notes.append(Note(item=f"--rdzv-endpoint={endpoint}", reason=reason))
    if backend == "static" and options.get("master_port", "").isdecimal():
        rendezvous["port"] = int(options["master_port"])
    elif "master_port" in options:
        reason = f"left out: a {backend} rendezvous has no master port"
        notes.append(Note(item=f"--master-port={options['master_port']}", reason=reason))
    notes += [Note(item=_make_flag(name, options[name]), reason="left out: the operator sets it") for name in static_options]
    if "rdzv_id" in options:
        notes.append(Note(item=f"--rdzv-id={options['rdzv_id']}", reason=NEW_ID_REASON))
    if conf := options.get("rdzv_conf"):
        rendezvous["conf"] = dict(pair.partition("=")[::2] for pair in conf.split(",") if pair)
    if "local_addr" in options:
        rendezvous["local_addr"] = options["local_addr"]
    if not rendezvous:
        return {}, notes
    return {"rendezvous": rendezvous if set(rendezvous) != {"backend"} else backend}, notes


def _convert_other_options(options: _Options) -> tuple[JsonObject, list[Note]]:
    section: JsonObject = {name: options[name] for name in _SECTION if name in options}
    for name, kind in (("monitor_interval", float), ("shutdown_timeout", int)):
        if name in section:
            section[name] = _convert_value(kind, section[name], name)
    return ({"torchrun": section} if section else {}), []


def _convert_program(options: _Options, program: list[str], *, starts_torchrun: bool) -> JsonObject:
    """Return the field `train` for kfjob's own trainer, else `command`."""
    if "module" in options and program[0] == OWN_TRAINER:
        return {"train": from_argv(program[1:]).model_dump(mode="json", exclude_defaults=True)}
    start = ["torchrun"] if starts_torchrun else []
    flags = [_make_flag(name, options[name]) for name in _COMMAND_OPTIONS if name in options]
    return {"command": [*start, *flags, *(["-m"] if "module" in options else []), *program]}


def _make_flag(name: str, value: str) -> str:
    flag = f"--{name.replace('_', '-')}"
    return flag if name in _SWITCHES else f"{flag}={value}"


def _convert_number(text: str) -> int | str:
    return int(text) if is_whole(text) else text


def _convert_value(kind: Callable[[str], Any], text: str, name: str) -> Any:
    try:
        return kind(text)
    except ValueError:
        raise _make_error(f"`--{name.replace('_', '-')}={text}` is not a number") from None


def _make_error(title: str, *, detail: str | None = None, hint: str | None = None) -> SpecError:
    return SpecError([Problem(title=title, detail=detail, hint=hint)])
