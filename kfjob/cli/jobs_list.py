"""The command `list`: the jobs of a namespace, with their progress."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import click

from kfjob.backends.folder import list_folders
from kfjob.base.errors import UsageError
from kfjob.base.text import plural
from kfjob.cli.open_reader import check_is_cluster, name_job
from kfjob.cli.options import Settings, notify, output_option, target_options
from kfjob.cli.output import colour_states, find_width, print_json

if TYPE_CHECKING:
    from kfjob.api.overview import JobRow
    from kfjob.api.target import Target
    from kfjob.joblog.events import JobSnapshot
    from kfjob.joblog.view.job_view import JobView


@click.command("list")
@click.option("-A", "--all-namespaces", is_flag=True, help="List the jobs of all namespaces.")
@click.option(
    "-w", "--watch", is_flag=True, help="Refresh the list until Ctrl-C; without a terminal, print it when it changes."
)
@output_option("table", "name", "json")
@target_options
def list_jobs(*, all_namespaces: bool, watch: bool, output: str, settings: Settings) -> None:
    """List the jobs of a namespace with their progress, including jobs that kfjob did not submit.

    STEP and LOSS come from the last lines of the logs, which are read for 3 seconds at most, of the 32 newest jobs. BY is who
    submitted the job, as `kfjob` recorded it. `-o name` prints what kubectl takes: `pytorchjob.kubeflow.org/JOB`.

    `--watch -o json` prints the whole list on one line whenever a job, its state, its step or its loss has changed.
    """
    from kfjob.api.target import find_target

    target = find_target(settings, notify=notify)
    if watch:
        _watch(target, None if all_namespaces else target.namespace, output)
        return
    if output == "name":
        check_is_cluster(target)
    jobs = target.backend.list(namespace=None if all_namespaces else target.namespace)
    if output == "json":
        print_json(_jobs_json(_add_views(target, jobs)), indent=2)
        return
    if not jobs:
        if not all_namespaces:
            target.check_namespace()
        place = "on this machine" if target.capabilities.runs_on_this_machine else "on the cluster"
        where = "any namespace" if all_namespaces else f"namespace `{target.namespace}`"
        notify(f"there are no jobs in {where} {place}")
    for note in _find_other_jobs(target, is_empty=not jobs):
        notify(note)
    if output == "name":
        click.echo("".join(f"{name_job(job)}\n" for job in jobs), nl=False)
    elif jobs:
        click.echo(colour_states(_format_jobs(list(_add_views(target, jobs)), has_namespace=all_namespaces)))


def _watch(target: Target, namespace: str | None, output: str) -> None:
    """Print the list again and again, until Ctrl-C.

    Raises:
        UsageError: the output is only the names of the jobs.
    """
    from kfjob.api.overview import watch_views

    if output == "name":
        raise UsageError("`--watch` and `-o name` cannot be used together", hint="`-o json` prints the names, too")
    lists = watch_views(target, namespace=namespace, notify=notify)
    has_namespace = namespace is None
    if output == "table" and find_width() is not None:
        from kfjob.cli.live_display import show_live

        show_live(colour_states(_format_jobs(jobs, has_namespace=has_namespace)) for jobs in lists)
        return
    last: list[tuple[object, ...]] | None = None
    for jobs in lists:
        if (key := [_identify_change(*row) for row in jobs]) == last:
            continue
        if output == "json":
            print_json(_jobs_json(jobs))
        else:
            click.echo(("" if last is None else "\n") + _format_jobs(jobs, has_namespace=has_namespace))
        sys.stdout.flush()
        last = key


def _identify_change(job: JobSnapshot, view: JobView | None) -> tuple[object, ...]:
    """Return what makes a list differ from the last one: not its durations."""
    from kfjob.joblog.view.progress_text import short_step_text

    training = view.training if view else None
    return job.uid, job.phase, job.submitted_by, training and training.loss, short_step_text(view) if view else ""


def _add_views(target: Target, jobs: Sequence[JobSnapshot]) -> Iterator[JobRow]:
    """Yield each job with its newest progress; None where no log was read."""
    if not jobs:
        return iter(())
    from kfjob.api.overview import read_views

    return zip(jobs, read_views(target, jobs), strict=True)


def _jobs_json(jobs: Iterable[JobRow]) -> list[dict[str, Any]]:
    from kfjob.cli.view_json import job_json

    return [job_json(job, view, has_tail_only=True) for job, view in jobs]


def _format_jobs(jobs: Sequence[JobRow], *, has_namespace: bool) -> str:
    from kfjob.cli.formatting import format_span, format_table
    from kfjob.joblog.progress.training import format_loss
    from kfjob.joblog.view.progress_text import short_step_text

    now, rows = time.time_ns(), []
    for job, view in jobs:
        loss = view.training.loss if view else None
        cells: tuple[str, ...] = (
            job.name,
            str(job.phase),
            (short_step_text(view) if view else "") or "-",
            "-" if loss is None else format_loss(loss),
            format_span(job.started, job.ended, now, is_over=job.phase.ended),
            job.submitted_by or "-",
        )
        rows.append((job.namespace, *cells) if has_namespace else cells)
    header = (*(("NAMESPACE",) if has_namespace else ()), "NAME", "STATE", "STEP", "LOSS", "DURATION", "BY")
    return format_table(header, rows, width=find_width(), flexible=("BY", "NAMESPACE", "NAME"))


def _find_other_jobs(target: Target, *, is_empty: bool) -> Iterator[str]:
    """Yield notes about jobs that the list lacks: the archive's if it is empty, and this machine's if it is a cluster's."""
    archived = list_folders(target.settings.archive_folder / target.namespace) if is_empty else []
    if archived:
        yield (
            f"{plural(len(archived), 'stopped job')} in the archive, such as `{archived[-1].name}`: "
            "`kfjob status JOB` reads it, `kfjob relaunch JOB` starts it again"
        )
    if not target.capabilities.runs_on_this_machine and not target.settings.backend:
        local = list_folders(target.settings.state / "local" / target.namespace)
        if local:
            yield f"{plural(len(local), 'job')} on this machine: `kfjob list --backend local`"
