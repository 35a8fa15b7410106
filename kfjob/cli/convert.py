"""The commands `import` and `export`: specs from other tools' files, and back."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from kfjob.api.user_files import read_text
from kfjob.base.errors import UsageError
from kfjob.base.printable import encode_json
from kfjob.base.text import join_names
from kfjob.cli.completion import FILE
from kfjob.cli.options import notify, output_option
from kfjob.cli.output import hide_secrets, write_data
from kfjob.cli.spec_options import spec_argument

if TYPE_CHECKING:
    from kfjob.api.job_files import JobFiles
    from kfjob.base.capabilities import TargetName
    from kfjob.convert.conversion import Conversion

_SCHEMA_COMMENT = "# yaml-language-server: $schema=kfjob.schema.json\n"
_OPTIONS_FIRST = {"allow_interspersed_args": False}  # later options may belong to the imported program

_name_option = click.option("--name", metavar="NAME", help="Name of the job. Default: a name derived from the input.")
_to_option = click.option(
    "--to",
    "kind",
    type=click.Choice(["pytorchjob", "trainjob"]),
    help="Kind of the job that the spec describes; what that kind cannot have is left out and listed. Default: that of FILE.",
)
_image_option = click.option("--image", metavar="IMAGE", help="Container image, which the input does not name.")


class ImportGroup(click.Group):
    """A group whose error for the name of a file suggests the command that reads it."""

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command."""
        if args[0] not in self.commands and args[0].endswith((".yaml", ".yml", ".json")):
            raise UsageError(f"`{args[0]}` is not a format", hint=f"`kfjob import pytorchjob {args[0]}` converts a manifest")
        return super().resolve_command(ctx, args)


@click.group("import", cls=ImportGroup)
def import_spec() -> None:
    """Convert another tool's file to a job spec.

    Parts that a spec cannot express are listed on stderr.
    """


@import_spec.command("pytorchjob", short_help="Convert the manifest of a PyTorchJob.")
@click.argument("file", type=FILE)
@click.option("--name", metavar="NAME", help="Name of the PyTorchJob to convert, if the file has several.")
@click.option(
    "--at", metavar="PATH", help="Path of the PyTorchJob inside another object, such as `spec.components.0.template`."
)
@_to_option
@click.option("--verbose", is_flag=True, help="List what kfjob adds to every job, with the reasons.")
@output_option("yaml", "json")
def import_pytorchjob(
    *, file: str, name: str | None, at: str | None, kind: TargetName | None, verbose: bool, output: str
) -> None:
    """Convert the manifest of a PyTorchJob to a job spec.

    FILE is a manifest, or `-` for standard input, for example from `kubectl get pytorchjob JOB -o yaml`. The job may be inside
    another object, such as an AppWrapper, a Katib Experiment or an Argo Workflow.
    """
    from kfjob.api.specs.imports import import_manifest
    from kfjob.api.specs.kind_change import change_kind
    from kfjob.kinds.manifests import JobChoice

    conversion = import_manifest(read_text(file, "manifest"), file=file, choice=JobChoice(name=name, path=at))
    _print(change_kind(conversion, kind) if kind else conversion, output, verbose=verbose)


@import_spec.command("trainjob", short_help="Convert the manifest of a TrainJob.")
@click.argument("file", type=FILE)
@click.option("--name", metavar="NAME", help="Name of the TrainJob to convert, if the file has several.")
@_to_option
@output_option("yaml", "json")
def import_trainjob(*, file: str, name: str | None, kind: TargetName | None, output: str) -> None:
    """Convert the manifest of a TrainJob to a job spec.

    FILE is a manifest, or `-` for standard input. The pods of a TrainJob are those of its runtime: put both into one file, for
    example with `kubectl get trainjob/JOB clustertrainingruntime/RUNTIME -o yaml`.
    """
    from kfjob.api.specs.imports import import_trainjob as convert
    from kfjob.api.specs.kind_change import change_kind

    conversion = convert(read_text(file, "manifest"), file=file, name=name)
    _print(change_kind(conversion, kind) if kind else conversion, output)


@import_spec.command("accelerate", short_help="Convert an Accelerate config.", context_settings=_OPTIONS_FIRST)
@click.argument("file", type=FILE)
@click.argument("program", nargs=-1, type=click.UNPROCESSED)
@_name_option
@_image_option
@output_option("yaml", "json")
def import_accelerate(*, file: str, program: tuple[str, ...], name: str | None, image: str | None, output: str) -> None:
    """Convert an Accelerate config FILE to a job spec that runs PROGRAM.

    Options of kfjob come before FILE; everything after it belongs to the program.
    """
    from kfjob.api.specs.imports import check_conversion
    from kfjob.convert.accelerate import from_accelerate
    from kfjob.source.spec_text import parse_yaml

    config, _ = parse_yaml(read_text(file, "config"), file=file)
    _print(check_conversion(from_accelerate(config, program=program, name=name), image=image), output)


@import_spec.command("torchrun", short_help="Convert a torchrun command line.", context_settings=_OPTIONS_FIRST)
@click.argument("words", nargs=-1, required=True, type=click.UNPROCESSED, metavar="COMMAND...")
@_name_option
@_image_option
@output_option("yaml", "json")
def import_torchrun(*, words: tuple[str, ...], name: str | None, image: str | None, output: str) -> None:
    """Convert a torchrun command line to a job spec.

    COMMAND may be quoted as one word, and may begin with variables (`NCCL_DEBUG=INFO torchrun …`). Options of kfjob come
    before it.
    """
    from kfjob.api.specs.imports import check_conversion
    from kfjob.convert.torchrun import from_torchrun

    _print(check_conversion(from_torchrun(words[0] if len(words) == 1 else words, name=name), image=image), output)


@click.group("export")
def export_spec() -> None:
    """Convert a job spec to another tool's file."""


@export_spec.command("accelerate", short_help="Write an Accelerate config.")
@spec_argument
@output_option("yaml", "json")
def export_accelerate(*, files: JobFiles, output: str) -> None:
    """Convert SPEC to a config for `accelerate launch --config_file`.

    Settings that the config cannot hold are listed on stderr.
    """
    from kfjob.api.specs.exports import export_accelerate as export

    conversion = export(files.read_spec(hide=hide_secrets))
    write_data(_format(conversion.spec, output))
    for note in conversion.notes:
        notify(str(note))


def _print(conversion: Conversion, output: str, *, verbose: bool = False) -> None:
    from kfjob.source.substitute import escape_references

    spec = escape_references(conversion.spec)
    if output == "json":
        notes, additions = (
            [{"what": n.item, "why": n.reason} for n in part] for part in (conversion.notes, conversion.additions)
        )
        write_data(encode_json({"spec": spec, "notes": notes, "additions": additions}, indent=2) + "\n")
        return
    write_data(_SCHEMA_COMMENT + _format(spec, output))
    for note in (*conversion.notes, *(conversion.additions if verbose else ())):
        notify(str(note))
    if conversion.additions and not verbose:
        names = join_names((note.item for note in conversion.additions), limit=len(conversion.additions))
        notify(f"kfjob adds to this job what it adds to every one: {names}; `--verbose` says why")


def _format(data: object, output: str) -> str:
    from kfjob.source.yaml_writer import write_yaml

    return encode_json(data, indent=2) + "\n" if output == "json" else write_yaml([data])
