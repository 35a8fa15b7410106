"""import and export: specs from other tools' files, and the other way."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

import click

from kfjob.cli.options import Source, notify, output, read_spec, read_text, spec

if TYPE_CHECKING:
    from kfjob.convert.conversion import Conversion

_LANGUAGE_SERVER = "# yaml-language-server: $schema=kfjob.schema.json\n"

_OWN_OPTIONS_FIRST = {"allow_interspersed_args": False}  # what stands after the first word may be the program's

_name = click.option("--name", help="Of the job; unset: made of what there is.")
_image = click.option("--image", help="Of the pods, which the original does not name.")


@click.group("import")
def import_spec() -> None:
    """Make a spec of another tool's file; what it cannot say is told on stderr, line by line."""


@import_spec.command("pytorchjob", short_help="The manifest of a PyTorchJob.")
@click.argument("file")
@output("yaml", "json")
def import_pytorchjob(*, file: str, output: str) -> None:
    """Of the manifest of a PyTorchJob: FILE, or - for standard input (`kubectl get pytorchjob JOB -o yaml`)."""
    from kfjob.api.specs.imports import import_pytorchjob as imported

    _print(imported(read_text(file, "manifest"), file=file), output)


@import_spec.command("accelerate", short_help="An Accelerate config.", context_settings=_OWN_OPTIONS_FIRST)
@click.argument("file")
@click.argument("program", nargs=-1, type=click.UNPROCESSED)
@_name
@_image
@output("yaml", "json")
def import_accelerate(*, file: str, program: tuple[str, ...], name: str | None, image: str | None, output: str) -> None:
    """Of an Accelerate config FILE, and the PROGRAM with its arguments that it is for. Our own options come first."""
    from kfjob.api.specs.imports import checked
    from kfjob.convert.accelerate import from_accelerate
    from kfjob.spec.source import parse_yaml

    config, _ = parse_yaml(read_text(file, "config"), file=file)
    _print(checked(from_accelerate(config, program=program, name=name), image=image), output)


@import_spec.command("torchrun", short_help="A torchrun command line.", context_settings=_OWN_OPTIONS_FIRST)
@click.argument("words", nargs=-1, required=True, type=click.UNPROCESSED, metavar="COMMAND...")
@_name
@_image
@output("yaml", "json")
def import_torchrun(*, words: tuple[str, ...], name: str | None, image: str | None, output: str) -> None:
    """Of a torchrun command line, in quotes or not; variables may stand before it. Our own options come first."""
    from kfjob.api.specs.imports import checked
    from kfjob.convert.torchrun import from_torchrun

    _print(checked(from_torchrun(words[0] if len(words) == 1 else words, name=name), image=image), output)


@click.group("export")
def export_spec() -> None:
    """Make another tool's file of a spec."""


@export_spec.command("accelerate", short_help="An Accelerate config.")
@spec
@output("yaml", "json")
def export_accelerate(*, source: Source, output: str) -> None:
    """An Accelerate config, as `accelerate launch --config_file` reads it."""
    from kfjob.api.specs.exports import accelerate

    sys.stdout.write(_text(accelerate(read_spec(source)), output))


def _print(found: Conversion, form: str) -> None:
    if form == "json":
        notes = [{"what": note.what, "why": note.why} for note in found.notes]
        click.echo(json.dumps({"spec": found.spec, "notes": notes}, indent=2))
        return
    sys.stdout.write(_LANGUAGE_SERVER + _text(found.spec, form))
    for note in found.notes:
        notify(str(note))


def _text(data: object, form: str) -> str:
    import yaml

    if form == "json":
        return json.dumps(data, indent=2) + "\n"
    return str(yaml.safe_dump(data, sort_keys=False, width=120, allow_unicode=True))
