"""doctor: what is missing on this machine and in the cluster, and the command that mends it."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from kfjob.cli.options import Settings, output, where
from kfjob.errors import UsageError

if TYPE_CHECKING:
    from kfjob.api.doctor.findings import Finding

IN_IMAGE_HELP = "Run inside an image: say what it has of torch, CUDA, NCCL, EFA, libfabric, aws-ofi-nccl and python-etcd."
MARKS = {"ok": ("ok  ", "green"), "warn": ("warn", "yellow"), "fail": ("fail", "red")}


@click.command()
@click.argument("checks", nargs=-1, metavar="[CHECK]...")
@click.option("--in-image", is_flag=True, help=IN_IMAGE_HELP)
@click.option("--require", multiple=True, metavar="NAME", help="With --in-image: what must be there, for example torch.")
@output("text", "json")
@where
def doctor(*, checks: tuple[str, ...], in_image: bool, require: tuple[str, ...], output: str, settings: Settings) -> int:
    """Look at this machine and the cluster, all of it or the named CHECKs; say what is missing and what mends it.

    Exit code 1 if a check fails. Nothing is changed or created.
    """
    if in_image:
        return _in_image(checks, require, output)
    if require:
        raise UsageError("`--require` is about what an image has", hint="`kfjob doctor --in-image --require torch`")
    from kfjob.api.doctor.examine import examine

    found = []
    for finding in examine(settings, only=frozenset(checks)):
        found.append(finding)
        if output == "text":
            click.echo(finding_text(finding))
    if output == "json":
        click.echo(json.dumps([asdict(finding) for finding in found], indent=2))
    return int(any(finding.verdict == "fail" for finding in found))


def _in_image(checks: tuple[str, ...], require: tuple[str, ...], output: str) -> int:
    from kfjob.image import components

    if checks:
        raise UsageError("`--in-image` has no checks to choose from", hint=f"`--require {checks[0]}` says what must be there")
    parts = components.list_components()
    if unknown := components.explain_unknown_names(parts, require):
        raise UsageError(unknown)
    click.echo(components.format_components(parts, output))
    if lacking := components.explain_faults(parts, require):
        click.echo(lacking, err=True)
    return int(bool(lacking))


def finding_text(finding: Finding) -> str:
    """One line, and under it what to do."""
    mark, colour = MARKS[finding.verdict]
    lines = [f"{click.style(mark, fg=colour)}  {finding.name:<11} {finding.said}"]
    if finding.remedy:
        lines.append(f"      {'':<11} hint: {finding.remedy}")
    return "\n".join(lines)
