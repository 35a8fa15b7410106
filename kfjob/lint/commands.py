"""Rules for the words of a command without `launcher:`: what its launcher or its Python can start, and what it gets as text."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence

from kfjob.base.shells import find_scripts
from kfjob.lint.job import Job
from kfjob.lint.rules import Violation, rule
from kfjob.plan.agent import operator_environment
from kfjob.plan.unconnected_programs import split_commands
from kfjob.redaction import Redactor, cut_text
from kfjob.shell.commands import (
    LAUNCHER_COMMANDS,
    NO_PYTHON,
    NOT_PYTHON,
    OTHER_STARTERS,
    Launcher,
    Program,
    find_launcher,
    get_basename,
    get_no_python,
    is_python,
    split_program,
)
from kfjob.shell.syntax import OPERATORS, hides_failure

_VARIABLE = re.compile(r"(?<![$\\])\$(?:([A-Z_][A-Z0-9_]*)|\{([A-Za-z_][A-Za-z0-9_]*)\})")
_REFERENCE = re.compile(r"(?<!\$)\$\(([A-Za-z_][A-Za-z0-9_]*)\)")
_VALUE = r"[\d.:,]+"
_SHOWN_LENGTH = 60
"""Characters of a command that a message shows."""
_SUBCOMMANDS = ("launch", "config", "env", "test", "estimate-memory", "merge-weights", "tpu-config", "to-fsdp2")
"""Subcommands of `accelerate` (accelerate 1.15, commands/accelerate_cli.py)."""
_INFORMATION = ("-h", "--help", "--version", "-V")


@rule("launcher-program", "error", local=True)
def launcher_program(job: Job) -> Iterator[Violation]:
    """A launcher or a Python in the command starts a Python file or module.

    `torchrun` runs its first argument with its own Python: `torchrun python train.py` looks for a Python file that is named
    `python`, and `torchrun run.sh` reads a shell script as Python. Without a program, a launcher prints its usage and fails.
    """
    if not job.spec.words or job.spec.launcher is not None:
        return
    commands = list(split_commands(job.spec.words))
    for words in commands:
        if mistake := _find_mistake(words, reads_input=len(commands) > 1):
            message, hint = mistake
            yield Violation(path=job.program_field, message=message, hint=hint)
            return


@rule("no-program", "warning")
def no_program(job: Job) -> Iterator[Violation]:
    """A job says what it runs.

    Without `command`, `args` and `train` each pod starts the image's own entry point, which is often a shell that ends at once.
    """
    if not job.spec.words and not job.spec.train and not job.is_user_manifest:
        message = "the pods start the image's own entry point: the job has no `command`, no `args` and no `train`"
        yield Violation(path="image", message=message, hint="set `command`, or `lint: {ignore: [no-program]}` if it is meant")


@rule("replaced-command", "error")
def replaced_command(job: Job) -> Iterator[Violation]:
    """The overrides do not replace `command` or `args` of the spec.

    The pods would run the words of `overrides`, and everything that reads the spec would show and check other ones.
    """
    if job.is_user_manifest:
        return
    for field, own in (("command", job.plan.command), ("args", job.spec.args)):
        for container in job.training_containers:
            words = tuple(container.get(field) or ())
            if own and words != own:
                instead = f"by `{_shorten(words)}`" if words else "by nothing"
                message = f"`overrides` replaces `{field}` of the training container, `{_shorten(own)}`, {instead}"
                yield Violation(path="overrides", message=message, hint=f"set `{field}` of the spec, and remove it there")
                break


def _shorten(words: Sequence[str]) -> str:
    return cut_text(shlex.join(Redactor().value([*words])), _SHOWN_LENGTH)


@rule("shell-variable", "warning", local=True)
def shell_variable(job: Job) -> Iterator[Violation]:
    """Variables in the command are written as `$(NAME)`.

    A command runs without a shell, so `$NAME` reaches the program as text. Kubernetes and the local backend replace `$(NAME)`
    by a variable of `env`. In a spec `${NAME}` stands for a value of `--var` or `--env`, and `$${NAME}` for the text `${NAME}`.
    """
    if match := next((match for word in _list_plain_words(job) for match in _VARIABLE.finditer(word)), None):
        hint = f'write `$({match[1] or match[2]})` for a variable of `env`, or start a shell: `command: ["bash", "-c", …]`'
        if match[2] and not job.is_user_manifest:
            hint = f"write `{match[0]}` with one `$` for a value of `--var` or `--env`; {hint}"
        yield Violation(
            path=job.program_field, message=f"the program gets `{match[0]}` as text: no shell replaces it", hint=hint
        )


@rule("unknown-variable", "warning", local=True)
def unknown_variable(job: Job) -> Iterator[Violation]:
    """A variable that the command names as `$(NAME)` exists.

    Kubernetes and the local backend replace `$(NAME)` by a variable of the pod. Any other name stays as text: no shell runs the
    program of `$(hostname)`.
    """
    if any("envFrom" in container for container in job.training_containers):
        return
    known = {*job.list_variables(), *operator_environment(job.plan, 0), "HOSTNAME"}
    names = dict.fromkeys(match[1] for word in _list_plain_words(job) for match in _REFERENCE.finditer(word))
    for name in names:
        if name not in known and not name.startswith("KUBERNETES_") and "_SERVICE_" not in name:
            hint = f'set `env: {{{name}: …}}`, or start a shell: `command: ["bash", "-c", …]`'
            yield Violation(
                path=job.program_field, message=f"the program gets `$({name})` as text: no variable has this name", hint=hint
            )


@rule("shell-operator", "warning", local=True)
def shell_operator(job: Job) -> Iterator[Violation]:
    """A shell reads `|`, `&&` and `>` in the command.

    A command runs without a shell, so its program gets such a word as an argument.
    """
    words = [word for word in _list_plain_words(job) if word in OPERATORS]
    if words:
        hint = 'start a shell for the command: `command: ["bash", "-c", …]`'
        yield Violation(path=job.program_field, message=f"the program gets `{words[0]}` as text: no shell reads it", hint=hint)


@rule("hidden-failure", "warning", local=True)
def hidden_failure(job: Job) -> Iterator[Violation]:
    """A script does not hide that its program has failed.

    The exit code of a pipe is that of its last program: `python train.py | tee log` succeeds in any case.
    """
    if any(hides_failure(job.spec.words[index]) for index in find_scripts(job.spec.words)):
        message = "the job succeeds if the program before the pipe fails"
        yield Violation(
            path=job.program_field, message=message, hint="begin the script with `set -o pipefail;`, which bash knows"
        )


def _list_plain_words(job: Job) -> list[str]:
    """Return the words that no shell reads."""
    scripts = find_scripts(job.spec.words)
    return [word for index, word in enumerate(job.spec.words) if index not in scripts]


def _find_mistake(words: Sequence[str], *, reads_input: bool) -> tuple[str, str] | None:
    """Return what the launcher or the Python at the beginning of these words cannot start, and how to write it.

    In a script, a Python without a program may read it from a pipe.
    """
    if not words:
        return None
    if launcher := find_launcher(words):
        return _find_launcher_mistake(words, launcher)
    if get_basename(words[0]) == "accelerate" and words[1:2] and words[1] not in (*_SUBCOMMANDS, *_INFORMATION):
        return "`accelerate` has no subcommand", f"write `accelerate launch {words[1]} …`"
    return _find_python_mistake(words, reads_input=reads_input) if is_python(words[0]) else None


def _find_launcher_mistake(words: Sequence[str], launcher: Launcher) -> tuple[str, str] | None:
    program = split_program(words, launcher)
    name = " ".join(LAUNCHER_COMMANDS.get(launcher, ("python", "-m", "torch.distributed.launch")))
    if any(option in (*NO_PYTHON, *_INFORMATION, "--run-path", "--run_path") for option in program.options):
        return None
    if program.interpreter:
        return _explain_interpreter(program, name, launcher)
    if not program.words:
        is_empty = all(word.startswith("-") or re.fullmatch(_VALUE, word) for word in program.options)
        return (f"`{name}` has no program to start", f"write for example `{name} train.py`") if is_empty else None
    return _find_file_mistake(program.words, name, f"{name} {get_no_python(launcher)}")


def _explain_interpreter(program: Program, name: str, launcher: Launcher) -> tuple[str, str]:
    python = " ".join(program.interpreter)
    keep = f"`{name} {get_no_python(launcher)} {python} …`"
    message = f"`{name}` starts Python itself, and reads `{program.interpreter[0]}` as a Python file"
    if not program.words:
        return message, f"write for example `{name} train.py`"
    if re.match(r"-[a-zA-Z]*c", program.words[0]):
        return message, f"write the program as a file, or write {keep}"
    rest = " ".join((*program.options, *program.words[: 2 if program.words[0] == "-m" else 1]))
    return message, f"write `{name} {rest} …`, or {keep} to keep that Python"


def _find_file_mistake(words: Sequence[str], name: str, keep: str) -> tuple[str, str] | None:
    """Return what is wrong with the file or module that `name` starts; `keep` is a command that starts any program, or ""."""
    first, is_module = (words[1], True) if words[0] in ("-m", "--module") and words[1:] else (words[0], False)
    if is_module and first.endswith(".py"):
        module = first.removesuffix(".py").replace("/", ".")
        return f"`-m` takes a module, and `{first}` is a file", f"write `{name} {first}` or `{name} -m {module}`"
    starter = get_basename(first)
    other = find_launcher(("python", "-m", first)) if is_module else None
    if other or (starter in OTHER_STARTERS and not is_module) or (is_module and first == "torchrun"):
        rest = shlex.join(words[2:] if is_module else words)
        hint = f"write `{rest}`" if not is_module and name == "python" else f"remove `{name}` or `{first}`"
        return f"`{name}` starts `{first}`, which is a launcher of its own", hint
    if not is_module and (starter in NOT_PYTHON or is_python(first) or starter.endswith((".sh", ".bash"))):
        as_program = f"write `{keep} {first} …`" if keep else f"remove `{name}`"
        return f"`{name}` starts `{first}` as a Python file", as_program
    return None


def _find_python_mistake(words: Sequence[str], *, reads_input: bool) -> tuple[str, str] | None:
    program = split_program(words, "torchrun")
    if not program.words:
        is_question = reads_input or any(word in _INFORMATION for word in words)
        return None if is_question else (f"`{words[0]}` has no program to start", f"write for example `{words[0]} train.py`")
    return _find_file_mistake(program.words, "python", "")
