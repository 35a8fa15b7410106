"""Convert any command line to a spec that runs it on every node. Pure.

What torchrun, accelerate and deepspeed say about nodes and processes becomes fields of the spec, because kfjob gives each agent
its own values. Every other command stays as it is.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from itertools import pairwise

from kfjob.base.common_types import JsonObject
from kfjob.base.errors import Problem, SpecError
from kfjob.convert.conversion import Conversion, Note, make_job_name
from kfjob.convert.torchrun import from_torchrun, split_assignments, split_words
from kfjob.plan.unconnected_programs import split_commands
from kfjob.shell.commands import (
    LAUNCHER_COMMANDS,
    LAUNCHER_FIELDS,
    Launcher,
    find_launcher,
    get_basename,
    split_program,
)
from kfjob.shell.syntax import find_in_line

_TORCHRUN = ("torchrun", "launch")
_ASSIGNMENTS = re.compile(r"\A(?:\s*[A-Za-z_]\w*=\S*(?:\s+|\Z))+")


def from_command(line: str | Sequence[str], *, name: str | None = None) -> Conversion:
    """Return the spec of a job that runs a command; assignments before it become environment variables.

    Raises:
        SpecError: the line has no program or needs a shell, or its launcher's options cannot be fields.
    """
    if isinstance(line, str) and (syntax := find_in_line(_ASSIGNMENTS.sub("", line))):
        hint = f"name the shell: `bash -c {shlex.quote(line)}`"
        raise SpecError([Problem(title=syntax.title, hint=hint)])
    words = split_words(line)
    env, command = split_assignments(words)
    if not command:
        raise SpecError([Problem(title="there is no command to run", hint="for example `kfjob run -- torchrun train.py`")])
    launcher = find_launcher(command)
    if launcher in _TORCHRUN:
        return from_torchrun(words, name=name, assume_gpus=False)
    program = split_program(command, launcher).words if launcher else ()
    spec: JsonObject = {"name": name or make_job_name(_find_program(program or command))}
    notes: tuple[Note, ...] = ()
    if launcher:
        fields, notes = _convert_launcher(command, launcher)
        spec |= fields
    else:
        spec["command"] = list(command)
    return Conversion(spec=spec | ({"env": env} if env else {}), notes=notes)


def _find_program(command: Sequence[str]) -> str:
    """Return the word that names what a command runs: a script, the module after `-m`, else the program itself."""
    inner = [word for words in split_commands(command) for word in words]
    for before, word in pairwise(("", *inner, *command)):
        if before == "-m" or word.endswith((".py", ".sh")):
            return word
    return get_basename(command[0])


def _convert_launcher(command: Sequence[str], launcher: Launcher) -> tuple[JsonObject, tuple[Note, ...]]:
    """Return the fields for a command of accelerate or deepspeed, without the options that kfjob sets itself."""
    program = split_program(command, launcher)
    spec: JsonObject = {"launcher": launcher}
    counts: dict[str, int] = {}
    notes: list[Note] = []
    kept: list[str] = []
    for words in _split_options(program.options):
        option, _, value = "=".join(words).partition("=")
        name = option.lstrip("-").replace("-", "_")
        field = LAUNCHER_FIELDS[launcher].get(name)
        if field and value.isdecimal():
            counts[name] = int(value)
        elif field == "" and value:
            notes.append(Note(item=f"{option}={value}", reason="left out: each pod gets its own value"))
        else:
            kept += words
    spec |= _convert_counts(counts, launcher)
    return spec | {"command": [*LAUNCHER_COMMANDS[launcher], *kept, *program.interpreter, *program.words]}, tuple(notes)


def _convert_counts(counts: dict[str, int], launcher: Launcher) -> JsonObject:
    """Return the fields of a launcher's numbers. The processes of accelerate are those of all nodes."""
    spec: JsonObject = {}
    for name, count in counts.items():
        section, _, inner = LAUNCHER_FIELDS[launcher][name].partition(".")
        spec[section] = {inner: count} if inner else count
    nodes, processes = spec.get("nodes", 1), spec.get("processes_per_node")
    if launcher == "accelerate" and processes is not None:
        if nodes < 1 or processes % nodes:
            title = f"`--num_processes {processes}` is not a multiple of `--num_machines {nodes}`"
            raise SpecError([Problem(title=title, hint="write the number of processes on all machines")])
        spec["processes_per_node"] = processes // nodes
    if "num_gpus" in counts:
        spec["resources"] = {"gpus": counts["num_gpus"]}
    return spec


def _split_options(options: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """Yield the words of each option: one, or two if its value is a word of its own."""
    index = 0
    while index < len(options):
        has_value = "=" not in options[index] and index + 1 < len(options) and not options[index + 1].startswith("-")
        yield tuple(options[index : index + 1 + has_value])
        index += 1 + has_value
