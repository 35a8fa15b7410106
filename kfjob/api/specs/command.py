"""A job from a command line and options, without a spec file: `kfjob run`."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from msgspec import Struct

from kfjob.api.user_files import write_text
from kfjob.base.common_types import JsonObject, Notify
from kfjob.base.errors import UsageError
from kfjob.base.text import plural
from kfjob.redaction import collect_secrets
from kfjob.shell.commands import suggest_start
from kfjob.shell.syntax import find_in_line, show_script

if TYPE_CHECKING:
    from kfjob.api.job_files import HideSecrets
    from kfjob.api.target import Target
    from kfjob.source.spec_text import LoadedSpec

FieldPath = tuple[str | int, ...]
_FIELDS: dict[str, FieldPath] = {
    "image": ("image",),
    "nodes": ("nodes",),
    "processes_per_node": ("processes_per_node",),
    "cpu": ("resources", "cpu"),
    "memory": ("resources", "memory"),
    "gpus": ("resources", "gpus"),
}
"""The field of a spec that each option sets."""
_ORIGINS: dict[FieldPath, str] = {
    ("name",): "--name",
    ("volumes",): "--volume",
    ("env",): "--env",
    ("resources",): "--gpus, --cpu, --memory",
    **{path: f"--{name.replace('_', '-')}" for name, path in _FIELDS.items()},
}
"""The option that sets each field, for messages about a field that no option has set."""
_NAMED = re.compile(r"`([a-z_]+(?:\.[a-z_]+)*)(?:: ([^`\n]+))?`(?: in the spec)?")
"""A field in a message, perhaps with a value: `resources.gpus`, `launcher: torchrun`."""
_FIELD_OF_PLACE = re.compile(r"^(  --> .*) \([\w.-]+\)$", re.MULTILINE)
_NO_FIELDS = ("train", "name", "command", "master", "local", "torchrun")
"""Fields whose names are usual names of jobs, too."""
_SPECS = (".yaml", ".yml", ".json")
_HEADER = """\
# Written by `kfjob run`. `kfjob submit {file} --follow` runs it.
# `kfjob explain {file}` shows every default and its reason.
"""
_EXPANDED = re.compile(r"\$(?=[$(])")
"""What the kubelet replaces in commands and variables: `$(NAME)`, and two dollar signs."""
_WIDTH = 100
"""Columns of a line with a comment."""


class JobCommand(Struct, frozen=True, kw_only=True):
    """A command to run as a job, with the options that say where it runs. None or empty: not given."""

    words: tuple[str, ...]
    name: str | None = None
    image: str | None = None
    nodes: int | None = None
    processes_per_node: str | None = None
    gpus: int | None = None
    cpu: str | None = None
    memory: str | None = None
    env: tuple[str, ...] = ()
    volumes: tuple[str, ...] = ()
    assignments: tuple[str, ...] = ()

    def read(self, target: Target, *, hide: HideSecrets, notify: Notify) -> LoadedSpec:
        """Return the spec of the job for a target. `notify` receives what differs from the command as it is.

        Raises:
            UsageError: the command is a file, or contradicts an option.
            SpecError: every problem of the fields, with the options that set them.
        """
        from kfjob.convert.command_line import from_command
        from kfjob.source.spec_text import draft_fields

        env = dict(text.partition("=")[::2] for text in self.env)
        hide(collect_secrets({"env": env, "command": list(self.words)}))
        if self.words:
            _check_program(self.words)
        conversion = from_command(self.words[0] if len(self.words) == 1 else self.words, name=self.name)
        for note in conversion.notes:
            notify(str(note))
        fields = conversion.spec
        fields |= {name: _escape(fields[name]) for name in ("command", "args", "env") if name in fields}
        origins = dict(_ORIGINS)
        origins |= {(name,): "the command" for name in fields if name != "name"}
        for path, value, origin in self._list_values():
            self._check_set_once(path, origin)
            _set(fields, path, value, origin)
            origins[path] = origin
        assignments = self._add_volumes(fields, origins)
        if self.gpus is None and (count := _choose_gpus(fields, target, notify)):
            fields.setdefault("resources", {})["gpus"] = count
        hide(collect_secrets(fields))
        return draft_fields(fields, assignments=assignments, origins=origins).finish()

    def _list_values(self) -> Iterator[tuple[FieldPath, Any, str]]:
        """Yield each field that an option sets, with its value and the option as it was given."""
        for name, path in _FIELDS.items():
            value = getattr(self, name)
            if value is not None:
                is_number = name == "processes_per_node" and value.isdecimal()
                yield path, int(value) if is_number else value, f"{_ORIGINS[path]} {value}"
        for text in self.env:
            name, equals, value = text.partition("=")
            if not equals or not name:
                hint = f'`--env {name}="${name}"` passes the value of this shell' if name.isidentifier() else None
                raise UsageError(f"`--env {name}` is not NAME=VALUE", hint=hint)
            yield ("env", name), _escape(value), f"--env {name}=…"

    def _check_set_once(self, path: FieldPath, origin: str) -> None:
        """Check that `--set` does not set the field of an option, or a field that has it as a part.

        Raises:
            UsageError: it does.
        """
        from kfjob.validation.field_paths import parse_path

        for text in self.assignments:
            name = text.partition("=")[0]
            if name and parse_path(name) == path[: len(parse_path(name))]:
                hint = f"leave out one of them: `--set {name}=…` replaces all of `{name}`"
                raise UsageError(f"`{origin}` and `--set {name}=…` set the same field", hint=hint)

    def _add_volumes(self, fields: JsonObject, origins: dict[FieldPath, str]) -> list[str]:
        """Set the volumes, those of options after those of `--set volumes=…`; return the other assignments."""
        from kfjob.source.assign import apply_assignments

        volumes = list(self._read_volumes())
        if not volumes:
            return list(self.assignments)
        lists = [text for text in self.assignments if text.startswith("volumes=")]
        assigned, problems = apply_assignments(fields, lists)
        first = fields.get("volumes", [])
        if problems or not isinstance(first, list):
            return list(self.assignments)  # their problems are found with those of all fields
        origins.update(assigned)
        origins.update({("volumes", index): f"--volume {text}" for index, text in enumerate(self.volumes, start=len(first))})
        fields["volumes"] = [*first, *volumes]
        return [text for text in self.assignments if text not in lists]

    def _read_volumes(self) -> Iterator[JsonObject]:
        names: dict[str, str] = {}
        for text in self.volumes:
            source, _, rest = text.partition(":")
            path, _, mode = rest.partition(":")
            if not source or not path.startswith("/") or mode not in ("", "ro", "rw") or source.startswith("."):
                hint = "for example `--volume data:/data` for a claim, or `--volume /mnt/data:/data` for a folder of each node"
                raise UsageError(f"`--volume {text}` is not CLAIM:/PATH or /FOLDER:/PATH, with `:ro` for read-only", hint=hint)
            name = _make_volume_name(source)
            while names.setdefault(name, source) != source:
                name += "-2"
            kind = "host_path" if source.startswith("/") else "pvc"
            yield {"name": name, "mount_path": path, kind: source, **({"read_only": True} if mode == "ro" else {})}


def name_options(text: str, *, job: str = "") -> str:
    """Return a message about a spec in the words of `kfjob run`: its options, and `--set` for fields without one.

    A field that has the name of the job stays as it is, because the message may mean the job.
    """
    from kfjob.spec.job import JobSpec

    def rename(match: re.Match[str]) -> str:
        field, value = match[1], match[2]
        path = tuple(field.split("."))
        if field == job and value is None:
            return match[0]
        if (option := _ORIGINS.get(path)) and not value:
            return " or ".join(f"`{item}`" for item in option.split(", "))
        if option and "," not in option and not value.startswith(("[", "{")):
            return f"`{option} {value}`"
        if path[0] not in JobSpec.model_fields or (path[0] in _NO_FIELDS and not value and len(path) == 1):
            return match[0]
        if value is None:
            return f"`--set {field}=…`"
        return f"`--set {field}={value}`" if value.startswith("'") else f"`--set {shlex.quote(f'{field}={value}')}`"

    return _FIELD_OF_PLACE.sub(r"\1", _NAMED.sub(rename, text)).replace("set `--set ", "add `--set ")


def _escape(value: Any) -> Any:
    """Return words or variables so that the program gets them as they were typed."""
    if isinstance(value, str):
        return _EXPANDED.sub("$$", value)
    if isinstance(value, dict):
        return {name: _escape(item) for name, item in value.items()}
    return [_escape(item) for item in value]


def _check_program(words: tuple[str, ...]) -> None:
    """Check that the first word is a program and not a file for one.

    Raises:
        UsageError: it is a spec, a script, a folder or a whole command.
    """
    first, file = words[0], Path(words[0])
    if len(words) == 1 and first.split()[1:]:
        shell = shlex.join(["bash", "-c", show_script(first, fails_late=True)])
        hint = f"`kfjob run -- {shell}` starts a shell for it" if find_in_line(first) else "write it without quotes"
        raise UsageError("the command is one word with spaces", hint=hint)
    if file.suffix in _SPECS:
        hint = f"`kfjob submit {first} --follow` runs a job spec; `kfjob run -- torchrun train.py` runs a script without one"
        raise UsageError(f"`{first}` is a file, and `kfjob run` takes a command", hint=hint)
    if file.is_dir():
        hint = "name the program and its script: `kfjob run -- torchrun train.py`"
        raise UsageError(f"`{first}` is a folder, and `kfjob run` takes a command", hint=hint)
    if (start := suggest_start(first)) and not ("/" in first and os.access(first, os.X_OK)):
        hint = f"`kfjob run -- {shlex.join([*start.split()[:1], *words])}` starts it on every node"
        raise UsageError(f"`{first}` is a script, and `kfjob run` takes the command that starts it", hint=hint)


def _set(fields: JsonObject, path: FieldPath, value: Any, origin: str) -> None:
    """Set a field.

    Raises:
        UsageError: the command has given it another value.
    """
    section: Any = fields
    for part in path[:-1]:
        section = section.setdefault(part, {})
    live = section.setdefault(path[-1], value)
    if live != value:
        field = ".".join(str(part) for part in path)
        meaning = f"sets `{field}`" if path[0] == "env" else f"means `{field}: {live}`"  # a variable may be a secret
        raise UsageError(f"`{origin}` contradicts the command, which {meaning}", hint="remove one of the two")


def _make_volume_name(source: str) -> str:
    """Return a name for the volume of a claim or a folder: a DNS label."""
    return re.sub(r"[^a-z0-9]+", "-", source.lower()).strip("-")[-50:].strip("-") or "data"


def _choose_gpus(fields: JsonObject, target: Target, notify: Notify) -> int:
    """Return the GPUs of each node where neither the command nor an option sets them: one for each process.

    On this machine it is 0 if there are fewer GPUs than processes.
    """
    given = fields.get("resources", {}).get("gpus")
    count, nodes = fields.get("processes_per_node", 1), fields.get("nodes", 1)
    if given is not None or not isinstance(count, int):
        return 0
    if not target.capabilities.runs_on_this_machine:
        if count == 1:
            return 0
        notify(f"each process gets a GPU: {count} on each node; `--gpus 0` requests none")
        return count
    here = target.machine.count_gpus()
    if here and count * nodes > here:
        notify(f"the job has {count * nodes} processes and this machine {plural(here, 'GPU')}: they use the CPU")
    return count if count * nodes <= here else 0


def format_spec(loaded: LoadedSpec, file: str) -> str:
    """Return a spec as YAML with a comment for each field."""
    from kfjob.api.specs.init import NO_IMAGE, NO_VOLUMES
    from kfjob.source.substitute import escape_references
    from kfjob.source.yaml_writer import write_yaml

    fields = loaded.spec.model_dump(mode="json", exclude_unset=True)
    words = fields.get("command") or ()
    if words and not any("\n" in word for word in words):
        fields["command"] = shlex.join(words)
    text = [_HEADER.format(file=file)]
    for name, value in escape_references(fields).items():
        lines = write_yaml([{name: value}], width=10_000, compact=isinstance(value, dict | list)).splitlines()
        text += [_add_comment(lines[0], name), *lines[1:]]
    text += [] if loaded.spec.image else [NO_IMAGE]
    text += [] if loaded.spec.volumes else NO_VOLUMES
    return "\n".join(text) + "\n"


def _add_comment(line: str, name: str) -> str:
    """Return the first line of a field with the begin of the field's description, if it has room."""
    from kfjob.spec.job import JobSpec

    field = JobSpec.model_fields[name]
    models = (kind for kind in (field.annotation, *get_args(field.annotation)) if hasattr(kind, "model_fields"))
    text = field.description or next((model.__doc__ or "" for model in models), "")
    commented = f"{line}   # {re.split(r'[;:.](?: |$)', text)[0]}"
    return commented if len(commented) <= _WIDTH and not line.endswith("|") else line


def save_spec(file: Path, loaded: LoadedSpec) -> None:
    """Write a spec to a new file.

    Raises:
        AlreadyExists: the file exists.
        NotFound: the folder does not exist, or is not writable.
    """
    write_text(file, format_spec(loaded, str(file)), hint="remove it, or give `--save` another name")
