"""Rules for checkpoints: where a job writes them and where it resumes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Any

from kfjob.lint.job import Job
from kfjob.lint.rules import Violation, rule
from kfjob.spec.volumes import Volume

_CHECKPOINT_FLAGS = ("--checkpoint_dir", "--checkpoint-dir", "--output_dir", "--output-dir", "--save_dir", "--save-dir")
_RESUME_FLAGS = ("--resume_from_checkpoint", "--resume-from-checkpoint")
_NODE_LOCAL = {"empty_dir": "an `empty_dir`, which is deleted with its pod", "host_path": "a folder of each node"}
_READ_ONLY_KINDS = {"config_map": "a config map", "secret": "a secret"}


def _read_option(job: Job, options: tuple[str, ...]) -> str | None:
    """Return the value of the first of these options in the command: `--option VALUE` or `--option=VALUE`."""
    words = job.words if job.spec.command else ()
    for index, word in enumerate(words):
        name, equals, value = word.partition("=")
        if name in options:
            return value if equals else next(iter(words[index + 1 : index + 2]), None)
    return None


def _checkpoint_folder(job: Job) -> tuple[str, str] | None:
    """Return the checkpoint folder in the pods and the field that sets it; None without a folder or in an object store."""
    if job.spec.train:
        folder = job.spec.train.checkpoint_dir
        return (folder, "train.checkpoint_dir") if folder and not _is_url(folder) else None
    option = _read_option(job, _CHECKPOINT_FLAGS)
    return (option, "command") if option and option.startswith("/") else None


def _is_url(folder: str) -> bool:
    """Return whether a folder is in an object store, such as `s3://bucket/checkpoints`, which all nodes share."""
    return "://" in folder


def _find_volume(job: Job, folder: str) -> Volume | None:
    """Return the volume that holds the folder: the one with the longest mount path."""
    volumes = [volume for volume in job.plan.volumes if PurePosixPath(folder).is_relative_to(volume.mount_path)]
    return max(volumes, key=lambda volume: len(volume.mount_path), default=None)


@rule("checkpoint-storage", "warning")
def checkpoint_storage(job: Job) -> Iterator[Violation]:
    """Checkpoints are on storage that all nodes share.

    Every rank writes its part. On node-local storage each node has a part of a checkpoint, no node has a complete one, and a
    replaced pod starts from the beginning. With one node the checkpoints are still deleted with the pod or bound to its node.
    """
    if (checkpoints := _checkpoint_folder(job)) is None:
        return
    folder, path = checkpoints
    volume = _find_volume(job, folder)
    if volume is None and any("volumes" in key for key in _override_keys(job)):
        return
    if volume is None:
        location = "in each pod's own file system, which is deleted with the pod"
    elif volume.kind in _NODE_LOCAL and (job.plan.max_nodes > 1 or volume.kind == "empty_dir"):
        location = f"on volume `{volume.name}`, {_NODE_LOCAL[volume.kind]}"
    else:
        return
    hint = "use a volume of kind `fsx` or `efs`, or a `pvc` with access mode ReadWriteMany"
    yield Violation(path=path, message=f"checkpoint folder `{folder}` is {location}", hint=hint)


def _override_keys(job: Job) -> Iterator[str]:
    """Yield the keys of the overrides at any depth."""
    values: list[Any] = [job.spec.overrides]
    while values:
        value = values.pop()
        children = value.values() if isinstance(value, dict) else value
        if isinstance(value, dict):
            yield from map(str, value)
        values += [child for child in children if isinstance(child, dict | list)]


@rule("checkpoint-read-only", "error")
def checkpoint_read_only(job: Job) -> Iterator[Violation]:
    """The checkpoint folder is writable.

    Otherwise the first checkpoint fails, and the steps until then are lost.
    """
    if (checkpoints := _checkpoint_folder(job)) is None or (volume := _find_volume(job, checkpoints[0])) is None:
        return
    folder, path = checkpoints
    if volume.read_only or volume.kind in _READ_ONLY_KINDS:
        reason = "is mounted read-only" if volume.read_only else f"is {_READ_ONLY_KINDS[volume.kind]}"
        message = f"checkpoint folder `{folder}` is on volume `{volume.name}`, which {reason}"
        yield Violation(path=path, message=message, hint="use a writable volume")


@rule("resume-elsewhere", "warning", local=True)
def resume_elsewhere(job: Job) -> Iterator[Violation]:
    """A job resumes from the folder that it writes checkpoints to.

    A restarted or relaunched job resumes from that folder. If it writes to another folder, every restart begins at the same old
    step.
    """
    train = job.spec.train
    if train:
        checkpoints, path = train.checkpoint_dir, "train.resume"
        source = None if train.resume in ("auto", "none") else train.resume
    else:
        checkpoints, source, path = _read_option(job, _CHECKPOINT_FLAGS), _read_option(job, _RESUME_FLAGS), "command"
    if not source or (checkpoints and PurePosixPath(source).is_relative_to(checkpoints)):
        return
    message = f"the job resumes from `{source}`, but " + (
        f"writes checkpoints to `{checkpoints}`" if checkpoints else "writes no checkpoints"
    )
    hint = "remove `resume` to resume from the newest complete checkpoint" if train else "use one folder for both options"
    yield Violation(path=path, message=message, hint=hint)
