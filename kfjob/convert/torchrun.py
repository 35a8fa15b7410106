"""A torchrun command line -> a spec. Pure.

The options are those of torch 2.15 (torch/distributed/run.py `get_args_parser`), with either kind of hyphen and abbreviated as
argparse allows. What the operator says to every agent by itself must not stand in the command, where it would win.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Sequence
from typing import Any

from kfjob.convert.conversion import Conversion, Note, job_name
from kfjob.errors import Problem, SpecError
from kfjob.spec.arguments import from_argv
from kfjob.spec.rendezvous import TorchrunOptions

OWN_TRAINER = "kfjob.trainer"

_STARTS = (("torchrun",), ("torch.distributed.run",), ("torch.distributed.launch",))
_SECTION = tuple(TorchrunOptions.model_fields)
_VALUED = frozenset(_SECTION) | {
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
_PASSED_ON = ("no_python", "run_path", "virtual_local_rank", "logs_specs", "numa_binding")
_ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.DOTALL)


def from_torchrun(line: str | Sequence[str], *, name: str | None = None) -> Conversion:
    """The spec of a job that runs this command on every node. Variables before the command become the job's.

    Raises:
        SpecError: the line does not start torchrun, or has an option that torchrun has not.
    """
    env, words, started_by = _start(_words(line))
    options, program = _options(words)
    if not program:
        raise _error("the command line has no program to run", hint="for example `torchrun --nproc-per-node=8 train.py`")
    spec: dict[str, Any] = {"name": name or job_name(program[0])}
    notes: list[Note] = []
    for part in (_topology, _rendezvous, _rest):
        part(options, spec, notes)
    if env:
        spec["env"] = env
    if started_by == "torch.distributed.launch":
        spec["launcher"] = "launch"
    _program(options, program, spec, notes)
    return Conversion(spec=spec, notes=tuple(notes))


def _words(line: str | Sequence[str]) -> list[str]:
    if not isinstance(line, str):
        return list(line)
    try:
        return shlex.split(line.replace("\\\n", " "))
    except ValueError as err:
        raise _error(f"the command line cannot be split into words: {str(err).lower()}") from None


def _start(words: list[str]) -> tuple[dict[str, str], list[str], str]:
    """The variables before the command, the words after it, and what it is."""
    env: dict[str, str] = {}
    while words and (found := _ASSIGNMENT.fullmatch(words[0])):
        env[found[1]] = found[2]
        words = words[1:]
    program = words[0].rpartition("/")[2] if words else ""
    if program == "torchrun":
        return env, words[1:], "torchrun"
    if re.fullmatch(r"python[0-9.]*", program) and words[1:2] == ["-m"] and words[2:3] and (words[2],) in _STARTS:
        return env, words[3:], words[2]
    hint = "it begins with `torchrun`, `python -m torch.distributed.run` or `python -m torch.distributed.launch`"
    raise _error("this is not a torchrun command line", hint=hint)


def _options(words: list[str]) -> tuple[dict[str, str], list[str]]:
    """Torchrun's own options by their names, and the program with its arguments."""
    options: dict[str, str] = {}
    at = 0
    while at < len(words) and words[at].startswith("-") and words[at] != "--":
        flag, equals, value = words[at].partition("=")
        name = _known(flag)
        at += 1
        if name in _SWITCHES:
            value = "true"
        elif not equals:
            if at == len(words):
                raise _error(f"`{flag}` needs a value")
            value = words[at]
            at += 1
        options[name] = value
    return options, words[at + 1 :] if words[at : at + 1] == ["--"] else words[at:]


def _known(flag: str) -> str:
    if flag in _SHORT:
        return _SHORT[flag]
    wanted = flag.removeprefix("--").replace("-", "_")
    fits = [name for name in sorted(_VALUED | _SWITCHES) if name.startswith(wanted)] if flag.startswith("--") else []
    if wanted in fits or len(fits) == 1:
        return wanted if wanted in fits else fits[0]
    why = f"could be any of {', '.join(fits)}" if fits and wanted else None
    raise _error(f"torchrun has no option `{flag}`", detail=why, hint="the program's own options come after the program")


def _topology(options: dict[str, str], spec: dict[str, Any], notes: list[Note]) -> None:
    nodes = options.get("nnodes", "1")
    found = re.fullmatch(r"(\d+)(?::(\d+))?", nodes)
    if not found:
        raise _error(f"`--nnodes={nodes}` is not a number of nodes", hint="put the value in the place of a variable")
    least, most = int(found[1]), int(found[2] or found[1])
    if "standalone" in options:
        least = most = 1
        notes.append(Note(what="--standalone", why="a job of one node; its agent meets at its own pod"))
    if most != 1:
        spec["nodes"] = most
    if least != most:
        spec["elastic"] = {"min": least, "max": most}
    processes = options.get("nproc_per_node", "1")
    spec["processes_per_node"] = _number(processes)
    if processes.isdecimal() and int(processes) > 1:
        why = f"taken for {processes} GPUs a node; change `resources` if the processes have none"
        notes.append(Note(what=f"--nproc-per-node={processes}", why=why))
        spec["resources"] = {"gpus": int(processes)}
    spec["restarts"] = {"max": _number(options.get("max_restarts", "0"))}


def _rendezvous(options: dict[str, str], spec: dict[str, Any], notes: list[Note]) -> None:
    by_address = sorted({"node_rank", "master_addr"} & set(options))
    backend = options.get("rdzv_backend") or ("static" if by_address else "c10d")
    meeting: dict[str, Any] = {} if backend == "c10d" else {"backend": backend}
    endpoint = options.get("rdzv_endpoint")
    if endpoint and backend in ("etcd", "etcd-v2"):
        meeting["endpoint"] = endpoint if ":" in endpoint else f"{endpoint}:2379"
    elif endpoint:
        notes.append(Note(what=f"--rdzv-endpoint={endpoint}", why="left out: the agents meet at the first pod, by its name"))
    if backend == "static" and options.get("master_port", "").isdecimal():
        meeting["port"] = int(options["master_port"])
    elif "master_port" in options:
        notes.append(Note(what=f"--master-port={options['master_port']}", why=f"left out: rendezvous `{backend}` has none"))
    for name in by_address:
        why = "left out: the operator tells it to each pod"
        notes.append(Note(what=_flag(name, options[name]), why=why))
    if "rdzv_id" in options:
        why = "left out: kfjob makes one for each launch, so that a relaunch never meets the state of the launch before"
        notes.append(Note(what=f"--rdzv-id={options['rdzv_id']}", why=why))
    if conf := options.get("rdzv_conf"):
        meeting["conf"] = dict(pair.partition("=")[::2] for pair in conf.split(",") if pair)
    if "local_addr" in options:
        meeting["local_addr"] = options["local_addr"]
    if meeting:
        spec["rendezvous"] = meeting if set(meeting) != {"backend"} else backend


def _rest(options: dict[str, str], spec: dict[str, Any], notes: list[Note]) -> None:  # noqa: ARG001 - as its neighbours
    section: dict[str, Any] = {name: options[name] for name in _SECTION if name in options}
    for name, as_number in (("monitor_interval", float), ("shutdown_timeout", int)):
        if name in section:
            section[name] = _as(as_number, section[name], name)
    if section:
        spec["torchrun"] = section


def _program(options: dict[str, str], program: list[str], spec: dict[str, Any], notes: list[Note]) -> None:
    if "module" in options and program[0] == OWN_TRAINER:
        spec["train"] = from_argv(program[1:]).model_dump(mode="json", exclude_defaults=True)
        return
    if "use_env" in options:
        notes.append(Note(what="--use-env", why="the default"))
    words = [_flag(name, options[name]) for name in _PASSED_ON if name in options]
    words += ["-m"] if "module" in options else []
    start = [] if spec.get("launcher") else ["torchrun"]
    spec["command"] = [*start, *words, *program]


def _flag(name: str, value: str) -> str:
    flag = f"--{name.replace('_', '-')}"
    return flag if name in _SWITCHES else f"{flag}={value}"


def _number(text: str) -> int | str:
    return int(text) if text.isdecimal() else text


def _as(kind: Callable[[str], Any], text: str, name: str) -> Any:
    try:
        return kind(text)
    except ValueError:
        raise _error(f"`--{name.replace('_', '-')}={text}` is not a number") from None


def _error(title: str, *, detail: str | None = None, hint: str | None = None) -> SpecError:
    return SpecError([Problem(title=title, detail=detail, hint=hint)])
