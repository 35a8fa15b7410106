"""The commands `list` and `status`."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click
from msgspec import to_builtins

from kfjob.backends.folder import list_folders
from kfjob.base.text import plural
from kfjob.cli.completion import JOB
from kfjob.cli.open_reader import check_has_pods, check_is_cluster, name_job, name_pod, open_reader
from kfjob.cli.options import Settings, from_option, notify, output_option, progress_option, target_options
from kfjob.cli.output import colour_states, print_json

if TYPE_CHECKING:
    from kfjob.api.target import Target


def _find_other_jobs(target: Target, *, is_empty: bool) -> Iterator[str]:
    """Yield notes about jobs that the list lacks: the archive's if it is empty, and this machine's if it is a cluster's."""
    archived = list_folders(target.settings.archive / target.namespace) if is_empty else []
    if archived:
        yield (
            f"{plural(len(archived), 'stopped job')} in the archive, such as `{archived[-1].name}`: "
            "`kfjob status JOB` reads it, `kfjob relaunch JOB` starts it again"
        )
    if not target.capabilities.runs_on_this_machine and not target.settings.backend:
        local = list_folders(target.settings.state / "local" / target.namespace)
        if local:
            yield f"{plural(len(local), 'job')} on this machine: `kfjob list --backend local`"


@click.command("list")
@output_option("table", "name", "json")
@target_options
def list_jobs(*, output: str, settings: Settings) -> None:
    """List the jobs of a namespace, including jobs that kfjob did not submit.

    `-o name` prints what kubectl takes: `pytorchjob.kubeflow.org/JOB`.
    """
    from kfjob.api.target import find_target
    from kfjob.cli.formatting import format_age, format_table

    target = find_target(settings, notify=notify)
    if output == "name":
        check_is_cluster(target)
    jobs = target.backend.list(namespace=target.namespace)
    if output == "json":
        keys = ("name", "namespace", "launch", "uid", "image")
        values = [
            {key: getattr(job, key) for key in keys} | {"phase": job.job.phase, "created": job.job.created} for job in jobs
        ]
        print_json(values, indent=2)
        return
    if not jobs:
        place = "on this machine" if target.capabilities.runs_on_this_machine else "on the cluster"
        notify(f"there are no jobs in namespace `{target.namespace}` {place}")
    for note in _find_other_jobs(target, is_empty=not jobs):
        notify(note)
    if output == "name":
        click.echo("".join(f"{name_job(job)}\n" for job in jobs), nl=False)
        return
    if not jobs:
        return
    now = time.time_ns()
    rows = [(job.name, str(job.job.phase), format_age(job.job.created, now), job.launch or "-") for job in jobs]
    click.echo(colour_states(format_table(("NAME", "STATE", "AGE", "LAUNCH"), rows)))


@click.command()
@click.argument("job", required=False, type=JOB)
@from_option
@progress_option
@output_option("text", "name", "json")
@target_options
def status(*, job: str | None, folder: str | None, pattern: str | None, output: str, settings: Settings) -> None:
    """Show the state of a job: its pods, its training progress, and the pod that prints it.

    `-o name` prints each pod as kubectl takes it: `pod/NAME`.
    """
    from kfjob.api.reader import describe_ref
    from kfjob.api.view import read_view
    from kfjob.cli.view_json import view_json
    from kfjob.cli.view_text import status_text

    reader = open_reader(job, folder, settings, pattern=pattern)
    if output == "name":
        check_has_pods(reader)
        click.echo("".join(f"{name_pod(pod.pod)}\n" for pod in reader.snapshot().pods), nl=False)
        return
    view = read_view(reader, with_events=True)
    diagnosis = None
    if view.phase == "Failed" or view.is_end_unknown or view.remark:
        from kfjob.api.diagnose import examine

        diagnosis = examine(reader).diagnosis
    if output == "json":
        cause = diagnosis.first_cause if diagnosis and diagnosis.explained else None
        answer = describe_ref(reader.ref) | view_json(view) | {"cause": to_builtins(cause)}
        if diagnosis:
            answer["headline"] = diagnosis.headline
        if diagnosis and diagnosis.remark:
            answer["last_lines"] = dict(diagnosis.last_lines)
        print_json(answer, indent=2)
    else:
        text = status_text(view, name=reader.ref.name, now=time.time_ns(), diagnosis=diagnosis)
        click.echo(colour_states(text))
