"""Find what a job has only on this machine: code, data, programs and folders that its pods on a cluster would not have."""

from __future__ import annotations

import itertools
import re
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Literal

from kfjob.api.prepared import PreparedJob
from kfjob.backends import kubeconfig
from kfjob.base.errors import Problem, Unreachable
from kfjob.base.shells import find_scripts
from kfjob.base.text import find_similar, join_names
from kfjob.kinds.registry import get_job
from kfjob.lint.check import find_role_path, list_roles
from kfjob.lint.job import Job
from kfjob.lint.storage import find_checkpoint_folder, find_volume, overrides_key
from kfjob.plan.job_scripts import find_job_script
from kfjob.plan.unconnected_programs import split_commands
from kfjob.spec.pod import Resources
from kfjob.trainspec.packages import find_packages

_SYSTEM_FOLDERS = tuple(map(Path, ("/bin", "/dev", "/etc", "/lib", "/lib64", "/opt", "/proc", "/run", "/sbin", "/sys", "/usr")))
"""Folders that images have too."""
_VOLUME_OWNERS = {
    None: ("the job has", "it writes is deleted with its pods"),
    "Master": ("the Master has", "it writes is deleted with its pod"),
    "Worker": ("the Workers have", "they write is deleted with their pods"),
}
_WRITTEN = re.compile(r"(?:>|\btee\s+(?:-\S+\s+)?)\s*[\"']?([^\s\"'<>|&;()]+)")
"""A file that a script writes: `cat > train.py`, `echo a >> ~/.bashrc`, `tee -a log.txt`."""
_FETCHES = re.compile(r"\b(?:git\s+clone|wget|curl|unzip|tar|rsync|cp|aws|gsutil|hf|huggingface-cli)\s")
"""A program that may bring other files to the pods."""
_FOLDER_ENDS = ("path", "dir", "directory", "folder", "root")
"""How a part of an option ends whose value is a folder: `--input_wavs_dir`, `--model_name_or_path`."""
_OUTPUT_STARTS = ("out", "save", "log", "cache", "result", "tmp")
"""How a part of an option begins whose folder the program writes."""
_MAX_NAMES = 3
"""Files of this folder that a note names."""


def find_cluster(prepared: PreparedJob) -> Iterator[Problem]:
    """Yield a warning if no kubeconfig names a cluster."""
    with suppress(Unreachable):  # the kubeconfig is damaged: the submit reports it
        if kubeconfig.find_current_context(prepared.target.settings.context) is None:
            title = "no cluster is set up: no kubeconfig names one"
            hint = "set `KUBECONFIG` to the file of a cluster, or `aws eks update-kubeconfig --name CLUSTER` writes one for EKS"
            yield Problem(title=title, hint=f"{hint}; `kfjob doctor` checks it", severity="warning")


def find_cluster_needs(prepared: PreparedJob, code_folder: Path | None = None) -> Iterator[Problem]:
    """Yield what the pods of a job may lack, although this machine has it. The files of `code_folder` come to the pods.

    The job may be complete if it has an image: then what the image can have is only a note.
    """
    yield from _find_for_roles(prepared, lambda job: _find_needs(job, code_folder))


def _find_for_roles(prepared: PreparedJob, find: Callable[[Job], Iterable[Problem]]) -> Iterator[Problem]:
    """Yield what `find` finds in the pods of each role: what is the same for Workers and Master once."""
    known = set()
    for job in list_roles(Job(prepared.spec, prepared.plan, get_job(prepared.compiled))):
        for problem in find(job):
            if problem.title not in known:
                known.add(problem.title)
                is_master = job.plan is prepared.plan.master
                yield replace(problem, path=find_role_path(problem.path, prepared.spec)) if is_master else problem


def _find_needs(job: Job, code_folder: Path | None) -> Iterator[Problem]:
    severity: Literal["note", "warning"] = "note" if job.spec.image else "warning"
    yield from _find_code(job, code_folder)
    yield from _find_programs(job)
    yield from _find_packages(job)
    yield from _find_paths(job)
    yield from _find_host_paths(job)
    if not job.plan.volumes and _may_write_files(job):
        who, what = _VOLUME_OWNERS[job.role]
        title = f"{who} no volume: what {what}"
        hint = "add a volume, for example `volumes: [{name: work, mount_path: /work, pvc: NAME}]`, and write there"
        yield Problem(title=title, path="volumes", hint=hint, severity=severity)
    if job.plan.resources == Resources() and not overrides_key(job, "resources"):
        title = "the pods request no GPU, no CPU and no memory"
        hint = "set `instance`, or for example `resources: {gpus: 1, cpu: 8, memory: 64Gi}`"
        if job.plan.instance:
            hint = f"set for example `resources: {{cpu: 4, memory: 8Gi}}`; {job.plan.instance.name} has no GPU"
        yield Problem(title=title, path="resources", hint=hint, severity=severity)


def _find_packages(job: Job) -> Iterator[Problem]:
    """Yield the optional packages that only the image can have; its registry does not know them."""
    for package in find_packages(job.spec.train) if job.spec.train else ():
        title = f"the image must have the package {package.name}, which is not checked"
        hint = f"kfjob's Dockerfile does not install it: add `RUN pip install {package.name}`" if package.is_extra else None
        yield Problem(title=title, path=f"train.{package.field}", hint=hint, severity="note")


def _may_write_files(job: Job) -> bool:
    """Return whether a job may lose files, and no lint rule knows its checkpoint folder."""
    has_storage = overrides_key(job, "volumes") or any("://" in word for word in job.words)
    return not has_storage and not find_checkpoint_folder(job)


def find_code(prepared: PreparedJob) -> Iterator[Problem]:
    """Yield the files of this folder that the command names, or a note that the script is not among them."""
    yield from _find_for_roles(prepared, _find_code)


def _find_code(job: Job, code_folder: Path | None = None) -> Iterator[Problem]:
    """Yield the script if this folder, or the folder of the code, lacks it; without such a folder, the files that pods need."""
    if job.spec.train or job.spec.pod.working_dir:
        return
    script = find_job_script(job.plan.words)
    if script and not Path(script).is_absolute() and not _exists((code_folder or Path()) / script):
        if "$" not in script and not _makes_file(job, script):
            yield _describe_absent_script(script, code_folder)
    elif code_folder is None:
        yield from _find_named_files(job)


def _describe_absent_script(script: str, code_folder: Path | None) -> Problem:
    if code_folder is None:
        title = f"script `{script}` is not in this folder, so the image must have it in its working directory"
        return Problem(title=title, path="command", severity="note")
    similar = find_similar(script, [path.name for path in code_folder.glob("*.py")])
    hint = f"did you mean `{similar}`?" if similar else None
    title = f"script `{script}` is not in `{code_folder}`, the folder of `--code`, so the image must have it"
    return Problem(title=title, path="command", hint=hint, severity="warning")


def _find_named_files(job: Job) -> Iterator[Problem]:
    """Yield the files and folders of this folder that the command names."""
    checkpoints = find_checkpoint_folder(job)
    pairs = list(itertools.pairwise(("", *job.words)))
    paths = dict.fromkeys(
        path for before, word in pairs for path in (_find_module(before, word), _read_path(before, word)) if path
    )
    names = [f"`{path}`" for path in paths if not checkpoints or path != checkpoints[0]]
    if names:
        verb, pronoun = ("is", "it") if len(names) == 1 else ("are", "them")
        title = f"{join_names(names, limit=_MAX_NAMES)} {verb} in this folder, and the image must have {pronoun}"
        hint = "`kfjob push-image` builds an image with this folder, and `--code .` adds the folder to one"
        yield Problem(title=title, path="command", hint=hint, severity="note" if job.spec.image else "warning")


def _find_module(before: str, word: str) -> str:
    """Return the file or folder of a module that the command starts with `-m`, if it is in this folder."""
    if before not in ("-m", "--module"):
        return ""
    folder = Path(word.replace(".", "/"))
    return next((str(path) for path in (Path(f"{folder}.py"), folder) if _exists(path)), "")


def _read_path(before: str, word: str) -> str:
    """Return the relative path of an existing file or folder in a word: `configs/a.yaml`, `--config=a.yaml`, `unet`."""
    option, _, value = word.rpartition("=")
    is_path = "/" in value or Path(value).suffix or (value not in ("", ".") and _names_folder(option or before))
    return value if is_path and not value.startswith(("-", "/", "~", "..")) and _exists(Path(value)) else ""


def _names_folder(option: str) -> bool:
    """Return whether an option has a name for a folder that the program reads."""
    parts = re.split(r"\W|_", option.lower())
    is_output = any(part.startswith(_OUTPUT_STARTS) for part in parts)
    return option.startswith("-") and not is_output and any(part.endswith(_FOLDER_ENDS) for part in parts)


def _list_shell_texts(job: Job) -> list[str]:
    """Return the scripts in the command that a shell reads."""
    return [job.plan.words[index] for index in sorted(find_scripts(job.plan.words))]


def _find_written(job: Job) -> frozenset[str]:
    """Return the files that the scripts in the command write."""
    return frozenset(match[1] for text in _list_shell_texts(job) for match in _WRITTEN.finditer(text))


def _makes_file(job: Job, path: str) -> bool:
    """Return whether a script in the command writes a file of this name, or may fetch it."""
    is_written = any(Path(other).name == Path(path).name for other in _find_written(job))
    return is_written or any(_FETCHES.search(text) for text in _list_shell_texts(job))


def _find_programs(job: Job) -> Iterator[Problem]:
    for words in split_commands(job.plan.words):
        if words and words[0].startswith("/") and _is_only_here(job, Path(words[0])):
            name = Path(words[0]).name
            title = f"`{words[0]}` is a program of this machine, and pods run those of their image"
            yield Problem(title=title, path="command", hint=f"write `{name}`", severity="warning")


def _find_paths(job: Job) -> Iterator[Problem]:
    """Yield the paths in the command and in `env` that lead out of this folder, and that no volume brings to the pods."""
    checkpoints = find_checkpoint_folder(job)
    programs = {words[0] for words in split_commands(job.plan.words) if words}
    words = [(word, "train" if job.spec.train else "command") for word in job.words if word not in programs]
    variables = [(value, f"env.{name}") for name, value in job.spec.env.items() if isinstance(value, str)]
    written = _find_written(job)
    paths = {word.rpartition("=")[2]: field for word, field in (*variables, *words)}
    for word, field in paths.items():
        is_outside = word.startswith(("/", "~/", "../")) or (job.spec.train and "/" in word)
        if (
            is_outside
            and word not in written
            and not (checkpoints and word == checkpoints[0])
            and _is_only_here(job, Path(word))
        ):
            title = f"`{word}` is on this machine, and no volume brings it to the pods"
            hint = "mount it: `volumes: [{name: data, mount_path: …, pvc: NAME}]`"
            yield Problem(title=title, path=field, hint=hint, severity="warning")


def _find_host_paths(job: Job) -> Iterator[Problem]:
    own = (Path.home(), Path.cwd(), Path(tempfile.gettempdir()))
    for index, volume in enumerate(job.spec.volumes):
        if volume.host_path and any(Path(volume.host_path).is_relative_to(folder) for folder in own):
            title = f"volume `{volume.name}` is `{volume.host_path}` of each node, and not of this machine"
            hint = "use a `pvc`, or copy the files to the nodes"
            yield Problem(title=title, path=f"volumes.{index}", hint=hint, severity="warning")


def _is_only_here(job: Job, path: Path) -> bool:
    """Return whether a path exists on this machine, and is neither in a volume nor where images have files too."""
    full = path.expanduser().absolute()
    is_system = full == Path("/") or any(full.is_relative_to(folder) for folder in _SYSTEM_FOLDERS)
    return not is_system and not find_volume(job, str(path)) and _exists(full)


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError):  # a name that no file can have
        return False
