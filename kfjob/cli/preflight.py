"""preflight: what stands in the way of a job, before it starts; with --run, tried out on its own nodes."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from kfjob.cli.options import Settings, Source, notify, output, read_spec, spec, strict, where

if TYPE_CHECKING:
    from kfjob.api.preflight.result import Preflight
    from kfjob.api.preflight.run import Outcome
    from kfjob.api.preflight.trial_results import PodSaid
    from kfjob.errors import Problem

RUN_HELP = "Then run the nine collectives on the job's own nodes, in its image: a short job named `<job>-preflight`."


@click.command()
@spec
@click.option("--run", "try_it", is_flag=True, help=RUN_HELP)
@click.option("--timeout", default=600.0, show_default=True, metavar="SECONDS", help="For that job, from submit to result.")
@click.option("--sizes", metavar="BYTES,…", help="Sizes of its arrays, for example 8K,1M,64M; unset: what fits the network.")
@click.option("--seconds", default=0.25, show_default=True, help="For one operation at one size, about.")
@output("text", "json")
@where
@strict
def preflight(
    *, source: Source, try_it: bool, timeout: float, sizes: str | None, seconds: float, output: str, settings: Settings
) -> int:
    """Check all that the job of SPEC needs before it starts; every finding at once. Nothing is created without --run.

    Names, quotas, image, secrets, config maps, claims, accounts, classes, queue, nodes for every pod, and a dry run through the
    operator's webhook. Exit code 1 if something stands in the way.
    """
    from kfjob.api.preflight.examine import examine
    from kfjob.api.preflight.run import run_trial
    from kfjob.api.preflight.trial import Trial

    loaded = read_spec(source)
    checked = examine(loaded, settings=settings, notify=notify)
    if output == "text":
        click.echo("\n".join(_checked_text(checked)))
    outcome: Outcome | None = None
    if try_it and checked.passed:
        trial = Trial(timeout=timeout, sizes=sizes, seconds=seconds)
        outcome = run_trial(loaded, trial, settings=settings, notify=notify)
        if output == "text":
            click.echo("\n".join(["", *_outcome_text(outcome)]))
    elif try_it:
        click.echo("hint: mend this first; the collectives were not run", err=True)
    if output == "json":
        said: dict[str, Any] = checked.describe() | {"run": outcome.describe() if outcome else None}
        click.echo(json.dumps(said, indent=2))
    return int(not checked.passed or (outcome is not None and not outcome.passed))


def _checked_text(checked: Preflight) -> list[str]:
    lines = _problems(checked.problems)
    lines += [f"ok: {line}" for line in checked.good]
    lines += [f"not checked: {line}" for line in checked.unchecked]
    errors = sum(problem.severity == "error" for problem in checked.problems)
    where = f"namespace `{checked.namespace}`" if checked.backend == "kubernetes" else "this machine"
    verdict = f"{errors} thing{'s' if errors > 1 else ''} in the way" if errors else "nothing in the way"
    return [*lines, f"{checked.job} in {where}: {verdict}"]


def _outcome_text(outcome: Outcome) -> list[str]:
    from kfjob.cli.text import table

    lines = _problems(outcome.problems)
    if outcome.pods:
        header = ("POD", "NODE", "RANKS", "DNS", "RENDEZVOUS PORT", "/DEV/SHM", "GPUS")
        lines += [table(header, [_pod(said) for said in outcome.pods]), ""]
    lines += outcome.heard.table
    verdict = "the collectives work" if outcome.passed else "not passed"
    return [*lines, "", f"{outcome.job}: {verdict}{f'; logs in {outcome.logs}' if outcome.logs else ''}"]


def _pod(said: PodSaid) -> tuple[str, ...]:
    from kfjob.observe.master import format_ranks

    resolved = sum(fact["ok"] for fact in said.dns.values())
    port = said.port or {}
    reached = f"{port['what']} {'open' if port['ok'] else 'CLOSED'} after {port['seconds']:.1f} s" if port else "-"
    return (
        said.pod,
        said.node or "-",
        format_ranks(tuple(sorted(rank["rank"] for rank in said.ranks))) or "-",
        f"{resolved} of {len(said.dns)}" if said.dns else "-",
        reached,
        f"{said.shm / 2**20:.0f} MiB" if said.shm is not None else "-",
        "-" if said.gpus is None else str(said.gpus),
    )


def _problems(problems: tuple[Problem, ...]) -> list[str]:
    return [line for problem in problems for line in (*problem.lines(), "")]
