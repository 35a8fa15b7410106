"""Find paths in the code of a job that lead to no volume.

On this machine kfjob replaces paths of volumes in arguments and `env`. In the code they need a mount at the path itself, which
not every system allows. On a cluster the code may write where no volume is.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from itertools import chain, islice
from pathlib import Path
from typing import NamedTuple

from kfjob.api.job_script import read_shell_script
from kfjob.api.prepared import PreparedJob
from kfjob.base.errors import Problem
from kfjob.base.parsing import ParseError, read_document
from kfjob.base.shells import find_scripts
from kfjob.base.units import MIB
from kfjob.plan.job_scripts import find_job_script
from kfjob.spec.volumes import Volume

_MAX_FILES = 200
"""Python files beside the script, and in the folders there, that are searched."""
_MAX_BYTES = MIB
"""Size of a file that is searched."""
_OUTPUTS = ("check", "ckpt", "exp", "log", "model", "out", "result", "run", "save", "snapshot", "weight")
"""How a part of a path begins to which a program probably writes."""
_SYSTEM_FOLDERS = ("bin", "dev", "etc", "lib", "lib64", "opt", "proc", "run", "sbin", "sys", "tmp", "usr", "var")
_PATH = re.compile(r"(?<![\w./~}-])/[\w.-]+(?:/[\w.-]+)*")


class _Use(NamedTuple):
    """An absolute path in the code of a job."""

    text: str
    where: str  # in messages
    position: str


def find_volume_paths(prepared: PreparedJob) -> Iterator[Problem]:
    """Yield what a job on this machine can do to it although it has volumes.

    These are volumes whose mount path stands in the code, where it is a path of this machine, which all jobs share, and folders
    of the machine that the job should only read.
    """
    plan, target = prepared.plan, prepared.target
    if not target.capabilities.runs_on_this_machine or not plan.volumes:
        return
    for index, volume in enumerate(prepared.spec.volumes):
        if volume.host_path and volume.read_only:
            yield Problem(
                title=f"`read_only` has no effect on this machine: the job can change `{volume.host_path}`",
                path=f"volumes.{index}.read_only",
                hint="let the permissions of the folder protect it",
                severity="warning",
            )
    pod = target.machine.find_first_pod(plan)
    volumes = [(index, volume) for index, volume in enumerate(prepared.spec.volumes) if volume.mount_path not in pod.mounts]
    variables = (value for _, value in plan.env if isinstance(value, str))
    given = {word.rpartition("=")[2] for word in (*plan.words, *variables)}
    uses = [use for use in _list_uses(prepared, pod.script) if use.text not in given] if volumes else []
    for index, volume in volumes:
        if volume.mount_path != (folder := pod.folders[volume.mount_path]) and (use := _find_use(volume, uses)):
            yield Problem(
                title=f"`{use.text}` in {use.where} is a path of this machine, which all jobs share, and not in volume "
                f"`{volume.name}`",
                path=f"volumes.{index}.mount_path",
                detail=f"{use.position} names it; on this machine the volume is `{folder}`",
                hint="name the path in an argument of the command or in `env`, where kfjob replaces it by that folder: "
                f"`--out {use.text}`",
                severity="warning",
            )


def find_lost_outputs(prepared: PreparedJob, code_folder: Path | None = None) -> Iterator[Problem]:
    """Yield the first path in the script of a job on a cluster to which it probably writes, and where no volume is.

    The script is in `code_folder` or in this folder. A job without any volume has a note of its own.
    """
    script = find_job_script(prepared.plan.words)
    if not script or not prepared.plan.volumes or Path(script).is_absolute():
        return
    writable = [volume for volume in prepared.plan.volumes if not (volume.read_only or volume.config_map or volume.secret)]
    for use in _read_python((code_folder or Path()) / script):
        parts = use.text.split("/")[1:]
        is_output = _PATH.fullmatch(use.text.rstrip("/")) and any(part.lower().startswith(_OUTPUTS) for part in parts)
        if is_output and parts[0] not in _SYSTEM_FOLDERS and not any(_is_in(volume, use) for volume in prepared.plan.volumes):
            yield Problem(
                title=f"`{use.text}` in {use.where} is in no volume: what the job writes there is deleted with its pods",
                path="volumes",
                detail=use.position,
                hint=f"write below `{writable[0].mount_path}`" if writable else "add a volume to write to",
                severity="note",
            )
            return


def _find_use(volume: Volume, uses: list[_Use]) -> _Use | None:
    return next((use for use in uses if _is_in(volume, use)), None)


def _is_in(volume: Volume, use: _Use) -> bool:
    return f"{use.text}/".startswith(f"{volume.mount_path.rstrip('/')}/")


def _list_uses(prepared: PreparedJob, script: Path | None) -> Iterator[_Use]:
    """Yield the absolute paths in the shell texts of the command, in its shell script, and in its Python files."""
    plan = prepared.plan
    for index in sorted(find_scripts(plan.words)):
        yield from (_Use(match[0], "the script of the command", "`command`") for match in _PATH.finditer(plan.words[index]))
    if shell_script := read_shell_script(plan, prepared.target):
        for number, line in enumerate(shell_script.text.splitlines(), 1):
            for match in _PATH.finditer(line.partition("#")[0]):
                yield _Use(match[0], f"`{shell_script.path}`", f"{shell_script.path}:{number}")
    if script:
        others = chain(script.parent.glob("*.py"), script.parent.glob("*/*.py"))
        for file in dict.fromkeys((script, *islice(others, _MAX_FILES))):
            yield from _read_python(file)


def _read_python(file: Path) -> Iterator[_Use]:
    """Yield the texts of a Python file that begin with a slash; none if it cannot be parsed."""
    try:
        nodes = ast.walk(ast.parse(read_document(file, max_bytes=_MAX_BYTES)))
    except (OSError, ParseError, ValueError, SyntaxError, RecursionError, MemoryError):
        return
    for node in nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.startswith("/"):
            yield _Use(node.value, f"`{file.name}`", f"{file}:{node.lineno}")
