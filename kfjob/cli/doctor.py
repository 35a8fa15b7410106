"""doctor: what is missing on this machine and in the cluster, and the command that mends it."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from kfjob.cli.options import Settings, output, where

if TYPE_CHECKING:
    from kfjob.api.doctor.findings import Finding

MARKS = {"ok": ("ok  ", "green"), "warn": ("warn", "yellow"), "fail": ("fail", "red")}


@click.command()
@click.argument("checks", nargs=-1, metavar="[CHECK]...")
@output("text", "json")
@where
def doctor(*, checks: tuple[str, ...], output: str, settings: Settings) -> int:
    """Look at this machine and the cluster, all of it or the named CHECKs; say what is missing and what mends it.

    Exit code 1 if a check fails. Nothing is changed or created.
    """
    from kfjob.api.doctor.examine import examine

    found = []
    for finding in examine(settings, only=frozenset(checks)):
        found.append(finding)
        if output == "text":
            click.echo(finding_text(finding))
    if output == "json":
        click.echo(json.dumps([asdict(finding) for finding in found], indent=2))
    return int(any(finding.verdict == "fail" for finding in found))


def finding_text(finding: Finding) -> str:
    """One line, and under it what to do."""
    mark, colour = MARKS[finding.verdict]
    lines = [f"{click.style(mark, fg=colour)}  {finding.name:<11} {finding.said}"]
    if finding.remedy:
        lines.append(f"      {'':<11} hint: {finding.remedy}")
    return "\n".join(lines)
