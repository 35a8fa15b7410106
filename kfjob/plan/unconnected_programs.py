"""Find the program that a command starts without connecting the nodes: behind shells, runners and variables."""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Iterator, Mapping, Sequence
from types import MappingProxyType

from msgspec import Struct

from kfjob.base.shells import SHELLS, find_own_script, is_shell
from kfjob.shell.commands import (
    CLUSTER_LAUNCHERS,
    CONNECTING,
    LAUNCHER_COMMANDS,
    LAUNCHER_MODULES,
    ONE_NODE_LAUNCHERS,
    OTHER_STARTERS,
    RUNNERS,
    WRAPPERS,
    Launcher,
    find_command_problems,
    find_launcher,
    get_basename,
    is_python,
    split_program,
)
from kfjob.spec.job import JobSpec

_WRAPPERS = (*WRAPPERS, "command")  # `command` is a part of shells
_PROGRAMS = frozenset({*SHELLS, *_WRAPPERS, *RUNNERS, *OTHER_STARTERS})
_TOOL_MODULES = ("pip", "venv", "uv")
_MACHINE_OPTIONS = {
    "accelerate": ("num_machines", "machine_rank", "main_process_ip", "config_file", "rdzv", "same_network"),
    "deepspeed": ("hostfile", "H", "node_rank", "no_ssh", "launcher"),
    **dict.fromkeys(("fabric", "lightning"), ("num_nodes", "main_address", "node_rank")),
}
"""The options with which a launcher connects several machines, without their dashes."""
_LAUNCHERS: Mapping[str, Launcher] = MappingProxyType({"accelerate": "accelerate", "deepspeed": "deepspeed"})
"""Values of `launcher` that replace a launcher of one node; torchrun replaces the others."""
_WITHOUT_AGENT: tuple[Launcher, ...] = ("accelerate", "deepspeed", "python")
"""Values of `launcher` without an agent that reads `restarts.max`: accelerate passes its own options to torch's."""
_ONE_MACHINE = re.compile(r"--(?:standalone|(?:nnodes|num[-_]machines|num[-_]nodes)[= ](?:1:)?1)(?= |$)")
"""An option by which a launcher starts processes on its own machine only."""
_SETTINGS = r"\b(?:MASTER_ADDR|WORLD_SIZE|RANK)="
_IDENTITY = re.compile(r"\$[({]?(?:\w*RANK|MASTER_ADDR|HOSTNAME|hostname|POD_\w+|JOB_COMPLETION_INDEX)\b")
"""A variable by which each node gets another command."""
_NEW_LINE = "\ue001"
"""Stands for the end of a line of a script, as a separate word."""
_SEPARATORS = frozenset(";&|()\n")
_COMMENT = r"(?s)(?P<kept>'[^']*+'|\"(?>(?:\\.|[^\"\\]++)*)\"|\\.)|(?<![^\s;&|()])#[^\n]*+"
"""A comment of a script; what is quoted is read first, and kept. An apostrophe in a comment is no quote."""
_TRAINING_NAME = r"(?i)(?<![a-z])(?:(?:pre|post)[-_]?)?train|(?<![a-z])fine[-_]?tun"


def find_start_without_agent(launcher: Launcher | None, command: Sequence[str]) -> str:
    """Return what starts the program without torchrun's agent: `launcher: deepspeed`, `python train.py`; "" if unknown."""
    if launcher is not None:
        return f"launcher: {launcher}" if launcher in _WITHOUT_AGENT else ""
    found = find_launcher(command)
    if found is not None:
        return " ".join(LAUNCHER_COMMANDS.get(found, (found,))) if found in _WITHOUT_AGENT else ""
    program = find_unconnected(command)
    return program.command if program and program.starter in ("", *_WITHOUT_AGENT) else ""


class UnconnectedProgram(Struct, frozen=True):
    """A program of which each node runs a copy."""

    command: str  # the command up to the program: `python -m pkg`
    program: str  # what torchrun would start: `-m pkg`
    launcher: Launcher  # the value of `launcher` that connects the copies
    option: str = ""  # by which the launcher starts processes on its own machine only: `--standalone`
    starter: str = ""  # the launcher that the command names: `torchrun`, `accelerate`, `fabric`; "" for Python

    @property
    def says_training(self) -> bool:
        """Whether a launcher of training processes, or a name such as `pretrain.py`, says that the program trains."""
        module = self.program.removeprefix("-m ").rpartition(".")[2] if self.program.startswith("-m ") else ""
        return bool(self.starter or re.search(_TRAINING_NAME, module or get_basename(self.program)))

    def suggest_fix(self, command: Sequence[str]) -> str:
        """Return a hint with the ways that connect the copies of this program in a command."""
        if self.option and self.starter == "torchrun":
            return f"remove `{self.option}`: kfjob sets the number of nodes"
        ready = not any(find_command_problems(command, self.launcher))
        if self.launcher == "torchrun":
            ready = ready and (is_python(command[0]) or command[0] == self.program)
            return f"write `torchrun {self.program}`" + (", or set `launcher: torchrun`" if ready else "")
        return f"set `launcher: {self.launcher}`" + ("" if ready else f" with `command: {self.program}` and its arguments")


def find_unconnected(command: Sequence[str]) -> UnconnectedProgram | None:
    """Return the program that trains on its own on each node; None if another part of the command connects them.

    Of several it is the first whose name says that it trains, else the first.
    """
    if any(_IDENTITY.search(word) for word in command):
        return None
    programs = [_read_program(words) for words in split_commands(command)]
    if any(program is True for program in programs):
        return None
    unconnected = [program for program in programs if isinstance(program, UnconnectedProgram)]
    return max(unconnected, key=lambda program: program.says_training, default=None)


def find_unconnected_nodes(spec: JobSpec, variables: Collection[str]) -> UnconnectedProgram | None:
    """Return the program of which every node of the job trains a copy of its own; `variables` are those of its pods."""
    if spec.nodes == 1 or spec.launcher not in (None, "python") or not spec.words:
        return None
    if not spec.command and not _is_program(spec.words[0]):  # the image's own entry point may connect the nodes
        return None
    unconnected = find_unconnected(spec.words)
    if unconnected is None or {"MASTER_ADDR", "WORLD_SIZE"} & set(variables):
        return None
    is_connected = (
        unconnected.launcher == "torchrun" and not unconnected.option and spec.has_master
    )  # the operator sets the variables in each pod
    return None if is_connected else unconnected


def _is_program(word: str) -> bool:
    return get_basename(word) in _PROGRAMS or is_python(word)


class ClusterLauncher(Struct, frozen=True):
    """A program such as `mpirun`, and what it starts."""

    name: str
    program: str  # what torchrun would start, or `PROGRAM`


def find_cluster_launcher(command: Sequence[str]) -> ClusterLauncher | None:
    """Return the first program of the command that starts processes on several machines itself."""
    for words in split_commands(command):
        if words and get_basename(words[0]) in CLUSTER_LAUNCHERS:
            read = _read_program(words[_find_program(words, 1) :])
            program = read.program if isinstance(read, UnconnectedProgram) else "PROGRAM"
            return ClusterLauncher(get_basename(words[0]), program)
    return None


def split_commands(command: Sequence[str]) -> Iterator[list[str]]:
    """Yield the words of each simple command; those of a script after `bash -c` one by one."""
    words = _skip_wrappers(list(command))
    if not words or not is_shell(words[0]):
        yield words
        return
    index = find_own_script(words)
    if index is None:
        return
    script = words[index]
    if re.search(_SETTINGS, script):
        yield ["torchrun"]  # the script connects the nodes itself
        return
    for part in _split_script(script):
        yield from split_commands(part)


def _split_script(script: str) -> Iterator[list[str]]:
    """Yield the words of each simple command of a script, without its comments."""
    script = re.sub(_COMMENT, lambda match: match["kept"] or "", script)
    lexer = shlex.shlex(re.sub(r"\\\n", " ", script).replace("\n", f" {_NEW_LINE} "), posix=True, punctuation_chars=True)
    lexer.whitespace_split, lexer.commenters = True, ""
    words: list[str] = []
    try:
        for word in lexer:
            if word == _NEW_LINE or (word and _SEPARATORS.issuperset(word)):
                yield words
                words = []
            else:
                words.append(word)
    except ValueError:  # an open quote
        return
    yield words


def _skip_wrappers(words: list[str]) -> list[str]:
    """Return the words from the program on: without variables, `exec`, `timeout 5`, `uv run --frozen` and the like."""
    start = 0
    while start < len(words):
        name = get_basename(words[start])
        if re.match(r"[A-Za-z_]\w*=", words[start]) or words[start] in ("then", "do", "else", "{", "!"):
            start += 1
        elif name in _WRAPPERS:
            start = _find_program(words, start + 1)
        elif name in RUNNERS and "run" in words[start + 1 : start + 3]:
            start = _find_program(words, words.index("run", start + 1) + 1)
        else:
            break
    return words[start:]


def _find_program(words: list[str], start: int) -> int:
    """Return the first word from `start` that can be a program: not an option, its value, a number or a variable."""
    for index in range(start, len(words)):
        name = get_basename(words[index])
        if _is_program(name) or name.endswith(".py"):
            return index
    return len(words)


def _read_program(words: list[str]) -> UnconnectedProgram | bool:
    """Return the unconnected program; True if the command connects the nodes, False if it trains nothing."""
    name = get_basename(words[0]) if words else ""
    if name in CONNECTING:
        return True
    if name.endswith(".py"):  # `uv run train.py`, `./train.py`
        return UnconnectedProgram(words[0], words[0], "torchrun")
    if name == "torchrun":
        return _read_torchrun(words[:1], words[1:])
    if name in ONE_NODE_LAUNCHERS:
        start = [words[0], *ONE_NODE_LAUNCHERS[name]]
        return _read_launcher(name, start, words[len(start) :]) if words[: len(start)] == start else False
    return _read_python(words) if is_python(name) else False


def _read_torchrun(start: list[str], arguments: list[str]) -> UnconnectedProgram | bool:
    """Read torchrun's options: it connects the nodes, unless one of them forbids it."""
    program = split_program(arguments, "torchrun")
    if not (match := _ONE_MACHINE.search(" ".join(program.options))):
        return True
    return UnconnectedProgram(
        " ".join((*start, match[0])), " ".join(program.words[:1]) or "PROGRAM", "torchrun", match[0], "torchrun"
    )


def _read_launcher(name: str, start: list[str], arguments: list[str]) -> UnconnectedProgram | bool:
    end = next((index for index, word in enumerate(arguments) if word.endswith(".py")), len(arguments))
    options, script = arguments[:end], "".join(arguments[end : end + 1])
    launcher = _LAUNCHERS.get(name, "torchrun")
    if match := _ONE_MACHINE.search(" ".join(options)):
        return UnconnectedProgram(" ".join((*start, match[0])), script or "PROGRAM", launcher, match[0], name)
    names = [word.lstrip("-").replace("-", "_") for word in options if word.startswith("-")]
    if any(option.startswith(_MACHINE_OPTIONS[name]) for option in names):
        return True
    return UnconnectedProgram(" ".join(filter(None, (*start, script))), script or "PROGRAM", launcher, starter=name)


def _read_python(words: list[str]) -> UnconnectedProgram | bool:
    """Read a Python command: options, then `-m MODULE` or a script."""
    rest = words[1:]
    while rest and rest[0].startswith("-") and not re.fullmatch(r"-[a-zA-Z]*m", rest[0]):
        if "c" in rest[0] and not rest[0].startswith("--"):
            return False
        rest = rest[2:] if rest[0] in ("-X", "-W") else rest[1:]
    if rest and rest[0].endswith(".py"):
        return UnconnectedProgram(f"{words[0]} {rest[0]}", rest[0], "torchrun")
    is_module = len(rest) > 1 and rest[0].startswith("-")
    return _read_module([words[0], "-m", rest[1]], rest[2:]) if is_module else False


def _read_module(start: list[str], options: list[str]) -> UnconnectedProgram | bool:
    """Read `python -m MODULE`."""
    module = start[-1]
    if launcher := LAUNCHER_MODULES.get(module):
        return _read_launcher(launcher, start, options) if launcher in _MACHINE_OPTIONS else _read_torchrun(start, options)
    if module == "lightning.fabric":
        return _read_launcher("fabric", start, options)
    return False if module in _TOOL_MODULES else UnconnectedProgram(" ".join(start), f"-m {module}", "torchrun")
