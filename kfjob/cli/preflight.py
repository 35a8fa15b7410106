"""The command `preflight`: check a job before it starts, and with `--run` try its network."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from kfjob.base.capabilities import CAPABILITIES
from kfjob.base.common_types import ignore_notice
from kfjob.base.text import plural
from kfjob.base.units import MIB
from kfjob.cli.options import Settings, kind_option, notify, output_option, python_option, strict_option, target_options
from kfjob.cli.output import hide_secrets, print_json
from kfjob.cli.parameter_types import DURATION
from kfjob.cli.spec_options import spec_or_template

if TYPE_CHECKING:
    from kfjob.api.job_files import JobFiles
    from kfjob.api.preflight.result import Preflight
    from kfjob.api.preflight.run import TrialResult
    from kfjob.api.preflight.trial_results import PodReport
    from kfjob.base.errors import Problem

_RUN_HELP = (
    "If the checks pass, run a short job, `<job>-preflight`, that tests nine collectives on the job's nodes and in its image."
)


@click.command()
@spec_or_template
@click.option("--run", "should_run", is_flag=True, help=_RUN_HELP)
@click.option(
    "--timeout",
    type=DURATION,
    default=600.0,
    show_default=True,
    metavar="SECONDS",
    help="Limit for that job, from submit to result.",
)
@click.option("--sizes", metavar="BYTES,…", help="Array sizes, for example `8K,1M,64M`. Default: sizes for the job's network.")
@click.option(
    "--seconds",
    type=DURATION,
    default=0.25,
    show_default=True,
    metavar="SECONDS",
    help="Approximate time per collective and size.",
)
@output_option("text", "json")
@target_options
@kind_option
@python_option
@strict_option
def preflight(
    *, files: JobFiles, should_run: bool, timeout: float, sizes: str | None, seconds: float, output: str, settings: Settings
) -> int:
    """Check what a job needs before it starts, and report all problems. Without --run, nothing is created.

    It checks names, quotas, image, secrets, config maps, volume claims, service accounts, priority and runtime classes, the
    queue, and free nodes for every pod. It also sends the objects to the API server as a dry run. The exit code is 1 if the
    job cannot start.
    """
    from kfjob.api.preflight.examine import examine
    from kfjob.api.preflight.run import run_trial
    from kfjob.api.preflight.trial import Trial

    job_source = files.open(settings, hide=hide_secrets)
    job = job_source.prepare(job_source.find_target(settings, notify=ignore_notice), notify=notify)
    result = examine(job)
    if output == "text":
        click.echo("\n".join(_result_text(result)))
    trial_result: TrialResult | None = None
    if should_run and result.passed:
        trial = Trial(timeout=timeout, sizes=sizes, seconds=seconds)
        trial_result = run_trial(job.spec, trial, settings=settings, notify=notify)
        if output == "text":
            click.echo("\n".join(["", *_trial_text(trial_result)]))
    elif should_run:
        click.echo("hint: the collectives did not run; fix the problems first", err=True)
    if output == "json":
        print_json(result.describe() | {"run": trial_result.describe() if trial_result else None}, indent=2)
    return int(not result.passed or (trial_result is not None and not trial_result.passed))


def _result_text(result: Preflight) -> list[str]:
    lines = _problem_lines(result.problems)
    lines += [f"ok: {line}" for line in result.good]
    lines += [f"not checked: {line}" for line in result.unchecked]
    errors = sum(problem.severity == "error" for problem in result.problems)
    has_server = CAPABILITIES[result.backend].has_api_server
    target = f"in namespace `{result.namespace}`" if has_server else "on this machine"
    return [*lines, f"{result.job} {target}: {plural(errors, 'error') if errors else 'no errors'}"]


def _trial_text(result: TrialResult) -> list[str]:
    from kfjob.cli.formatting import format_table

    lines = _problem_lines(result.problems)
    if result.pods:
        header = ("POD", "NODE", "RANKS", "DNS", "RENDEZVOUS PORT", "/DEV/SHM", "GPUS")
        lines += [format_table(header, [_pod_row(pod) for pod in result.pods]), ""]
    lines += result.table
    verdict = "the collectives work" if result.passed else "the collectives failed"
    return [*lines, "", f"{result.job}: {verdict}{f'; logs in {result.archive}' if result.archive else ''}"]


def _pod_row(pod: PodReport) -> tuple[str, ...]:
    from kfjob.joblog.master.evidence import format_ranks

    resolved = sum(fact["ok"] for fact in pod.dns.values())
    port = pod.port or {}
    return (
        pod.pod,
        pod.node or "-",
        format_ranks(rank["rank"] for rank in pod.ranks) or "-",
        f"{resolved} of {len(pod.dns)}" if pod.dns else "-",
        f"{port['what']} {'open' if port['ok'] else 'CLOSED'} after {port['seconds']:.1f} s" if port else "-",
        f"{pod.shm / MIB:.0f} MiB" if pod.shm is not None else "-",
        "-" if pod.gpus is None else str(pod.gpus),
    )


def _problem_lines(problems: tuple[Problem, ...]) -> list[str]:
    return [line for problem in problems for line in (*problem.lines(), "")]
