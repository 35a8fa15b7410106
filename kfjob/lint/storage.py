"""Rules for volumes and checkpoints: what volumes hide, where a job writes checkpoints and where it resumes."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator
from pathlib import PurePosixPath
from typing import Any

from kfjob.base.text import snake_case
from kfjob.lint.job import Job
from kfjob.lint.rules import Violation, rule
from kfjob.plan.job_scripts import find_program_file
from kfjob.spec.volumes import Volume

_NODE_LOCAL = {"empty_dir": "an `empty_dir`, which is deleted with its pod", "host_path": "a folder of each node"}
_READ_ONLY_KINDS = {"config_map": "a config map", "secret": "a secret"}


HIDES_PROGRAM = "volume-hides-program"
"""The rule about volumes over the program of a job; the check of the image has the same id."""
_SYSTEM_FOLDERS = frozenset(
    ("/", "/bin", "/dev", "/etc", "/lib", "/lib64", "/proc", "/sbin", "/sys", "/usr", "/usr/bin", "/usr/lib"),
)
_USUAL_WORKDIRS = frozenset(("/app", "/code", "/opt/ml/code", "/src", "/usr/src/app", "/workspace"))
"""Working directories of widely used images: `/workspace` is that of PyTorch's, NVIDIA's and kfjob's own."""
_CHECKPOINT_OPTIONS = frozenset(
    (
        *("checkpoint_dir", "checkpoint_folder", "checkpoint_path", "checkpoints", "checkpoints_dir", "ckpt_dir"),
        *("dump_folder", "out_dir", "output", "output_dir", "save_dir", "save_path"),
    )
)
"""Options of training scripts for the folder of their checkpoints."""
_RESUME_OPTIONS = frozenset(
    ("resume", "resume_from", "resume_from_checkpoint", "resume_path", "load_checkpoint", "init_from"),
)
"""Options of training scripts for the checkpoint to resume from."""


def _read_option(job: Job, names: Collection[str]) -> str | None:
    """Return the value of the first option in the command with one of the names: `--out-dir VALUE`, `out_dir=VALUE`."""
    words = job.words if job.spec.words else ()
    for word, following in itertools.zip_longest(words, words[1:], fillvalue=""):
        name, equals, value = word.partition("=")
        value = value if equals else following
        is_option = word.startswith("--") or equals
        if is_option and snake_case(name.lstrip("-")) in names and not value.startswith("-"):
            return value
    return None


def find_checkpoint_folder(job: Job) -> tuple[str, str] | None:
    """Return the checkpoint folder in the pods and the field that sets it; None without a folder or in an object store."""
    if job.spec.train:
        folder, path = job.spec.train.checkpoint_dir, "train.checkpoint_dir"
    else:
        folder, path = _read_option(job, _CHECKPOINT_OPTIONS), job.program_field
    return (folder, path) if folder and not _is_url(folder) else None


def _is_url(folder: str) -> bool:
    """Return whether a folder is in an object store, such as `s3://bucket/checkpoints`, which all nodes share."""
    return "://" in folder


def find_volume(job: Job, folder: str) -> Volume | None:
    """Return the volume that holds the folder: the one with the longest mount path."""
    path = PurePosixPath(job.spec.pod.working_dir or ".") / folder
    volumes = [volume for volume in job.plan.volumes if path.is_relative_to(volume.mount_path)]
    return max(volumes, key=lambda volume: len(volume.mount_path), default=None)


@rule("checkpoint-storage", "warning")
def checkpoint_storage(job: Job) -> Iterator[Violation]:
    """Checkpoints are on storage that all nodes share.

    Every rank writes its part. On node-local storage each node has a part of a checkpoint, no node has a complete one, and a
    replaced pod starts from the beginning. With one node the checkpoints are still deleted with the pod or bound to its node.
    """
    if (checkpoints := find_checkpoint_folder(job)) is None:
        return
    folder, path = checkpoints
    volume = find_volume(job, folder)
    is_anywhere = not (job.spec.pod.working_dir or PurePosixPath(folder).is_absolute())  # below the image's working directory
    if volume is None and is_anywhere and job.plan.volumes:
        return
    if volume is None and overrides_key(job, "volumes"):
        return
    if volume is None:
        location = "in each pod's own file system, which is deleted with the pod"
    elif volume.kind in _NODE_LOCAL and (job.spec.max_nodes > 1 or volume.kind == "empty_dir"):
        location = f"on volume `{volume.name}`, {_NODE_LOCAL[volume.kind]}"
    else:
        return
    hint = "use a volume of kind `fsx` or `efs`, or a `pvc` with access mode ReadWriteMany"
    yield Violation(path=path, message=f"checkpoint folder `{folder}` is {location}", hint=hint)


def overrides_key(job: Job, part: str) -> bool:
    """Return whether the overrides have a key with this part, such as `volumes`, at any depth."""
    values: list[Any] = [job.spec.overrides]
    while values:
        value = values.pop()
        if isinstance(value, dict) and any(part in str(key) for key in value):
            return True
        children = value.values() if isinstance(value, dict) else value
        values += [child for child in children if isinstance(child, dict | list)]
    return False


@rule("checkpoint-read-only", "error")
def checkpoint_read_only(job: Job) -> Iterator[Violation]:
    """The checkpoint folder is writable.

    Otherwise the first checkpoint fails, and the steps until then are lost.
    """
    if (checkpoints := find_checkpoint_folder(job)) is None or (volume := find_volume(job, checkpoints[0])) is None:
        return
    folder, path = checkpoints
    if volume.read_only or volume.kind in _READ_ONLY_KINDS:
        reason = "is mounted read-only" if volume.read_only else f"is {_READ_ONLY_KINDS[volume.kind]}"
        message = f"checkpoint folder `{folder}` is on volume `{volume.name}`, which {reason}"
        yield Violation(path=path, message=message, hint="use a writable volume")


@rule(HIDES_PROGRAM, "error")
def volume_hides_program(job: Job) -> Iterator[Violation]:
    """No volume hides what the job runs.

    A volume hides all that the image has in the folder where it is mounted. No program starts without the folders of the
    system. Over the image's working directory, a volume hides the scripts and the code of `--code` there. `submit` and
    `preflight` read that folder from the registry; the other commands know only the usual ones.
    """
    script = find_program_file(job.plan.words)
    is_in_workdir = script and not PurePosixPath(script).is_absolute() and not job.spec.pod.working_dir
    hint = "mount the volume at another path, for example `/data`"
    for name, folder, path in _list_mounts(job):
        if folder in _SYSTEM_FOLDERS:
            message = f"volume `{name}` at `{folder}` hides the system of the image, and no program can start"
            yield Violation(path=path, message=message, hint=hint)
        elif is_in_workdir and folder in _USUAL_WORKDIRS:
            message = (
                f"volume `{name}` hides `{folder}` of the image; if that is the image's working directory, `{script}` of the "
                "image is hidden too"
            )
            more = f"if the script is on the volume, set `pod: {{working_dir: {folder}}}`"
            yield Violation(path=path, message=message, hint=f"{hint}; {more}", severity="warning")


def _list_mounts(job: Job) -> Iterator[tuple[str, str, str]]:
    """Yield each mounted volume: its name, its folder in the pods, and the field that sets the folder."""
    if not job.is_user_manifest:
        for index, volume in enumerate(job.spec.volumes):
            yield volume.name, volume.mount_path, f"volumes.{index}.mount_path"
        return
    for container in job.training_containers:
        path = job.find_container_path(container, "volumeMounts")
        for index, mount in enumerate(container.get("volumeMounts") or ()):
            yield mount["name"], mount["mountPath"], f"{path}.{index}.mountPath"


@rule("resume-elsewhere", "warning", local=True)
def resume_elsewhere(job: Job) -> Iterator[Violation]:
    """A job resumes from the folder that it writes checkpoints to.

    A restarted or relaunched job resumes from that folder. If it writes to another folder, every restart begins at the same old
    step. Of a program it is known only if the command has an option for each: a script may write where nobody says.
    """
    train = job.spec.train
    if train:
        checkpoints, path = train.checkpoint_dir, "train.resume"
        source = None if train.resume in ("auto", "none") else train.resume
    else:
        checkpoints, source, path = (
            _read_option(job, _CHECKPOINT_OPTIONS),
            _read_option(job, _RESUME_OPTIONS),
            job.program_field,
        )
    if not source or "/" not in source or (checkpoints and PurePosixPath(source).is_relative_to(checkpoints)):
        return
    if not checkpoints and not train:
        return
    message = f"the job resumes from `{source}`, but " + (
        f"writes checkpoints to `{checkpoints}`" if checkpoints else "writes no checkpoints"
    )
    hint = "remove `resume` to resume from the newest complete checkpoint" if train else "use one folder for both options"
    yield Violation(path=path, message=message, hint=hint)
