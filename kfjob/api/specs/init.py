"""A first spec, with a comment on what may be changed in it."""

from __future__ import annotations

import json
import shlex
from dataclasses import dataclass
from pathlib import Path

from kfjob.api.specs.schema import FILE_NAME, schema
from kfjob.errors import AlreadyExists, NotFound
from kfjob.spec.source import LoadedSpec, load_spec


@dataclass(frozen=True, kw_only=True)
class Answers:
    """What `kfjob init` was told. Empty or None: not said."""

    name: str
    image: str = ""
    nodes: int = 1
    instance: str = ""
    gpus: int | None = None
    rendezvous: str = "c10d"
    command: str = ""  # else the trainer
    model: str = "llama-3-8b"
    data: str = "/data/corpus.jsonl"
    claim: str = ""  # a volume that all nodes share


def spec_text(answers: Answers) -> str:
    """The spec as YAML, checked.

    Raises:
        SpecError: what was answered does not make a job; every problem.
    """
    lines = [f"# yaml-language-server: $schema={FILE_NAME}"]
    lines += ["# `kfjob validate` checks this file, `kfjob explain` shows what was decided for you and why.", ""]
    lines += [f"name: {_said(answers.name)}"]
    lines += [f"image: {_said(answers.image)}"] if answers.image else ["# image: REGISTRY/TRAIN:1   # pods need one"]
    lines += [f"nodes: {answers.nodes}   # one pod with one agent each"]
    lines += _machines(answers)
    if answers.rendezvous != "c10d":
        lines += [f"rendezvous: {answers.rendezvous}   # without an `endpoint` the job brings its own etcd"]
    lines += _storage(answers)
    lines += ["restarts: {max: 3}   # how often torchrun restarts the processes before the job has failed", ""]
    lines += _program(answers)
    text = "\n".join(lines) + "\n"
    load_spec(text, file="the new spec")
    return text


def write(file: Path, answers: Answers, *, force: bool = False) -> LoadedSpec:
    """Write the spec, and the schema for editors beside it.

    Raises:
        SpecError: what was answered does not make a job.
        AlreadyExists: the file is there.
        NotFound: the folder is not.
    """
    text = spec_text(answers)
    try:
        with file.open("w" if force else "x", encoding="utf-8") as out:
            out.write(text)
        (file.parent / FILE_NAME).write_text(json.dumps(schema(), indent=2) + "\n", encoding="utf-8")
    except FileExistsError as err:
        raise AlreadyExists(f"`{file}` is there already", hint="`--force` writes over it") from err
    except OSError as err:
        raise NotFound(f"`{file}` cannot be written", cause=str(err)) from err
    return load_spec(text, file=str(file))


def _machines(answers: Answers) -> list[str]:
    if answers.instance:
        return [f"instance: {_said(answers.instance)}   # gives GPUs, EFA, network variables, node selector, tolerations"]
    if answers.gpus:
        return [f"resources: {{gpus: {answers.gpus}}}   # of one pod; add cpu, memory, efa; or say `instance:`"]
    return ["# instance: p4d.24xlarge   # or `resources: {gpus: 8, cpu: 90, memory: 1000Gi}`"]


def _storage(answers: Answers) -> list[str]:
    if answers.claim:
        claim = _said(answers.claim)
        return ["volumes:", f"  - {{name: data, mount_path: /data, pvc: {claim}}}   # shared by all nodes"]
    return ["# volumes:   # checkpoints of several nodes belong on storage that all of them share", *_VOLUME]


_VOLUME = ["#   - {name: data, mount_path: /data, pvc: CLAIM}"]


def _program(answers: Answers) -> list[str]:
    if answers.command:
        words = "[" + ", ".join(_said(word) for word in shlex.split(answers.command)) + "]"
        return [f"command: {words}   # without torchrun's own flags: the job sets them"]
    lines = ["train:   # kfjob's own trainer; `command:` runs yours instead"]
    lines += [f"  model: {_said(answers.model)}", f"  data: {_said(answers.data)}", "  max_steps: 1000"]
    lines += ["  sequence_length: 1024", "  micro_batch_size: 1   # samples in one forward pass of one process"]
    folder = "/data" if answers.claim else "/checkpoints"
    return [*lines, f"  checkpoint_dir: {folder}/{_said(answers.name)}   # a relaunch goes on from the newest one here"]


def _said(word: str) -> str:
    """A word as YAML has it: plain where that is safe."""
    plain = word.replace("-", "").replace(".", "").replace("/", "").replace(":", "").replace("_", "").replace("=", "")
    safe = plain.isalnum() and not plain[:1].isdigit() and word[:1] not in "-:=" and word[-1:] != ":"
    return (
        word if safe and word.lower() not in ("true", "false", "yes", "no", "on", "off", "null", "y", "n") else json.dumps(word)
    )
