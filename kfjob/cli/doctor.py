"""The command `doctor`: check this machine and the cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from kfjob.base.errors import UsageError
from kfjob.cli.options import Settings, output_option, target_options
from kfjob.cli.output import print_json

if TYPE_CHECKING:
    from kfjob.api.doctor.findings import Finding

_IN_IMAGE_HELP = "Check the container image that kfjob runs in: torch, CUDA, NCCL, EFA and more."
MARKS = {"ok": ("ok  ", "green"), "warn": ("warn", "yellow"), "fail": ("fail", "red")}


@click.command()
@click.argument("checks", nargs=-1, metavar="[CHECK]...")
@click.option("--in-image", is_flag=True, help=_IN_IMAGE_HELP)
@click.option(
    "--require", multiple=True, metavar="NAME", help="With --in-image: fail if NAME is missing, for example torch. Repeatable."
)
@output_option("text", "json")
@target_options
def doctor(*, checks: tuple[str, ...], in_image: bool, require: tuple[str, ...], output: str, settings: Settings) -> int:
    """Check this machine and the cluster. Show what is missing, and how to fix it.

    With CHECK, run only the named checks. Nothing is changed or created. The exit code is 1 if a check fails.
    """
    if in_image:
        return _check_image(checks, require, output)
    if require:
        raise UsageError("`--require` needs `--in-image`", hint="`kfjob doctor --in-image --require torch`")
    from msgspec.structs import asdict

    from kfjob.api.doctor.examine import examine

    findings = []
    for finding in examine(settings, only=frozenset(checks)):
        findings.append(finding)
        if output == "text":
            click.echo(finding_text(finding))
    if output == "json":
        print_json([asdict(finding) for finding in findings], indent=2)
    return int(any(finding.verdict == "fail" for finding in findings))


def _check_image(checks: tuple[str, ...], require: tuple[str, ...], output: str) -> int:
    from kfjob.image import components

    if checks:
        raise UsageError("`--in-image` takes no CHECK", hint=f"`kfjob doctor --in-image --require {checks[0]}`")
    parts = components.list_components()
    if problem := components.explain_unknown_names(parts, require):
        raise UsageError(problem)
    click.echo(components.format_components(parts, output))
    if fault := components.explain_faults(parts, require):
        click.echo(fault, err=True)
    return int(bool(fault))


def finding_text(finding: Finding) -> str:
    """Return one finding as a line, and its remedy as a second one."""
    mark, colour = MARKS[finding.verdict]
    lines = [f"{click.style(mark, fg=colour)}  {finding.name:<11} {finding.message}"]
    if finding.remedy:
        lines.append(f"      {'':<11} hint: {finding.remedy}")
    return "\n".join(lines)
