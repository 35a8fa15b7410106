"""The argument SPEC, and the options that change a spec or a template."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
from msgspec import Struct
from msgspec.structs import asdict

from kfjob.api.job_files import JobFiles
from kfjob.base.errors import UsageError
from kfjob.cli.completion import FILE
from kfjob.cli.options import collect_options
from kfjob.cli.output import hide_secrets

if TYPE_CHECKING:
    from kfjob.api.lifecycle.spec_change import SpecChange

_SPEC_OPTIONS = (
    click.option(
        "--set", "assignments", multiple=True, metavar="FIELD=VALUE", help="Override a field of the spec. Repeatable."
    ),
    click.option(
        "--env-file", "env_files", multiple=True, metavar="FILE", type=FILE, help="File with values for `${NAME}`. Repeatable."
    ),
    click.option("--env", is_flag=True, help="Use exported variables of the shell for `${NAME}`; --env-file overrides them."),
    click.option(
        "--var", "variables", multiple=True, metavar="NAME=VALUE", help="Value for `${NAME}`; overrides --env-file. Repeatable."
    ),
)
_TEMPLATE_OPTIONS = (
    click.option(
        "--template",
        "templates",
        multiple=True,
        metavar="FILE",
        type=FILE,
        help="Manifest template to use instead of SPEC. Repeatable: the files are one manifest.",
    ),
    click.option("--keep", multiple=True, metavar="NAME", help="Leave `${NAME}` in the template for the pod. Repeatable."),
    click.option("--progress", metavar="PATTERN", help="With --template: regular expression of the job's progress lines."),
    click.option(
        "--only", multiple=True, metavar="NAMES", help="Replace these names only, such as A,B or '$A $B'. Repeatable."
    ),
)


spec_argument = collect_options("files", JobFiles, click.argument("spec", type=FILE), *_SPEC_OPTIONS)
"""The argument SPEC and the options that change it; the command receives them as `files`."""
spec_or_template = collect_options(
    "files", JobFiles, click.argument("spec", required=False, type=FILE), *_TEMPLATE_OPTIONS, *_SPEC_OPTIONS
)
"""An optional SPEC, `--template`, and the options that change either; the command receives them as `files`."""


class ChangeOptions(Struct, frozen=True, kw_only=True):
    """The options that change the spec of a job that is launched again."""

    spec: str | None = None
    assignments: tuple[str, ...] = ()
    env_files: tuple[str, ...] = ()
    env: bool = False
    variables: tuple[str, ...] = ()

    def read(self, start: str = "") -> SpecChange | None:
        """Return the change, with a training that begins at `start`; None without one.

        Raises:
            UsageError: an option needs `--spec`.
            NotFound, SpecError: as `JobFiles.read_spec`.
        """
        from kfjob.api.lifecycle.spec_change import SpecChange

        if self.spec:
            return SpecChange(loaded=JobFiles(**asdict(self)).read_spec(hide=hide_secrets), start=start)
        if self.env_files or self.env or self.variables:
            option = "--env-file" if self.env_files else "--env" if self.env else "--var"
            hint = "the recorded spec has no variables; `--set` changes its fields"
            raise UsageError(f"`{option}` needs `--spec`", hint=hint)
        return SpecChange(assignments=self.assignments, start=start) if self.assignments or start else None


change_options = collect_options(
    "change",
    ChangeOptions,
    click.option("--spec", metavar="FILE", type=FILE, help="Spec to start instead of the recorded one."),
    *_SPEC_OPTIONS,
)
"""`--spec` and the options that change a spec; the command receives them as `change`."""
