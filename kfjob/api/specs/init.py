"""Write a first spec, with comments on what to change."""

from __future__ import annotations

import json
import shlex
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Any, Literal

from msgspec import Struct

from kfjob.api.specs.schema import FILE_NAME, build_schema
from kfjob.api.user_files import write_text
from kfjob.base.errors import SpecError
from kfjob.plan.unconnected_programs import find_start_without_agent, find_unconnected
from kfjob.shell.commands import Launcher, find_command_problems
from kfjob.source.spec_text import LoadedSpec, draft_fields, load_spec
from kfjob.source.yaml_writer import is_ambiguous
from kfjob.trainspec.model_shapes import PRESETS
from kfjob.trainspec.train_rules import SYNTHETIC, is_text_file

TRIAL_MODEL = "tiny-llama"
"""The model of a first spec: it trains on a laptop."""
_TRIAL_MODEL_NOTE = "   # small, for a trial; llama-3-8b is another preset"
_TRIAL_DATA = "   # random tokens, for a trial; set a .jsonl, .txt or .parquet file, or a folder"
NO_IMAGE = "# image: REGISTRY/TRAIN:1   # required on a cluster"
NO_VOLUMES = [
    "# volumes:   # jobs with several nodes need shared storage for checkpoints",
    "#   - {name: data, mount_path: /data, pvc: CLAIM}",
]
_RESTARTS = "restarts: {max: 3}   # torchrun restarts the processes at most this often, then the job fails"
_RESTARTS_OF_PODS = "restarts: {policy: OnFailure}   # a pod whose program fails starts again"


class Answers(Struct, frozen=True, kw_only=True):
    """The answers of the user to `kfjob init`. An empty value or None: no answer."""

    name: str
    image: str = ""
    nodes: int = 1
    instance: str = ""
    gpus: int | None = None
    command: str = ""  # empty: the trainer of kfjob
    model: str = TRIAL_MODEL
    data: str = SYNTHETIC
    claim: str = ""  # a volume that all nodes share


def format_spec(answers: Answers) -> str:
    """Return the spec as valid YAML with comments.

    Raises:
        SpecError: the answers do not make a valid job.
    """
    lines = [f"# yaml-language-server: $schema={FILE_NAME}"]
    lines += ["# `kfjob validate` checks this file. `kfjob explain` shows every default and its reason.", ""]
    lines += [f"name: {_format_word(answers.name)}"]
    lines += [f"image: {_format_word(answers.image)}"] if answers.image else [NO_IMAGE]
    lines += [f"nodes: {answers.nodes}   # one pod per node"]
    lines += _resource_lines(answers)
    lines += _volume_lines(answers)
    launcher = _find_launcher(answers)
    has_agent = not find_start_without_agent(launcher or None, shlex.split(answers.command))
    lines += [_RESTARTS if has_agent else _RESTARTS_OF_PODS, ""]
    lines += (
        [f"launcher: {launcher}   # starts the processes of the command, and connects those of all nodes"] if launcher else []
    )
    lines += _command_lines(answers)
    text = "\n".join(lines) + "\n"
    load_spec(text, file="the new spec")
    return text


_FIELDS = {"gpus": ("resources", "gpus"), "claim": ("volumes", 0, "pvc")}
"""The fields of a spec for answers that have another name there."""


def check_answer(option: str, text: str) -> None:
    """Check one answer as the field of a spec that it becomes.

    Raises:
        SpecError: the spec would not be valid.
    """
    path = _FIELDS.get(option, (option,))
    volume = {"name": "data", "mount_path": "/data"}
    spec = {"name": "train", "command": "true", **({"volumes": [volume]} if option == "claim" else {})}
    value = int(text) if text.isdecimal() and option in ("nodes", "gpus") else text
    section: Any = spec
    for part in path[:-1]:
        section = section.setdefault(part, {}) if isinstance(section, dict) else section[part]
    section[path[-1]] = value
    try:
        draft_fields(spec).finish()
    except SpecError as err:
        raise SpecError([replace(problem, path="", line=None, column=None) for problem in err.problems]) from None


def write_spec(file: Path, answers: Answers, *, force: bool = False) -> LoadedSpec:
    """Write the spec, and the JSON Schema for editors beside it.

    Raises:
        SpecError: the answers do not make a valid job.
        AlreadyExists: the file exists.
        NotFound: the folder does not exist, or is not writable.
    """
    text = format_spec(answers)
    write_text(file, text, force=force, hint="`--force` overwrites it")
    write_text(file.parent / FILE_NAME, json.dumps(build_schema(), indent=2) + "\n", force=True)
    return load_spec(text, file=str(file))


def _resource_lines(answers: Answers) -> list[str]:
    if answers.instance:
        instance = _format_word(answers.instance)
        return [f"instance: {instance}   # sets GPUs, EFA, network variables, node selector and tolerations"]
    if answers.gpus:
        return [f"resources: {{gpus: {answers.gpus}}}   # per pod; add cpu, memory and efa, or use `instance:` instead"]
    return ["# instance: p4d.24xlarge   # or `resources: {gpus: 8, cpu: 90, memory: 1000Gi}`"]


def _volume_lines(answers: Answers) -> list[str]:
    if answers.claim:
        claim = _format_word(answers.claim)
        return ["volumes:", f"  - {{name: data, mount_path: /data, pvc: {claim}}}   # all nodes share it"]
    return NO_VOLUMES


def _find_launcher(answers: Answers) -> Launcher | Literal[""]:
    """Return the launcher that connects the nodes where the command does not; "" if it does, or needs another form."""
    command = shlex.split(answers.command)
    unconnected = find_unconnected(command) if command and answers.nodes > 1 else None
    if unconnected is None or any(find_command_problems(command, unconnected.launcher)):
        return ""
    return unconnected.launcher


def _command_lines(answers: Answers) -> list[str]:
    if answers.command:
        words = "[" + ", ".join(_format_word(word) for word in shlex.split(answers.command)) + "]"
        return [f"command: {words}   # without torchrun's options for nodes and rendezvous: kfjob sets them"]
    folder = "/data" if answers.claim else "checkpoints"
    is_trial = answers.model == TRIAL_MODEL
    return [
        "train:   # the trainer of kfjob; for your own program, use `command:` instead",
        f"  model: {_format_word(answers.model)}" + (_TRIAL_MODEL_NOTE if is_trial else ""),
        f"  data: {_format_word(answers.data)}" + (_TRIAL_DATA if answers.data == SYNTHETIC else ""),
        *_tokenizer_lines(answers),
        f"  max_steps: {100 if is_trial else 1000}",
        f"  sequence_length: {128 if is_trial else 1024}",
        "  micro_batch_size: 1   # samples per forward pass of a process",
        f"  checkpoint_dir: {folder}/{_format_word(answers.name)}   # a relaunch resumes from the newest checkpoint",
    ]


def _tokenizer_lines(answers: Answers) -> list[str]:
    """Return the tokenizer of a text file for a model without one: the folder `tokenizer` beside the file."""
    if answers.model not in PRESETS or not is_text_file(answers.data):
        return []
    folder = _format_word(str(PurePosixPath(answers.data).parent / "tokenizer"))
    return [f"  tokenizer: {folder}   # a folder with tokenizer.json"]


def _format_word(word: str) -> str:
    """Return a word as a YAML scalar, quoted where necessary."""
    plain = word.replace("-", "").replace(".", "").replace("/", "").replace(":", "").replace("_", "").replace("=", "")
    is_plain = plain.isalnum() and not plain[:1].isdigit() and word[:1] not in "-:=" and word[-1:] != ":"
    return word if is_plain and not is_ambiguous(word) else json.dumps(word)
