"""Rules about checkpoints: where they are written and where a run resumes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Any

from kfjob.lint.job import Job
from kfjob.lint.rules import Violation, rule
from kfjob.spec.volumes import Volume

_CHECKPOINT_FLAGS = ("--checkpoint_dir", "--checkpoint-dir", "--output_dir", "--output-dir", "--save_dir", "--save-dir")
_RESUME_FLAGS = ("--resume_from_checkpoint", "--resume-from-checkpoint")
_NODE_LOCAL = {"empty_dir": "an `empty_dir`, which goes with its pod", "host_path": "a folder of each node"}
_NOT_FILES = {"config_map": "a config map", "secret": "a secret"}


def _option(job: Job, names: tuple[str, ...]) -> str | None:
    """The value of the first of these options in the command, in either form."""
    words = job.words if job.spec.command else ()
    for index, word in enumerate(words):
        name, equals, value = word.partition("=")
        if name in names:
            return value if equals else next(iter(words[index + 1 : index + 2]), None)
    return None


def _folder(job: Job) -> tuple[str, str] | None:
    """Where checkpoints go, and which field says so."""
    if job.spec.train:
        said = job.spec.train.checkpoint_dir
        return (said, "train.checkpoint_dir") if said else None
    said = _option(job, _CHECKPOINT_FLAGS)
    return (said, "command") if said and said.startswith("/") else None


def _volume(job: Job, folder: str) -> Volume | None:
    """The volume that holds the folder: the one mounted nearest to it."""
    above = [volume for volume in job.plan.volumes if PurePosixPath(folder).is_relative_to(volume.mount_path)]
    return max(above, key=lambda volume: len(volume.mount_path), default=None)


@rule("checkpoint-storage", "warning")
def checkpoint_storage(job: Job) -> Iterator[Violation]:
    """Checkpoints on storage that all nodes share.

    Every rank writes its part. On storage of its own each node has a part of a checkpoint, none has a whole one, and a pod that
    is replaced starts from the beginning. With one node the checkpoints still go with the pod or stay on its machine.
    """
    if (found := _folder(job)) is None:
        return
    folder, path = found
    volume = _volume(job, folder)
    if volume is None and any("volumes" in str(part) for part in _overridden(job)):
        return
    many = job.plan.max_nodes > 1
    if volume is None:
        where = "in each pod's own file system, and is gone with it"
    elif volume.kind in _NODE_LOCAL and (many or volume.kind == "empty_dir"):
        where = f"on volume `{volume.name}`, {_NODE_LOCAL[volume.kind]}"
    else:
        return
    hint = "put it on a volume of kind `fsx`, `efs` or a `pvc` that can be mounted on many nodes"
    yield Violation(path=path, message=f"checkpoint folder `{folder}` is {where}", hint=hint)


def _overridden(job: Job) -> Iterator[str]:
    """The keys of the overrides, at any depth."""
    rest: list[Any] = [job.spec.overrides]
    while rest:
        part = rest.pop()
        inner = part.values() if isinstance(part, dict) else part
        yield from part if isinstance(part, dict) else ()
        rest += [value for value in inner if isinstance(value, dict | list)]


@rule("checkpoint-read-only", "error")
def checkpoint_read_only(job: Job) -> Iterator[Violation]:
    """Checkpoints where they can be written.

    The first checkpoint ends the run, after all the time until then.
    """
    if (found := _folder(job)) is None or (volume := _volume(job, found[0])) is None:
        return
    if volume.read_only or volume.kind in _NOT_FILES:
        why = "is mounted read-only" if volume.read_only else f"is {_NOT_FILES[volume.kind]}"
        message = f"checkpoint folder `{found[0]}` is on volume `{volume.name}`, which {why}"
        yield Violation(path=found[1], message=message, hint="use a volume that can be written")


@rule("resume-elsewhere", "warning", local=True)
def resume_elsewhere(job: Job) -> Iterator[Violation]:
    """Resume from the folder that checkpoints are written to.

    A job that is restarted or relaunched reads the folder it is told to resume from. If it writes elsewhere it begins again and
    again at the same old step.
    """
    train = job.spec.train
    if train:
        written, path = train.checkpoint_dir, "train.resume"
        read = None if train.resume in ("auto", "none") else train.resume
    else:
        written, read, path = _option(job, _CHECKPOINT_FLAGS), _option(job, _RESUME_FLAGS), "command"
    if not read or (written and PurePosixPath(read).is_relative_to(written)):
        return
    wrote = f"written to `{written}`" if written else "written nowhere"
    hint = "leave `resume` out: the newest complete checkpoint is taken" if train else "give both options the same folder"
    yield Violation(path=path, message=f"resumes from `{read}`, and checkpoints are {wrote}", hint=hint)
