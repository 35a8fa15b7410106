"""The command `diagnose`: find the first cause of a failure."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import click
from msgspec import to_builtins

from kfjob.base.errors import NoEvidence
from kfjob.base.text import join_names, plural
from kfjob.base.units import SECOND, check_time
from kfjob.cli.completion import JOB
from kfjob.cli.open_reader import open_reader
from kfjob.cli.options import Settings, from_option, output_option, progress_option, target_options
from kfjob.cli.output import colour_marks, print_json

if TYPE_CHECKING:
    from kfjob.api.diagnose import Examination
    from kfjob.joblog.diagnose.diagnosis import Diagnosis, Issue
    from kfjob.joblog.diagnose.warnings import DistinctWarning

MAX_NAMES = 3
"""Other pods that one line of a diagnosis names."""


@click.command()
@click.argument("job", required=False, type=JOB)
@click.option("--warnings", is_flag=True, help="List the distinct warnings of the job instead.")
@click.option("--rules", is_flag=True, help="List all failures that kfjob knows instead, without a job.")
@from_option
@progress_option
@output_option("text", "json")
@target_options
def diagnose(
    *, job: str | None, warnings: bool, rules: bool, folder: str | None, pattern: str | None, output: str, settings: Settings
) -> None:
    """Find the first cause of a job's failure, and how to fix it.

    It reads all logs, including those of containers before a restart, and separates the first cause from its consequences
    and from harmless messages. The exit code is 1 if the job has failed and the cause is unknown.
    """
    if rules:
        if output == "json":
            print_json(rules_json(), indent=2)
        else:
            click.echo(rules_text())
        return
    from kfjob.api.diagnose import examine
    from kfjob.api.reader import describe_ref, find_source, name_job
    from kfjob.joblog.diagnose.rule import LogSource

    reader = open_reader(job, folder, settings, pattern=pattern)
    examined = examine(reader)
    if output == "json":
        value: Any = (
            warnings_json(examined.warnings) if warnings else describe_ref(reader.ref) | diagnosis_json(examined.diagnosis)
        )
        print_json(value, indent=2)
    elif warnings:
        click.echo(warnings_text(examined))
    else:
        click.echo(colour_marks("\n".join(diagnosis_text(reader.ref.name, examined.diagnosis))))
    is_read_once = find_source(reader) is LogSource.STANDARD_INPUT
    if examined.diagnosis.failed and not examined.diagnosis.explained:
        raise NoEvidence(
            f"the cause of `{reader.ref.name}`'s failure is unknown",
            cause=examined.diagnosis.headline,
            hint=None if is_read_once else f"`kfjob logs {name_job(reader)} --tail 50` shows the end of every log",
        )


def rules_text() -> str:
    """Return the ids and titles of all rules as a table."""
    from kfjob.cli.formatting import format_table

    return format_table(
        ("RULE", "SEVERITY", "FAILURE"), [(rule["id"], rule["severity"], rule["title"]) for rule in rules_json()]
    )


def rules_json() -> list[dict[str, str]]:
    """Return all rules as JSON; the texts have `{name}` in place of values."""
    from kfjob.joblog.diagnose.rules import GROUPS

    fields = ("id", "severity", "role", "title", "cause", "remedy", "pattern")
    rules = ((group.heading, rule) for group in GROUPS for rule in group.rules)
    return [{"family": family} | {name: str(getattr(rule, name)) for name in fields} for family, rule in rules]


def diagnosis_text(name: str, diagnosis: Diagnosis) -> list[str]:
    """Return the diagnosis as lines, the first cause at the top."""
    amount = f"{plural(diagnosis.lines, 'line')} of {plural(diagnosis.pods, 'pod')}"
    lines = [f"{name}: {diagnosis.headline} (read {amount})"]
    lines += [f"pod `{pod}`: {text}" for pod, text in diagnosis.losses] + [""]
    if diagnosis.first_cause:
        lines += first_cause(diagnosis)
    else:
        lines += _verdict(diagnosis)
    for heading, issues in (("other errors:", diagnosis.other_causes), ("warnings:", diagnosis.warnings)):
        if issues:
            lines += ["", heading, *(f"  {line}" for issue in issues for line in issue_text(issue))]
    for heading, issues in (("recovered errors:", diagnosis.recovered), ("harmless messages:", diagnosis.harmless)):
        if issues:
            lines += ["", heading, *(f"  {_summary(issue)}" for issue in issues)]
    return lines


def _verdict(diagnosis: Diagnosis) -> list[str]:
    """Return what is known of a job without an error that explains its end."""
    from kfjob.joblog.diagnose.diagnosis import Verdict

    if diagnosis.silence:
        from kfjob.joblog.view.silence import describe_last_lines, describe_next_step, describe_silence

        lines = [f"no error was found so far; {describe_silence(diagnosis.silence)}", "the last lines:"]
        lines += [f"    {text}" for text in describe_last_lines(diagnosis.silence)]
        return [*lines, f"next: {describe_next_step(diagnosis.silence)}"]
    reports = [f"  pod `{pod}`: {text}" for pod, text in diagnosis.reports]
    if diagnosis.remark:
        lines = [f"no error was found, but {diagnosis.remark}"]
        return lines + (_last_lines(diagnosis) or ["the program has printed nothing"])
    if diagnosis.verdict in {Verdict.SUCCEEDED, Verdict.RUNNING}:
        return ["no problems found"]
    if diagnosis.verdict is Verdict.STOPPED:
        return ["no problems found; the job was stopped before it ended", *reports]
    if diagnosis.verdict is Verdict.REPORTED:
        return ["no known error was found; the log ends with a report of success, and the exit code is unknown", *reports]
    lines = ["no cause found" if diagnosis.failed else "no known error was found, and nothing shows that the job succeeded"]
    return lines + _last_lines(diagnosis)


def _last_lines(diagnosis: Diagnosis) -> list[str]:
    lines = []
    for pod, texts in diagnosis.last_lines:
        lines += [f"the last lines of pod `{pod}`:", *(f"    | {text}" for text in texts)]
    return lines


def first_cause(diagnosis: Diagnosis) -> list[str]:
    """Return the first cause and its consequences as lines."""
    if diagnosis.first_cause is None:
        return []
    lines = issue_text(diagnosis.first_cause)
    pods = {diagnosis.first_cause.pod, *diagnosis.first_cause.pods}
    consequences = [item for item in diagnosis.consequences if item.rule != "pod-failed" or {item.pod, *item.pods} - pods]
    if consequences:
        lines += ["", "consequences:", *(f"  {_summary(issue)}" for issue in consequences)]
    return lines


def issue_text(issue: Issue) -> list[str]:
    """Return one issue in the form of an error message, with the log lines that show it."""
    lines = [f"{issue.severity}: {issue.title} [{issue.rule}]"]
    if location := _location(issue):
        lines.append(f"  --> {location}")
    lines += [f"    | {line}" for line in (*issue.context, *issue.evidence)]
    if issue.cause:
        lines.append(f"  cause: {issue.cause}")
    if issue.remedy:
        lines.append(f"hint: {issue.remedy}")
    return lines


def _location(issue: Issue) -> str:
    parts = [f"pod `{issue.pod}`" if issue.pod else ""]
    parts.append(f"rank {issue.rank}" if issue.rank is not None else "")
    parts.append(f"line {issue.line}{' of the previous container' if issue.previous else ''}" if issue.line else "")
    if issue.time is not None and check_time(issue.time) is not None:
        from kfjob.joblog.lines.timestamps import has_year

        day = "%Y-%m-%d" if has_year(issue.time) else "%m-%d"
        after = "" if issue.is_dated else "after "
        parts.append(time.strftime(f"{after}{day} %H:%M:%SZ", time.gmtime(issue.time / SECOND)))
    location = ", ".join(part for part in parts if part)
    other_pods = [f"`{pod}`" for pod in issue.pods if pod != issue.pod]
    repeated = f"; {issue.count} times" if issue.count > len(issue.pods) > 0 else ""
    others = f"; also in {join_names(other_pods, limit=MAX_NAMES)}" if other_pods else ""
    return f"{location}{others}{repeated}"


def _summary(issue: Issue) -> str:
    location = f" in `{issue.pod}`" if issue.pod else ""
    if len(issue.pods) > 1:
        location = f" in {plural(len(issue.pods), 'pod')}"
    return f"{issue.count:>4} × {issue.title} [{issue.rule}]{location}"


def diagnosis_json(diagnosis: Diagnosis) -> dict[str, Any]:
    """Return the diagnosis as JSON; times are nanoseconds since the epoch, None where the log has no year."""
    summary = {"failed": diagnosis.failed, "succeeded": diagnosis.succeeded, "healthy": diagnosis.healthy}
    return {**_drop_unknown_years(to_builtins(diagnosis)), **summary}


def _drop_unknown_years(value: Any) -> Any:
    """Return the value without the times whose year is unknown."""
    from kfjob.joblog.lines.timestamps import has_year

    if isinstance(value, dict):
        return {
            key: None if key == "time" and item is not None and not has_year(item) else _drop_unknown_years(item)
            for key, item in value.items()
        }
    return [_drop_unknown_years(item) for item in value] if isinstance(value, list | tuple) else value


def warnings_text(examined: Examination) -> str:
    """Return a table of the warnings, the important ones first."""
    from kfjob.cli.formatting import format_table
    from kfjob.joblog.master.evidence import format_ranks

    rows = []
    for warning in examined.warnings:
        ranks = format_ranks(warning.ranks) or "-"
        rule = f"{warning.rule} (harmless)" if warning.harmless else warning.rule or "-"
        rows.append((str(warning.count), str(len(warning.pods)), ranks, rule, warning.text))
    lines = [format_table(("COUNT", "PODS", "RANKS", "RULE", "WARNING"), rows) if rows else "no warnings"]
    if examined.uncounted:
        lines.append(f"and {plural(examined.uncounted, 'line')} of other warnings")
    return "\n".join(lines)


def warnings_json(warnings: Iterable[DistinctWarning]) -> list[dict[str, Any]]:
    """Return the warnings as JSON."""
    return [to_builtins(warning) | {"pods": sorted(warning.pods), "ranks": sorted(warning.ranks)} for warning in warnings]
