"""The files that describe a job: a spec, or manifest templates, with the values that change them."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from kfjob.api.user_files import read_text, record_file
from kfjob.base.errors import Problem, SpecError, UsageError
from kfjob.base.shells import NAME, is_name
from kfjob.base.text import find_similar
from kfjob.redaction import collect_secrets

if TYPE_CHECKING:
    from kfjob.api.prepared import JobSource
    from kfjob.api.settings import Settings
    from kfjob.api.templates.template_files import Template
    from kfjob.api.templates.template_source import TemplateSource
    from kfjob.source.env_file import EnvFile
    from kfjob.source.spec_text import LoadedSpec

_SHORT = 6
"""Characters of a `--var` without a `=` that a message shows, because it may be a secret."""
_SEPARATOR = r"[,\s]+|(?<=[\w}])(?=\$)"
_LISTED_NAME = rf"\$?(?:\{{(?P<braced>{NAME})\}}|(?P<bare>{NAME}))"

BuildImage = Callable[[str | None], str]
"""Builds and pushes an image, and returns its reference; it receives the image that it replaces."""
HideSecrets = Callable[[Iterable[str]], None]
"""Receives the secrets of a spec before anything about it is printed."""


class JobFiles(Struct, frozen=True, kw_only=True):
    """A spec or a template, with the values that change it."""

    spec: str | None
    templates: tuple[str, ...] = ()
    assignments: tuple[str, ...] = ()
    env_files: tuple[str, ...] = ()
    env: bool = False
    variables: tuple[str, ...] = ()
    keep: tuple[str, ...] = ()
    progress: str | None = None
    only: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Check that the source is one of a spec and a template.

        Raises:
            UsageError: both or none were named, or an option does not apply.
        """
        if self.templates and (self.spec or self.assignments):
            option = "SPEC" if self.spec else "`--set`"
            raise UsageError(f"{option} cannot be used with `--template`", hint="set values with `--env-file` and `--var`")
        if not self.templates and (self.keep or self.only):
            option = "--keep" if self.keep else "--only"
            raise UsageError(f"`{option}` needs `--template`", hint="`$${NAME}` is the text itself")
        if not self.templates and not self.spec:
            raise UsageError("SPEC or `--template` is missing", hint="SPEC is a file, or `-` for standard input")
        if self.progress and not self.templates:
            raise UsageError("`--progress` needs `--template`", hint="a spec has the field `progress`")

    @property
    def name(self) -> str:
        """The names of the files in messages."""
        return ", ".join("<stdin>" if file == "-" else file for file in self.templates or (self.spec or "-",))

    @property
    def only_names(self) -> frozenset[str] | None:
        """The only names to replace, each from a list such as `A,B` or `$A ${B}`; None for all.

        Raises:
            UsageError: a list holds something else.
        """
        names: set[str] = set()
        for listed in self.only:
            words = [word for word in re.split(_SEPARATOR, listed) if word]
            matches = [re.fullmatch(_LISTED_NAME, word) for word in words]
            if wrong := next((word for word, match in zip(words, matches, strict=True) if not match), None):
                raise UsageError(f"`--only` takes names, and `{wrong}` is not one", hint="for example `--only IMAGE,NUM_NODES`")
            names |= {match["braced"] or match["bare"] for match in matches if match}
        return frozenset(names) if self.only else None

    def open(
        self,
        settings: Settings,
        *,
        hide: HideSecrets,
        build: BuildImage | None = None,
        is_submitted: bool = True,
    ) -> JobSource:
        """Return the spec or the templates as the source of a job. `build` makes the image that replaces the source's.

        Raises:
            NotFound: the file does not exist or cannot be read.
            SpecError: the spec is not valid; it holds every problem.
            UsageError: the templates have no job.
        """
        if self.templates:
            return self._open_templates(settings, build, is_submitted=is_submitted)
        loaded = self.read_spec(hide=hide)
        if build:
            loaded = replace(loaded, spec=loaded.spec.model_copy(update={"image": build(loaded.spec.image)}))
        from kfjob.api.spec_source import SpecSource  # it imports what the spec has imported: a deeper chain takes longer

        return SpecSource(loaded)

    def _open_templates(self, settings: Settings, build: BuildImage | None, *, is_submitted: bool) -> TemplateSource:
        from kfjob.api.templates.template_source import TemplateSource
        from kfjob.kinds.registry import find_importable, list_user_kinds, select_user_jobs

        templates = TemplateSource(self.read_template(), build, is_submitted)
        if is_submitted and not select_user_jobs(objects := templates.list_objects(settings)):
            command = f"kfjob render {self.format_template_options()} | kubectl apply -f -"
            kinds = ", ".join(dict.fromkeys(item.kind for item in objects))
            title = f"`{self.name}` has no {' or '.join(list_user_kinds())}: {kinds or 'it is empty'}"
            hint = f"`{command}` creates its objects"
            if found := find_importable(objects):
                format_name = found[1].import_format
                has_values = templates.template.values or templates.template.exported
                importing = f"kfjob render {self.format_template_options()} | kfjob import {format_name} -"
                importing = importing if has_values else f"kfjob import {format_name} {self.name}"
                hint += f"; `{importing}` makes a spec of the job"
            raise UsageError(title, hint=hint)
        return templates

    def read_spec(self, *, hide: HideSecrets) -> LoadedSpec:
        """Return the spec.

        Raises:
            NotFound: the file does not exist or cannot be read.
            SpecError: the spec is not valid; it holds every problem of its text and its fields.
        """
        from kfjob.source.spec_text import draft_spec

        text = read_text(str(self.spec or "-"), "spec")
        record = record_file(Path(self.spec), text) if self.spec and self.spec != "-" else ""
        variables = self.read_values().values if self.env or self.env_files or self.variables else {}
        draft = draft_spec(text, file=self.name, assignments=self.assignments, variables=variables)
        hide(collect_secrets(draft.data))
        return replace(draft.finish(), file_record=record)

    def read_values(self) -> EnvFile:
        """Return the values: with `--env` the exported variables, overridden by the env files and then by the single variables.

        Env files can refer to all of them, and to names of earlier env files; the result has the names that they use.

        Raises:
            NotFound: an env file does not exist.
            SpecError: an env file or a variable is not well formed.
        """
        from kfjob.source.env_file import EnvFile, parse_env_file, select_variables

        environment = dict(os.environ) if self.env else {}
        only = self.only_names or ()
        values = select_variables(environment, only)
        variables = {}
        for variable in self.variables:
            name, equals, value = variable.partition("=")
            if not equals or not is_name(name):
                place = f"--var {variable}" if equals or len(variable) <= _SHORT else f"--var {variable[:_SHORT]}…"  # a secret?
                raise SpecError([Problem(title="variable is not in the form `NAME=VALUE`", file=place)])
            variables[name] = value
        used: set[str] = set()
        for file in self.env_files:
            text = read_text(file, "env file", newline="")
            initial = environment | values | variables
            env_file = parse_env_file(text, file=file, initial=initial, fixed=variables, only=only)
            values |= env_file.values
            used |= env_file.used
        return EnvFile(values | variables, frozenset(used))

    def read_template(self) -> Template:
        """Return the templates with their values.

        Raises:
            NotFound: a file does not exist or cannot be read.
            SpecError: a value is not well formed.
            UsageError: `--progress` is not a pattern of progress lines, or no file uses a name of `--var` or `--keep`.
        """
        from kfjob.api.templates.template_files import Template
        from kfjob.joblog.progress.pattern import refuse_pattern

        if self.progress:
            refuse_pattern(self.progress)
        files = tuple(("<stdin>" if file == "-" else file, read_text(file, "template")) for file in self.templates)
        env_file = self.read_values()
        self._check_names((text for _, text in files), env_file.used)
        return Template(
            files=files,
            values=env_file.values,
            exported=self._read_exported(),
            keep=self.keep,
            only=self.only_names,
            progress=self.progress,
        )

    def _read_exported(self) -> dict[str, str]:
        """Return the exported variables that have another value in a pod, such as `HOME` and `RANK`."""
        from kfjob.shell.variables import is_run_time

        return {name: value for name, value in os.environ.items() if is_run_time(name)} if self.env else {}

    def _check_names(self, templates: Iterable[str], used: Collection[str]) -> None:
        """Check that the templates use every name of `--var` and `--keep`, or the env files, which use the names `used`.

        Raises:
            UsageError: they do not use a name, which may be misspelt.
        """
        from kfjob.shell.variables import find_names

        used = {*used, *(name for text in templates for name in find_names(text))}
        named = [("--var", variable.partition("=")[0]) for variable in self.variables]
        for option, name in (*named, *(("--keep", name) for name in self.keep)):
            if name not in used:
                similar = find_similar(name, used)
                hint = f"did you mean `{similar}`?" if similar else None
                raise UsageError(f"`{option} {name}`: nothing uses `${{{name}}}`", hint=hint)

    def explain_backend(self, settings: Settings) -> tuple[str, str]:
        """Return the backend that the source is checked for, and the reason."""
        from kfjob.api.target import explain_backend

        return ("kubernetes", "a template has objects of Kubernetes") if self.templates else explain_backend(settings)

    @property
    def arguments(self) -> str:
        """What names the source on a command line."""
        return self.format_template_options() if self.templates else self.name

    def format_template_options(self) -> str:
        """Return the options of the templates and their values as a command line."""
        options = [
            ("--template", self.templates),
            ("--env-file", self.env_files),
            ("--var", self.variables),
            ("--keep", self.keep),
            ("--only", self.only),
        ]
        words = [word for option, values in options for value in values for word in (option, value)]
        return shlex.join([*words, *(["--env"] if self.env else [])])
