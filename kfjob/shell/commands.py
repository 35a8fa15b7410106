"""Split a command into what its launcher brings itself (its own name, an interpreter), and the program that it starts."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from types import MappingProxyType
from typing import Literal

from msgspec import Struct

from kfjob.base.errors import Problem
from kfjob.base.shells import SHELLS

Launcher = Literal["torchrun", "launch", "deepspeed", "accelerate", "python"]
"""What starts the processes of one node."""
LAUNCHER_COMMANDS: Mapping[Launcher, tuple[str, ...]] = MappingProxyType(
    {"torchrun": ("torchrun",), "deepspeed": ("deepspeed",), "accelerate": ("accelerate", "launch")}
)
LAUNCHER_MODULES: Mapping[str, Launcher] = MappingProxyType(
    {
        "torch.distributed.run": "torchrun",
        "torch.distributed.launch": "launch",
        "accelerate.commands.launch": "accelerate",
        "deepspeed": "deepspeed",
        "deepspeed.launcher.runner": "deepspeed",
    }
)
PYTHON_STARTERS = ("torchrun", "accelerate", "deepspeed")
"""Programs that start the Python of the environment that they are installed in."""
DEEPSPEED_MODULE = "deepspeed.launcher.launch"
"""What `deepspeed` starts on each node."""
CLUSTER_LAUNCHERS = ("srun", "mpirun", "mpiexec", "mpiexec.hydra", "mpirun.mpich", "orterun", "prun", "jsrun", "horovodrun")
"""Programs that start processes on several machines, which they find through Slurm, ssh or a host file."""
CONNECTING = (*CLUSTER_LAUNCHERS, "ray", "torchx")
ONE_NODE_LAUNCHERS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {"accelerate": ("launch",), "deepspeed": (), "fabric": ("run",), "lightning": ("run",)}
)
"""Launchers with their subcommand. They start the processes of one node, unless an option says more."""
OTHER_STARTERS = ("torchrun", *ONE_NODE_LAUNCHERS, *CONNECTING)
"""All launchers: programs that start processes themselves."""
WRAPPERS = ("exec", "time", "nohup", "nice", "env", "stdbuf", "timeout", "numactl", "taskset", "sudo")
"""Programs whose arguments are another command."""
RUNNERS = ("uv", "poetry", "pipenv", "pdm", "pixi", "hatch", "rye", "conda", "mamba", "micromamba")
"""Programs whose subcommand `run` starts another program."""
NOT_PYTHON = (*SHELLS, *WRAPPERS, *RUNNERS)
SCRIPT_STARTERS: Mapping[str, str] = MappingProxyType(
    {".py": "torchrun", **dict.fromkeys((".sh", ".bash", ".slurm", ".sbatch"), "bash")}
)
"""What starts a script on each node, by the suffix of its file."""
NO_PYTHON = ("--no-python", "--no_python")
_PLAIN = ("python", "python3")
LAUNCHER_FIELDS: Mapping[str, Mapping[str, str]] = MappingProxyType(
    {
        "accelerate": {
            "num_machines": "nodes",
            "num_processes": "processes_per_node",
            "machine_rank": "",
            "main_process_ip": "",
            "main_process_port": "rendezvous.port",
            "rdzv_backend": "",
        },
        "deepspeed": {
            "world_info": "",
            "num_nodes": "nodes",
            "num_gpus": "processes_per_node",
            "node_rank": "",
            "master_addr": "",
            "master_port": "rendezvous.port",
            "hostfile": "nodes",
            "H": "nodes",
            "include": "nodes",
            "i": "nodes",
            "exclude": "nodes",
            "e": "nodes",
            "launcher": "",
            "launcher_args": "",
            "no_ssh": "",
            "force_multi": "",
        },
    }
)
"""Options that kfjob sets itself, and their fields in the spec. `deepspeed` passes most of its own on in another form, and
`deepspeed.launcher.launch`, which runs in each pod, does not have them (deepspeed 0.19, launcher/runner.py and launch.py)."""

_SCRIPT_LAUNCHERS = re.compile(r"(?:python[\d.]*|torchrun|accelerate|deepspeed)")
_NO_SCRIPT = frozenset({"-c", "-m", "--module", "--no-python", "--no_python"})


class Program(Struct, frozen=True):
    """A command without the name of its launcher."""

    options: tuple[str, ...]
    """The launcher's options."""
    interpreter: tuple[str, ...]
    """The Python before the program with its options, such as `python -u`; empty if the command names none."""
    words: tuple[str, ...]
    """The program and its arguments: `train.py --lr 1` or `-m pkg`."""


def is_python(word: str) -> bool:
    """Return whether the word is a Python interpreter: `python`, `/usr/bin/python3.12`."""
    return re.fullmatch(r"python[\d.]*", get_basename(word)) is not None


def split_program(command: Sequence[str], launcher: Launcher) -> Program:
    """Return the launcher's options, the interpreter and the program of a command that may name its launcher."""
    words = _drop_launcher(tuple(command), launcher)
    start = _find_interpreter(words)
    if start is None:
        options = _find_options(words)
        return Program(words[:options], (), words[options:])
    length = _count_interpreter_words(words[start:])
    program = words[start + length :]
    module = re.fullmatch(r"-[bBdEhiIOPqsSuvVx]*m(.*)", program[0]) if program else None
    if module:
        program = ("-m", *((module[1],) if module[1] else ()), *program[1:])
    return Program(words[:start], words[start : start + length], program)


def find_command_problems(command: Sequence[str], launcher: Launcher) -> Iterator[Problem]:
    """Yield the parts of a command that the launcher cannot start, or that it would get twice."""
    program = split_program(command, launcher)
    yield from _find_doubled(program, launcher)
    if any(option in NO_PYTHON for option in program.options):
        return
    checks = (_check_program,) if launcher == "python" else (_check_interpreter, _check_program)
    yield from islice((problem for check in checks if (problem := check(program, launcher))), 1)


def starts_workers(command: Sequence[str]) -> bool:
    """Return whether the first process of a command does nothing itself but start the workers, as torchrun's agent does."""
    words = tuple(command)
    is_launcher = any(
        (get_basename(words[0]), *words[1 : len(start)]) == start for start in LAUNCHER_COMMANDS.values() if words
    )
    if is_launcher or not words or not is_python(words[0]):
        return is_launcher
    length = _count_interpreter_words(words)
    module = "".join(words[length + 1 : length + 2]) if words[length : length + 1] == ("-m",) else ""
    return module in LAUNCHER_MODULES or module == DEEPSPEED_MODULE


def _drop_launcher(words: tuple[str, ...], launcher: Launcher) -> tuple[str, ...]:
    start = LAUNCHER_COMMANDS.get(launcher, ())
    if start and words and (get_basename(words[0]), *words[1 : len(start)]) == start:
        return words[len(start) :]
    if words and is_python(words[0]) and _find_launcher_module(words) == launcher:
        return words[_count_interpreter_words(words) + 2 :]
    return words


def _find_launcher_module(words: tuple[str, ...]) -> Launcher | None:
    """Return the launcher of `python -m MODULE`."""
    length = _count_interpreter_words(words)
    is_module = words[length : length + 1] == ("-m",)
    return LAUNCHER_MODULES.get("".join(words[length + 1 : length + 2])) if is_module else None


def find_launcher(command: Sequence[str]) -> Launcher | None:
    """Return the launcher that a command begins with, as a program or as a module of Python; None without one."""
    words = tuple(command)
    for launcher, start in LAUNCHER_COMMANDS.items():
        if words and (get_basename(words[0]), *words[1 : len(start)]) == start:
            return launcher
    return _find_launcher_module(words) if words and is_python(words[0]) else None


def _find_interpreter(words: Sequence[str]) -> int | None:
    """Return the index of the interpreter; None if the program is not behind one."""
    for index, word in enumerate(words[: _find_options(words) + 1]):
        if word in NO_PYTHON:
            return None
        if is_python(word):
            return index
    return None


def _find_options(words: Sequence[str]) -> int:
    """Return the number of words before the program: options, and values of options."""
    for index, word in enumerate(words):
        after_option = index > 0 and words[index - 1].startswith("-") and "=" not in words[index - 1]
        if word in ("-m", "--module") or word.endswith(".py") or is_python(word) or get_basename(word) in NOT_PYTHON:
            return index
        if not word.startswith("-") and (not after_option or words[index - 1] in NO_PYTHON):
            return index
    return len(words)


def _count_interpreter_words(words: Sequence[str]) -> int:
    """Return the number of words of `python -u -X dev`, up to the program."""
    index = 1
    while index < len(words) and words[index].startswith("-") and not re.match(r"-[bBdEhiIOPqsSuvVx]*[mc]", words[index]):
        index += 2 if words[index] in ("-X", "-W", "--check-hash-based-pycs") else 1
    return min(index, len(words))


def _find_doubled(program: Program, launcher: Launcher) -> Iterator[Problem]:
    fields = LAUNCHER_FIELDS.get(launcher, {})
    for word in program.options:
        option = word.partition("=")[0]
        name = option.lstrip("-").replace("-", "_")
        if option.startswith("-") and name in fields:
            title = f"launcher `{launcher}` sets `{option}` itself, and the command sets it too"
            field = f", and set `{fields[name]}`" if fields[name] else ""
            yield Problem(title=title, path="command", hint=f"remove it from the command{field}")


def _check_interpreter(program: Program, launcher: Launcher) -> Problem | None:
    """Return the problem of an interpreter other than the one that the launcher starts."""
    if not program.interpreter:
        return None
    python, *options = program.interpreter
    no_python = f"{get_no_python(launcher)} {' '.join(program.interpreter)}"
    if python not in _PLAIN:
        title = f"launcher `{launcher}` starts its own Python, and the command names `{python}`"
        return Problem(title=title, path="command", hint=f"remove `{python}`, or write `{no_python} …` to keep it")
    if program.words[:1] and re.match(r"-[bBdEhiIOPqsSuvVx]*c", program.words[0]):
        hint = f"write the program as a file, or write `{no_python} -c …`"
        return Problem(title=f"launcher `{launcher}` cannot start `{python} -c`", path="command", hint=hint)
    if not program.words:
        return Problem(title=f"`{python}` has no program", path="command", hint="write for example `train.py` after it")
    if lost := " ".join(option for option in options if option != "-u"):  # the operator sets PYTHONUNBUFFERED
        title = f"launcher `{launcher}` starts Python itself, without `{lost}`"
        return Problem(title=title, path="command", hint=f"remove `{lost}`, or write `{no_python} …` to keep it")
    return None


def _check_program(program: Program, launcher: Launcher) -> Problem | None:
    """Return the problem of a program that is no Python file or module."""
    words = program.words if launcher != "python" else (*program.interpreter, *program.words)
    if words and launcher == "python" and is_python(words[0]):
        words = program.words
        if LAUNCHER_MODULES.get("".join(words[1:2])) is None:
            return None
    if not words:
        return None
    module = LAUNCHER_MODULES.get(words[1]) if words[0] in ("-m", "--module") and len(words) > 1 else None
    starter = get_basename(words[0])
    if module or starter in OTHER_STARTERS:
        other = module or starter
        title = f"the command starts `{other}`, and launcher `{launcher}` starts it again in each process"
        hint = f"set `launcher: {other}`" if other in (*LAUNCHER_COMMANDS, "launch") else "remove `launcher`"
        return Problem(title=title, path="command", hint=f"{hint}, or remove `{other}` from the command")
    if starter in NOT_PYTHON or starter.endswith((".sh", ".bash")):
        once = "remove `launcher` to start it once in each pod"
        each = (
            f"write `{get_no_python(launcher)} {words[0]} …` to start it in each process, or " if launcher != "python" else ""
        )
        return Problem(title=f"launcher `{launcher}` starts `{words[0]}` as a Python file", path="command", hint=each + once)
    return None


def get_no_python(launcher: Launcher) -> str:
    """Return the launcher's option for a program that is no Python file."""
    return NO_PYTHON[0] if launcher in ("torchrun", "launch") else NO_PYTHON[1]


def get_basename(word: str) -> str:
    """Return the name of a program without its folder."""
    return word.rpartition("/")[2]


def suggest_start(file: str) -> str:
    """Return the command line that starts a file as a program on every node: `torchrun train.py`; "" if it is no script."""
    suffix = "." + file.rpartition(".")[2] if "." in file else ""
    return f"{starter} {shlex.quote(file)}" if (starter := SCRIPT_STARTERS.get(suffix)) else ""


def find_script(argv: Sequence[str]) -> str:
    """Return the Python script that a launcher's command line runs; "" without one, or with another program."""
    if not argv or not _SCRIPT_LAUNCHERS.fullmatch(get_basename(argv[0])):
        return ""
    for word in argv[1:]:
        if word in _NO_SCRIPT:
            return ""
        if word.endswith(".py") and not word.startswith("-"):
            return word
    return ""
