"""diagnose: what is wrong with a job, and what to do about it."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import click
from msgspec import to_builtins

from kfjob.cli.options import Settings, from_option, output, where
from kfjob.text import plural

if TYPE_CHECKING:
    from kfjob.api.diagnose import Examined
    from kfjob.observe.diagnose.diagnosis import Diagnosis, Issue
    from kfjob.observe.diagnose.warnings import DistinctWarning

SECOND = 1_000_000_000
NAMED = 3  # pods that are named, the others are counted


@click.command()
@click.argument("job", required=False)
@click.option("--warnings", is_flag=True, help="List every distinct warning of the run instead.")
@from_option
@output("text", "json")
@where
def diagnose(*, job: str | None, warnings: bool, folder: str | None, output: str, settings: Settings) -> None:
    """Say what went wrong first, where, and what to do about it.

    All logs are read, also those of the containers before a restart. What followed from the first cause is counted, and noise
    of healthy runs is told from it. Exit code 1 if the job has failed and the cause is not known.
    """
    from kfjob.api.diagnose import examine
    from kfjob.cli.status import open_run
    from kfjob.errors import NoEvidence

    run = open_run(job, folder, settings)
    examined = examine(run)
    if output == "json":
        value: Any = warnings_json(examined.warnings) if warnings else run.describe() | diagnosis_json(examined.diagnosis)
        click.echo(json.dumps(value, indent=2))
    elif warnings:
        click.echo(warnings_text(examined))
    else:
        click.echo("\n".join(diagnosis_text(run.name, examined.diagnosis)))
    if examined.view.phase == "Failed" and examined.diagnosis.first_cause is None:
        raise NoEvidence(
            f"the cause of `{run.name}`'s failure is not known",
            cause=examined.diagnosis.headline,
            hint=f"`kfjob logs {run.name} --tail 50` shows the last words of its pods",
        )


def diagnosis_text(name: str, diagnosis: Diagnosis) -> list[str]:
    """All that is known, the first cause at the top."""
    lines = [f"{name}: {diagnosis.headline} ({diagnosis.lines} lines of {plural(diagnosis.pods, 'pod')} read)", ""]
    if diagnosis.first_cause:
        lines += first_cause(diagnosis)
    else:
        lines.append("nothing wrong was found" if not diagnosis.failed else "no cause was found")
    for heading, findings in (("also wrong:", diagnosis.other_causes), ("warnings:", diagnosis.warnings)):
        if findings:
            lines += ["", heading, *(f"  {line}" for finding in findings for line in finding_text(finding))]
    if diagnosis.recovered:
        lines += ["", "overcome, the job went on after it:", *(f"  {_brief(finding)}" for finding in diagnosis.recovered)]
    if diagnosis.harmless:
        lines += ["", "harmless:", *(f"  {_brief(finding)}" for finding in diagnosis.harmless)]
    return lines


def first_cause(diagnosis: Diagnosis) -> list[str]:
    """The first cause and what followed from it."""
    if diagnosis.first_cause is None:
        return []
    lines = finding_text(diagnosis.first_cause)
    if diagnosis.consequences:
        lines += ["", "what followed from it:", *(f"  {_brief(finding)}" for finding in diagnosis.consequences)]
    return lines


def finding_text(finding: Issue) -> list[str]:
    """One finding as an error message: what, where, the lines that show it, why, and what to do."""
    lines = [f"{finding.severity}: {finding.title} [{finding.rule}]"]
    if place := _place(finding):
        lines.append(f"  --> {place}")
    lines += [f"    | {line}" for line in finding.evidence]
    lines.append(f"  cause: {finding.cause}")
    if finding.remedy:
        lines.append(f"hint: {finding.remedy}")
    if finding.link:
        lines.append(f"      {finding.link}")
    return lines


def _place(finding: Issue) -> str:
    parts = [f"pod `{finding.pod}`" if finding.pod else ""]
    parts.append(f"rank {finding.rank}" if finding.rank is not None else "")
    parts.append(f"line {finding.line}{' of the container before' if finding.previous else ''}" if finding.line else "")
    if finding.time is not None:
        parts.append(time.strftime("%Y-%m-%d %H:%M:%SZ", time.gmtime(finding.time / SECOND)))
    where = ", ".join(part for part in parts if part)
    others = [pod for pod in finding.pods if pod != finding.pod]
    return f"{where}; also in {_names(others)}" if others else where


def _names(pods: list[str]) -> str:
    named = ", ".join(f"`{pod}`" for pod in pods[:NAMED])
    return f"{named} and {plural(len(pods) - NAMED, 'more pod')}" if len(pods) > NAMED else named


def _brief(finding: Issue) -> str:
    where = (
        f" in {plural(len(finding.pods), 'pod')}" if len(finding.pods) > 1 else f" in `{finding.pod}`" if finding.pod else ""
    )
    return f"{finding.count:>4} × {finding.title} [{finding.rule}]{where}"


def diagnosis_json(diagnosis: Diagnosis) -> dict[str, Any]:
    """The whole diagnosis for machines; times in nanoseconds since the epoch."""
    return {**to_builtins(diagnosis), "healthy": diagnosis.healthy}


def warnings_text(examined: Examined) -> str:
    """A table of warnings, those that matter first."""
    from kfjob.cli.text import table
    from kfjob.observe.master import format_ranks

    rows = []
    for one in examined.warnings:
        ranks = format_ranks(tuple(sorted(one.ranks))) or "-"
        known = f"harmless ({one.rule})" if one.harmless else one.rule or "-"
        rows.append((str(one.count), str(len(one.pods)), ranks, known, one.text))
    lines = [table(("COUNT", "PODS", "RANKS", "KNOWN AS", "WARNING"), rows) if rows else "no warnings"]
    if examined.uncounted:
        lines.append(f"and {examined.uncounted} lines of further warnings")
    return "\n".join(lines)


def warnings_json(warnings: Iterable[DistinctWarning]) -> list[dict[str, Any]]:
    """The same for machines."""
    return [to_builtins(one) | {"pods": sorted(one.pods), "ranks": sorted(one.ranks)} for one in warnings]
